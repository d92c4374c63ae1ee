//! The cost of syncs for a write: chains of three nodes in memory, with syncs and without, in turns, compared with bare
//! loops of syncs.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use artillery_core::{Timestamp, internal::clock};
use artillery_ddata::{Client, Kv};
use tokio::task::JoinSet;

use super::{
    site::{Keeps, Site},
    syncs::{self, Syncs},
};
use crate::{
    load::{VALUE, holds, key, value},
    throughput::{
        Failed,
        crew::{Driver, spread, wait_until},
        stats::median,
    },
};

/// The number of concurrent writers, each with one write in flight.
pub const WRITERS: usize = 64;
/// Keys of each writer.
const KEYS: usize = 100;
/// How long writers write before each sample.
const WARM_UP: Duration = Duration::from_millis(200);
/// Small enough to be full when measuring begins: until then each update touches new memory.
const BACKLOG: &str = "8MiB";
/// The chains, in the order of their turns.
const ALL: [Keeps; 3] = [Keeps::Memory, Keeps::Batch, Keeps::Never];

/// The parameters of the run.
#[derive(Debug)]
pub struct Plan {
    /// The path of the program `node`.
    pub node: PathBuf,
    /// Where the directories are created.
    pub folder: PathBuf,
    /// The number of rounds.
    pub rounds: usize,
    /// The length of a sample.
    pub sample: Duration,
    /// How long to keep writing, at most, until two checkpoints were made.
    pub checkpoints: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    ended: Timestamp,
    took: Duration,
}

/// The number of the last value of each key.
#[derive(Debug)]
struct Written(Vec<AtomicU64>);

impl Written {
    /// Writes the writer's keys, one after the other, until `until`. Writes that ended before `from` aren't counted.
    async fn write(&self, kv: &Kv, writer: usize, from: Timestamp, until: Timestamp) -> Result<Vec<Sample>, Failed> {
        let (mut samples, mut began) = (Vec::new(), clock::now());
        for at in (0..KEYS).cycle().map(|row| writer * KEYS + row) {
            if began >= until {
                break;
            }
            let number = self.0[at].load(Relaxed) + 1;
            let done = kv.put(key(at), value(number, VALUE)).await?;
            if done.copies != 3 {
                return Err(format!("a write is on {} members", done.copies).into());
            }
            self.0[at].store(number, Relaxed);
            let ended = clock::now();
            if ended >= from {
                samples.push(Sample { ended, took: ended - began });
            }
            began = ended;
        }
        Ok(samples)
    }

    async fn verify(&self, kv: &Kv, at: usize) -> Result<(), Failed> {
        let number = self.0[at].load(Relaxed);
        let read = kv.get(&key(at)).await?;
        let is_there = number == 0 || read.value().is_some_and(|value| holds(value, number, VALUE));
        if is_there { Ok(()) } else { Err(format!("key {at} doesn't hold its last value").into()) }
    }
}

struct Chain {
    site: Site,
    client: Client,
    written: Arc<Written>,
}

impl Chain {
    fn start(plan: &Plan, driver: &Driver, keeps: Keeps) -> Result<Self, Failed> {
        let mut site = Site::new(&plan.node, &plan.folder, keeps, &["--backlog-bytes", BACKLOG])?;
        site.start()?;
        site.ready()?;
        let contact = site.contact();
        let client = driver.run(async move { Ok(contact.connect().await) })?;
        let written = Written((0..WRITERS * KEYS).map(|_| AtomicU64::new(0)).collect());
        Ok(Self { site, client, written: written.into() })
    }

    fn sample(&self, driver: &Driver, writers: usize, length: Duration) -> Result<Vec<Sample>, Failed> {
        let from = clock::now() + WARM_UP;
        let until = from + length;
        let mut tasks = JoinSet::new();
        for writer in 0..writers {
            let (kv, written) = (self.client.kv(), self.written.clone());
            tasks.spawn_on(async move { written.write(&kv, writer, from, until).await }, driver.handle());
        }
        let all = driver.begin(async move {
            let mut samples = Vec::new();
            while let Some(ended) = tasks.join_next().await {
                samples.append(&mut ended??);
            }
            Ok(samples)
        });
        wait_until(&all, until)
    }

    /// Checks that every key holds its last value.
    fn verify(&self, driver: &Driver) -> Result<(), Failed> {
        let (kv, written) = (self.client.kv(), self.written.clone());
        let read = move |at| {
            let (kv, written) = (kv.clone(), written.clone());
            async move { written.verify(&kv, at).await }
        };
        driver.run(spread(0..WRITERS, WRITERS, WRITERS * KEYS, read))
    }
}

/// The figures of one round.
#[derive(Debug)]
struct Round {
    syncs: Syncs,
    /// The mean time of a single write without other writers, in milliseconds.
    lone: BTreeMap<Keeps, f64>,
    /// Writes per second of all writers together.
    many: BTreeMap<Keeps, f64>,
}

impl Round {
    fn lone_ratio(&self) -> f64 {
        self.lone[&Keeps::Batch] / (2.0 * self.syncs.mean_ms + self.lone[&Keeps::Memory])
    }

    fn many_ratio(&self) -> f64 {
        self.many[&Keeps::Batch] / (8.0 * self.syncs.per_second).min(0.6 * self.many[&Keeps::Memory])
    }

    fn ratio_to_memory(&self, keeps: Keeps) -> f64 {
        self.many[&keeps] / self.many[&Keeps::Memory]
    }
}

/// The complete run.
pub fn run(plan: &Plan) -> Result<(), Failed> {
    let driver = Driver::start(0)?;
    let chains = ALL.iter().map(|&keeps| Ok((keeps, Chain::start(plan, &driver, keeps)?)));
    let chains = chains.collect::<Result<BTreeMap<_, _>, Failed>>()?;
    let mut rounds = Vec::new();
    for _ in 0..plan.rounds {
        let round = one_round(plan, &driver, &chains)?;
        eprintln!("  {round:?}");
        rounds.push(round);
    }
    print_rounds(&rounds);
    beside_checkpoints(plan, &driver, &chains[&Keeps::Batch])?;
    chains.values().try_for_each(|chain| chain.verify(&driver))
}

fn one_round(plan: &Plan, driver: &Driver, chains: &BTreeMap<Keeps, Chain>) -> Result<Round, Failed> {
    let syncs = syncs::measure(&chains[&Keeps::Batch].site.dirs(), plan.sample)?;
    let (mut lone, mut many) = (BTreeMap::new(), BTreeMap::new());
    for keeps in ALL {
        let samples = chains[&keeps].sample(driver, 1, plan.sample)?;
        lone.insert(keeps, mean_ms(&samples));
    }
    for keeps in ALL {
        let samples = chains[&keeps].sample(driver, WRITERS, plan.sample)?;
        many.insert(keeps, samples.len() as f64 / plan.sample.as_secs_f64());
    }
    Ok(Round { syncs, lone, many })
}

fn mean_ms(samples: &[Sample]) -> f64 {
    let sum: Duration = samples.iter().map(|sample| sample.took).sum();
    sum.as_secs_f64() * 1e3 / samples.len().max(1) as f64
}

fn print_rounds(rounds: &[Round]) {
    let of = |figure: &dyn Fn(&Round) -> f64| median(&rounds.iter().map(figure).collect::<Vec<_>>());
    println!("medians of {} rounds", rounds.len());
    println!("\n| | lone write, ms | {WRITERS} writers, writes/s | by memory |\n|---|--:|--:|--:|");
    for keeps in ALL {
        let (lone, many) = (of(&|round| round.lone[&keeps]), of(&|round| round.many[&keeps]));
        println!("| {} | {lone:.3} | {many:.0} | {:.2} |", keeps.name(), of(&|round| round.ratio_to_memory(keeps)));
    }
    let (rate, mean) = (of(&|round| round.syncs.per_second), of(&|round| round.syncs.mean_ms));
    println!("\nthree loops of syncs at once: each {rate:.0} a second, a sync takes {mean:.3} ms\n");
    println!("| | ratio | goal |\n|---|--:|--:|");
    println!("| lone write by 2 syncs + a lone write in memory | {:.2} | at most 1 |", of(&Round::lone_ratio));
    println!(
        "| {WRITERS} writers by the lesser of 8 × a loop's rate and 0.6 × memory | {:.2} | 1 |",
        of(&Round::many_ratio)
    );
    println!(
        "| {WRITERS} writers with `--sync never` by memory | {:.2} | 0.8 |",
        of(&|round| round.ratio_to_memory(Keeps::Never))
    );
}

/// Writes until each node has made two checkpoints, or for as long as the plan allows.
fn beside_checkpoints(plan: &Plan, driver: &Driver, chain: &Chain) -> Result<(), Failed> {
    let (began, mut samples) = (clock::now(), Vec::new());
    let made = || chain.site.logs().iter().map(|log| checkpoints(log).len()).min().unwrap_or_default();
    let before = made();
    while made() < before + 2 && clock::now() - began < plan.checkpoints {
        samples.append(&mut chain.sample(driver, WRITERS, plan.sample)?);
    }
    let times: Vec<_> = chain.site.logs().iter().flat_map(|log| checkpoints(log)).collect();
    let (during, without): (Vec<_>, Vec<_>) = samples.iter().partition(|sample| is_beside(sample, &times));
    if during.is_empty() || without.is_empty() {
        println!("\nno checkpoint within {:?} of writes", plan.checkpoints);
        return Ok(());
    }
    println!("\n| {WRITERS} writers | writes | p50, ms | p99, ms | longest, ms |\n|---|--:|--:|--:|--:|");
    let quantiles = [("during a checkpoint of any node", during), ("without", without)].map(|(what, samples)| {
        let [p50, p99, longest] = [0.5, 0.99, 1.0].map(|part| quantile_ms(&samples, part));
        println!("| {what} | {} | {p50:.2} | {p99:.2} | {longest:.1} |", samples.len());
        p99
    });
    println!("\np99 during a checkpoint by p99 without one: {:.2}", quantiles[0] / quantiles[1]);
    Ok(())
}

/// Whether a checkpoint was in progress at any time during this write.
fn is_beside(sample: &Sample, checkpoints: &[(Timestamp, Timestamp)]) -> bool {
    let began = Timestamp::from_nanos(sample.ended.as_nanos().saturating_sub(sample.took.as_nanos() as u64));
    checkpoints.iter().any(|&(from, until)| began <= until && from <= sample.ended)
}

/// The start and end of each of a node's checkpoints, according to its log.
fn checkpoints(log: &[(Timestamp, String)]) -> Vec<(Timestamp, Timestamp)> {
    let (mut found, mut begun) = (Vec::new(), None);
    for (at, line) in log {
        if line.contains("a checkpoint begins") {
            begun = Some(*at);
        } else if line.contains("a checkpoint has ended")
            && let Some(from) = begun.take()
        {
            found.push((from, *at));
        }
    }
    found
}

fn quantile_ms(samples: &[&Sample], part: f64) -> f64 {
    let mut sorted: Vec<_> = samples.iter().map(|sample| sample.took).collect();
    sorted.sort_unstable();
    let at = ((sorted.len() as f64 * part).ceil() as usize).clamp(1, sorted.len()) - 1;
    sorted[at].as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn checkpoints_are_those_of_the_log() {
        let line = |millis, text: &str| (at(millis), text.to_owned());
        let log = [
            line(1, "INFO this node is up"),
            line(5, "INFO artillery: a checkpoint begins chain=0"),
            line(9, "INFO artillery: a checkpoint has ended chain=0"),
            line(20, "INFO artillery: a checkpoint begins chain=0"),
        ];
        let times = checkpoints(&log);
        assert_eq!(times, [(at(5), at(9))]);
        let sample = |from, until| Sample { ended: at(until), took: Duration::from_millis(until - from) };
        let beside =
            [(1, 4), (4, 6), (6, 7), (9, 12), (10, 12)].map(|(from, until)| is_beside(&sample(from, until), &times));
        assert_eq!(beside, [false, true, true, true, false]);
    }

    #[test]
    fn quantiles_of_few_samples() {
        let samples: Vec<_> = (1..=100).map(|n| Sample { ended: at(n), took: Duration::from_millis(n) }).collect();
        let samples: Vec<_> = samples.iter().collect();
        assert_eq!([0.5, 0.99, 1.0].map(|part| quantile_ms(&samples, part)), [50.0, 99.0, 100.0]);
    }
}
