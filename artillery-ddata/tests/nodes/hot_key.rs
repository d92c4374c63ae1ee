//! One key that many callers read while it is constantly written, or while an update of it can't be committed.

use std::time::Duration;

use crate::support::{TestCluster, fixed, within};
use artillery_ddata::{Error, Node, Place, kv::ReadPath};
use tokio::task::JoinSet;

const CALLERS: usize = 64;
const CALLS: usize = 300;
const STORMS: usize = 50;
const ENOUGH: u64 = 200;

/// Dirty reads that the chains of a node have served, and the version queries that they sent for them.
async fn dirty_and_queries(node: &Node) -> (u64, u64) {
    let reads = node.status().await.reads;
    (reads.dirty, reads.version_query)
}

async fn storm(middle: &Node) {
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let kv = middle.kv();
        callers.spawn(async move {
            for call in 0..CALLS {
                if (caller + call) % 10 == 0 {
                    kv.put("hot", format!("{caller}/{call}")).await.unwrap();
                } else {
                    assert!(kv.get("hot").await.unwrap().value().is_some());
                }
            }
        });
    }
    while let Some(done) = within(callers.join_next()).await {
        done.unwrap();
    }
}

/// Most reads of the dirty key are served once this member's watermark has advanced, before a version query is
/// answered. How many reads find the key dirty depends on the machine, so storms are repeated until there are
/// [`ENOUGH`] to compare.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_dirty_reads_share_one_version_query() {
    let cluster = TestCluster::start_with(3, fixed).await;
    let middle = cluster.node(Place::Middle);
    within(middle.kv().put("hot", "first")).await.unwrap();
    let before = dirty_and_queries(middle).await;
    for _ in 0..STORMS {
        storm(middle).await;
        let after = dirty_and_queries(middle).await;
        let (dirty, queries) = (after.0 - before.0, after.1 - before.1);
        println!("{dirty} dirty reads, {queries} version queries");
        if dirty >= ENOUGH && queries > 0 {
            assert!(dirty >= 8 * queries, "{dirty} dirty reads for {queries} version queries");
            return;
        }
    }
    panic!("hardly a read met a dirty key");
}

/// The update never reaches the tail, so no watermark answers. Each read needs a query that was sent after the read
/// arrived.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_answers_all_that_waited_for_it() {
    let cluster = TestCluster::start_with(3, fixed).await;
    let head = cluster.node(Place::Head).clone();
    within(head.kv().put("hot", "old")).await.unwrap();
    cluster.cut(Place::Head, Place::Middle);
    let write = within(head.kv().put("hot", "new").timeout(Duration::from_millis(300))).await;
    assert!(matches!(write, Err(Error::OutcomeUnknown { .. })), "{write:?}");
    let before = dirty_and_queries(&head).await;
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        let kv = head.kv();
        callers.spawn(async move {
            for _ in 0..CALLS {
                let read = kv.get("hot").await.unwrap();
                assert_eq!((read.served.way, read.into_value().unwrap()), (ReadPath::Query, "old".into()));
            }
        });
    }
    while let Some(done) = within(callers.join_next()).await {
        done.unwrap();
    }
    let after = dirty_and_queries(&head).await;
    let (dirty, queries) = (after.0 - before.0, after.1 - before.1);
    println!("{dirty} dirty reads, {queries} version queries");
    assert_eq!(dirty, (CALLERS * CALLS) as u64);
    assert!(dirty >= 8 * queries, "{dirty} dirty reads for {queries} version queries");
}
