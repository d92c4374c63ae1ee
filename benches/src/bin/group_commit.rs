//! Measures what syncs cost a write, beside chains in memory and bare loops of syncs.

use std::{env, path::PathBuf, process::ExitCode, time::Duration};

use artillery_benches::{
    durable::{
        cold::folder,
        commit::{Plan, run},
    },
    throughput::{Failed, machine::machine, processes, run::node_beside, signals},
};
use clap::Parser;

/// Measures writes through three nodes in memory, with directories, and with directories without syncs, by turns.
///
/// Every write is checked, and every key at the end; any error fails the run, no figure does.
#[derive(Parser)]
struct Options {
    /// One round of short samples: it shows that the bench works
    #[arg(long)]
    quick: bool,
    /// How often all take their turns
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: Option<u64>,
    /// Length of a sample
    #[arg(long, value_name = "MILLISECONDS", value_parser = clap::value_parser!(u64).range(100..=60_000))]
    sample_ms: Option<u64>,
    /// How long writes go on at most until each node has made two checkpoints
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=3600))]
    checkpoint_seconds: Option<u64>,
    /// Folder on the disk that is measured; what is made there is removed
    #[arg(long, value_name = "FOLDER", default_value = "benches/results")]
    into: PathBuf,
    /// The program `node` (default: beside this one)
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
