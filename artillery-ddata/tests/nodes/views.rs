//! Views on real nodes and clients.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use artillery_ddata::{
    Batch, Kv, Node, Session, View,
    client::Spread,
    view::{ViewChange, ViewState},
};
use bytes::Bytes;
use tokio::task::JoinSet;

use crate::support::{PATIENCE, TestCluster, until, within};

type Reported = Arc<Mutex<Vec<ViewChange>>>;

async fn observed(kv: &Kv, prefix: &str) -> (View, Reported) {
    let reported = Reported::default();
    let record = reported.clone();
    let view = kv.view(prefix).timeout(PATIENCE);
    let view = view.on_change(move |change| record.lock().unwrap().push(change.clone()));
    (within(view).await.unwrap(), reported)
}

/// Checks that each value was reported at most once, and returns the state that follows from the changes.
fn folded(reported: &Reported) -> BTreeMap<Bytes, Bytes> {
    let mut state = BTreeMap::new();
    let mut values = std::collections::BTreeSet::new();
    for ViewChange { key, previous, value, .. } in reported.lock().unwrap().iter().cloned() {
        let former = match value {
            Some(value) => {
                assert!(values.insert((key.clone(), value.value.clone())), "{key:?} = {value:?} was reported twice");
                state.insert(key, value.value)
            }
            None => state.remove(&key),
        };
        assert_eq!(former, previous.map(|previous| previous.value));
    }
    state
}

async fn watchers(node: &Node) -> u64 {
    node.metrics().await.chains.iter().map(|chain| chain.watchers).sum()
}

/// One node after another is killed and restarted, while clients write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn views_survive_restarts_and_report_each_change_once() {
    let mut cluster = TestCluster::start_named(3).await;
    let client = cluster.client(Spread::Sticky).await;
    within(client.kv().put("v/first", "0")).await.unwrap();
    // The last node stays.
    let (of_node, by_node) = observed(&cluster.nodes[2].kv(), "v/").await;
    let (of_client, by_client) = observed(&client.kv(), "v/").await;
    let session = Session::new();
    let mut writers = JoinSet::new();
    for writer in 0..4 {
        let kv = client.kv().in_session(&session).with_timeout(PATIENCE);
        writers.spawn(async move {
            for n in 0..400 {
                let (key, value) = (format!("v/{writer}/{}", n % 7), n.to_string());
                let written = match n % 5 {
                    0 => kv.write(Batch::new().delete(&key)).await,
                    _ => kv.write(Batch::new().put(&key, value.clone()).put(format!("v/{writer}/same"), value)).await,
                };
                written.unwrap();
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
    }
    for _ in 0..2 {
        let gone = cluster.nodes.remove(0);
        gone.abort().await;
        let name = gone.name().to_owned();
        let new = cluster.add(|builder| builder.name(name.clone())).await;
        within(new.ready()).await.unwrap();
        // The last node moves to the front after both restarts.
        until(async || new.status().await.chains.first().is_some_and(|chain| chain.members.len() == 3)).await;
    }
    while let Some(written) = within(writers.join_next()).await {
        written.unwrap();
    }
    let mut expected = BTreeMap::new();
    let kv = client.kv().in_session(&session);
    let mut scan = kv.scan("v/");
    while let Some(entry) = within(scan.next()).await {
        let entry = entry.unwrap();
        expected.insert(entry.key, entry.value);
    }
    for (view, reported) in [(of_node, by_node), (of_client, by_client)] {
        within(view.caught_up_to_session(&session)).await.unwrap();
        let state: BTreeMap<_, _> = view.iter().map(|entry| (entry.key, entry.value)).collect();
        assert_eq!(state, expected);
        assert_eq!(folded(&reported), expected);
        assert_eq!(view.status().state, ViewState::Level);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_views_cost_one_watch() {
    let cluster = TestCluster::start(1).await;
    let node = &cluster.nodes[0];
    let kv = node.kv();
    within(kv.put("v/a", "1")).await.unwrap();
    let mut views = Vec::new();
    for _ in 0..1000 {
        views.push(within(kv.view("v/")).await.unwrap());
    }
    until(async || watchers(node).await == 1).await;
    let put = within(kv.put("v/a", "2")).await.unwrap();
    for view in &views {
        within(view.caught_up_to(put.version)).await.unwrap();
        assert_eq!(view.get("v/a").unwrap().value, "2");
    }
    until(async || watchers(node).await == 1).await;
    drop(views);
    // A change answers the last query, and no further one is made.
    tokio::time::sleep(Duration::from_millis(50)).await;
    within(kv.put("v/a", "3")).await.unwrap();
    until(async || watchers(node).await == 0).await;
    within(node.shutdown()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_node_ends_its_views() {
    let cluster = TestCluster::start(1).await;
    let node = &cluster.nodes[0];
    let mut view = within(node.kv().view("v/")).await.unwrap();
    within(node.shutdown()).await;
    within(view.changed()).await.unwrap_err();
    assert!(matches!(view.status().state, ViewState::Ended(_)));
}
