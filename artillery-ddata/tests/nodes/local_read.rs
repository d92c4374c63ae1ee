//! The guarantees of local reads: at every member, from any thread, without a runtime and without an allocation.

use std::{
    pin::pin,
    task::{Context, Poll, Waker},
};

use crate::support::{TestCluster, until, within};
use artillery_ddata::{Kv, NotLocal, Version};

fn check(kv: &Kv, version: Version) {
    let once = || {
        let local = kv.get_local("stock/7").expect("a clean key").expect("it was put");
        assert_eq!((local.value.as_ref(), local.version), (&b"4"[..], version));
        assert_eq!(kv.get_local("absent"), Ok(None));
        let mut get = pin!(kv.get("stock/7").into_future());
        match get.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(read)) => assert_eq!(read.version(), version),
            other => panic!("not ready in its first poll: {other:?}"),
        }
    };
    // The first read of a thread may allocate.
    once();
    let used = allocation_counter::measure(|| (0..1000).for_each(|_| once()));
    assert_eq!((used.count_total, used.bytes_total), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_member_allocates() {
    let cluster = TestCluster::start(3).await;
    let put = within(cluster.nodes[0].kv().put("stock/7", "4")).await.expect("a put");
    for node in &cluster.nodes {
        let kv = node.kv();
        until(|| async { kv.get_local("stock/7").is_ok_and(|found| found.is_some()) }).await;
        #[allow(clippy::disallowed_methods, reason = "the point is a thread that knows no runtime")]
        let checked = std::thread::spawn(move || check(&kv, put.version));
        checked.join().expect("the checks hold");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn local_read_at_a_non_member_is_refused() {
    let mut cluster = TestCluster::start(3).await;
    let spare = cluster.add(|builder| builder.expect(3)).await;
    within(spare.ready()).await.expect("the spare reads by asking members");
    let kv = spare.kv();
    within(kv.put("k", "v")).await.expect("a put");
    assert_eq!(kv.get_local("k"), Err(NotLocal::NotHere));
    assert_eq!(within(kv.get("k")).await.expect("a read").value().map(|value| &value[..]), Some(&b"v"[..]));
}
