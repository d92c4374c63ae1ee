//! Clients that don't read their answers use only a part of the capacity, and release it when they leave.

use artillery_core::{
    config::TransportConfig,
    identity::Identity,
    transport::{Connection, Endpoint, LocalInfo, PeerInfo, PeerKind, Service},
};

use std::sync::atomic::Ordering;

use super::*;
use crate::{
    ChainId, Sequence,
    api::{Query, WatchQuery},
    message::request::Request,
    wire::request::{decode_response, encode_request},
};

/// More clients than there are shares of the capacity: each connection may use a quarter.
const DEAF: usize = 5;

struct NoStreams;

impl Service for NoStreams {
    fn stream(&self, _: &Arc<PeerInfo>, _: IncomingStream) {}
}

struct Deaf {
    endpoint: Endpoint,
    connection: Connection,
    requests: FrameWriter,
    answers: FrameReader,
}

impl Deaf {
    async fn connect(cluster: &str, node: &FakeNode) -> Self {
        let mut config = TransportConfig::loopback();
        config.stream_window_bytes = 64 << 10;
        config.connection_window_bytes = 64 << 10;
        let identity = Identity::from_secret(SECRET, "deaf").unwrap();
        let local = LocalInfo::new(cluster, member("deaf").incarnation, PeerKind::Client);
        let endpoint = Endpoint::bind(config, identity, local, Arc::new(NoStreams)).unwrap();
        let connection = endpoint.connect(node.addr()).await.unwrap();
        let (requests, answers) = connection.open_bi(StreamKind(REQUESTS), 0).await.unwrap();
        Self { endpoint, connection, requests, answers }
    }

    async fn ask(&mut self, number: u64, query: Query) {
        self.ask_by(number, query, ReadMode::Strong).await;
    }

    async fn ask_by(&mut self, number: u64, query: Query, mode: ReadMode) {
        let encoded = encode_request(&request(number, query, mode), u16::MAX).unwrap();
        self.requests.send(&encoded.header, &encoded.body).await.unwrap();
    }

    fn leave(self) {
        self.connection.close(CloseCode::DONE, "heard enough");
        drop(self.endpoint);
    }
}

fn request(number: u64, query: Query, mode: ReadMode) -> Request {
    let operation = Operation::Read { query, mode, floor: None, history: None };
    Request { number, chain: ChainId(0), deadline_ms: 60_000, forwarded: false, operation }
}

/// [`DEAF`] clients, each with more requests than fit its share of the capacity.
async fn deaf(cluster: &str, node: &FakeNode, query: impl Fn() -> Query, times: u64) -> Vec<Deaf> {
    let mut all = Vec::new();
    for _ in 0..DEAF {
        let mut deaf = Deaf::connect(cluster, node).await;
        for number in 0..times {
            deaf.ask(number, query()).await;
        }
        all.push(deaf);
    }
    all
}

/// The bytes of one kind that all connections to a node have taken.
fn taken(node: &FakeNode, kind: &str) -> usize {
    let mut taken = node.server.as_ref().unwrap().taken_bytes();
    taken.find(|(name, _)| *name == kind).unwrap().1
}

fn of_two_chains(node: &FakeNode) -> Routing {
    let mut routing = routing(config(&[node.me()], 1), &[node]);
    routing.chains.push(crate::ChainConfig { chain: ChainId(1), ..config(&[node.me()], 1) });
    routing
}

async fn until(is_so: impl Fn() -> bool) {
    let becomes_so = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(8), becomes_so).await.expect("it never became so");
}

#[tokio::test(flavor = "multi_thread")]
async fn unread_answers_to_reads_block_no_answers_to_writes() {
    let cluster = unique("client");
    let node = alone(&cluster);
    let client = connect(&cluster, &node).await;
    let kv = client.kv();
    let value = Bytes::from(vec![7; 30_000]);
    kv.put("k", value.clone()).await.unwrap();
    let read = || Query::Key(Bytes::from_static(b"k"));
    let all = deaf(&cluster, &node, read, 64).await;
    let short = Duration::from_millis(100);
    while kv.get("k").timeout(short).await.is_ok() {}
    for n in 0..100 {
        let key = format!("taken/{n}");
        kv.put(&key, value.clone()).await.unwrap();
        let taken = kv.get_delete(&key).timeout(Duration::from_secs(2)).await;
        assert!(taken.unwrap().result.into_value().as_ref() == Some(&value), "the value of number {n} is returned");
    }
    all.into_iter().for_each(Deaf::leave);
    assert_eq!(kv.get("k").timeout(Duration::from_secs(20)).await.unwrap().into_value(), Some(value));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_room_full_of_other_watches_ends_no_watch() {
    let cluster = unique("client");
    let node = FakeNode::start(&cluster, "alone");
    let routing = of_two_chains(&node);
    node.form_all(&routing);
    let client = connect(&cluster, &node).await;
    let kv = client.kv().with_timeout(Duration::from_secs(20));
    let mut first = kv.watch("k").await.unwrap();
    let put = kv.put("k", "v").await.unwrap();
    assert_eq!(first.next().await.unwrap().unwrap().version, put.version);
    let position = first.position();
    drop(first);
    // The watch's last queries wait at the node for a change in each chain.
    for n in 0..10 {
        kv.put(format!("k{n}"), "v").await.unwrap();
    }
    until(|| taken(&node, "watches") == 0).await;

    let prefix = Bytes::from(vec![b'p'; 700]);
    let watch = || Query::Changes(WatchQuery { prefix: prefix.clone(), after: Some(Sequence(100)), shown: 0 });
    let all = deaf(&cluster, &node, watch, 300).await;
    let mut last = Deaf::connect(&cluster, &node).await;
    for number in 0.. {
        last.ask(number, watch()).await;
        // A query that gets capacity waits for changes.
        if let Ok(answer) = tokio::time::timeout(Duration::from_millis(100), last.answers.next()).await {
            let answer = decode_response(&answer.unwrap().unwrap()).unwrap().answer;
            assert_eq!(answer, ResponseAnswer::Reply(Reply::Refused(Refusal::Busy)));
            break;
        }
    }
    let mut watch = kv.watch("k").from(position).await.unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(200), watch.next()).await.is_err(), "it receives nothing");
    kv.put("k", "w").timeout(Duration::from_secs(2)).await.unwrap();
    assert!(kv.get("k").await.unwrap().value().is_some(), "reads and writes have their own capacity");
    assert!(tokio::time::timeout(Duration::from_millis(200), watch.next()).await.is_err(), "it receives nothing");
    all.into_iter().chain([last]).for_each(Deaf::leave);
    loop {
        let change = tokio::time::timeout(Duration::from_secs(20), watch.next()).await.unwrap().unwrap().unwrap();
        if change.value == Some("w".into()) {
            break;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn short_answers_count_in_the_total_room() {
    let cluster = unique("client");
    let node = alone(&cluster);
    node.kv().put("k", vec![7; 700]).await.unwrap();
    let mut all = Vec::new();
    for _ in 0..8 {
        let mut deaf = Deaf::connect(&cluster, &node).await;
        for number in 0..600 {
            deaf.ask_by(number, Query::Key(Bytes::from_static(b"k")), ReadMode::ThroughChain).await;
        }
        all.push(deaf);
    }
    // Each client requests more than an eighth of the capacity, and reads nothing.
    until(|| taken(&node, "answers").max(taken(&node, "reads")) == fake::QUEUE_BYTES).await;
    all.into_iter().for_each(Deaf::leave);
    until(|| taken(&node, "answers").max(taken(&node, "reads")) == 0).await;
}

/// Each client's stream waits for capacity, and one of its queries waits for changes.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_connection_is_dropped() {
    let cluster = unique("client");
    let node = alone(&cluster);
    let before = node.serving.load(Ordering::Relaxed);
    let prefix = Bytes::from(vec![b'p'; 700]);
    let watch = || Query::Changes(WatchQuery { prefix: prefix.clone(), after: Some(Sequence(100)), shown: 0 });
    let all = deaf(&cluster, &node, watch, 300).await;
    until(|| node.serving.load(Ordering::Relaxed) == before + DEAF).await;
    all.into_iter().for_each(Deaf::leave);
    until(|| node.serving.load(Ordering::Relaxed) == before).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_reports_a_chain_that_refuses_for_good() {
    let cluster = unique("client");
    let node = FakeNode::start(&cluster, "alone");
    let routing = of_two_chains(&node);
    node.form_first(&routing);
    let kv = connect(&cluster, &node).await.kv().with_timeout(Duration::from_secs(1));
    let mut from = crate::Frontier::default();
    for chain in [ChainId(0), ChainId(1)] {
        from.raise(routing.history_id(), chain, Sequence(0));
    }
    let key =
        (0..).map(|n| format!("k{n}")).find(|key| crate::control::chain_of(key.as_bytes(), 2) == ChainId(0)).unwrap();
    let writes = async {
        loop {
            kv.put(&key, "v").await.unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let refused = async {
        let mut watch = kv.watch("k").from(from).await.unwrap();
        while let Some(change) = watch.next().await {
            if let Err(error) = change {
                return error;
            }
        }
        unreachable!("the watch ended")
    };
    tokio::select! {
        error = refused => assert!(matches!(error, Error::Refused { reason: Refusal::NoChain, .. }), "{error:?}"),
        () = writes => {}
        () = tokio::time::sleep(Duration::from_secs(20)) => panic!("the watch reported nothing"),
    }
}

/// A read that isn't ready is queued behind many ready ones, and each answer triggers another ready one.
#[tokio::test(flavor = "multi_thread")]
async fn a_read_that_is_not_ready_has_its_turn() {
    let cluster = unique("client");
    let node = FakeNode::start_with_room(&cluster, "alone", 64 << 20);
    node.form(&routing(config(&[node.me()], 1), &[&node]));
    node.kv().put("k", vec![7; 1000]).await.unwrap();
    for _ in 0..5 {
        wait_behind_others(&cluster, &node).await;
    }
}

async fn wait_behind_others(cluster: &str, node: &FakeNode) {
    const OTHER: u64 = 1_000_000;
    let read = || Query::Key(Bytes::from_static(b"k"));
    let mut client = Deaf::connect(cluster, node).await;
    for number in 0..256 {
        client.ask(number, read()).await;
    }
    client.ask_by(OTHER, read(), ReadMode::Eventual).await;
    let Deaf { endpoint: _endpoint, connection: _connection, mut requests, mut answers } = client;
    let (more, mut wanted) = mpsc::channel::<u64>(4096);
    tokio::spawn(async move {
        while let Some(number) = wanted.recv().await {
            let encoded = encode_request(&request(number, read(), ReadMode::Strong), u16::MAX).unwrap();
            if requests.send(&encoded.header, &encoded.body).await.is_err() {
                return;
            }
        }
    });
    for number in 256..3256 {
        let answer = tokio::time::timeout(Duration::from_secs(8), answers.next()).await.unwrap();
        if decode_response(&answer.unwrap().unwrap()).unwrap().number == OTHER {
            return;
        }
        more.try_send(number).unwrap();
    }
    panic!("3,000 others were served first");
}

/// As in `join!` or a buffered stream: none of the calls is polled while their task waits for another call.
#[tokio::test(flavor = "multi_thread")]
async fn unpolled_calls_block_no_others() {
    let (_node, client) = client_of_one().await;
    let kv = client.kv();
    kv.put("k", "v").await.unwrap();
    let value = Bytes::from(vec![7; 60_000]);
    let mut calls: Vec<_> = (0..140).map(|n| kv.put(format!("{n}"), value.clone()).into_future()).collect();
    for call in &mut calls {
        std::future::poll_fn(|context| std::task::Poll::Ready(call.as_mut().poll(context).is_pending())).await;
    }
    kv.put("k", value).timeout(Duration::from_secs(8)).await.unwrap();
}

/// A client whose runtime no longer runs anything: it was shut down, or no thread drives it.
fn abandoned(runtime: tokio::runtime::Runtime, shuts_down: bool) {
    let here = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let cluster = unique("client");
    let node = {
        let _here = here.enter();
        alone(&cluster)
    };
    let client = runtime.block_on(connect(&cluster, &node));
    let kv = client.kv().with_timeout(Duration::from_secs(1));
    let (asked, asks) = std::sync::mpsc::channel();
    let asking = here.spawn({
        let kv = kv.clone();
        async move {
            loop {
                let get = kv.get("k").await;
                let _ = asked.send(());
                if get.is_err() {
                    return;
                }
            }
        }
    });
    runtime.block_on(async { kv.put("k", "v").await.unwrap() });
    if shuts_down {
        asks.recv().unwrap();
        runtime.shutdown_background();
    }
    here.block_on(async {
        tokio::time::timeout(Duration::from_secs(8), asking).await.expect("it ends").unwrap();
        let ended =
            tokio::time::timeout(Duration::from_secs(8), kv.put("k", "w").into_future()).await.expect("it ends");
        assert!(ended.is_err());
    });
}

#[test]
fn calls_end_in_time_after_their_runtime_shut_down() {
    abandoned(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap(), true);
}

#[test]
fn calls_end_in_time_in_an_undriven_runtime() {
    abandoned(tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap(), false);
}
