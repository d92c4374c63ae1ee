//! Hostile or broken callers: incomplete handshakes, readers that never read, garbage from a caller with the secret,
//! connections by the thousand. Meanwhile other callers must be served, and memory must stay bounded.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use artillery_core::{
    Incarnation,
    config::TransportConfig,
    identity::Identity,
    transport::{
        Connection, Endpoint, FrameReader, FrameWriter, IncomingStream, LocalInfo, PeerInfo, PeerKind, Service,
        StreamKind,
    },
};
use artillery_ddata::{ChainId, Client, ReadMode};
use artillery_processes::{Cluster, TEST_TIMEOUT, token};
use artillery_proto::{
    api::Query,
    message::request::{Operation, Request},
    wire::{request::encode_request, streams},
};
use tokio::{
    task::JoinSet,
    time::{Instant, timeout},
};

const FLAGS: [&str; 6] = ["--queue-bytes", "8MiB", "--window-bytes", "8MiB", "--backlog-bytes", "16MiB"];
/// Makes the allocator release freed memory at once: see `overload`.
const ENVIRONMENT: (&str, &str) = ("MIMALLOC_PURGE_DELAY", "0");
/// Length of a value that no reader fetches from its stream.
const LARGE: usize = 1 << 20;
/// How often the key is overwritten: each unread answer keeps its own value in memory.
const OVERWRITTEN: u64 = 400;
/// One at each node: the large answers of a connection may occupy two of the largest frames.
const SLOW_READERS: usize = 3;
const LARGE_ANSWERS: u64 = 2 * (64 << 20);
/// Queue, window and backlog, twice, plus memory that allocators retain.
const MARGIN: u64 = 80 << 20;

const VISITORS: usize = 16;

struct Deaf;

impl Service for Deaf {
    fn stream(&self, _: &Arc<PeerInfo>, _: IncomingStream) {}
}

/// A caller that knows the secret.
pub(crate) struct Insider {
    cluster: String,
    secret: String,
    addrs: Vec<SocketAddr>,
}

impl Insider {
    pub(crate) fn of(cluster: &Cluster) -> Arc<Self> {
        let addrs = cluster.addrs.iter().map(|addr| addr.parse().unwrap()).collect();
        Arc::new(Self { cluster: cluster.name.clone(), secret: cluster.secret.clone(), addrs })
    }

    pub(crate) fn endpoint(&self, only_first: Option<u32>) -> Endpoint {
        let identity = Identity::client_from_secret(self.secret.as_bytes()).unwrap();
        let local = LocalInfo::new(&self.cluster, Incarnation { store: 0, starts: 1 }, PeerKind::Client);
        let mut config = TransportConfig::loopback();
        config.hello_timeout = Duration::from_secs(1);
        // The keep-alive packets of the nodes suffice. Those of 10,000 connections in this process would be a load of
        // its own.
        config.keep_alive = config.idle_timeout / 2;
        let passed = AtomicU32::new(0);
        let filter = move |_: SocketAddr| only_first.is_none_or(|most| passed.fetch_add(1, Ordering::Relaxed) < most);
        Endpoint::bind_filtered(config, identity, local, Arc::new(Deaf), Arc::new(filter)).unwrap()
    }

    pub(crate) fn addr(&self, at: usize) -> SocketAddr {
        self.addrs[at % 3]
    }

    /// Starts handshakes and sends only the first packet of each.
    async fn half_open(&self, count: usize) {
        let mut all = JoinSet::new();
        for n in 0..count {
            let (endpoint, addr) = (self.endpoint(Some(1)), self.addr(n));
            all.spawn(async move { endpoint.connect(addr).await.is_err() });
            if all.len() >= 200 {
                assert!(all.join_next().await.unwrap().unwrap());
            }
        }
        assert!(all.join_all().await.into_iter().all(|failed| failed));
    }

    /// A client that sends requests and never reads an answer.
    async fn slow_reader(&self, at: usize) -> SlowReader {
        let endpoint = self.endpoint(None);
        let connection = endpoint.connect(self.addr(at)).await.unwrap();
        let (writer, answers) = connection.open_bi(StreamKind(streams::REQUESTS), 0).await.unwrap();
        SlowReader { writer, asked: 0, _rest: (endpoint, connection, answers) }
    }

    async fn garbage(&self, at: usize) {
        let endpoint = self.endpoint(None);
        let connection = endpoint.connect(self.addr(at)).await.unwrap();
        let (mut writer, _reader) = connection.open_bi(StreamKind(streams::REQUESTS), 0).await.unwrap();
        while writer.send(&[0xff; 40], &[]).await.is_ok() {}
        timeout(TEST_TIMEOUT, connection.closed()).await.expect("garbage is tolerated");
    }

    async fn knock(&self, endpoint: &Endpoint, at: usize) {
        let deadline = Instant::now() + TEST_TIMEOUT;
        while endpoint.connect(self.addr(at)).await.is_err() {
            assert!(Instant::now() < deadline, "no caller is admitted");
        }
    }

    async fn visit(&self, at: usize) {
        let client = Client::builder().cluster(&self.cluster).secret(&self.secret).timeout(TEST_TIMEOUT);
        let client = client.seed(self.addr(at)).connect().await.unwrap();
        client.kv().with_timeout(TEST_TIMEOUT).get("counted").await.unwrap();
        client.close().await;
    }
}

struct SlowReader {
    writer: FrameWriter,
    asked: u64,
    _rest: (Endpoint, Connection, FrameReader),
}

impl SlowReader {
    /// Requests the current large value, if the node reads more requests.
    async fn ask(&mut self) {
        let operation =
            Operation::Read { query: Query::Key("large".into()), mode: ReadMode::Strong, floor: None, history: None };
        let request =
            Request { number: self.asked, chain: ChainId(0), deadline_ms: 60_000, forwarded: false, operation };
        let request = encode_request(&request, u16::MAX).unwrap();
        let sent = timeout(Duration::from_millis(100), self.writer.send(&request.header, &request.body)).await;
        self.asked += u64::from(matches!(sent, Ok(Ok(()))));
    }
}

/// A well-behaved client: the number of its served calls, and the longest time of an increment and its read together.
#[derive(Default)]
struct Honest {
    over: AtomicBool,
    served: AtomicU64,
    longest_ms: AtomicU64,
}

impl Honest {
    async fn live(self: Arc<Self>, client: Client) -> u64 {
        let kv = client.kv().with_timeout(TEST_TIMEOUT);
        while !self.over.load(Ordering::Relaxed) {
            let began = Instant::now();
            let count = kv.increment("counted", 1).await.unwrap().result;
            let seen = kv.get("counted").await.unwrap().into_value().unwrap();
            assert_eq!(seen, count.to_string());
            self.served.fetch_add(2, Ordering::Relaxed);
            self.longest_ms.fetch_max(began.elapsed().as_millis() as u64, Ordering::Relaxed);
        }
        self.served.load(Ordering::Relaxed) / 2
    }
}

async fn abuse(half_open: usize, visits: usize) {
    let cluster = Cluster::start_with(ENVIRONMENT, &FLAGS).await;
    let builder = Client::builder().cluster(&cluster.name).secret(&cluster.secret);
    let client = builder.seed(&cluster.addrs[0]).connect().await.unwrap();
    client.kv().put("large", vec![b'x'; LARGE]).await.unwrap();
    let honest = Arc::new(Honest::default());
    let living = tokio::spawn(honest.clone().live(client.clone()));
    let insider = Insider::of(&cluster);
    for at in 0..30 {
        insider.visit(at).await;
    }
    let resident = || cluster.nodes.iter().map(|node| node.resident()).collect::<Vec<_>>();
    let before = resident();
    let told = |what: &str, since: Instant| {
        let (served, longest) = (honest.served.load(Ordering::Relaxed), honest.longest_ms.load(Ordering::Relaxed));
        let mib: Vec<_> = resident().iter().map(|bytes| bytes >> 20).collect();
        println!(
            "{what} in {:.1} s: resident MiB {mib:?}; others: {served} calls served, {longest} ms at most",
            since.elapsed().as_secs_f64()
        );
        served
    };

    let since = Instant::now();
    insider.half_open(half_open).await;
    let mut served = told(&format!("{half_open} handshakes left half open"), since);
    assert!(served > 0);

    let since = Instant::now();
    let mut readers = Vec::new();
    for at in 0..SLOW_READERS {
        readers.push(insider.slow_reader(at).await);
    }
    for n in 0..OVERWRITTEN {
        client.kv().put("large", vec![n as u8; LARGE]).await.unwrap();
        for reader in &mut readers {
            reader.ask().await;
        }
    }
    let asked: u64 = readers.iter().map(|reader| reader.asked).sum();
    assert!(asked > OVERWRITTEN, "only {asked} requests were accepted");
    let now = told(&format!("{SLOW_READERS} readers that never read"), since);
    assert!(now > served, "no other caller was served");
    for (before, after) in before.iter().zip(resident()) {
        assert!(
            after <= before + LARGE_ANSWERS + MARGIN,
            "{before} bytes before, {after} with readers that never read"
        );
    }
    drop(readers);
    for at in 0..30 {
        insider.garbage(at).await;
    }
    served = told("30 connections full of garbage", since);
    assert!(served > now, "no other caller was served");

    let before = resident();
    let since = Instant::now();
    let mut visitors = JoinSet::new();
    for visitor in 0..VISITORS {
        let insider = insider.clone();
        visitors.spawn(async move {
            let endpoint = insider.endpoint(None);
            for (n, at) in (visitor..visits).step_by(VISITORS).enumerate() {
                if n % 16 == 0 {
                    insider.visit(at).await;
                } else {
                    insider.knock(&endpoint, at).await;
                }
            }
        });
    }
    visitors.join_all().await;
    let now = told(&format!("{visits} connections"), since);
    assert!(now > served, "no other caller was served");
    for (before, after) in before.iter().zip(resident()) {
        assert!(after <= before + MARGIN, "{before} bytes before, {after} after all the visits");
    }

    honest.over.store(true, Ordering::Relaxed);
    let acknowledged = living.await.unwrap();
    let counted = client.kv().get("counted").await.unwrap().into_value().unwrap();
    assert_eq!(counted, acknowledged.to_string());
    let key = token();
    client.kv().put(&*key, "still well").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn abusive_callers_leave_others_served() {
    abuse(100, 160).await;
}

#[ignore = "takes minutes: `.ci/run overload`"]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_connections_leave_others_served() {
    abuse(1_000, 10_000).await;
}
