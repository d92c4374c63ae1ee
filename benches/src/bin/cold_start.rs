//! Kills three nodes with directories, restarts them, and prints how soon they are back, compared with the minimum time
//! for the same files and the same number of records.

use std::{env, path::PathBuf, process::ExitCode, time::Duration};

use artillery_benches::{
    durable::{
        bare::{self, Order},
        cold::{Plan, folder, run},
    },
    throughput::{Failed, machine::machine, processes, run::node_beside, signals},
};
use clap::Parser;

/// The allocator of the nodes, so that a bare insert allocates as they do.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures how soon three nodes with directories are back after all of them were killed.
///
/// Every write is checked, and so are the records afterwards. Any error fails the run; no figure does.
#[derive(Parser)]
struct Options {
    /// Records of 16 + 32 bytes; ten million need about 17 GiB of memory and 4 GiB of disk
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(4096..=1_000_000_000))]
    records: Option<u64>,
    /// Use few records: checks that the bench works
    #[arg(long)]
    quick: bool,
    /// Folder on the measured disk; files created there are removed afterwards
    #[arg(long, value_name = "FOLDER", default_value = "benches/results")]
    into: PathBuf,
    /// Path of the program `node` (default: next to this program)
    #[arg(long, value_name = "FILE")]
    node: Option<PathBuf>,
    /// Only read this journal and insert the records, and print how long that took
    #[arg(long, value_name = "DIR", hide = true)]
    bare: Option<PathBuf>,
    /// Order of the records in the insert of --bare
    #[arg(long, value_enum, default_value_t = Order::Keys, hide = true)]
    order: Order,
}

fn main() -> ExitCode {
    let options = Options::parse();
    signals::run(processes::end_all, || all(&options))
}

fn all(options: &Options) -> Result<(), Failed> {
    let records = options.records.unwrap_or(if options.quick { 4096 } else { 10_000_000 });
    if let Some(dir) = &options.bare {
        println!("{}", serde_json::to_string(&bare::measure(dir, records, options.order)?)?);
        return Ok(());
    }
    let own = env::current_exe()?;
    let node = options.node.clone().map_or_else(|| node_beside(&own), Ok)?;
    let folder = folder(&options.into, "cold-start");
    processes::make_tree(&folder)?;
    let writing = Duration::from_millis(if options.quick { 500 } else { 3000 });
    println!("{}", machine());
    run(&Plan { node, own, folder, records, writing })
}
