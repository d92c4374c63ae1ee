//! Sessions of applications, and sessions that make retries recognizable.

use artillery_ddata::{
    Error, Place, ReadMode, Session,
    error::Unknown,
    kv::{ReadState, Resolution},
};

use crate::support::{TestCluster, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_is_monotonic_across_nodes() {
    let cluster = TestCluster::start(3).await;
    let session = Session::new();
    for n in 0..300u32 {
        let writer = cluster.nodes[n as usize % 3].kv();
        within(writer.put("k", n.to_string()).session(&session)).await.unwrap();
        let reader = cluster.nodes[(n as usize + 1) % 3].kv().in_session(&session);
        // Even the weakest mode shows everything that the session has observed.
        let read = within(reader.get("k").mode(ReadMode::Eventual)).await.unwrap();
        assert_eq!((read.state, read.into_value().unwrap()), (ReadState::Clean, n.to_string().into()));
    }
}

/// A small table of sessions at all nodes: new sessions evict the least recently used one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_table_stays_within_its_setting() {
    const TABLE: usize = 64 << 10;
    let cluster =
        TestCluster::start_with(3, |builder| builder.configure(|config| config.limits.sessions_bytes = TABLE)).await;
    let kv = cluster.node(Place::Middle).kv();
    let first = within(kv.append("log", "a")).await.unwrap().request_id;
    let again = within(kv.append("log", "a").request_id(first)).await.unwrap();
    assert!(again.replayed, "the session is still in the table");
    // No session takes less than a hundred bytes.
    for _ in 0..TABLE / 100 {
        within(kv.new_request_id("log")).await.unwrap();
    }
    let retry = within(kv.append("log", "a").request_id(first)).await;
    assert!(matches!(retry, Err(Error::OutcomeUnknown { reason: Unknown::SessionExpired, .. })), "{retry:?}");
    assert_eq!(within(kv.resolve(first)).await.unwrap(), Resolution::Forgotten);
    assert_eq!(within(kv.get("log")).await.unwrap().into_value().unwrap(), "a", "nothing is done twice");
}
