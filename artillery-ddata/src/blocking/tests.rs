use std::{sync::mpsc, thread, time::Duration};

use bytes::Bytes;
use tokio::sync::oneshot;

use super::*;
use crate::{
    Batch, Error, Map, ReadMode, Refusal, Session, Version,
    api::ReadPath,
    driver::fake::{FakeNode, SECRET, alone, unique},
    error::NotApplied,
    kv::{Resolution, Taken},
};

/// A node in its own runtime on its own thread. Dropping it stops both.
struct Beside {
    cluster: String,
    addr: std::net::SocketAddr,
    kv: BlockingKv,
    thread: Option<(oneshot::Sender<()>, thread::JoinHandle<()>)>,
}

#[allow(clippy::disallowed_methods, reason = "the tests need plain threads")]
fn spawn<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> thread::JoinHandle<T> {
    thread::spawn(f)
}

impl Beside {
    fn start() -> Self {
        let cluster = unique("blocking");
        let (name, (stop, stopped)) = (cluster.clone(), oneshot::channel());
        let (tell, told) = mpsc::channel();
        let run = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let node: FakeNode = alone(&name);
                tell.send((node.addr(), node.kv().blocking())).unwrap();
                let _ = stopped.await;
            });
        };
        let thread = spawn(run);
        let (addr, kv) = told.recv().unwrap();
        Self { cluster, addr, kv, thread: Some((stop, thread)) }
    }

    fn client(&self) -> Client {
        let builder = Client::builder().cluster(&self.cluster).secret(SECRET).seed(self.addr);
        builder.timeout(Duration::from_secs(20)).connect().unwrap()
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.thread.take() {
            let _ = stop.send(());
            let _ = thread.join();
        }
    }
}

fn all_calls(kv: &BlockingKv) {
    let put = kv.put("k", "one").unwrap();
    assert_eq!((kv.get("k").unwrap().version(), kv.get("absent").unwrap().version()), (put.version, Version::NONE));
    let swapped = kv.compare_and_swap("k", put.version, "two").unwrap();
    let conflict = kv.compare_and_delete("k", put.version).unwrap_err().into_conflict().unwrap();
    assert_eq!(conflict.current, Some((swapped.version, Bytes::from("two"))));
    assert_eq!(kv.append("log", "ab").unwrap().result, 2);
    assert_eq!(kv.increment("sold", 3).unwrap().result, 3);
    assert!(matches!(kv.get_delete("k").unwrap().result, Taken::Value(taken) if taken.value == "two"));
    kv.write(Batch::new().put("a", "1").put("b", "2")).unwrap();
    assert_eq!(kv.get_many(["a", "b", "k"]).unwrap().entries.iter().flatten().count(), 2);
    kv.delete("a").unwrap();
    assert_eq!(kv.get("a").unwrap().value(), None);
    let id = kv.new_request_id("paid").unwrap();
    kv.wait(kv.kv().increment("paid", 40).request_id(id)).unwrap();
    assert!(matches!(kv.resolve(id), Ok(Resolution::Applied(_))));
    let error = kv.increment("log", 1).unwrap_err();
    assert!(matches!(error, Error::Refused { reason: Refusal::NotANumber, .. }), "{error:?}");
    let session = Session::new();
    let put = kv.in_session(&session).put("mine", "1").unwrap();
    assert_eq!(session.frontier().floor(crate::ChainId(0)), put.version.sequence);
    let through = kv.with_read_mode(ReadMode::ThroughChain).with_timeout(Duration::from_secs(20));
    assert_eq!(through.get("mine").unwrap().served.way, ReadPath::Chain);
}

#[test]
fn a_plain_thread_makes_all_calls() {
    let node = Beside::start();
    all_calls(&node.kv);
    assert_eq!(node.kv.get_local("b").unwrap().unwrap().value, "2");
}

#[test]
fn a_client_needs_no_runtime_around_it() {
    let node = Beside::start();
    let client = node.client();
    all_calls(&client.kv());
    assert_eq!(client.routing().chains.len(), 1);
    let kv = client.kv();
    drop(client);
    kv.put("k", "a handle keeps the client's thread").unwrap();
}

#[test]
fn a_closed_client_applies_nothing() {
    let node = Beside::start();
    let client = node.client();
    client.close();
    assert!(client.kv().put("k", "v").unwrap_err().is_not_applied());
}

#[test]
fn scans_are_iterators() {
    let node = Beside::start();
    let kv = node.client().kv();
    for n in 0..300 {
        kv.put(format!("stock/{n:03}"), n.to_string()).unwrap();
    }
    let keys: Vec<_> = kv.scan("stock/").map(|entry| entry.unwrap().key).collect();
    assert_eq!((keys.len(), keys.is_sorted()), (300, true));
    assert_eq!(kv.entries(kv.kv().scan("stock/").limit(7)).count(), 7);
    let page = kv.scan_hashed(0, 100).unwrap();
    let rest = kv.scan_hashed(page.next, 300).unwrap();
    assert_eq!((page.keys.len(), rest.keys.len(), rest.next), (100, 200, 0));
    let counts: Map<u32, u8> = kv.kv().map("counts").unwrap();
    for n in [300, 2, 1] {
        kv.wait(counts.put(&n, &1)).unwrap();
    }
    let keys: Result<Vec<_>, _> = kv.entries(counts.scan()).map(|entry| entry.map(|entry| entry.key)).collect();
    assert_eq!(keys.unwrap(), [1, 2, 300]);
}

#[test]
fn watches_are_iterators() {
    let node = Beside::start();
    let kv = node.client().kv();
    let first = kv.put("w/0", "v").unwrap();
    let mut from = crate::Frontier::default();
    from.raise(first.request_id.cluster, first.request_id.chain, first.version.sequence);
    kv.delete("w/0").unwrap();
    kv.write(Batch::new().put("w/1", "v").put("else", "v").put("w/2", "v")).unwrap();
    let mut watch = kv.changes(kv.wait(kv.kv().watch("w/").from(from)).unwrap());
    let deleted = watch.next().unwrap().unwrap();
    assert_eq!((&deleted.key[..], deleted.value), (&b"w/0"[..], None));
    let behind = watch.position();
    assert_eq!(behind.floor(crate::ChainId(0)), deleted.version.sequence);
    let keys: Vec<_> = watch.take(2).map(|change| change.unwrap().key).collect();
    assert_eq!(keys, ["w/1", "w/2"]);
    let mut now = kv.watch("w/").unwrap();
    let writer = kv.clone();
    let writer = spawn(move || writer.put("w/3", "v").unwrap());
    let last = kv.changes(kv.wait(kv.kv().watch("w/").from(behind)).unwrap()).nth(2).unwrap().unwrap();
    assert_eq!((&last.key[..], last.version), (&b"w/3"[..], writer.join().unwrap().version));
    assert_eq!(now.next().unwrap().unwrap(), last);
}

#[test]
fn threads_share_a_client() {
    let node = Beside::start();
    let kv = node.client().kv();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let kv = kv.clone();
            spawn(move || assert!((0..50).all(|_| kv.increment("all", 1).is_ok())))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(kv.get("all").unwrap().value(), Some(&Bytes::from("200")));
}

#[test]
fn within_a_runtime_calls_are_refused_and_handles_may_be_dropped() {
    let node = Beside::start();
    let client = node.client();
    let builder = Client::builder().cluster(&node.cluster).secret(SECRET).seed(node.addr);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async move {
        let kv = client.kv();
        let refused = Error::not_applied(NotApplied::WithinRuntime);
        assert_eq!(kv.put("k", "v"), Err(refused.clone()));
        let entries: Vec<_> = kv.scan("").collect();
        assert_eq!(entries, [Err(refused.clone())]);
        assert_eq!(kv.watch("").unwrap_err(), refused);
        assert!(matches!(builder.connect(), Err(StartError::WithinRuntime)));
        client.close();
        drop((client, kv));
    });
    assert_eq!(node.kv.get("k").unwrap().value(), None);
}

#[test]
fn a_failed_connect_says_why() {
    let error = Client::builder().secret(SECRET).connect().unwrap_err();
    assert!(matches!(error, StartError::Client(crate::client::ClientError::NoSeeds)), "{error:?}");
}

#[test]
fn threads_take_turns_at_a_lock() {
    let node = Beside::start();
    let kv = node.client().kv();
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let kv = kv.clone();
            spawn(move || {
                let lock = kv.kv().lock("jobs");
                let guard = kv.wait(lock.acquire().timeout(Duration::from_secs(60))).unwrap();
                let read = kv.get("count").unwrap().value().map_or(0, |value| value.len());
                kv.write(Batch::new().held(&guard).put("count", vec![0; read + 1])).unwrap();
                let token = guard.token();
                kv.wait(guard.release()).unwrap();
                token
            })
        })
        .collect();
    let mut tokens: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    tokens.sort();
    tokens.dedup();
    assert_eq!((tokens.len(), kv.get("count").unwrap().value().unwrap().len()), (3, 3));
}
