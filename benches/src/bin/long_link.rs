//! Measures writes of one handle over a link with a long round trip, and stores the results.

use std::{env, fs, path::PathBuf, process::ExitCode, time::Duration};

use artillery_benches::{
    long_link::{Link, Plan, Results, VALUE_BYTES, measure},
    throughput::{Failed, machine::machine, processes, run::node_beside, signals},
};
use artillery_core::config::Congestion;
use clap::Parser;

/// Measures writes of one handle to one node behind a relay that delays and drops datagrams, and stores the results as
/// JSON.
///
/// After each measurement, every key with an acknowledged write must hold that value or a later one. Any failed
/// operation or wrong value fails the run.
#[derive(Parser)]
struct Options {
    /// Folder for long-link.json
    #[arg(long, value_name = "FOLDER", default_value = "benches/results")]
    into: PathBuf,
    /// Short samples, and only the two smallest numbers of writes in flight
    #[arg(long)]
    quick: bool,
    /// Path of the program `node` (default: next to this program)
    #[arg(long, value_name = "FILE")]
    node: Option<PathBuf>,
    /// Numbers of concurrent writes
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1024,8192,16384,65536",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    in_flight: Vec<u32>,
    /// Links: delay in milliseconds each way, lost datagrams per million, and cubic, bbr or newreno
    #[arg(long, value_name = "MS:PPM:NAME", value_delimiter = ',', value_parser = link,
        default_value = "0:0:cubic,78:0:cubic,78:1000:cubic,78:1000:bbr")]
    links: Vec<Link>,
    /// Bytes that may be in flight on one stream
    #[arg(long, value_name = "BYTES", default_value_t = 32 << 20, value_parser = clap::value_parser!(u32).range(65536..=536_870_911))]
    stream_window_bytes: u32,
    /// Length of a sample
    #[arg(long, value_name = "MILLISECONDS", value_parser = clap::value_parser!(u64).range(100..=600_000))]
    sample_ms: Option<u64>,
    /// Warm-up time before each sample
    #[arg(long, value_name = "MILLISECONDS", value_parser = clap::value_parser!(u64).range(0..=600_000))]
    warm_up_ms: Option<u64>,
}

fn link(text: &str) -> Result<Link, String> {
    let [delay_ms, loss_ppm, name] = *text.split(':').collect::<Vec<_>>() else {
        return Err("expected MS:PPM:NAME".to_owned());
    };
    let delay_ms = delay_ms.parse().map_err(|error| format!("{delay_ms}: {error}"))?;
    let loss_ppm = loss_ppm.parse().map_err(|error| format!("{loss_ppm}: {error}"))?;
    if delay_ms > 10_000 || loss_ppm > 1_000_000 {
        return Err("at most 10000 ms, and 1000000 of a million".to_owned());
    }
    let congestion = name.parse::<Congestion>().map_err(|error| error.to_string())?;
    Ok(Link { delay_ms, loss_ppm, congestion })
}

fn main() -> ExitCode {
    let options = Options::parse();
    signals::run(processes::end_all, || run(&options))
}

fn run(options: &Options) -> Result<(), Failed> {
    let node = options.node.clone().map_or_else(|| node_beside(&env::current_exe()?), Ok)?;
    let (warm_up, sample) = if options.quick { (1000, 1000) } else { (3000, 5000) };
    let (warm_up_ms, sample_ms) = (options.warm_up_ms.unwrap_or(warm_up), options.sample_ms.unwrap_or(sample));
    let (warm_up, sample) = (Duration::from_millis(warm_up_ms), Duration::from_millis(sample_ms));
    let plan = Plan { node, warm_up, sample, window: options.stream_window_bytes };
    let mut counts = options.in_flight.clone();
    counts.sort_unstable();
    if options.quick {
        counts.truncate(2);
    }
    let points = Vec::new();
    let mut results = Results { machine: machine(), value_bytes: VALUE_BYTES, warm_up_ms, sample_ms, points };
    let pairs = options.links.iter().flat_map(|&link| counts.iter().map(move |&in_flight| (link, in_flight)));
    for (number, (link, in_flight)) in (0u16..).zip(pairs) {
        let point = measure(&plan, link, in_flight as usize, number % 1000);
        let point = point.map_err(|error| format!("{link:?}, {in_flight} in flight: {error}"))?;
        eprintln!("  {point:?}");
        results.points.push(point);
    }
    fs::create_dir_all(&options.into)?;
    let file = options.into.join("long-link.json");
    results.store(&file)?;
    eprintln!("{} written", file.display());
    println!("{}", results.table());
    Ok(())
}
