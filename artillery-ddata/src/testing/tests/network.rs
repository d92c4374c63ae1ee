//! Faults that a test can cause in a cluster, and their effect on its handles.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::super::*;
use crate::{Error, Place, Refusal, error::NotApplied, kv::Resolution};

const SECOND: Duration = Duration::from_secs(1);

fn text(value: Option<&bytes::Bytes>) -> Option<&str> {
    value.map(|value| std::str::from_utf8(value).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_cluster_serves_members_and_clients() {
    let cluster = Cluster::builder().nodes(3).seed(7).start().await;
    let client = cluster.client();
    let put = client.put("greeting", "hello").await.unwrap();
    assert_eq!(put.copies, 3);
    for member in cluster.chain() {
        let read = cluster.kv(member).get("greeting").await.unwrap();
        assert_eq!((text(read.value()), read.version()), (Some("hello"), put.version));
        cluster.kv(member).increment("count", 2).await.unwrap();
    }
    assert_eq!(client.increment("count", -1).await.unwrap().result, 5);
    assert_eq!(cluster.kv(cluster.tail()).get("greeting").await.unwrap().served.place, Place::Tail);
    let checked = cluster.check_twice().await;
    assert_eq!(checked.keys, 2);
}

impl Cluster {
    async fn check_twice(&self) -> Checked {
        self.check().await;
        self.try_check().await.unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn the_outcome_of_a_write_is_unknown_in_three_ways() {
    let cluster = Cluster::builder().seed(1).start().await;
    for kv in [cluster.client(), cluster.kv(cluster.head()), cluster.kv(cluster.tail())] {
        for fate in [Fate::Applied, Fate::Lost, Fate::Late] {
            let before = kv.get("n").await.unwrap().version();
            cluster.next_outcome_unknown(fate);
            let began = Instant::now();
            let error = kv.increment("n", 1).timeout(SECOND).await.unwrap_err();
            assert!(matches!(error, Error::OutcomeUnknown { .. }), "{error}");
            assert_eq!(began.elapsed().as_secs(), 1);
            let after = kv.get("n").await.unwrap().version();
            assert_eq!(after > before, fate == Fate::Applied, "{fate:?}");
            tokio::time::sleep(3 * SECOND).await;
            let later = kv.get("n").await.unwrap().version();
            assert_eq!(later > before, fate != Fate::Lost, "{fate:?}");
        }
    }
    let read = cluster.client().get("n").await.unwrap();
    assert_eq!(text(read.value()), Some("6"));
    cluster.check().await;
}

#[tokio::test(start_paused = true)]
async fn a_settled_request_is_not_applied_when_it_comes_late() {
    let cluster = Cluster::builder().seed(2).start().await;
    let kv = cluster.client();
    kv.put("k", "old").await.unwrap();
    cluster.next_outcome_unknown(Fate::Late);
    let Err(Error::OutcomeUnknown { request_id, .. }) = kv.put("k", "new").await else { panic!("an answer arrived") };
    assert_eq!(kv.resolve(request_id).await.unwrap(), Resolution::NeverApplied);
    tokio::time::sleep(3 * SECOND).await;
    assert_eq!(text(kv.get("k").await.unwrap().value()), Some("old"));
    cluster.check().await;
}

#[tokio::test(start_paused = true)]
async fn a_dead_member_stops_writes_until_it_is_removed_and_clean_reads_go_on() {
    let cluster = Cluster::builder().seed(3).start().await;
    let (kv, inside) = (cluster.client(), cluster.kv(cluster.chain()[1]));
    kv.put("k", "v").await.unwrap();
    cluster.crash(cluster.chain()[1]);
    let error = kv.put("k", "w").timeout(SECOND).await.unwrap_err();
    assert!(matches!(error, Error::OutcomeUnknown { .. }), "{error}");
    let clean = cluster.kv(cluster.tail()).get("k").await.unwrap();
    assert_eq!(text(clean.value()), Some("v"));
    inside.get("k").timeout(SECOND).await.unwrap_err();
    assert_eq!(kv.put("k", "x").await.unwrap().copies, 2);
    cluster.check().await;
}

#[tokio::test(start_paused = true)]
async fn a_pause_stalls_writes_and_the_members_own_handles() {
    let cluster = Cluster::builder().seed(4).start().await;
    let (kv, middle) = (cluster.client(), cluster.chain()[1]);
    kv.put("k", "v").await.unwrap();
    let inside = cluster.kv(middle);
    cluster.pause(middle);
    assert!(timeout(SECOND, kv.put("k", "w")).await.is_err());
    assert!(inside.get_local("k").is_err());
    assert!(timeout(SECOND, async { inside.get("k").await }).await.is_err());
    cluster.resume(middle);
    kv.put("k", "x").await.unwrap();
    assert_eq!(text(inside.get("k").await.unwrap().value()), Some("x"));
    cluster.check().await;
}

#[tokio::test(start_paused = true)]
async fn a_cut_is_one_way_and_heals() {
    let cluster = Cluster::builder().seed(5).start().await;
    let chain = cluster.chain();
    let kv = cluster.kv(chain[0]);
    kv.put("k", "v").await.unwrap();
    // Cut the links that carry watermarks back to the head. Updates still pass in the other direction.
    cluster.cut(chain[1], chain[0]);
    cluster.cut(chain[2], chain[0]);
    kv.put("k", "w").timeout(SECOND).await.unwrap_err();
    let tail = cluster.kv(chain[2]).get("k").await.unwrap();
    assert_eq!(text(tail.value()), Some("w"), "the write was committed, but the head didn't learn of it");
    cluster.heal();
    kv.put("k", "x").await.unwrap();
    cluster.settle().await;
    // Long enough that the connections between the two nodes are dropped, and the chain is rearranged.
    let chain = cluster.chain();
    cluster.cut(chain[0], chain[1]);
    tokio::time::sleep(20 * SECOND).await;
    kv.put("k", "y").await.unwrap();
    cluster.mend(chain[0], chain[1]);
    kv.put("k", "z").await.unwrap();
    cluster.check().await;
    assert_eq!(text(kv.get("k").await.unwrap().value()), Some("z"));
}

#[tokio::test(start_paused = true)]
async fn many_chains_with_spares_serve_all_keys() {
    let cluster = Cluster::builder().nodes(5).replicas(3).chains(8).seed(6).start().await;
    let kv = cluster.client();
    for n in 0..40 {
        kv.put(format!("key-{n}"), format!("{n}")).await.unwrap();
    }
    for member in cluster.nodes() {
        assert_eq!(text(cluster.kv(member).get("key-7").await.unwrap().value()), Some("7"));
    }
    let mut scan = kv.scan("key-");
    let mut count = 0;
    while let Some(entry) = scan.next().await {
        entry.unwrap();
        count += 1;
    }
    assert_eq!(count, 40);
    assert_eq!(cluster.try_check().await.unwrap().keys, 40);
}

#[tokio::test(start_paused = true)]
async fn oversized_keys_are_refused_and_large_values_stored() {
    let cluster = Cluster::builder().nodes(1).start().await;
    let long = cluster.client().put(vec![b'k'; 5000], "v").await.unwrap_err();
    assert!(matches!(long, Error::Refused { reason: Refusal::KeyTooLong { .. }, .. }), "{long}");
    let two_megabytes = vec![7; 2 << 20];
    cluster.client().put("large", two_megabytes.clone()).await.unwrap();
    assert_eq!(cluster.client().get("large").await.unwrap().into_value().unwrap(), two_megabytes);
    cluster.crash(cluster.head());
    let gone = cluster.client().get("large").timeout(SECOND).await.unwrap_err();
    assert!(matches!(gone, Error::NotApplied { reason: NotApplied::Unreachable { .. } | NotApplied::TimedOut, .. }));
    cluster.check().await;
}

#[test]
fn other_runtimes_are_refused() {
    let refused = |runtime: tokio::runtime::Runtime| {
        let started = std::panic::AssertUnwindSafe(|| runtime.block_on(Cluster::builder().start()));
        std::panic::catch_unwind(started).is_err()
    };
    assert!(refused(tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()));
    assert!(refused(tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap()));
}
