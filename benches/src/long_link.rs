//! Writes over a long link: one handle, one node, and a relay between them that delays every datagram.

use std::{
    fs, io,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use artillery_core::{
    config::{Congestion, TransportConfig},
    internal::clock,
};
use artillery_ddata::Client;
use artillery_processes::token;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::{runtime::Builder, task::JoinSet};

use crate::{
    paper::{
        load::{Caller, Line, Work},
        tally::{Kind, Tally},
    },
    relay::{Counts, Relay, pipe::Shape},
    throughput::{
        Failed,
        book::Book,
        crew::{Driver, spread},
        machine::{cpu_of, own_cpu},
        processes::{Process, ReadyLine},
        results::{Machine, lines},
        stats::Window,
    },
};

/// Bytes of a value.
pub const VALUE_BYTES: usize = 1000;

/// A call that takes longer has failed.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// Concurrent reads that verify the writes.
const VERIFIERS: usize = 256;

/// The properties of a link.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// The delay of each datagram in each direction, in milliseconds.
    pub delay_ms: u64,
    /// Lost datagrams per million, in each direction.
    pub loss_ppm: u32,
    /// The congestion control of both sides.
    pub congestion: Congestion,
}

/// The parameters of a measurement.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The path of the program `node`.
    pub node: PathBuf,
    /// The time before a sample: the congestion window needs round trips to grow.
    pub warm_up: Duration,
    /// The length of a sample.
    pub sample: Duration,
    /// Bytes that may be in flight on one stream, at both sides.
    pub window: u32,
}

/// Writes of one handle over one link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The link between client and node.
    #[serde(flatten)]
    pub link: Link,
    /// The number of concurrent writes.
    pub in_flight: usize,
    /// Writes per second.
    pub per_second: f64,
    /// Median latency, in milliseconds.
    pub p50_ms: f64,
    /// 99th percentile of latency, in milliseconds.
    pub p99_ms: f64,
    /// Cores on which client and relay were busy.
    pub client_cores: f64,
    /// Cores on which the node was busy.
    pub node_cores: f64,
    /// Datagrams of both directions that the relay dropped at random.
    pub lost: u64,
    /// Datagrams of both directions for which the relay or the system had no capacity.
    pub dropped: u64,
}

/// The results of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// The machine and the time of the run.
    pub machine: Machine,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Milliseconds before each sample.
    pub warm_up_ms: u64,
    /// Milliseconds of each sample.
    pub sample_ms: u64,
    /// The measured points.
    pub points: Vec<Point>,
}

impl Results {
    /// Writes a file, with one line per point.
    pub fn store(&self, path: &Path) -> io::Result<()> {
        let text = format!(
            "{{\n\"machine\": {},\n\"value_bytes\": {},\n\"warm_up_ms\": {},\n\"sample_ms\": {},\n\"points\": {}\n}}\n",
            serde_json::to_string(&self.machine)?,
            self.value_bytes,
            self.warm_up_ms,
            self.sample_ms,
            lines(&self.points)?
        );
        fs::write(path, text)
    }

    /// The points as a Markdown table.
    pub fn table(&self) -> String {
        let head = "| round trip, ms | lost, % | by | in flight | writes/s | p50 ms | p99 ms | cores: client and relay, node |\n";
        let rows = self.points.iter().map(|point| {
            let Point { link, in_flight, per_second, p50_ms, p99_ms, client_cores, node_cores, .. } = point;
            let (round_trip, lost, by) = (2 * link.delay_ms, f64::from(link.loss_ppm) / 10_000.0, link.congestion);
            let figures = format!("{per_second:.0} | {p50_ms:.1} | {p99_ms:.1} | {client_cores:.2}, {node_cores:.2}");
            format!("| {round_trip} | {lost} | {by} | {in_flight} | {figures} |\n")
        });
        format!("{head}|--:|--:|---|--:|--:|--:|--:|--:|\n{}", rows.collect::<String>())
    }
}

fn transport(link: Link, window: u32) -> TransportConfig {
    let mut transport = TransportConfig::default();
    transport.congestion = link.congestion;
    transport.stream_window_bytes = window;
    transport.connection_window_bytes = window.saturating_mul(8);
    transport
}

/// One node that clients reach through a relay.
struct Site {
    node: Process,
    relay: Relay,
    addr: SocketAddr,
    name: String,
    secret: String,
    /// Drives the relay.
    _driver: Driver,
}

impl Site {
    fn start(plan: &Plan, link: Link, number: u16) -> Result<Self, Failed> {
        let shape = Shape { delay: Duration::from_millis(link.delay_ms), loss_ppm: link.loss_ppm, ..Shape::default() };
        let driver = Driver::start(0)?;
        let bound = driver.run(async { Ok(Relay::bind((Ipv4Addr::LOCALHOST, 0).into())?) })?;
        // Node and relay must know each other's address, so the node's address is chosen here.
        let (addr, target) = (bound.addr, SocketAddr::from((own_loopback(), FIRST_PORT + number)));
        let relay = driver.run(async move { Ok(bound.start(target, &shape)) })?;
        let (name, secret) = (format!("long-link-{}", token()), token());
        let mut command = Command::new(&plan.node);
        command.args(["--cluster", &name, "--no-mdns", "--expect", "1", "--replicas", "1"]);
        command.args(["--listen", &target.to_string(), "--advertise", &addr.to_string()]);
        // More than is in flight with the default numbers of writes.
        command.args(["--window-bytes", "256MiB", "--queue-bytes", "256MiB", "--backlog-bytes", "16MiB"]);
        command.args(["--congestion", &link.congestion.to_string(), "--stream-window-bytes", &plan.window.to_string()]);
        command.args(["--log", "error"]).env("ARTILLERY_SECRET", &secret);
        let node = Process::start(&mut command)?;
        ReadyLine::parse(&node.said()?)?;
        Ok(Self { node, relay, addr, name, secret, _driver: driver })
    }

    async fn connect(&self, plan: &Plan, link: Link) -> Result<Client, Failed> {
        let client = Client::builder().cluster(&self.name).secret(&self.secret).transport(transport(link, plan.window));
        Ok(client.seed(self.addr).connect().await?)
    }
}

const FIRST_PORT: u16 = 4000;

/// A loopback address derived from the process id, so that concurrent runs use different ones.
fn own_loopback() -> Ipv4Addr {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 100 + high % 100, middle, low.clamp(1, 254))
}

/// Measures one point, with a separate node, relay and client.
///
/// # Errors
/// Any failed operation or wrong value.
pub fn measure(plan: &Plan, link: Link, in_flight: usize, number: u16) -> Result<Point, Failed> {
    let site = Site::start(plan, link, number)?;
    let book = Book::with((0..in_flight).map(|n| Bytes::from(format!("long/{n:06}"))).collect(), VALUE_BYTES);
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = site.connect(plan, link).await?;
        let point = sample(plan, &site, &client, &book, link, in_flight).await?;
        verify(&client, &book).await?;
        client.close().await;
        Ok(point)
    })
}

async fn sample(
    plan: &Plan,
    site: &Site,
    client: &Client,
    book: &Arc<Book>,
    link: Link,
    in_flight: usize,
) -> Result<Point, Failed> {
    let from = clock::now() + plan.warm_up;
    let window = Window { from, until: from + plan.sample };
    let line = line(client, book, window)?;
    let mut callers = JoinSet::new();
    let work = Work::Write { per_second: None };
    for number in 0..in_flight {
        callers.spawn(Caller { work, number, writers: in_flight }.work(line.clone()));
    }
    until(&mut callers, from).await?;
    let busy = || Ok::<_, Failed>((own_cpu(), cpu_of(site.node.pid())?));
    let (before, began) = (busy()?, clock::now());
    until(&mut callers, window.until).await?;
    let (after, seconds) = (busy()?, (clock::now() - began).as_secs_f64());
    // Writes that are still in flight may or may not take effect: the book accepts both.
    callers.shutdown().await;
    let tally = line.tally.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let latency = tally.latency(Kind::Write);
    let counts = site.relay.counts();
    let sum = |of: fn(&Counts) -> u64| counts.iter().map(of).sum();
    let cores = |before: f64, after: f64| ((after - before) / seconds * 1000.0).round() / 1000.0;
    Ok(Point {
        link,
        in_flight,
        per_second: tally.per_second(Kind::Write).round(),
        p50_ms: latency.p50_us / 1000.0,
        p99_ms: latency.p99_us / 1000.0,
        client_cores: cores(before.0, after.0),
        node_cores: cores(before.1, after.1),
        lost: sum(|counts| counts.lost),
        dropped: sum(|counts| counts.dropped + counts.refused),
    })
}

fn line(client: &Client, book: &Arc<Book>, window: Window) -> Result<Line, Failed> {
    let (kv, tally) = (client.kv().with_timeout(CALL_TIMEOUT), Arc::new(Mutex::new(Tally::new(window)?)));
    Ok(Line { kv, book: book.clone(), copies: 1, window, tolerant: false, tally })
}

/// Lets the callers continue until `then`. The first failure ends the sample.
async fn until(callers: &mut JoinSet<Result<(), Failed>>, then: artillery_core::Timestamp) -> Result<(), Failed> {
    let time_is_up = tokio::time::sleep(then.saturating_since(clock::now()));
    tokio::pin!(time_is_up);
    loop {
        tokio::select! {
            () = &mut time_is_up => return Ok(()),
            Some(ended) = callers.join_next() => ended??,
        }
    }
}

/// Checks that every written key holds its last acknowledged value, or one that was in flight at the end.
async fn verify(client: &Client, book: &Arc<Book>) -> Result<(), Failed> {
    let now = clock::now();
    let line = line(client, book, Window { from: now, until: now })?;
    let verify = move |at| {
        let line = line.clone();
        async move { if line.book.floor(at) > 0 { line.read(at).await } else { Ok(()) } }
    };
    spread(0..VERIFIERS, VERIFIERS, book.keys(), verify).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_show_round_trips() {
        let point = Point {
            link: Link { delay_ms: 78, loss_ppm: 1000, congestion: Congestion::Bbr },
            in_flight: 1024,
            per_second: 5500.0,
            p50_ms: 160.0,
            p99_ms: 200.0,
            client_cores: 0.5,
            node_cores: 0.25,
            lost: 3,
            dropped: 0,
        };
        let machine = crate::throughput::results::made_up::results(Vec::new()).machine;
        let results = Results { machine, value_bytes: 1000, warm_up_ms: 1, sample_ms: 1, points: vec![point] };
        assert!(results.table().ends_with("| 156 | 0.1 | bbr | 1024 | 5500 | 160.0 | 200.0 | 0.50, 0.25 |\n"));
    }

    #[test]
    fn loopback_addresses_are_ours() {
        assert!(own_loopback().is_loopback() && own_loopback() != Ipv4Addr::LOCALHOST);
    }
}
