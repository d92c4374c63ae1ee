//! The figures as Markdown, and whether reads grow with the chain length as in the paper.

use std::fmt::Write;

use super::results::{Change, Cores, LatencyPoint, MixedPoint, ReadPoint, Results, WritePoint};
use crate::{
    graphs::verdict::Verdict,
    throughput::{results::System, stats::median},
};

/// Reads of CRAQ divided by those of CR-3: members, and the minimum ratio, from the paper.
const SPEED_UPS: [(usize, f64); 3] = [(3, 2.9), (5, 4.8), (7, 6.75)];

/// The point of a chain's reads.
pub fn reads(results: &Results, mbit: u32, value_bytes: usize, system: System, members: usize) -> Option<&ReadPoint> {
    results.reads.iter().find(|point| {
        (point.mbit, point.value_bytes, point.system, point.members) == (mbit, value_bytes, system, members)
    })
}

/// The value sizes with which reads were measured.
pub fn value_sizes(results: &Results) -> Vec<usize> {
    let mut sizes: Vec<_> = results.reads.iter().map(|point| point.value_bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// Idle cores, and cores busy with other programs. If both are near 0, processors limit the figure.
fn spare(cores: &[Cores]) -> String {
    let middle = |of: fn(&Cores) -> f64| median(&cores.iter().map(of).collect::<Vec<_>>());
    format!("{:.2} · {:.2}", middle(|cores| cores.idle), middle(|cores| cores.others))
}

/// Whether the reads of CRAQ exceed those of CR-3 by the factors of the paper.
pub fn all(results: &Results) -> Vec<Verdict> {
    let mut all = Vec::new();
    for mbit in results.rates() {
        for value_bytes in value_sizes(results) {
            all.extend(SPEED_UPS.map(|(members, least)| speed_up(results, mbit, value_bytes, members, least)));
        }
    }
    all
}

fn speed_up(results: &Results, mbit: u32, value_bytes: usize, members: usize, least: f64) -> Verdict {
    let promise = format!("CRAQ-{members} ≥ {least} × CR-3, {value_bytes} B, links of {mbit} Mbit/s");
    let found = |system, members| reads(results, mbit, value_bytes, system, members);
    let (Some(craq), Some(cr)) = (found(System::Craq, members), found(System::Cr, 3)) else {
        return Verdict { promise, met: None, numbers: "no such points".to_owned() };
    };
    let (own, base) = (median(&craq.per_second), median(&cr.per_second));
    let spare = spare(&craq.cores);
    let numbers = format!("{:.2}: {own:.0} by {base:.0} reads/s, cores idle · with others {spare}", own / base);
    Verdict { promise, met: Some(own / base >= least), numbers }
}

/// All tables.
pub fn tables(results: &Results) -> String {
    let mut text = String::new();
    for mbit in results.rates() {
        let _ = write!(text, "\nLinks of {mbit} Mbit/s:\n");
        for part in [read_table, mixed_table, write_table, latency_table] {
            text += &part(results, mbit);
        }
    }
    text
}

fn read_table(results: &Results, mbit: u32) -> String {
    let mut text = String::new();
    for value_bytes in value_sizes(results) {
        let Some(base) = reads(results, mbit, value_bytes, System::Cr, 3) else { continue };
        let head = format!(
            "\n| reads, {value_bytes} B | CR reads/s | CRAQ reads/s | CRAQ / CR-3 | cores idle · with others: CR, CRAQ |\n"
        );
        text += &(head + "|--:|--:|--:|--:|--:|\n");
        let base = median(&base.per_second);
        for members in 1..=7 {
            let found = |system| reads(results, mbit, value_bytes, system, members);
            let (Some(cr), Some(craq)) = (found(System::Cr), found(System::Craq)) else { continue };
            let own = median(&craq.per_second);
            let (cr_spare, craq_spare) = (spare(&cr.cores), spare(&craq.cores));
            let cr = median(&cr.per_second);
            let _ = writeln!(text, "| {members} | {cr:.0} | {own:.0} | {:.2} | {cr_spare}, {craq_spare} |", own / base);
        }
    }
    text
}

/// A table with these rows, or nothing if there are none.
fn table(head: &str, rows: impl Iterator<Item = String>) -> String {
    let rows: String = rows.collect();
    if rows.is_empty() { rows } else { format!("\n{head}\n{rows}") }
}

fn mixed_table(results: &Results, mbit: u32) -> String {
    let row = |point: &MixedPoint| {
        let (writes, clean, dirty) = (median(&point.writes), median(&point.clean), median(&point.dirty));
        let (system, members, all, spare) = (point.system, point.members, clean + dirty, spare(&point.cores));
        format!("| {system}-{members} | {writes:.0} | {clean:.0} | {dirty:.0} | {all:.0} | {spare} |\n")
    };
    let head = "| chain | writes/s | clean reads/s | dirty reads/s | all reads/s | cores idle · with others |\n\
        |--:|--:|--:|--:|--:|--:|";
    table(head, results.mixed.iter().filter(|point| point.mbit == mbit).map(row))
}

fn write_table(results: &Results, mbit: u32) -> String {
    let row = |point: &WritePoint| {
        let change = match point.change {
            Change::Put => format!("put, {} callers", point.callers),
            Change::Swap => "compare and swap one key".to_owned(),
        };
        let (all, micros, spare) = (median(&point.per_second), median(&point.p50_us), spare(&point.cores));
        let (bytes, members) = (point.value_bytes, point.members);
        format!("| {change}, {bytes} B | {members} | {all:.0} | {micros:.0} | {spare} |\n")
    };
    let head = "| writes | chain | per second | µs | cores idle · with others |\n|---|--:|--:|--:|--:|";
    table(head, results.writes.iter().filter(|point| point.mbit == mbit).map(row))
}

fn latency_table(results: &Results, mbit: u32) -> String {
    let head = "| µs: p50, p95, p99 | links | clean read | dirty read | write |\n|--:|---|--:|--:|--:|";
    table(head, results.latency.iter().filter(|point| point.mbit == mbit).map(latency_row))
}

fn latency_row(point: &LatencyPoint) -> String {
    let cells = [point.clean, point.dirty, point.write].map(|latency| match latency.count {
        0 => "–".to_owned(),
        _ => format!("{:.0}, {:.0}, {:.0}", latency.p50_us, latency.p95_us, latency.p99_us),
    });
    let load = if point.loaded { "loaded" } else { "idle" };
    format!("| {} | {load} | {} |\n", point.members, cells.join(" | "))
}

#[cfg(test)]
pub(crate) mod made_up {
    use super::super::{
        results::{Failover, Settings},
        tally::{Bucket, Latency},
    };
    use super::*;
    use crate::throughput::results::made_up::results as throughput_results;

    pub(crate) fn read(system: System, members: usize, per_second: f64) -> ReadPoint {
        let cores = vec![Cores { clients: 0.5, nodes: 0.5, others: 0.25, idle: 0.75 }];
        let (per_second, p50_us) = (vec![per_second], vec![900.0]);
        ReadPoint { mbit: 100, value_bytes: 500, system, members, callers: 256, per_second, p50_us, cores }
    }

    pub(crate) fn results() -> Results {
        let lengths = [(1, 1.0), (3, 2.95), (5, 4.7), (7, 6.8)];
        let reads = lengths.into_iter().flat_map(|(members, times)| {
            [read(System::Cr, members, 20_000.0), read(System::Craq, members, 20_000.0 * times)]
        });
        let mixed = [Some(0.0), Some(100.0), None].into_iter().flat_map(|wanted| {
            [System::Cr, System::Craq].map(|system| MixedPoint {
                mbit: 100,
                system,
                members: 3,
                wanted,
                writes: vec![wanted.unwrap_or(3000.0)],
                clean: vec![50_000.0],
                dirty: vec![8000.0],
                cores: vec![Cores::default()],
            })
        });
        let latency = |p50_us| Latency { count: 10, p50_us, p95_us: 2.0 * p50_us, p99_us: 3.0 * p50_us };
        let latencies = (1..=7).flat_map(|members| {
            [false, true].map(|loaded| LatencyPoint {
                mbit: 100,
                members,
                loaded,
                clean: latency(200.0),
                dirty: Latency { count: u64::from(members > 1), ..latency(400.0) },
                write: latency(200.0 * members as f64),
            })
        });
        let bucket = |n| Bucket { reads: if (40..90).contains(&n) { 4000 } else { 6000 }, writes: 50, failures: 0 };
        Results {
            machine: throughput_results(Vec::new()).machine,
            settings: Settings {
                quick: true,
                rounds: 1,
                warm_up_ms: 1,
                sample_ms: 1,
                keys: 10,
                hot_keys: 1,
                clients_per_member: 2,
                queue_bytes: 1,
                network: "veth".to_owned(),
            },
            reads: reads.collect(),
            mixed: mixed.collect(),
            writes: vec![WritePoint {
                mbit: 100,
                change: Change::Swap,
                value_bytes: 500,
                members: 3,
                callers: 1,
                per_second: vec![776.0],
                p50_us: vec![1300.0],
                cores: vec![Cores::default()],
            }],
            latency: latencies.collect(),
            failover: vec![Failover {
                mbit: 100,
                members: 3,
                killed: "middle".to_owned(),
                lease_ms: 1000,
                writes_wanted: 500.0,
                killed_ms: 4000,
                started_ms: 9000,
                ready_ms: 9400,
                bucket_ms: 100,
                timeline: (0..160).map(bucket).collect(),
            }],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_ups_are_by_the_chain_of_three() {
        let met: Vec<_> = all(&made_up::results()).iter().map(|verdict| verdict.met).collect();
        assert_eq!(met, [Some(true), Some(false), Some(true)]);
    }

    #[test]
    fn rows_have_every_figure() {
        let text = tables(&made_up::results());
        for row in [
            "| 3 | 20000 | 59000 | 2.95 | 0.75 · 0.25, 0.75 · 0.25 |",
            "| CRAQ-3 | 100 | 50000 | 8000 | 58000 | 0.00 · 0.00 |",
            "| compare and swap one key, 500 B | 3 | 776 | 1300 | 0.00 · 0.00 |",
            "| 1 | idle | 200, 400, 600 | – | 200, 400, 600 |",
        ] {
            assert!(text.contains(row), "{row}\n{text}");
        }
    }

    #[test]
    fn results_are_read_back() {
        let results = made_up::results();
        let folder = std::env::temp_dir().join(format!("artillery-paper-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("paper.json");
        results.store(&file).unwrap();
        assert_eq!(Results::load(&file).unwrap(), results);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
