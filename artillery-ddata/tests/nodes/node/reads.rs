use artillery_ddata::{
    Error, Place, ReadMode,
    client::Spread,
    kv::{ReadPath, ReadState},
};

use super::{SHORT, settled};
use crate::support::{TestCluster, fixed, until, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clean_read_at_the_middle_needs_no_other_node() {
    let cluster = TestCluster::start_with(3, fixed).await;
    let (head, middle) = (cluster.node(Place::Head), cluster.node(Place::Middle));
    let mut last = 0;
    for n in 0..100 {
        last = within(head.kv().put(format!("key/{n}"), "v")).await.unwrap().version.sequence.0;
    }
    until(async || middle.status().await.chains[0].watermark == last).await;
    cluster.cut(Place::Middle, Place::Tail);
    settled(middle).await;
    let before = middle.traffic().frames_sent;
    for n in 0..1000 {
        let read = within(middle.kv().get(&format!("key/{}", n % 100))).await.unwrap();
        assert_eq!(read.value().map(|value| &value[..]), Some(&b"v"[..]));
        assert_eq!(read.served.way, ReadPath::Local);
    }
    assert_eq!(middle.traffic().frames_sent, before, "a clean read sends no frame");

    // The middle receives the update, the tail never does.
    let write = head.kv().put("key/0", "dirty").timeout(SHORT);
    assert!(matches!(within(write).await, Err(Error::OutcomeUnknown { .. })));
    until(async || middle.status().await.chains[0].dirty_updates > 0).await;
    let read = within(middle.kv().get("key/0").timeout(SHORT)).await;
    assert!(matches!(read, Err(Error::NotApplied { .. })), "{read:?}");
    let read = within(middle.kv().get("key/1")).await.unwrap();
    assert_eq!(read.served.way, ReadPath::Local, "clean keys are still served");
    let eventual = within(middle.kv().get("key/0").mode(ReadMode::Eventual)).await.unwrap();
    assert_eq!((eventual.state, eventual.into_value().unwrap()), (ReadState::Dirty, "dirty".into()));

    cluster.heal();
    // The query may overtake the update in transit to the tail, which then still has the old value.
    until(async || middle.kv().get("key/0").await.is_ok_and(|read| read.value().is_some_and(|v| v == "dirty"))).await;
}

/// A single caller asks all nodes. An update has reached only the head, since the middle is cut off.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dirty_read_takes_one_round_trip_more_than_a_clean_one() {
    const READS: u64 = 300;
    let cluster = TestCluster::start_with(3, fixed).await;
    let head = cluster.node(Place::Head).clone();
    let client = cluster.client(Spread::RoundRobin).await;
    let kv = client.kv();
    within(head.kv().put("k", "old")).await.unwrap();
    for node in &cluster.nodes {
        until(async || node.kv().get("k").await.is_ok_and(|read| read.served.way == ReadPath::Local)).await;
    }
    cluster.cut(Place::Head, Place::Middle);

    let frames = || {
        let nodes: u64 = cluster.nodes.iter().map(|node| node.traffic().frames_sent).sum();
        nodes + client.traffic().frames_sent
    };
    // Counts the frames until the head has served `READS` reads, and the reads of head and others.
    let read = async |way| {
        let (before, mut by_head, mut others) = (frames(), 0, 0);
        while by_head < READS {
            let read = within(kv.get("k")).await.unwrap();
            if read.served.node == head.id().node {
                assert_eq!(read.served.way, way);
                by_head += 1;
            } else {
                assert_eq!(read.served.way, ReadPath::Local);
                others += 1;
            }
            assert_eq!(read.into_value().unwrap(), "old");
        }
        (frames() - before, by_head, others)
    };
    // Heartbeats may add half a frame per read: far less than another message for each read would.
    let (sent, by_head, others) = read(ReadPath::Local).await;
    let needed = 2 * (by_head + others);
    assert!((needed..needed + READS / 2).contains(&sent), "{sent} frames instead of {needed}");
    let write = head.kv().put("k", "new").timeout(SHORT);
    assert!(matches!(within(write).await, Err(Error::OutcomeUnknown { .. })));
    let (sent, by_head, others) = read(ReadPath::Query).await;
    let needed = 4 * by_head + 2 * others;
    assert!((needed..needed + READS / 2).contains(&sent), "{sent} frames instead of {needed}");
}
