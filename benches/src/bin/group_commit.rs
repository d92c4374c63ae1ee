//! Measures the cost of syncs for a write, compared with in-memory chains and bare loops of syncs.

use std::{env, path::PathBuf, process::ExitCode, time::Duration};

use artillery_benches::{
    durable::{
        cold::folder,
        commit::{Plan, run},
    },
    throughput::{Failed, machine::machine, processes, run::node_beside, signals},
};
use clap::Parser;

/// Measures writes through three nodes in memory, with directories, and with directories but without syncs, in turns.
///
/// Every write is checked, and every key at the end. Any error fails the run; no figure does.
#[derive(Parser)]
struct Options {
    /// One round of short samples: checks that the bench works
    #[arg(long)]
    quick: bool,
    /// Number of rounds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: Option<u64>,
    /// Length of a sample
    #[arg(long, value_name = "MILLISECONDS", value_parser = clap::value_parser!(u64).range(100..=60_000))]
    sample_ms: Option<u64>,
    /// How long to keep writing at most until each node has made two checkpoints
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=3600))]
    checkpoint_seconds: Option<u64>,
    /// Folder on the measured disk; files created there are removed afterwards
    #[arg(long, value_name = "FOLDER", default_value = "benches/results")]
    into: PathBuf,
    /// Path of the program `node` (default: next to this program)
    #[arg(long, value_name = "FILE")]
    node: Option<PathBuf>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    signals::run(processes::end_all, || all(&options))
}

fn all(options: &Options) -> Result<(), Failed> {
    let node = options.node.clone().map_or_else(|| node_beside(&env::current_exe()?), Ok)?;
    let folder = folder(&options.into, "group-commit");
    processes::make_tree(&folder)?;
    let (rounds, sample_ms, checkpoints) = if options.quick { (1, 200, 1) } else { (7, 2000, 180) };
    println!("{}", machine());
    run(&Plan {
        node,
        folder,
        rounds: options.rounds.unwrap_or(rounds) as usize,
        sample: Duration::from_millis(options.sample_ms.unwrap_or(sample_ms)),
        checkpoints: Duration::from_secs(options.checkpoint_seconds.unwrap_or(checkpoints)),
    })
}
