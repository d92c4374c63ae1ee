//! The experiments of the evaluation.

mod failover;
mod latency;
mod mixed;
mod reads;
mod writes;

use std::{path::PathBuf, sync::Arc, thread, time::Duration};

use artillery_core::internal::clock;
use bytes::Bytes;

pub use self::{failover::failover, latency::latency, mixed::mixed, reads::reads, writes::writes};
use super::{
    chain::{Chain, Lab},
    crowd::Crowd,
    load::Caller,
    net::QUEUE_BYTES,
    results::{Cores, Settings},
    tally::Tally,
};
use crate::throughput::{
    Failed,
    book::Book,
    machine::{cpu_of, idle_cpu, own_cpu},
    results::System,
    run::turns,
    stats::Window,
};

/// Value sizes in the paper, in bytes.
const SMALL: usize = 500;
const LARGE: usize = 5000;

/// The parameters of a run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The path of the program `node`.
    pub node: PathBuf,
    /// Whether samples are short and points few.
    pub quick: bool,
    /// Samples of each point.
    pub rounds: u32,
    /// Time before each sample.
    pub warm_up: Duration,
    /// Length of a sample.
    pub sample: Duration,
    /// Keys of a book.
    pub keys: usize,
    /// Keys that are written and read concurrently.
    pub hot_keys: usize,
    /// Clients for each member.
    pub clients_per_member: usize,
}

impl Plan {
    /// A run whose figures are worth storing.
    pub fn full(node: PathBuf) -> Self {
        let (warm_up, sample) = (Duration::from_millis(500), Duration::from_secs(2));
        Self { node, quick: false, rounds: 3, warm_up, sample, keys: 1000, hot_keys: 16, clients_per_member: 2 }
    }

    /// A short run, which shows whether everything works.
    pub fn quick(node: PathBuf) -> Self {
        let (warm_up, sample) = (Duration::from_millis(150), Duration::from_millis(400));
        Self { quick: true, rounds: 1, warm_up, sample, ..Self::full(node) }
    }

    /// The longest chain.
    pub const MAX_MEMBERS: usize = 7;

    /// The settings that are stored with the results.
    pub fn settings(&self) -> Settings {
        Settings {
            quick: self.quick,
            rounds: self.rounds,
            warm_up_ms: millis(self.warm_up),
            sample_ms: millis(self.sample),
            keys: self.keys,
            hot_keys: self.hot_keys,
            clients_per_member: self.clients_per_member,
            queue_bytes: QUEUE_BYTES,
            network: "veth and one bridge, MTU 1500, HTB at both ends of each link, one thread a node".to_owned(),
        }
    }

    fn window(&self) -> Window {
        let from = clock::now() + self.warm_up;
        Window { from, until: from + self.sample }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The number of callers that saturate the link of a member, by value size. Their requests fit in its queue.
fn callers_per_link(value_bytes: usize) -> usize {
    (160_000 / (value_bytes + 100)).clamp(16, 256)
}

fn book(name: &str, keys: usize, value_bytes: usize) -> Arc<Book> {
    Book::with((0..keys).map(|n| Bytes::from(format!("{name}/{n:06}"))).collect(), value_bytes)
}

/// Takes a sample, and measures the busy cores.
fn sample(plan: &Plan, of: &Contestant, jobs: &[(usize, Caller)]) -> Result<(Tally, Cores), Failed> {
    let Contestant { crowd, chain, book } = of;
    let pids = chain.pids();
    let nodes = || pids.iter().map(|&pid| cpu_of(pid)).sum::<Result<f64, _>>();
    let (began, before) = (clock::now(), (own_cpu(), nodes()?, idle_cpu()?));
    let tally = crowd.run(book, plan.window(), jobs);
    let tally = tally.map_err(|error| format!("{}-{}: {error}", chain.system, chain.members()))?;
    let seconds = (clock::now() - began).as_secs_f64();
    let part = |now: f64, before: f64| (now - before) / seconds;
    let (clients, nodes) = (part(own_cpu(), before.0), part(nodes()?, before.1));
    let idle = part(idle_cpu()?, before.2);
    let others = (thread::available_parallelism()?.get() as f64 - clients - nodes - idle).max(0.0);
    let rounded = |cores: f64| (cores * 1000.0).round() / 1000.0;
    let cores =
        Cores { clients: rounded(clients), nodes: rounded(nodes), others: rounded(others), idle: rounded(idle) };
    Ok((tally, cores))
}

/// A chain, its clients, and their keys.
struct Contestant {
    crowd: Crowd,
    chain: Chain,
    book: Arc<Book>,
}

/// Starts the chains concurrently, and connects their clients when all chains are ready.
fn start_all(lab: &Lab, plan: &Plan, kinds: &[(System, usize)]) -> Result<Vec<Contestant>, Failed> {
    let begin = |&(system, members): &_| Chain::begin(lab, system, members);
    let mut chains = kinds.iter().map(begin).collect::<Result<Vec<_>, _>>()?;
    chains.iter_mut().try_for_each(Chain::ready)?;
    let contestant = |chain| {
        let crowd = Crowd::gather(lab, &chain, plan.clients_per_member)?;
        Ok(Contestant { crowd, chain, book: book("", 0, SMALL) })
    };
    chains.into_iter().map(contestant).collect()
}

/// Gives all contestants new keys, each with a value.
fn fill_all(contestants: &mut [Contestant], name: &str, keys: usize, value_bytes: usize) -> Result<(), Failed> {
    contestants.iter_mut().try_for_each(|one| {
        one.book = book(name, keys, value_bytes);
        one.crowd.fill(&one.book)
    })
}

/// Checks that the keys of all contestants hold their last written values.
fn verify_all(contestants: &[Contestant]) -> Result<(), Failed> {
    contestants.iter().try_for_each(|one| one.crowd.verify(&one.book))
}

/// Measures all contestants in turns, round by round. Returns a point for each of them.
fn take_turns<P>(
    plan: &Plan,
    contestants: &[Contestant],
    point: impl Fn(&Chain) -> P,
    measure: impl Fn(&Plan, &Contestant, &mut P) -> Result<(), Failed>,
) -> Result<Vec<P>, Failed> {
    let mut points: Vec<_> = contestants.iter().map(|one| point(&one.chain)).collect();
    for round in 0..plan.rounds {
        turns(points.len(), round).into_iter().try_for_each(|at| measure(plan, &contestants[at], &mut points[at]))?;
    }
    Ok(points)
}
