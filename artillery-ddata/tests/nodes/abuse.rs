//! A malicious peer with the right secret: each of its messages ends in a typed error at the peer, and leaves the node
//! healthy.

use std::{sync::Arc, time::Duration};

use crate::support::{SECRET, TestCluster, within};
use artillery_core::{
    Incarnation,
    config::TransportConfig,
    error::CloseReason,
    identity::Identity,
    transport::{
        CloseCode, Connection, Endpoint, FrameWriter, IncomingStream, LocalInfo, PeerInfo, PeerKind, Service,
        StreamKind,
    },
};
use artillery_ddata::{ChainId, Epoch, Node, Place, Sequence};
use artillery_proto::{
    message::{ChainFrame, ChainMessage, Control},
    wire::{chain, streams},
};
use bytes::Bytes;
use rand_chacha::{
    ChaCha8Rng,
    rand_core::{Rng, SeedableRng},
};

const KINDS: [u8; 4] = [streams::CHAIN_CONTROL, streams::CHAIN_UPDATES, streams::FORMATION, streams::REQUESTS];

struct Deaf;

impl Service for Deaf {
    fn stream(&self, _: &Arc<PeerInfo>, _: IncomingStream) {}
}

fn intruder(cluster: &TestCluster, kind: PeerKind) -> Endpoint {
    let identity = Identity::from_secret(SECRET.as_bytes(), "intruder").unwrap();
    let local = LocalInfo::new(&cluster.name, Incarnation { store: 7, starts: 1 }, kind);
    Endpoint::bind(TransportConfig::loopback(), identity, local, Arc::new(Deaf)).unwrap()
}

async fn connect(endpoint: &Endpoint, to: &Node) -> Connection {
    within(endpoint.connect(to.addr())).await.unwrap()
}

async fn open(connection: &Connection, kind: u8) -> FrameWriter {
    if kind == streams::REQUESTS {
        within(connection.open_bi(StreamKind(kind), 0)).await.unwrap().0
    } else {
        within(connection.open_uni(StreamKind(kind), 0)).await.unwrap()
    }
}

async fn is_healthy(cluster: &TestCluster) {
    let kv = cluster.node(Place::Middle).kv();
    let put = within(kv.put("health", "good")).await.unwrap();
    for node in &cluster.nodes {
        let read = within(node.kv().get("health")).await.unwrap();
        assert_eq!((read.version(), read.into_value().unwrap()), (put.version, "good".into()));
    }
}

fn noise(rng: &mut ChaCha8Rng, longest: u32) -> Bytes {
    let mut noise = vec![0; (rng.next_u32() % longest) as usize];
    rng.fill_bytes(&mut noise);
    noise.into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn noise_on_every_stream_ends_in_a_violation() {
    let cluster = TestCluster::start(3).await;
    let endpoint = intruder(&cluster, PeerKind::Node);
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for kind in KINDS {
        let mut told = 0;
        for node in &cluster.nodes {
            let connection = connect(&endpoint, node).await;
            let mut stream = open(&connection, kind).await;
            loop {
                // One piece of noise may happen to be valid; a hundred in a row can't be.
                let sent = stream.send(&noise(&mut rng, 300), &[noise(&mut rng, 3000)]).await;
                if sent.is_err() {
                    break;
                }
            }
            match within(connection.closed()).await {
                CloseReason::Peer { code, .. } => {
                    assert_eq!(CloseCode(code), CloseCode::VIOLATION, "kind {kind}");
                    told += 1;
                }
                // The packet with the close reason may get lost in the noise. Then a reset ends the connection.
                CloseReason::Reset => {}
                other => panic!("kind {kind}: {other:?}"),
            }
        }
        assert!(told > 0, "kind {kind}: no connection ended with a reason");
    }
    is_healthy(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_end_anywhere_leave_nothing_behind() {
    let cluster = TestCluster::start(3).await;
    let endpoint = intruder(&cluster, PeerKind::Client);
    for n in 0..60_u32 {
        let connection = connect(&endpoint, &cluster.nodes[n as usize % 3]).await;
        let mut stream = open(&connection, streams::REQUESTS).await;
        let header = vec![0; 1 + n as usize * 97 % 800];
        let body = Bytes::from(vec![1; n as usize * 31 % 1000 * 500]);
        // Close in the middle of sending.
        let sending = async { while stream.send(&header, std::slice::from_ref(&body)).await.is_ok() {} };
        let _ = tokio::time::timeout(Duration::from_micros(u64::from(n) * 50), sending).await;
        connection.close(CloseCode::DONE, "enough");
    }
    is_healthy(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stranger_never_becomes_a_member() {
    let cluster = TestCluster::start(3).await;
    let endpoint = intruder(&cluster, PeerKind::Node);
    let control = Control { watermark: Sequence(1 << 40), ..Control::default() };
    let message = ChainMessage::Control(control);
    let frame = ChainFrame { chain: ChainId(0), epoch: Epoch(1), index: 1, message };
    let encoded = chain::encode(&frame).unwrap();
    for node in &cluster.nodes {
        let connection = connect(&endpoint, node).await;
        let mut stream = open(&connection, streams::CHAIN_CONTROL).await;
        for _ in 0..100 {
            stream.send(&encoded.header, &encoded.body).await.unwrap();
        }
        stream.finish();
        within(stream.stopped()).await;
    }
    is_healthy(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_have_no_part_in_chains() {
    let cluster = TestCluster::start(3).await;
    let endpoint = intruder(&cluster, PeerKind::Client);
    for kind in [streams::CHAIN_CONTROL, streams::FORMATION, 99] {
        let connection = connect(&endpoint, &cluster.nodes[0]).await;
        let mut stream = open(&connection, kind).await;
        let refused = within(async {
            loop {
                if let Err(refused) = stream.send(b"x", &[]).await {
                    return refused;
                }
                tokio::task::yield_now().await;
            }
        })
        .await;
        assert!(refused.to_string().contains("stopped"), "{refused}");
    }
    is_healthy(&cluster).await;
}
