//! Guarantees for an application that runs a node or a client in its own process.

use std::{
    future::{Future, IntoFuture},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
};

use artillery_ddata::{
    Client, Error, Kv, Node,
    error::{NotApplied, Unknown},
    node::{DataDirError, StartError, Stopped},
};

use crate::support::{PATIENCE, SECRET, random_name};

fn builder(name: &str) -> artillery_ddata::NodeBuilder {
    Node::builder().cluster(name).secret(SECRET).expect(1).mdns(false).listen("127.0.0.1:0".parse().unwrap())
}

async fn alone() -> Node {
    let node = builder(&random_name()).start().await.unwrap();
    node.ready().await.unwrap();
    node
}

/// Repeats a call without end or pause, like a careless caller, and counts the calls.
macro_rules! insist {
    ($calls:expr, $call:expr) => {{
        let calls = Arc::new(AtomicU64::new(0));
        $calls.push(calls.clone());
        tokio::spawn(async move {
            loop {
                drop($call.await);
                calls.fetch_add(1, Ordering::Relaxed);
            }
        })
    }};
}

#[test]
fn callers_that_never_stop_retrying_leave_their_thread_to_others() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let name = random_name();
        let node = builder(&name).start().await.unwrap();
        node.ready().await.unwrap();
        let client = Client::builder().cluster(name).secret(SECRET);
        let client = client.seed(node.addr()).connect().await.unwrap();
        let mut calls = Vec::new();
        for kv in [client.kv(), node.kv()] {
            let map: artillery_ddata::Map<u64, u64> = kv.map("numbers").unwrap();
            let (of_get, of_write, of_many, of_long) = (kv.clone(), kv.clone(), kv.clone(), kv.clone());
            insist!(calls, of_get.get("k"));
            insist!(calls, of_write.put("k", "v"));
            insist!(calls, of_many.get_many(["a", "b"]));
            insist!(calls, of_long.put("k".repeat(5000), "v"));
            insist!(calls, map.get(&7));
            insist!(calls, kv.scan("").next());
        }
        // This waits for tasks on the thread of the loops.
        client.close().await;
        node.abort().await;
        // Each loop continues alongside the others, though its calls fail at once now.
        let counts =
            |calls: &[Arc<AtomicU64>]| calls.iter().map(|calls| calls.load(Ordering::Relaxed)).collect::<Vec<_>>();
        let before = counts(&calls);
        let is_after = |(before, now): (&u64, u64)| now > *before;
        while !before.iter().zip(counts(&calls)).all(is_after) {
            tokio::task::yield_now().await;
        }
    });
}

fn is(error: &Error, expected: &NotApplied) -> bool {
    matches!(error, Error::NotApplied { reason, .. } if reason == expected)
}

#[tokio::test]
async fn calls_after_the_end_of_a_node_report_that_it_stopped() {
    for end in [Stopped::Left, Stopped::ShutDown, Stopped::Aborted] {
        let node = alone().await;
        let kv = node.kv();
        kv.put("k", "v").await.unwrap();
        match end {
            Stopped::Left => node.leave().await,
            Stopped::ShutDown => node.shutdown().await,
            _ => node.abort().await,
        }
        assert_eq!(node.stopped().await, end);
        assert!(is(&kv.get("k").await.unwrap_err(), &NotApplied::Stopped));
        assert!(is(&kv.put("k", "w").await.unwrap_err(), &NotApplied::Stopped));
        assert!(is(&kv.get_many(["k", "l"]).await.unwrap_err(), &NotApplied::Stopped));
        assert!(is(&kv.scan("").next().await.unwrap().unwrap_err(), &NotApplied::Stopped));
        assert!(is(&kv.watch("").await.unwrap_err(), &NotApplied::Stopped));
        assert!(is(&kv.new_request_id("k").await.unwrap_err(), &NotApplied::Stopped));
        assert!(kv.get_local("k").is_err());
    }
}

/// The first attempt may have been applied, so a retry that isn't made doesn't prove that nothing was.
#[tokio::test]
async fn a_retry_after_the_end_of_its_node_leaves_the_outcome_unknown() {
    let node = alone().await;
    let kv = node.kv();
    let id = kv.new_request_id("k").await.unwrap();
    kv.append("k", "v").request_id(id).await.unwrap();
    node.abort().await;
    let again = [
        kv.append("k", "v").request_id(id).await.unwrap_err(),
        kv.resolve(id).await.unwrap_err(),
        kv.delete("k").request_id(id).await.unwrap_err(),
    ];
    for error in again {
        let Error::OutcomeUnknown { reason, request_id, .. } = &error else { panic!("{error}") };
        assert_eq!((reason, *request_id), (&Unknown::NotMade(NotApplied::Stopped), id));
    }
}

/// Polls once, on this thread, which has no runtime.
fn poll<T>(future: impl IntoFuture<Output = T>) -> T {
    match pin!(future.into_future()).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("the call waits"),
    }
}

#[test]
fn calls_outside_of_a_runtime_are_errors() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (node, kv): (Node, Kv) = runtime.block_on(async {
        let node = alone().await;
        let kv = node.kv();
        kv.put("k", "v").await.unwrap();
        (node, kv)
    });
    assert!(is(&poll(kv.put("k", "w")).unwrap_err(), &NotApplied::OutsideRuntime));
    assert!(is(&poll(kv.get_many(["k", "l"])).unwrap_err(), &NotApplied::OutsideRuntime));
    assert!(is(&poll(kv.scan("").next()).unwrap().unwrap_err(), &NotApplied::OutsideRuntime));
    assert!(is(&poll(kv.new_request_id("k")).unwrap_err(), &NotApplied::OutsideRuntime));
    assert!(is(&poll(kv.get("k").mode(artillery_ddata::ReadMode::Eventual)).unwrap_err(), &NotApplied::OutsideRuntime));
    // A read that the node's own store answers needs no runtime. Without a lease it does.
    match poll(kv.get("k")) {
        Ok(read) => assert_eq!(read.value().map(|value| &value[..]), Some(&b"v"[..])),
        Err(error) => assert!(is(&error, &NotApplied::OutsideRuntime), "{error}"),
    }
    runtime.block_on(node.abort());
}

/// Another node can use the directory as soon as the call has returned, though handles to the last node still exist.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_is_free_when_its_node_has_ended() {
    let (name, dir) = (random_name(), tempfile::tempdir().unwrap());
    let mut kept = Vec::new();
    for round in 0..15u32 {
        let node = match builder(&name).name("a").data_dir(dir.path()).start().await {
            Err(StartError::Data(DataDirError::InUse(_))) => panic!("the directory is in use in round {round}"),
            started => started.unwrap(),
        };
        // Some end while they load.
        if round % 5 != 4 {
            tokio::time::timeout(PATIENCE, node.ready()).await.unwrap().unwrap();
            node.kv().put("k", vec![7; 100_000]).await.unwrap();
        }
        if round % 3 == 1 {
            node.shutdown().await;
            assert_eq!(node.stopped().await, Stopped::ShutDown);
        } else {
            node.abort().await;
        }
        kept.push(node);
    }
    let node = builder(&name).name("a").data_dir(dir.path()).start().await.unwrap();
    node.ready().await.unwrap();
    assert_eq!(node.kv().get("k").await.unwrap().value().map(|value| value.len()), Some(100_000));
    node.leave().await;
    assert!(!matches!(
        builder(&name).name("a").data_dir(dir.path()).start().await,
        Err(StartError::Data(DataDirError::InUse(_)))
    ));
}
