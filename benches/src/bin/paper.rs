//! Repeats the measurements of the CRAQ paper on links shaped like those of the paper, and stores the results.

use std::{env, fs, path::PathBuf, process::ExitCode, time::Duration};

use artillery_benches::{
    paper::{
        chain::Lab,
        experiments::{self, Plan},
        net,
        results::Results,
        verdict,
    },
    throughput::{Failed, machine::machine, processes, run::node_beside, signals},
};
use artillery_processes::namespaces;
use clap::Parser;

/// Measures CR and CRAQ on shaped links, each node and each client in a network namespace, and stores figures as JSON.
///
/// Needs root, `ip` and `tc`; if one is missing, it prints which and exits with 77. Every value is checked. Any failed
/// operation or wrong value fails the run, except that `failover` counts failed operations.
#[derive(Parser)]
struct Options {
    /// Folder for paper.json
    #[arg(long, value_name = "FOLDER", default_value = "benches/results")]
    into: PathBuf,
    /// Few points and short samples: checks that the bench works, not how fast it is
    #[arg(long)]
    quick: bool,
    /// Path of the program `node` (default: next to this program)
    #[arg(long, value_name = "FILE")]
    node: Option<PathBuf>,
    /// Rate of each link in each direction, in megabits per second; one run of each experiment per rate
    #[arg(long, value_name = "RATE", value_delimiter = ',', default_value = "100",
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    mbit: Vec<u32>,
    /// Rates for `reads` only, where processors may limit the longest chains (default: 25; none with --quick)
    #[arg(long, value_name = "RATE", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=100_000))]
    reads_mbit: Option<Vec<u32>>,
    /// Samples of each point
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: Option<u32>,
    /// Length of a sample
    #[arg(long, value_name = "MILLISECONDS", value_parser = clap::value_parser!(u64).range(100..=60_000))]
    sample_ms: Option<u64>,
    /// Only these experiments
    #[arg(long, value_enum, value_delimiter = ',', default_value = "reads,mixed,writes,latency,failover")]
    only: Vec<Part>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Reads by length of the chain, CR and CRAQ
    Reads,
    /// Reads during writes to the same keys
    Mixed,
    /// Writes and compare-and-swaps by length of the chain
    Writes,
    /// Latency of single operations by length of the chain
    Latency,
    /// Reads and writes over time while a member is killed and restarted
    Failover,
}

const SKIPPED: u8 = 77;

fn main() -> ExitCode {
    let options = Options::parse();
    if let Some(missing) = namespaces::missing() {
        println!("SKIPPED: {missing}");
        return ExitCode::from(SKIPPED);
    }
    let end = || {
        processes::end_all();
        net::remove_all();
    };
    signals::run(end, || measure(&options))
}

fn plan(options: &Options) -> Result<Plan, Failed> {
    let node = options.node.clone().map_or_else(|| node_beside(&env::current_exe()?), Ok)?;
    // A full path, since `ip netns exec` would look for a bare name elsewhere.
    let node = fs::canonicalize(&node).map_err(|error| format!("{}: {error}", node.display()))?;
    let mut plan = if options.quick { Plan::quick(node) } else { Plan::full(node) };
    plan.rounds = options.rounds.unwrap_or(plan.rounds);
    plan.sample = options.sample_ms.map_or(plan.sample, Duration::from_millis);
    Ok(plan)
}

fn measure(options: &Options) -> Result<(), Failed> {
    let plan = plan(options)?;
    fs::create_dir_all(&options.into)?;
    let first = *options.mbit.first().ok_or("--mbit needs a rate")?;
    let clients = Plan::MAX_MEMBERS * plan.clients_per_member;
    let lab = Lab::make(plan.node.clone(), Plan::MAX_MEMBERS, clients, first)?;
    let mut results = Results::new(machine(), plan.settings());
    let mut measure_at = |mbit: u32, parts: &[Part]| {
        lab.shape(mbit)?;
        parts.iter().try_for_each(|&part| measure_part(part, &lab, &plan, mbit, &mut results))
    };
    options.mbit.iter().try_for_each(|&mbit| measure_at(mbit, &options.only))?;
    if options.only.contains(&Part::Reads) {
        let more = options.reads_mbit.clone().unwrap_or(if options.quick { Vec::new() } else { vec![25] });
        let mut more = more.into_iter().filter(|rate| !options.mbit.contains(rate));
        more.try_for_each(|mbit| measure_at(mbit, &[Part::Reads]))?;
    }
    let file = options.into.join("paper.json");
    results.store(&file)?;
    eprintln!("{} written", file.display());
    println!("{}", verdict::tables(&results));
    verdict::all(&results).iter().for_each(|verdict| println!("- {verdict}"));
    Ok(())
}

fn measure_part(part: Part, lab: &Lab, plan: &Plan, mbit: u32, results: &mut Results) -> Result<(), Failed> {
    match part {
        Part::Reads => results.reads.extend(experiments::reads(lab, plan, mbit)?),
        Part::Mixed => results.mixed.extend(experiments::mixed(lab, plan, mbit)?),
        Part::Writes => results.writes.extend(experiments::writes(lab, plan, mbit)?),
        Part::Latency => results.latency.extend(experiments::latency(lab, plan, mbit)?),
        Part::Failover => results.failover.extend(experiments::failover(lab, plan, mbit)?),
    }
    Ok(())
}
