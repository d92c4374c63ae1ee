//! Measures throughput and latency by number of callers, for CR, CRAQ and bare sockets, and stores the results.

use std::{env, fs, path::PathBuf, process::ExitCode, time::Duration};

use artillery_benches::throughput::{
    Failed, echo,
    machine::machine,
    processes,
    quota::Quotas,
    results::{Placement, Results},
    run::{Plan, Way, by_callers, by_shares, node_beside},
    signals,
};
use clap::{Parser, Subcommand};

/// Measures throughput and latency of CR, CRAQ and bare sockets in one run, and stores them as JSON.
///
/// Any failed operation or wrong value fails the run. The full run takes about ten minutes and needs a quiet machine.
#[derive(Parser)]
struct Options {
    /// Folder for throughput.json
    #[arg(long, value_name = "FOLDER", default_value = "benches/results")]
    into: PathBuf,
    /// Few points and short samples: checks that the bench works, not how fast it is
    #[arg(long)]
    quick: bool,
    /// Path of the program `node` (default: next to this program)
    #[arg(long, value_name = "FILE")]
    node: Option<PathBuf>,
    /// How a thread makes a call
    #[arg(long, value_enum, default_value_t = Way::Carried)]
    blocking: Way,
    /// Threads, in addition to its own, of a handle for concurrent callers; 0: a single thread
    #[arg(long, value_name = "N", default_value_t = 0)]
    workers: usize,
    /// Only these numbers of callers
    #[arg(long, value_name = "N", value_delimiter = ',')]
    callers: Option<Vec<u32>>,
    /// Callers per member where nodes are limited to a fraction of a core
    #[arg(long, value_name = "N")]
    callers_per_member: Option<u32>,
    /// Only these chain lengths where nodes are limited to a fraction of a core
    #[arg(long, value_name = "N", value_delimiter = ',')]
    members: Option<Vec<u32>>,
    /// Only these read shares where nodes are limited to a fraction of a core, in percent
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(0..=100))]
    reads: Option<Vec<u32>>,
    /// Limit nodes only to these fractions of a core
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    shares: Option<Vec<f64>>,
    /// Samples of each point
    #[arg(long, value_name = "N")]
    rounds: Option<u32>,
    /// Length of a sample
    #[arg(long, value_name = "MILLISECONDS")]
    sample_ms: Option<u64>,
    /// Only these parts
    #[arg(long, value_enum, value_delimiter = ',', default_value = "free,one-core,shares")]
    only: Vec<Part>,
    #[command(subcommand)]
    other: Option<Other>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// By number of callers, threads placed by the system
    Free,
    /// By number of callers, all threads on one core
    OneCore,
    /// By read share and chain length, each node limited to the same fraction of a core
    Shares,
}

#[derive(Subcommand)]
enum Other {
    /// Answer on TCP and QUIC until standard input ends: the raw servers, started by the run itself
    Echo,
}

fn main() -> ExitCode {
    let options = Options::parse();
    match options.other {
        Some(Other::Echo) => signals::exit_code(echo::serve()),
        None => signals::run(processes::end_all, || measure(&options)),
    }
}

fn plan(options: &Options) -> Result<Plan, Failed> {
    let own = env::current_exe()?;
    let node = options.node.clone().map_or_else(|| node_beside(&own), Ok)?;
    let mut plan = if options.quick { Plan::quick(node, own) } else { Plan::full(node, own) };
    plan.way = options.blocking;
    plan.workers = options.workers;
    if let Some(callers) = &options.callers {
        plan.callers.clone_from(callers);
        plan.callers.sort_unstable();
    }
    plan.callers_per_member = options.callers_per_member.unwrap_or(plan.callers_per_member);
    plan.share_members = options.members.clone().unwrap_or(plan.share_members);
    plan.share_reads = options.reads.clone().unwrap_or(plan.share_reads);
    plan.shares = options.shares.clone().unwrap_or(plan.shares);
    plan.rounds = options.rounds.unwrap_or(plan.rounds);
    plan.sample = options.sample_ms.map_or(plan.sample, Duration::from_millis);
    Ok(plan)
}

fn measure(options: &Options) -> Result<(), Failed> {
    let plan = plan(options)?;
    fs::create_dir_all(&options.into)?;
    let mut results =
        Results { machine: machine(), settings: plan.settings(), skipped: Vec::new(), points: Vec::new() };
    for (part, placement) in [(Part::Free, Placement::Free), (Part::OneCore, Placement::OneCore)] {
        if options.only.contains(&part) {
            results.points.extend(by_callers(&plan, placement)?);
        }
    }
    if options.only.contains(&Part::Shares) {
        match Quotas::find() {
            Ok(quotas) => results.points.extend(by_shares(&plan, &quotas)?),
            Err(reason) => {
                let skipped = format!("nodes held to a part of a core: {reason}");
                eprintln!("SKIPPED: {skipped}");
                results.skipped.push(skipped);
            }
        }
    }
    let file = options.into.join("throughput.json");
    results.store(&file)?;
    eprintln!("{} written", file.display());
    Ok(())
}
