//! Large values don't delay small ones in transit between a client and a node.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::support::{TestCluster, within};
use artillery_ddata::{Client, Kv, client::Spread};

const LARGE: usize = 64 << 20;

/// Bytes of the large value that have passed before the small operations begin, and that remain when they must be done.
const MARGIN: u64 = 4 << 20;

/// Makes small operations one after another while a large value passes. Returns how many of its bytes passed during
/// each.
async fn meanwhile(passed: impl Fn() -> u64, small: impl AsyncFn(u64)) -> Vec<u64> {
    let begin = passed();
    within(async {
        while passed() < begin + MARGIN {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let (mut before, mut during) = (passed(), Vec::new());
    while before < begin + LARGE as u64 - MARGIN {
        within(small(during.len() as u64)).await;
        let now = passed();
        during.push(now - before);
        before = now;
    }
    during
}

/// If the small operations had waited behind the large value, the first one would have taken until its end.
fn assert_not_held_back(what: &str, mut during: Vec<u64>) {
    during.sort_unstable();
    println!("{what}: {} small ones, median {} bytes", during.len(), during[during.len() / 2]);
    assert!(during.len() >= 5, "{what}: only {} small ones were done: {during:?}", during.len());
    assert!(during[during.len() / 2] < MARGIN, "{what}: {during:?}");
}

/// One packet in this many between a client and the nodes is lost. So congestion control keeps little in flight, as on
/// any real link. On loopback it would fill the system's buffers with tens of megabytes, which no packet can overtake.
const LOSS: u64 = 40;

async fn start() -> (TestCluster, Client, Kv) {
    let nodes = Arc::new(OnceLock::<BTreeSet<SocketAddr>>::new());
    let packets = Arc::new(AtomicU64::new(0));
    let cluster = TestCluster::start_with(3, |builder| {
        let (nodes, packets) = (nodes.clone(), packets.clone());
        builder.link_filter(Arc::new(move |addr| {
            let is_node = nodes.get().is_none_or(|nodes| nodes.contains(&addr));
            is_node || !packets.fetch_add(1, Ordering::Relaxed).is_multiple_of(LOSS)
        }))
    })
    .await;
    let client = cluster.client(Spread::Sticky).await;
    let kv = client.kv().with_timeout(Duration::from_secs(25));
    within(kv.put("small", "v")).await.unwrap();
    within(kv.get("small")).await.unwrap();
    assert!(nodes.set(cluster.nodes.iter().map(|node| node.addr()).collect()).is_ok());
    (cluster, client, kv)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_writes_and_reads_pass_a_large_write() {
    let (_cluster, client, kv) = start().await;
    let large = tokio::spawn(kv.put("large", vec![7; LARGE]).into_future());
    let during = meanwhile(
        || client.traffic().udp_bytes_sent,
        async |n| match n % 2 {
            0 => drop(kv.put("small", "w").await.unwrap()),
            _ => drop(kv.get("small").await.unwrap()),
        },
    )
    .await;
    within(large).await.unwrap().unwrap();
    assert_not_held_back("a large put", during);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_reads_pass_a_large_read() {
    let (_cluster, client, kv) = start().await;
    within(kv.put("large", vec![7; LARGE])).await.unwrap();
    let large = tokio::spawn({
        let kv = kv.clone();
        async move { kv.get("large").await.unwrap().value().map(|value| value.len()) }
    });
    let received = || client.traffic().udp_bytes_received;
    let during = meanwhile(received, async |_| drop(kv.get("small").await.unwrap())).await;
    assert_eq!(within(large).await.unwrap(), Some(LARGE));
    assert_not_held_back("a large get", during);
}
