//! Compares the figures of one run with their raw limits: reads criterion's stored results and prints a table or JSON.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use clap::Parser;
use serde::Serialize;
use serde_json::Value;

/// Prints the figures stored by criterion, some with their ratios to raw limits.
#[derive(Parser)]
struct Options {
    /// Criterion's folder: `CRITERION_HOME` while the benches run.
    #[arg(long, default_value = "target/criterion")]
    from: PathBuf,
    /// Print JSON: one array.
    #[arg(long)]
    json: bool,
}

/// The limits with which each bench is compared.
const BESIDE: [(&str, &[&str]); 17] = [
    ("member_read/get_local", &["local_read/lookup/10000"]),
    ("member_read/get", &["local_read/lookup/10000"]),
    ("local_read/guarded/10000", &["local_read/lookup/10000"]),
    ("local_read/guarded/100000", &["local_read/lookup/100000"]),
    ("remote_one_at_a_time/read/1", &ONE_READ),
    ("remote_one_at_a_time/read/3", &ONE_READ),
    ("remote_one_at_a_time/write/1", &ONE_WRITE),
    ("remote_one_at_a_time/write/3", &ONE_WRITE),
    ("remote_pipelined/read/1/64", &["raw_pipelined/quic/read/64", "raw_pipelined/tcp/read/64"]),
    ("remote_pipelined/read/3/64", &["raw_pipelined/quic/read/64", "raw_pipelined/tcp/read/64"]),
    ("remote_pipelined/read/1/1024", &["raw_pipelined/quic/read/1024", "raw_pipelined/tcp/read/1024"]),
    ("remote_pipelined/read/3/1024", &["raw_pipelined/quic/read/1024", "raw_pipelined/tcp/read/1024"]),
    ("remote_pipelined/write/1/64", &["raw_pipelined/quic/write/64", "raw_pipelined/tcp/write/64"]),
    ("remote_pipelined/write/3/64", &["raw_pipelined/quic/write/64", "raw_pipelined/tcp/write/64"]),
    ("remote_pipelined/write/1/1024", &["raw_pipelined/quic/write/1024", "raw_pipelined/tcp/write/1024"]),
    ("remote_pipelined/write/3/1024", &["raw_pipelined/quic/write/1024", "raw_pipelined/tcp/write/1024"]),
    ("replica_step/put/3", &["replica_step/put/1"]),
];
const ONE_READ: [&str; 3] =
    ["raw_one_at_a_time/quic/read", "raw_one_at_a_time/tcp/read", "raw_one_at_a_time/tcp_std/read"];
const ONE_WRITE: [&str; 3] =
    ["raw_one_at_a_time/quic/write", "raw_one_at_a_time/tcp/write", "raw_one_at_a_time/tcp_std/write"];

/// The figures of one bench. Times are medians per operation.
#[derive(Serialize)]
struct Figure {
    name: String,
    nanos: f64,
    per_second: f64,
    /// Set if the bench counts bytes instead of operations.
    bytes_per_second: Option<f64>,
    limits: Vec<Limit>,
}

#[derive(Serialize)]
struct Limit {
    name: &'static str,
    /// Operations per second divided by those of the limit.
    ratio: f64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::parse();
    let mut figures = BTreeMap::new();
    collect(&options.from, &mut figures)?;
    if figures.is_empty() {
        return Err(format!("nothing is stored in {}: run the benches first", options.from.display()).into());
    }
    for (name, beside) in BESIDE {
        let Some(nanos) = figures.get(name).map(|figure| figure.nanos) else { continue };
        let limits = beside.iter().filter_map(|&limit| {
            let against = figures.get(limit);
            if against.is_none() {
                eprintln!("{limit} is missing, so {name} has no such ratio");
            }
            Some(Limit { name: limit, ratio: against?.nanos / nanos })
        });
        let limits = limits.collect();
        if let Some(figure) = figures.get_mut(name) {
            figure.limits = limits;
        }
    }
    let figures: Vec<_> = figures.into_values().collect();
    if options.json {
        println!("{}", serde_json::to_string_pretty(&figures)?);
    } else {
        print(&figures);
    }
    Ok(())
}

fn collect(folder: &Path, figures: &mut BTreeMap<String, Figure>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if !path.is_dir() {
            continue;
        }
        if path.ends_with("new") && path.join("benchmark.json").exists() {
            if let Some(figure) = figure(&read(&path.join("benchmark.json"))?, &read(&path.join("estimates.json"))?) {
                figures.insert(figure.name.clone(), figure);
            }
        } else {
            collect(&path, figures)?;
        }
    }
    Ok(())
}

fn read(path: &Path) -> io::Result<Value> {
    serde_json::from_slice(&fs::read(path)?).map_err(io::Error::other)
}

fn figure(bench: &Value, estimates: &Value) -> Option<Figure> {
    let name = bench["full_id"].as_str()?.to_owned();
    let iteration = estimates["median"]["point_estimate"].as_f64()?;
    let elements = bench["throughput"]["Elements"].as_f64().unwrap_or(1.0);
    let bytes_per_second = bench["throughput"]["Bytes"].as_f64().map(|bytes| bytes / iteration * 1e9);
    let nanos = iteration / elements;
    Some(Figure { name, nanos, per_second: 1e9 / nanos, bytes_per_second, limits: Vec::new() })
}

fn print(figures: &[Figure]) {
    println!("| bench | µs each | thousands a second | of its limits |");
    println!("|---|--:|--:|---|");
    for Figure { name, nanos, per_second, bytes_per_second, limits } in figures {
        let limits: Vec<_> = limits.iter().map(|limit| format!("{:.2} of {}", limit.ratio, limit.name)).collect();
        let limits = match bytes_per_second {
            Some(bytes) => format!("{:.2} GB/s", bytes / 1e9),
            None => limits.join(", "),
        };
        println!("| {name} | {:.3} | {:.1} | {limits} |", nanos / 1000.0, per_second / 1000.0);
    }
}
