//! Prints the result of `ctl load`: throughput, latencies and errors, as text or as JSON.

use std::time::Duration;

use serde_json::{Value, json};

use super::tally::{Latency, Tally};
use crate::{args::LoadArgs, output::Output};

pub(super) fn print(load: &LoadArgs, tally: &Tally, took: Duration, output: Output) {
    for example in &tally.examples {
        eprintln!("{example}");
    }
    if output.json {
        output.object(&object(load, tally, took));
    } else {
        output.bytes(text(load, tally, took).as_bytes());
    }
}

fn object(load: &LoadArgs, tally: &Tally, took: Duration) -> Value {
    let (reads, writes) = (tally.reads.count(), tally.writes.count());
    json!({
        "clients": load.clients, "seconds": rounded(took.as_secs_f64()),
        "operations": reads + writes, "reads": reads, "writes": writes,
        "errors": tally.errors, "wrong": tally.wrong, "checked": load.check,
        "operations_per_second": rounded((reads + writes) as f64 / took.as_secs_f64()),
        "latency_us": { "read": latency(&tally.reads), "write": latency(&tally.writes) },
    })
}

fn rounded(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

fn latency(of: &Latency) -> Value {
    json!({ "p50": of.percentile(50.0), "p99": of.percentile(99.0), "p99_9": of.percentile(99.9), "max": of.max() })
}

fn text(load: &LoadArgs, tally: &Tally, took: Duration) -> String {
    let operations = tally.reads.count() + tally.writes.count();
    let rate = operations as f64 / took.as_secs_f64();
    let mut text =
        format!("{operations} operations by {} clients in {:.1} s: {rate:.0}/s", load.clients, took.as_secs_f64());
    for (kind, of) in [("reads", &tally.reads), ("writes", &tally.writes)] {
        if of.count() > 0 {
            let [p50, p99, p999] = [50.0, 99.0, 99.9].map(|percent| of.percentile(percent));
            let (count, max) = (of.count(), of.max());
            text += &format!("\n{kind:6} {count:>10}   p50 {p50} µs, p99 {p99} µs, p99.9 {p999} µs, max {max} µs");
        }
    }
    text += &format!("\nerrors {:>10}", tally.errors);
    if load.check {
        text += &format!("\nwrong  {:>10}", tally.wrong);
    }
    text
}
