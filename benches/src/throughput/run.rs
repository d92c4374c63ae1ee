//! The run: who is measured, in which order, and what is kept of it.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use artillery_core::{clock, config::TransportConfig};
use artillery_ddata::{Client, NodeId};
use tokio::task::JoinSet;

use super::{
    Failed,
    book::Book,
    crew::{Crew, Driver, MakeLine, Orders, Tasks, Threads},
    echo::{Echo, SHAPE},
    lines::{CarriedClient, KvLine, OwnQuic, QuicLine, SharedClient, blocking_client, connect, reader},
    machine::{cpu_of, own_cpu},
    placement::Placed,
    processes::{Cluster, Contact},
    quota::Quotas,
    results::{Graph, Placement, Point, Settings, System},
    stats::Window,
};
use crate::{
    VALUE,
    raw::{BlockingTcp, Quic, Tcp},
};

/// Reads of a hundred operations, unless the graph is about it.
const READS_PERCENT: u32 = 99;

/// Members of the chains whose callers are counted.
const MEMBERS: u32 = 3;

/// How many writers give keys their first values, and how many readers look at the last.
const FILLERS: usize = 50;

/// How a thread calls the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Way {
    /// It has a client and a runtime of its own.
    Own,
    /// All threads share a client, which runs on threads of its own.
    Shared,
    /// All threads share a client, and whoever waits first drives it for all.
    Carried,
}

/// What is to be measured, and how long.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The program `node`.
    pub node: PathBuf,
    /// This program.
    pub own: PathBuf,
    /// Numbers of callers, rising.
    pub callers: Vec<u32>,
    /// Samples of each point.
    pub rounds: u32,
    /// Before each sample.
    pub warm_up: Duration,
    /// Of each sample.
    pub sample: Duration,
    /// Keys of a cluster.
    pub keys: usize,
    /// How a thread calls.
    pub way: Way,
    /// Threads beside its own that a handle for concurrent callers runs on.
    pub workers: usize,
    /// Parts of a core that each node is held to, one after the other.
    pub shares: Vec<f64>,
    /// Callers for each member there: a longer chain is offered more.
    pub callers_per_member: u32,
    /// Lengths of chains there.
    pub share_members: Vec<u32>,
    /// Read shares there.
    pub share_reads: Vec<u32>,
}

impl Plan {
    /// 1, 2, 3, 4, 5, 10, 20, …, 100 callers: about ten minutes.
    pub fn full(node: PathBuf, own: PathBuf) -> Self {
        Self {
            node,
            own,
            callers: (1..=5).chain((10..=100).step_by(10)).collect(),
            rounds: 5,
            warm_up: Duration::from_millis(80),
            sample: Duration::from_millis(300),
            keys: 10_000,
            way: Way::Carried,
            workers: 0,
            shares: vec![0.2, 0.1],
            callers_per_member: 60,
            share_members: vec![1, 3, 5],
            share_reads: vec![100, 99, 90, 50],
        }
    }

    /// Few points and short samples: whether it works, not how fast.
    pub fn quick(node: PathBuf, own: PathBuf) -> Self {
        Self {
            callers: vec![1, 10],
            rounds: 2,
            warm_up: Duration::from_millis(50),
            sample: Duration::from_millis(150),
            keys: 1000,
            shares: vec![0.2],
            share_reads: vec![100, 90],
            ..Self::full(node, own)
        }
    }

    /// As it is stored.
    pub fn settings(&self) -> Settings {
        let transport = TransportConfig::default();
        Settings {
            value_bytes: VALUE,
            keys: self.keys,
            rounds: self.rounds,
            warm_up_ms: self.warm_up.as_millis() as u64,
            sample_ms: self.sample.as_millis() as u64,
            blocking: match self.way {
                Way::Own => "a client and a current-thread runtime for each thread".to_owned(),
                Way::Shared => "one client for all threads, on a runtime beside them".to_owned(),
                Way::Carried => "one client for all threads, driven by whichever of them waits first".to_owned(),
            },
            concurrent: match self.workers {
                0 => "one handle on a current-thread runtime".to_owned(),
                workers => format!("one handle on a runtime of {workers} threads"),
            },
            callers_per_member: self.callers_per_member,
            transport: format!(
                "UDP payloads up to {}, segmentation offload {}, socket buffers {} KiB",
                transport.max_udp_payload,
                if transport.segmentation_offload { "on" } else { "off" },
                transport.socket_buffer_bytes >> 10
            ),
        }
    }

    fn orders(&self, reads_percent: u32, seed: u64) -> Orders {
        let from = clock::now() + self.warm_up;
        Orders { reads_percent, seed, window: Window { from, until: from + self.sample } }
    }
}

/// Somebody who is measured.
struct Contestant {
    system: System,
    members: u32,
    pids: Vec<u32>,
    crew: Box<dyn Crew>,
}

impl Contestant {
    /// A sample; it is added to the point.
    fn sample(&mut self, orders: Orders, point: &mut Point) -> Result<(), Failed> {
        let servers = |pids: &[u32]| pids.iter().map(|&pid| cpu_of(pid)).sum::<Result<f64, _>>();
        let (began, client, server) = (clock::now(), own_cpu(), servers(&self.pids)?);
        let tally = self.crew.sample(orders).map_err(|error| format!("{}: {error}", self.system))?;
        let seconds = (clock::now() - began).as_secs_f64();
        let rounded = |number: f64, digits: f64| (number * digits).round() / digits;
        point.per_second.push(tally.per_second(&orders.window).round());
        point.p50_us.push(rounded(tally.micros(0.5), 10.0));
        point.p99_us.push(rounded(tally.micros(0.99), 10.0));
        point.client_cores.push(rounded((own_cpu() - client) / seconds, 100.0));
        point.server_cores.push(rounded((servers(&self.pids)? - server) / seconds, 100.0));
        Ok(())
    }
}

/// A chain, what was written to it, and a client for both.
struct Chain {
    system: System,
    cluster: Cluster,
    book: Arc<Book>,
}

impl Chain {
    fn start(plan: &Plan, system: System, members: u32, limit: Option<(&Quotas, f64)>) -> Result<Self, Failed> {
        let mode = if system == System::Cr { "cr" } else { "craq" };
        let mut cluster = Cluster::start(&plan.node, mode, members)?;
        let book = Book::new(plan.keys);
        for_each_key(&cluster.contact, &book, |line, at| Box::pin(async move { line.write(at).await }))?;
        if let Some((quotas, share)) = limit {
            cluster.hold(|pid| quotas.hold(pid, share))?;
        }
        Ok(Self { system, cluster, book })
    }

    fn members(&self) -> u32 {
        self.cluster.contact.members()
    }

    /// Every key holds the last that was written to it.
    fn verify(&self) -> Result<(), Failed> {
        for_each_key(&self.cluster.contact, &self.book, |line, at| {
            Box::pin(async move { line.read(at).await.map(drop) })
        })
    }

    fn contestant(&self, crew: impl Crew + 'static) -> Contestant {
        let (system, members, pids) = (self.system, self.members(), self.cluster.pids());
        Contestant { system, members, pids, crew: Box::new(crew) }
    }

    fn line(&self, client: &Client) -> KvLine {
        KvLine::new(client.kv(), self.book.clone(), self.members())
    }

    fn threads(&self, plan: &Plan) -> Result<Threads, Failed> {
        let (contact, book) = (self.cluster.contact.clone(), self.book.clone());
        Ok(match plan.way {
            Way::Own => Threads::new(self.book.clone(), move || blocking_client(&contact, &book)),
            Way::Shared => {
                let driver = Driver::start(plan.workers)?;
                let line = self.line(&driver.run(async move { reader(&contact, &book).await })?);
                let make =
                    move || Ok(Box::new(SharedClient { line: line.clone(), handle: driver.handle().clone() }) as _);
                Threads::new(self.book.clone(), make)
            }
            Way::Carried => {
                let runtime = Arc::new(tokio::runtime::Builder::new_current_thread().enable_all().build()?);
                let line = self.line(&runtime.block_on(reader(&contact, &book))?);
                let make = move || Ok(Box::new(CarriedClient { line: line.clone(), runtime: runtime.clone() }) as _);
                Threads::new(self.book.clone(), make)
            }
        })
    }

    /// All callers on one handle.
    fn tasks(&self, plan: &Plan) -> Result<Tasks<KvLine>, Failed> {
        let driver = Arc::new(Driver::start(plan.workers)?);
        let (contact, book) = (self.cluster.contact.clone(), self.book.clone());
        let client = driver.run(async move { reader(&contact, &book).await })?;
        Ok(Tasks::new(self.book.clone(), [(driver, self.make_line(client))]))
    }

    fn make_line(&self, client: Client) -> MakeLine<KvLine> {
        let line = self.line(&client);
        Box::new(move || {
            // The client ends with the last line.
            let line = line.clone();
            Box::pin(async move { Ok(line) })
        })
    }

    /// As many clients as there are members, each on a thread of its own; in CRAQ each reads from another member.
    fn spread(&self) -> Result<Tasks<KvLine>, Failed> {
        let mut served = Vec::new();
        let mut parts = Vec::new();
        while parts.len() < self.members() as usize {
            let driver = Arc::new(Driver::start(0)?);
            let (contact, book, taken) = (self.cluster.contact.clone(), self.book.clone(), served.clone());
            let (members, system) = (self.members(), self.system);
            let (client, node) = driver.run(async move {
                let wanted = |node: &NodeId| system == System::Cr || !taken.contains(node);
                client_of(&contact, &book, members, wanted).await
            })?;
            served.push(node);
            parts.push((driver, self.make_line(client)));
        }
        Ok(Tasks::new(self.book.clone(), parts))
    }
}

/// A client whose reads are served by one of those that are wanted. Each client has one node for its reads, by chance.
async fn client_of(
    contact: &Contact,
    book: &Arc<Book>,
    members: u32,
    wanted: impl Fn(&NodeId) -> bool,
) -> Result<(Client, NodeId), Failed> {
    const TRIES: usize = 500;
    for _ in 0..TRIES {
        let client = connect(contact).await?;
        let node = KvLine::new(client.kv(), book.clone(), members).read(0).await?;
        if wanted(&node) {
            return Ok((client, node));
        }
        client.close().await;
    }
    Err("clients never choose some of the members".into())
}

type Doing = std::pin::Pin<Box<dyn Future<Output = Result<(), Failed>> + Send>>;

fn for_each_key(contact: &Contact, book: &Arc<Book>, what: fn(KvLine, usize) -> Doing) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = connect(contact).await?;
        let mut tasks = JoinSet::new();
        for filler in 0..FILLERS {
            let (line, keys) = (KvLine::new(client.kv(), book.clone(), contact.members()), book.keys());
            tasks.spawn(async move {
                for at in (filler..keys).step_by(FILLERS) {
                    what(line.clone(), at).await?;
                }
                Ok::<_, Failed>(())
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        client.close().await;
        Ok(())
    })
}

/// Measures by number of callers: threads, then callers on one handle.
///
/// # Errors
/// Whatever failed, be it a single operation.
pub fn by_callers(plan: &Plan, placement: Placement) -> Result<Vec<Point>, Failed> {
    let _placed = Placed::begin(placement)?;
    eprintln!("{placement}:");
    let echo = Echo::start(&plan.own)?;
    let chains = [System::Cr, System::Craq].map(|system| Chain::start(plan, system, MEMBERS, None));
    let [cr, craq] = chains;
    let chains = [cr?, craq?];
    let mut points = Vec::new();
    let mut contestants = echo_threads(&echo);
    for chain in &chains {
        contestants.push(chain.contestant(chain.threads(plan)?));
    }
    points.extend(take_turns(plan, Graph::Blocking, placement, contestants)?);
    let mut contestants = echo_tasks(&echo, plan)?;
    for chain in &chains {
        contestants.push(chain.contestant(chain.tasks(plan)?));
    }
    points.extend(take_turns(plan, Graph::Concurrent, placement, contestants)?);
    chains.iter().try_for_each(Chain::verify)?;
    Ok(points)
}

/// One connection for each thread.
fn echo_threads(echo: &Echo) -> Vec<Contestant> {
    let (tcp, quic) = (echo.addresses.tcp, echo.addresses.quic);
    let certificate = echo.addresses.certificate.clone();
    let tcp = Threads::new(Book::new(1), move || Ok(Box::new(BlockingTcp::connect_to(tcp, SHAPE)?)));
    let quic = Threads::new(Book::new(1), move || Ok(Box::new(OwnQuic::connect(quic, certificate.clone())?)));
    vec![of_echo(echo, System::Tcp, tcp), of_echo(echo, System::Quic, quic)]
}

fn of_echo(echo: &Echo, system: System, crew: impl Crew + 'static) -> Contestant {
    Contestant { system, members: 1, pids: vec![echo.process.pid()], crew: Box::new(crew) }
}

/// A TCP connection for each caller, and a stream for each on one QUIC connection.
fn echo_tasks(echo: &Echo, plan: &Plan) -> Result<Vec<Contestant>, Failed> {
    let (tcp, quic) = (echo.addresses.tcp, echo.addresses.quic);
    let make: MakeLine<Tcp> = Box::new(move || Box::pin(async move { Ok(Tcp::connect_to(tcp, SHAPE).await?) }));
    let tcp = Tasks::new(Book::new(1), [(Arc::new(Driver::start(plan.workers)?), make)]);
    let driver = Arc::new(Driver::start(plan.workers)?);
    let certificate = echo.addresses.certificate.clone();
    let connection = driver.run(async move { Ok(Quic::connect_to(quic, certificate, SHAPE).await?) })?;
    let connection = Arc::new(connection);
    let make: MakeLine<QuicLine> = Box::new(move || {
        let connection = connection.clone();
        Box::pin(async move { Ok(QuicLine(connection.another(SHAPE).await?)) })
    });
    let quic = Tasks::new(Book::new(1), [(driver, make)]);
    Ok(vec![of_echo(echo, System::Tcp, tcp), of_echo(echo, System::Quic, quic)])
}

/// At each number of callers, all contestants one after the other, round by round.
fn take_turns(
    plan: &Plan,
    graph: Graph,
    placement: Placement,
    mut contestants: Vec<Contestant>,
) -> Result<Vec<Point>, Failed> {
    let mut points = Vec::new();
    for &callers in &plan.callers {
        let mut row = Vec::new();
        for contestant in &mut contestants {
            contestant.crew.grow(callers)?;
            let is_chain = matches!(contestant.system, System::Cr | System::Craq);
            let reads_percent = if is_chain { READS_PERCENT } else { 100 };
            row.push(point(graph, placement, contestant, callers, reads_percent));
        }
        for round in 0..plan.rounds {
            sample_all(plan, round, &mut contestants, &mut row)?;
        }
        tell(&row);
        points.append(&mut row);
    }
    Ok(points)
}

/// A sample of each: there and back again, so that nobody is always the first.
fn sample_all(plan: &Plan, round: u32, contestants: &mut [Contestant], row: &mut [Point]) -> Result<(), Failed> {
    let mut order: Vec<_> = (0..row.len()).collect();
    if round % 2 == 1 {
        order.reverse();
    }
    for at in order {
        let (contestant, point) = (&mut contestants[at], &mut row[at]);
        contestant.sample(plan.orders(point.reads_percent, u64::from(round) + 1), point)?;
    }
    Ok(())
}

fn point(graph: Graph, placement: Placement, of: &Contestant, callers: u32, reads_percent: u32) -> Point {
    Point {
        graph,
        placement,
        system: of.system,
        members: of.members,
        share: None,
        callers,
        reads_percent,
        per_second: Vec::new(),
        p50_us: Vec::new(),
        p99_us: Vec::new(),
        client_cores: Vec::new(),
        server_cores: Vec::new(),
    }
}

fn tell(row: &[Point]) {
    for point in row {
        let Point {
            graph,
            system,
            members,
            callers,
            reads_percent,
            per_second,
            p50_us,
            client_cores,
            server_cores,
            ..
        } = point;
        eprintln!(
            "  {graph}, {callers} callers, {reads_percent} % reads, {system}-{members}: {per_second:?}/s, {p50_us:?} µs, \
             callers busy on {client_cores:?} cores, nodes on {server_cores:?}"
        );
    }
}

/// Measures chains of several lengths whose nodes are held to equal parts of a core, by read share.
///
/// # Errors
/// Whatever failed, be it a single operation.
pub fn by_shares(plan: &Plan, quotas: &Quotas) -> Result<Vec<Point>, Failed> {
    let mut points = Vec::new();
    for &share in &plan.shares {
        eprintln!("each node held to {share} of a core:");
        points.extend(with_share(plan, quotas, share)?);
    }
    Ok(points)
}

fn with_share(plan: &Plan, quotas: &Quotas, share: f64) -> Result<Vec<Point>, Failed> {
    let mut chains = Vec::new();
    for &members in &plan.share_members {
        for system in [System::Cr, System::Craq] {
            chains.push(Chain::start(plan, system, members, Some((quotas, share)))?);
        }
    }
    let mut contestants = Vec::new();
    for chain in &chains {
        let mut contestant = chain.contestant(chain.spread()?);
        contestant.crew.grow(plan.callers_per_member * chain.members())?;
        contestants.push(contestant);
    }
    let mut points = Vec::new();
    for &reads_percent in &plan.share_reads {
        let new = |of: &Contestant| {
            let callers = plan.callers_per_member * of.members;
            Point { share: Some(share), ..point(Graph::Shares, Placement::Free, of, callers, reads_percent) }
        };
        let mut row: Vec<_> = contestants.iter().map(new).collect();
        for round in 0..plan.rounds {
            sample_all(plan, round, &mut contestants, &mut row)?;
        }
        tell(&row);
        points.append(&mut row);
    }
    drop(contestants);
    chains.iter().try_for_each(Chain::verify)?;
    Ok(points)
}

/// The program `node` beside this one.
///
/// # Errors
/// That it isn't there.
pub fn node_beside(own: &Path) -> Result<PathBuf, Failed> {
    let node = own.with_file_name("node");
    if node.exists() {
        return Ok(node);
    }
    Err(format!("{} is missing: cargo build --release -p artillery-examples --bins", node.display()).into())
}
