//! Two clusters with the same name and secret, formed while the network was cut, that meet.

use std::{sync::Arc, time::Duration};

use artillery_ddata::{
    Client, ClusterId, Node,
    admin::AdminCommand,
    node::{Stopped, WaitingFor},
};

use crate::support::{Cuts, PATIENCE, SECRET, TestCluster, random_name, until, within};

async fn two_clusters() -> (TestCluster, Cuts) {
    let mut nodes = TestCluster { name: random_name(), nodes: Vec::new(), cuts: Vec::new() };
    nodes.add(|builder| builder.expect(1).name("first")).await;
    let cuts = Cuts::default();
    cuts.only([]);
    let filter = cuts.clone();
    let filter = Arc::new(move |addr| filter.passes(addr));
    nodes.add(|builder| builder.expect(1).name("second").link_filter(filter.clone())).await;
    for node in &nodes.nodes {
        within(node.ready()).await.unwrap();
    }
    assert_ne!(id(&nodes.nodes[0]), id(&nodes.nodes[1]));
    (nodes, cuts)
}

fn id(node: &Node) -> ClusterId {
    node.routing().map(|routing| routing.cluster).expect("the node belongs to a cluster")
}

/// Whether the node isn't ready because of another cluster, and names the command that abandons that one.
async fn reports(node: &Node, cluster: ClusterId) -> bool {
    let command = format!("ctl give-up --accept-loss {cluster}");
    let names = |reason: &WaitingFor| matches!(reason, WaitingFor::AnotherCluster { other, why } if *other == cluster && why.contains(&command));
    !node.may_serve() && node.waiting_for().await.iter().any(names)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_empty_one_of_two_clusters_gives_way() {
    let (cluster, cuts) = two_clusters().await;
    let [first, second] = &cluster.nodes[..] else { unreachable!() };
    within(second.kv().put("key", "value")).await.unwrap();
    cuts.heal();
    assert_eq!(within(first.stopped()).await, Stopped::Superseded);
    assert_eq!(first.lineage(), [id(first)]);
    let value = within(second.kv().get("key")).await.unwrap();
    assert_eq!(value.value().map(|value| value.to_vec()), Some(b"value".to_vec()));
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    until(async || second.may_serve()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_clusters_with_data_none_is_ready_until_one_is_given_up() {
    let (cluster, cuts) = two_clusters().await;
    let [first, second] = &cluster.nodes[..] else { unreachable!() };
    for node in [first, second] {
        within(node.kv().put("key", node.name().to_owned())).await.unwrap();
    }
    cuts.heal();
    until(async || reports(first, id(second)).await && reports(second, id(first)).await).await;
    let client = Client::builder().cluster(&cluster.name).secret(SECRET).seed(first.addr());
    let client = within(client.connect()).await.unwrap();
    let give_up = async |cluster| client.arrange(first.id().node, AdminCommand::GiveUp { cluster }, PATIENCE).await;
    let refused = give_up(id(second)).await.unwrap_err();
    assert!(refused.rejection().is_some(), "a node abandons only its own cluster: {refused:?}");
    assert!(!second.may_serve() && !first.may_serve());
    give_up(id(first)).await.unwrap();
    client.close().await;
    assert_eq!(within(first.stopped()).await, Stopped::Superseded);
    until(async || second.may_serve()).await;
    let value = within(second.kv().get("key")).await.unwrap();
    assert_eq!(value.value().map(|value| value.to_vec()), Some(b"second".to_vec()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_met_no_other_one_is_not_given_up() {
    let cluster = TestCluster::start(1).await;
    let client = cluster.client(Default::default()).await;
    let order = AdminCommand::GiveUp { cluster: id(&cluster.nodes[0]) };
    let refused = client.arrange(cluster.nodes[0].id().node, order, Duration::from_secs(5)).await.unwrap_err();
    assert!(refused.rejection().is_some(), "{refused:?}");
    assert!(cluster.nodes[0].may_serve());
    client.close().await;
}
