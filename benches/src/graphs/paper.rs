//! Pictures of the CRAQ paper's evaluation, in the style of the paper.

use std::error::Error;

use super::canvas::{Area, Axis, COLOURS, Drawn, GREY, Line, lengths, panel, picture, steps};
use crate::{
    paper::{
        results::{Failover, LatencyPoint, MixedPoint, Results, Settings},
        tally::Latency,
        verdict::{reads, value_sizes},
    },
    throughput::{
        results::System,
        stats::{median, range},
    },
};

/// Headroom for the key above the lines, as a factor.
const HEADROOM: f64 = 1.45;

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

/// Operations over time, with a panel for each place whose member is killed.
fn failovers(results: &Results, mbit: u32) -> Picture {
    let found: Vec<_> = results.failover.iter().filter(|found| found.mbit == mbit).collect();
    if found.is_empty() {
        return Ok(None);
    }
    let title =
        format!("A member of three is killed and comes back empty: values of 500 bytes, links of {mbit} Mbit/s");
    picture(&title, &footer(results), found.len(), |areas| {
        areas.iter().zip(&found).try_for_each(|(area, found)| failover_panel(area, found))
    })
    .map(Some)
}

fn failover_panel(area: &Area<'_>, found: &Failover) -> Drawn {
    let seconds = |ms: u64| ms as f64 / 1000.0;
    let per_second = 1000.0 / found.bucket_ms.max(1) as f64;
    let by_time = |of: fn(&crate::paper::tally::Bucket) -> u32, unit: f64| {
        let at = |n: usize| seconds(n as u64 * found.bucket_ms);
        let points = found.timeline.iter().enumerate();
        points.map(|(n, bucket)| (at(n), f64::from(of(bucket)) * per_second / unit)).collect::<Vec<_>>()
    };
    let mut lines = vec![
        Line::plain("thousands of reads per second".to_owned(), COLOURS[1], by_time(|bucket| bucket.reads, 1000.0)),
        Line::plain("tens of writes per second".to_owned(), COLOURS[0], by_time(|bucket| bucket.writes, 10.0)),
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
    let caption = format!("the {} is killed", found.killed);
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

    #[test]
    fn unmeasured_experiments_are_not_drawn() {
        let mut results = made_up::results();
        results.latency.clear();
        results.failover[0].mbit = 25;
        let names: Vec<_> = all(&results).unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["paper-reads.svg", "paper-mixed.svg", "paper-failover-25-mbit.svg"]);
    }
}
