//! The timing of a cluster, and nodes that were started with other settings.

use std::{collections::BTreeSet, time::Duration};

use artillery_ddata::NodeBuilder;

use crate::support::{TestCluster, random_name, within};

fn leased(seconds: u64) -> impl Fn(NodeBuilder) -> NodeBuilder {
    move |builder| {
        builder.expect(3).configure(|config| {
            config.lease.duration = Duration::from_secs(seconds);
            config.suspect = config.lease.duration / 2;
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_with_different_leases_agree_on_one() {
    let mut cluster = TestCluster { name: random_name(), nodes: Vec::new(), cuts: Vec::new() };
    for seconds in [1, 2, 3] {
        cluster.add(leased(seconds)).await;
    }
    for node in &cluster.nodes {
        within(node.ready()).await.unwrap();
    }
    let joiner = cluster.add(leased(4)).await;
    within(joiner.ready()).await.unwrap();
    let leases: BTreeSet<_> = cluster.nodes.iter().map(|node| node.timing().expect("it has a cluster").lease).collect();
    assert!(leases.len() == 1 && (1..=3).map(Duration::from_secs).any(|lease| leases.contains(&lease)), "{leases:?}");
    let timings = cluster.nodes.iter().map(|node| node.timing());
    assert!(timings.clone().all(|timing| timing == cluster.nodes[0].timing()), "{:?}", timings.collect::<Vec<_>>());
    within(joiner.kv().put("k", "v")).await.unwrap();
    assert_eq!(within(cluster.nodes[0].kv().get("k")).await.unwrap().into_value().unwrap(), "v");
}
