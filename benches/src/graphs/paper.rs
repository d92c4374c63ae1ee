//! Pictures of the CRAQ paper's evaluation, in the style of the paper.

use std::{error::Error, ops::Range};

use super::canvas::{Area, Axis, COLOURS, Drawn, GREY, Line, lengths, panel, picture, steps};
use crate::{
    paper::{
        results::{Failover, LatencyPoint, MixedPoint, Results, Settings},
        tally::{Bucket, Latency},
        verdict::{reads, value_sizes},
    },
    throughput::{
        results::System,
        stats::{median, range},
    },
};

/// Headroom for the key above the lines, as a factor.
const HEADROOM: f64 = 1.45;

/// The length of an interval whose mean rate is drawn. Writers at a fixed rate may write in step, so that a much shorter
/// one contains one burst or two, and its rate shows the rhythm of the writers instead of the chain's.
const MEAN_MS: u64 = 500;

/// Every picture for which there are figures, with its file name, for each rate of the links.
pub fn all(results: &Results) -> Result<Vec<(String, String)>, Box<dyn Error>> {
    let rates = results.rates();
    let mut all = Vec::new();
    for &mbit in &rates {
        let suffix = if rates.first() == Some(&mbit) { String::new() } else { format!("-{mbit}-mbit") };
        let pictures = [
            ("reads", by_length(results, mbit)?),
            ("mixed", by_writes(results, mbit)?),
            ("latency", latencies(results, mbit)?),
            ("failover", failovers(results, mbit)?),
        ];
        let named = pictures.into_iter().filter_map(|(name, picture)| Some((name, picture?)));
        all.extend(named.map(|(name, picture)| (format!("paper-{name}{suffix}.svg"), picture)));
    }
    Ok(all)
}

type Picture = Result<Option<String>, Box<dyn Error>>;

fn footer(results: &Results) -> [String; 3] {
    let (machine, settings) = (&results.machine, &results.settings);
    let Settings { rounds, sample_ms, clients_per_member, .. } = settings;
    let sketch = if settings.quick { " A quick run: take it as a sketch." } else { "" };
    [
        machine.to_string(),
        format!(
            "Medians of {rounds} samples of {sample_ms} ms; bars from the least to the greatest. {clients_per_member} \
             clients for each member, each with a link of its own.{sketch}"
        ),
        format!("Network: {}; {} KiB may wait at each end.", settings.network, settings.queue_bytes >> 10),
    ]
}

fn greatest(lines: &[Line]) -> f64 {
    range(&lines.iter().flat_map(|line| line.points.iter().flat_map(|(_, y)| y.clone())).collect::<Vec<_>>()).1
}

fn from_zero(name: &'static str, most: f64) -> Axis {
    Axis { name, is_log: false, ends: (0.0, most.max(0.001) * HEADROOM), labels: steps(most) }
}

/// Reads by chain length, with a panel for each value size.
fn by_length(results: &Results, mbit: u32) -> Picture {
    let has_points =
        |bytes: &usize| results.reads.iter().any(|point| (point.mbit, point.value_bytes) == (mbit, *bytes));
    let sizes: Vec<_> = value_sizes(results).into_iter().filter(has_points).collect();
    if sizes.is_empty() {
        return Ok(None);
    }
    let title = format!("Read throughput by length of the chain: each link held to {mbit} Mbit/s");
    let drawn = picture(&title, &footer(results), sizes.len(), |areas| {
        areas.iter().zip(&sizes).try_for_each(|(area, &value_bytes)| reads_panel(area, results, mbit, value_bytes))
    });
    drawn.map(Some)
}

fn reads_panel(area: &Area<'_>, results: &Results, mbit: u32, value_bytes: usize) -> Drawn {
    let line = |(system, colour): (System, _)| {
        let found = (1..=7).filter_map(|members| reads(results, mbit, value_bytes, system, members));
        let points = found.map(|point| {
            (point.members as f64, point.per_second.iter().map(|reads| reads / 1000.0).collect::<Vec<_>>())
        });
        Line::new(system.to_string(), colour, points.collect())
    };
    let lines: Vec<_> = [System::Craq, System::Cr].into_iter().zip(COLOURS).map(line).collect();
    let most = lines.iter().flat_map(|line| line.points.iter().map(|(x, _)| *x)).fold(1.0, f64::max);
    let y = from_zero("thousands of reads per second", greatest(&lines));
    let base = reads(results, mbit, value_bytes, System::Cr, 3).map_or(0.0, |cr| median(&cr.per_second) / 1000.0);
    let ideal = ("members × CR-3", [(1.0, base), (most, most * base)]);
    panel(area, &format!("values of {value_bytes} bytes"), &lengths(most), &y, &lines, Some(ideal))
}

/// Reads by the rate of writes to the same keys.
fn by_writes(results: &Results, mbit: u32) -> Picture {
    let points: Vec<_> = results.mixed.iter().filter(|point| point.mbit == mbit).collect();
    if points.is_empty() {
        return Ok(None);
    }
    let of = |name: &str, system: System, colour: usize, reads: fn(&MixedPoint) -> Vec<f64>| {
        let points = points.iter().filter(|point| point.system == system);
        let points = points.map(|point| (median(&point.writes), thousands(&reads(point))));
        Line::new(name.to_owned(), COLOURS[colour], points.collect())
    };
    let together =
        |point: &MixedPoint| point.clean.iter().zip(&point.dirty).map(|(clean, dirty)| clean + dirty).collect();
    let lines = [
        of("CRAQ-3, all reads", System::Craq, 0, together),
        of("CRAQ-3, clean reads", System::Craq, 2, |point| point.clean.clone()),
        of("CRAQ-3, dirty reads", System::Craq, 3, |point| point.dirty.clone()),
        of("CR-3", System::Cr, 1, together),
    ];
    let most = lines.iter().flat_map(|line| line.points.iter().map(|(x, _)| *x)).fold(1.0, f64::max);
    let x = Axis {
        name: "writes per second that were made; at each line's end as many as possible",
        is_log: false,
        ends: (-most * 0.02, most * 1.04),
        labels: steps(most),
    };
    let y = from_zero("thousands of reads per second", greatest(&lines));
    let keys = results.settings.hot_keys;
    let title = format!("Reads beside writes to the same {keys} keys: values of 500 bytes, links of {mbit} Mbit/s");
    picture(&title, &footer(results), 1, |areas| {
        areas.iter().try_for_each(|area| panel(area, "chains of three", &x, &y, &lines, None))
    })
    .map(Some)
}

fn thousands(all: &[f64]) -> Vec<f64> {
    all.iter().map(|one| one / 1000.0).collect()
}

/// Latencies by chain length, with a panel for idle links and one for loaded links.
fn latencies(results: &Results, mbit: u32) -> Picture {
    if results.latency.iter().all(|point| point.mbit != mbit) {
        return Ok(None);
    }
    let title = format!("Latency by length of the chain: values of 500 bytes, links of {mbit} Mbit/s");
    picture(&title, &footer(results), 2, |areas| {
        let panels = [(false, "no other callers"), (true, "beside readers that fill the links")];
        areas.iter().zip(panels).try_for_each(|(area, (loaded, caption))| {
            let is_of = |point: &&LatencyPoint| (point.mbit, point.loaded) == (mbit, loaded);
            let points: Vec<_> = results.latency.iter().filter(is_of).collect();
            latency_panel(area, caption, &points)
        })
    })
    .map(Some)
}

fn latency_panel(area: &Area<'_>, caption: &str, points: &[&LatencyPoint]) -> Drawn {
    let of = |name: &str, colour: usize, latency: fn(&LatencyPoint) -> Latency| {
        let measured = points.iter().map(|point| (point.members as f64, latency(point)));
        let points = measured.filter(|(_, latency)| latency.count > 0).map(|(members, latency)| {
            // Three values: the middle one is drawn, the last one ends the bar.
            (members, vec![latency.p50_us / 1000.0, latency.p50_us / 1000.0, latency.p95_us / 1000.0])
        });
        Line::new(format!("{name}: median, bar to p95"), COLOURS[colour], points.collect())
    };
    let lines = [
        of("write", 0, |point| point.write),
        of("dirty read", 3, |point| point.dirty),
        of("clean read", 1, |point| point.clean),
    ];
    let most = points.iter().map(|point| point.members).max().unwrap_or(1) as f64;
    panel(area, caption, &lengths(most), &from_zero("ms", greatest(&lines)), &lines, None)
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}

/// Bounds of the intervals whose mean rates are drawn, as indices of buckets. None contains the kill or the restart, so
/// that no mean mixes the rates before and after; all are about as long as [`MEAN_MS`].
fn bins(found: &Failover) -> Vec<Range<usize>> {
    let bucket_ms = found.bucket_ms.max(1);
    let at = |ms: u64| usize::try_from(ms / bucket_ms).unwrap_or(usize::MAX).min(found.timeline.len());
    let bounds = [0, at(found.killed_ms), at(found.started_ms), found.timeline.len()];
    let between = |pair: &[usize]| {
        let (from, length) = (pair[0], pair[1].saturating_sub(pair[0]));
        let count = (length as u64 * bucket_ms + MEAN_MS / 2) / MEAN_MS;
        let count = usize::try_from(count).unwrap_or(1).clamp(1, length.max(1));
        (0..count).map(move |n| from + n * length / count..from + (n + 1) * length / count)
    };
    bounds.windows(2).flat_map(between).filter(|bin| !bin.is_empty()).collect()
}

/// The mean rate of each bin as a step, in multiples of `unit` per second.
fn rates(found: &Failover, of: fn(&Bucket) -> u32, unit: f64) -> Vec<(f64, f64)> {
    let step = |bin: Range<usize>| {
        let [from, until] = [bin.start, bin.end].map(|at| seconds(at as u64 * found.bucket_ms));
        let count: u32 = found.timeline[bin].iter().map(of).sum();
        let rate = f64::from(count) / (until - from) / unit;
        [(from, rate), (until, rate)]
    };
    bins(found).into_iter().flat_map(step).collect()
}

/// The longest time without a write, in milliseconds, as exact as the buckets.
fn longest_pause(found: &Failover) -> u64 {
    let pauses = found.timeline.split(|bucket| bucket.writes > 0);
    pauses.map(|pause| pause.len() as u64).max().unwrap_or(0) * found.bucket_ms
}

/// Operations over time, with a panel for each place whose member is killed.
fn failovers(results: &Results, mbit: u32) -> Picture {
    let found: Vec<_> = results.failover.iter().filter(|found| found.mbit == mbit).collect();
    if found.is_empty() {
        return Ok(None);
    }
    let title =
        format!("A member of three is killed, and restarted without data: values of 500 bytes, links of {mbit} Mbit/s");
    let [machine, _, network] = footer(results);
    let wanted = found[0].writes_wanted;
    let made = format!(
        "One run for each panel. Each step is the mean rate of about {MEAN_MS} ms; none spans the kill or the restart. \
         {wanted} writes per second are wanted."
    );
    picture(&title, &[machine, made, network], found.len(), |areas| {
        areas.iter().zip(&found).try_for_each(|(area, found)| failover_panel(area, found))
    })
    .map(Some)
}

fn failover_panel(area: &Area<'_>, found: &Failover) -> Drawn {
    let mut lines = vec![
        Line::plain(
            "thousands of reads per second".to_owned(),
            COLOURS[1],
            rates(found, |bucket| bucket.reads, 1000.0),
        ),
        Line::plain("tens of writes per second".to_owned(), COLOURS[0], rates(found, |bucket| bucket.writes, 10.0)),
    ];
    let most = greatest(&lines);
    let marks = [("killed", found.killed_ms), ("started again", found.started_ms), ("serves reads", found.ready_ms)];
    let mark = |((name, at), colour): ((&str, u64), _)| {
        let at = seconds(at);
        Line::plain(format!("{name}: {at:.1} s"), colour, vec![(at, 0.0), (at, most)])
    };
    lines.extend(marks.into_iter().zip([GREY, COLOURS[3], COLOURS[2]]).map(mark));
    let end = seconds(found.timeline.len() as u64 * found.bucket_ms);
    let x = Axis { name: "seconds", is_log: false, ends: (0.0, end), labels: steps(end) };
    let pause = seconds(longest_pause(found));
    let caption = format!("the {} is killed: no write for {pause:.1} s", found.killed);
    panel(area, &caption, &x, &from_zero("thousands of reads, tens of writes", most), &lines, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::verdict::made_up;

    #[test]
    fn there_is_a_picture_of_each_experiment() {
        let pictures = all(&made_up::results()).unwrap();
        let names: Vec<_> = pictures.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["paper-reads.svg", "paper-mixed.svg", "paper-latency.svg", "paper-failover.svg"]);
        for (name, svg) in &pictures {
            assert!(svg.starts_with("<svg") && svg.contains("100 Mbit/s") && svg.len() < 100_000, "{name}");
        }
        assert!(pictures[0].1.contains("members × CR-3") && pictures[3].1.contains("the middle is killed"));
    }

    fn failover(killed_ms: u64, started_ms: u64, writes: &[u32]) -> Failover {
        let bucket = |&writes: &u32| Bucket { reads: 10 * writes, writes, failures: 0 };
        let timeline = writes.iter().map(bucket).collect();
        Failover { killed_ms, started_ms, timeline, ..made_up::results().failover.swap_remove(0) }
    }

    #[test]
    fn writers_in_step_are_drawn_at_their_mean_rate() {
        // 32 writers at once, every 64 ms.
        let writes: Vec<_> = (0..160).map(|n| ((n + 1) * 100u32).div_ceil(64) - (n * 100u32).div_ceil(64)).collect();
        let writes: Vec<_> = writes.into_iter().map(|bursts| bursts * 32).collect();
        assert!(writes.contains(&32) && writes.contains(&64));
        for (at, rate) in rates(&failover(4000, 9000, &writes), |bucket| bucket.writes, 1.0) {
            assert!((rate - 500.0).abs() < 60.0, "{rate} at {at} s");
        }
    }

    #[test]
    fn no_mean_spans_a_fault_and_each_is_per_second() {
        // Two seconds of ten a bucket; a kill after 0.7 s and a restart after 1.3 s; nothing in between.
        let writes: Vec<_> = (0..19).map(|n| if (7..13).contains(&n) { 0 } else { 10 }).collect();
        let found = failover(700, 1300, &writes);
        assert_eq!(bins(&found), [0..7, 7..13, 13..19]);
        let steps = rates(&found, |bucket| bucket.writes, 10.0);
        let rounded: Vec<_> = steps.iter().map(|&(at, rate)| ((at * 10.0).round(), (rate * 10.0).round())).collect();
        assert_eq!(rounded, [(0.0, 100.0), (7.0, 100.0), (7.0, 0.0), (13.0, 0.0), (13.0, 100.0), (19.0, 100.0)]);
        assert_eq!(longest_pause(&found), 600);
        // A fault beyond the window, and no window at all.
        assert_eq!(bins(&failover(700, 9000, &writes[..9])), [0..7, 7..9]);
        assert!(bins(&failover(700, 9000, &[])).is_empty());
    }

    #[test]
    fn unmeasured_experiments_are_not_drawn() {
        let mut results = made_up::results();
        results.latency.clear();
        results.failover[0].mbit = 25;
        let names: Vec<_> = all(&results).unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["paper-reads.svg", "paper-mixed.svg", "paper-failover-25-mbit.svg"]);
    }
}
