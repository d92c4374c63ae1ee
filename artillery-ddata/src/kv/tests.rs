use std::{
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;

use super::*;
use crate::{
    Error, NodeId, Refusal,
    driver::fake::{self, FakeNode, alone, unique},
    error::NotApplied,
    replica::Way,
};

#[tokio::test]
async fn a_chain_of_one() {
    let node = alone(&unique("kv"));
    let kv = node.kv();
    assert_eq!(kv.get("k").await.unwrap().version(), Version::NONE);
    let put = kv.put("k", "one").await.unwrap();
    assert_eq!(put, Committed::new(Version::new(1, 1), 1, ()));

    let seen = kv.get("k").await.unwrap();
    assert_eq!(seen.value(), Some(&Bytes::from("one")));
    assert_eq!((seen.version(), seen.state), (put.version, ReadState::Clean));
    assert_eq!(seen.served, Served::new(NodeId::from_name("alone"), Place::Head, Way::Local));
    let local = kv.get_local("k").unwrap();
    assert_eq!(local, Some(Versioned { version: put.version, value: Bytes::from("one") }));

    let swapped = kv.compare_and_swap("k", put.version, "two").await.unwrap().unwrap();
    let conflict = kv.compare_and_swap("k", put.version, "three").await.unwrap().unwrap_err();
    assert_eq!(conflict.current, Some((swapped.version, Bytes::from("two"))));
    assert_eq!(conflict.to_string(), format!("the key has version {}", swapped.version));
    kv.compare_and_delete("k", swapped.version).await.unwrap().unwrap();
    assert_eq!(kv.get_local("k"), Ok(None), "tombstones aren't shown");
    let absent = kv.compare_and_swap("k", swapped.version, "x").await.unwrap().unwrap_err();
    assert_eq!((absent.current.clone(), absent.version()), (None, Version::NONE));
    kv.compare_and_swap("k", Version::NONE, "created").await.unwrap().unwrap();
    kv.delete("k").await.unwrap();
    assert_eq!(kv.get("k").mode(ReadMode::Eventual).await.unwrap().value(), None);
}

#[tokio::test]
async fn other_modes_go_other_ways() {
    let node = alone(&unique("kv"));
    let kv = node.kv();
    kv.put("k", "v").await.unwrap();
    for (mode, way) in [(ReadMode::Eventual, Way::Local), (ReadMode::ThroughChain, Way::Chain)] {
        let seen = kv.get("k").mode(mode).await.unwrap();
        assert_eq!((seen.value(), seen.served.way), (Some(&Bytes::from("v")), way));
        assert_eq!(kv.clone().with_read_mode(mode).get("k").await.unwrap().served.way, way);
    }
}

#[tokio::test]
async fn what_is_too_long_is_refused_here() {
    let node = alone(&unique("kv"));
    let kv = node.kv();
    let long = vec![b'k'; 5000];
    let too_long = Refusal::KeyTooLong { len: 5000, limit: 4096 };
    assert_eq!(kv.put(&long, "v").await, Err(Error::refused(too_long, None)));
    assert_eq!(kv.get(&long).mode(ReadMode::Eventual).await, Err(Error::refused(too_long, None)));
    let limit = fake::MAX_VALUE;
    let error = kv.put("k", vec![0; limit as usize + 1]).await.unwrap_err();
    assert_eq!(error, Error::refused(Refusal::ValueTooLarge { len: limit + 1, limit }, None));
    kv.put("k", vec![0; limit as usize]).await.unwrap();
}

#[tokio::test]
async fn calls_wait_for_the_cluster_to_be_formed() {
    let node = FakeNode::start(&unique("kv"), "late");
    let kv = node.kv();
    assert_eq!(kv.get_local("k"), Err(NotLocal::NotHere));
    let none = kv.put("k", "v").timeout(Duration::from_millis(30)).await;
    assert_eq!(none, Err(Error::not_applied(NotApplied::NotFormed)));
    let put = tokio::spawn(kv.put("k", "v").into_future());
    tokio::task::yield_now().await;
    node.form(&fake::routing(fake::config(&[node.me()], 1), &[&node]));
    put.await.unwrap().unwrap();
}

/// The promise of the local path: from a plain thread, without a runtime, and without an allocation.
#[test]
fn local_reads_allocate_nothing() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (_node, kv) = runtime.block_on(async {
        let node = alone(&unique("kv"));
        let kv = node.kv();
        kv.put("stock/7", "4").await.unwrap();
        (node, kv)
    });
    let read = move || {
        let once = || {
            assert_eq!(kv.get_local("stock/7").unwrap().unwrap().value, "4");
            assert_eq!(kv.get_local("absent"), Ok(None));
            let mut get = pin!(kv.get("stock/7").into_future());
            match get.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(Ok(read)) => assert_eq!(read.value(), Some(&Bytes::from_static(b"4"))),
                other => panic!("{other:?}"),
            }
        };
        // Whatever a thread needs once.
        once();
        let used = allocation_counter::measure(|| (0..1000).for_each(|_| once()));
        assert_eq!((used.count_total, used.bytes_total), (0, 0));
        assert!(allocation_counter::measure(|| drop(kv.put("k", "v"))).count_total > 0, "the counter counts");
    };
    #[allow(clippy::disallowed_methods, reason = "the point is a thread that knows no runtime")]
    std::thread::spawn(read).join().unwrap();
}

/// A loop of reads that are all ready at once lets other tasks of its thread run.
#[tokio::test]
async fn ready_reads_spend_the_budget() {
    let node = alone(&unique("kv"));
    let kv = node.kv();
    let other = tokio::spawn(async {});
    let mut reads = 0;
    while !other.is_finished() {
        kv.get("k").await.unwrap();
        reads += 1;
        assert!(reads < 100_000, "the other task never ran");
    }
}
