//! The run: the contestants, their order, and the results.

mod chain;
mod contestant;
mod plan;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

pub use self::plan::{Plan, Way};
use self::{chain::Chain, contestant::Contestant};
use super::{
    Failed,
    book::Book,
    crew::{Crew, Driver, MakeLine, Tasks, Threads},
    echo::{Echo, SHAPE},
    lines::{OwnQuic, QuicLine},
    placement::Placed,
    quota::Quotas,
    results::{Graph, Placement, Point, System},
};
use crate::raw::{BlockingTcp, Quic, Tcp};

/// Percentage of reads, unless the graph varies it.
const READS_PERCENT: u32 = 99;

/// Members of the chains in graphs by number of callers.
const MEMBERS: u32 = 3;

/// Measures by number of callers: threads, then callers on one handle.
///
/// # Errors
/// Any failure, even of a single operation.
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

/// Measures all contestants in turns at each number of callers, round by round.
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

/// The indices of the contestants, forward or backward by round, so that none is always first.
pub(crate) fn turns(contestants: usize, round: u32) -> Vec<usize> {
    let mut order: Vec<_> = (0..contestants).collect();
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

/// Takes one sample of each contestant.
fn sample_all(plan: &Plan, round: u32, contestants: &mut [Contestant], row: &mut [Point]) -> Result<(), Failed> {
    for at in turns(row.len(), round) {
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
        let Point { graph, system, members, callers, reads_percent, .. } = point;
        let Point { per_second, p50_us, client_cores, server_cores, .. } = point;
        eprintln!(
            "  {graph}, {callers} callers, {reads_percent} % reads, {system}-{members}: {per_second:?}/s, {p50_us:?} µs, \
             callers busy on {client_cores:?} cores, nodes on {server_cores:?}"
        );
    }
}

/// Measures chains of several lengths, whose nodes are limited to equal fractions of a core, by read share.
///
/// # Errors
/// Any failure, even of a single operation.
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

/// The program `node` next to this one.
pub fn node_beside(own: &Path) -> Result<PathBuf, Failed> {
    let node = own.with_file_name("node");
    if node.exists() {
        return Ok(node);
    }
    Err(format!("{} is missing: cargo build --release --bin node", node.display()).into())
}
