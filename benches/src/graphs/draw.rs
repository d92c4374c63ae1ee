//! Pictures as SVG, independent of the fonts of the machine that draws them.

use std::error::Error;

use plotters::style::RGBColor;

use super::{
    canvas::{Axis, COLOURS, Line, lengths, panel, picture, steps},
    verdict::{paired, shared, shares},
};
use crate::throughput::{
    results::{Graph, Placement, Point, Results, System},
    stats::range,
};

/// The figure shown by number of callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Operations per second.
    Throughput,
    /// Median latency of reads.
    Latency,
}

/// Every picture for which there are figures, with its file name.
pub fn all(results: &Results) -> Result<Vec<(String, String)>, Box<dyn Error>> {
    let mut all = Vec::new();
    for graph in [Graph::Blocking, Graph::Concurrent] {
        for (measure, name) in [(Measure::Throughput, "throughput"), (Measure::Latency, "latency")] {
            if !results.placements(graph).is_empty() {
                all.push((format!("{graph}-{name}.svg"), by_callers(results, graph, measure)?));
            }
        }
    }
    if !shares(results).is_empty() {
        all.push(("speed-up.svg".to_owned(), by_share(results)?));
    }
    Ok(all)
}

/// Throughput or latency by number of callers, with a panel for each placement.
pub fn by_callers(results: &Results, graph: Graph, measure: Measure) -> Result<String, Box<dyn Error>> {
    let what = match measure {
        Measure::Throughput => "Operations per second",
        Measure::Latency => "Median read latency",
    };
    let callers = match graph {
        Graph::Blocking => "by number of blocking clients",
        _ => "by number of concurrent callers on one handle",
    };
    let title = format!("{what} {callers}: three nodes, {}-byte values, 1 % writes", results.settings.value_bytes);
    let placements = results.placements(graph);
    picture(&title, &footer(results), placements.len(), |areas| {
        for (area, &placement) in areas.iter().zip(&placements) {
            let lines = lines(results, graph, placement, measure);
            panel(area, &placement.to_string(), &callers_axis(&lines), &measure_axis(&lines, measure), &lines, None)?;
        }
        Ok(())
    })
}

fn lines(results: &Results, graph: Graph, placement: Placement, measure: Measure) -> Vec<Line> {
    let line = |(system, colour): (System, RGBColor)| {
        let points = results.line(graph, placement, system).into_iter().map(|point| {
            let samples = match measure {
                Measure::Throughput => point.per_second.iter().map(|samples| samples / 1000.0).collect(),
                Measure::Latency => point.p50_us.clone(),
            };
            (f64::from(point.callers), samples)
        });
        Line::new(system.to_string(), colour, points.collect())
    };
    let systems = [System::Craq, System::Cr, System::Tcp, System::Quic];
    systems.into_iter().zip(COLOURS).map(line).filter(|line| !line.points.is_empty()).collect()
}

fn callers_axis(lines: &[Line]) -> Axis {
    let most = range(&lines.iter().flat_map(|line| line.points.iter().map(|(x, _)| *x)).collect::<Vec<_>>()).1;
    let labels = [1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0, 30.0, 50.0, 100.0];
    let labels = labels.into_iter().filter(|&label| label <= most).collect();
    Axis { name: "callers at the same time (N)", is_log: true, ends: (0.9, most * 1.12), labels }
}

fn measure_axis(lines: &[Line], measure: Measure) -> Axis {
    let all: Vec<_> =
        lines.iter().flat_map(|line| line.points.iter().flat_map(|(_, samples)| samples.clone())).collect();
    let (least, most) = range(&all);
    match measure {
        Measure::Throughput => Axis {
            name: "thousands of operations per second",
            is_log: false,
            // Headroom for the key above the lines.
            ends: (0.0, most * 1.4),
            labels: steps(most),
        },
        Measure::Latency => {
            let ends = (least.max(1.0) * 0.8, most.max(2.0) * 1.4);
            let decades = (0..6).flat_map(|decade| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(decade)));
            let labels = decades.filter(|&label| ends.0 <= label && label <= ends.1).collect();
            Axis { name: "median of reads, µs (log)", is_log: true, ends, labels }
        }
    }
}

/// The throughput of CRAQ divided by that of CR, by chain length, with a panel for each fraction of a core.
pub fn by_share(results: &Results) -> Result<String, Box<dyn Error>> {
    let shares = shares(results);
    let title = "Reads at every member (CRAQ) by reads at the tail (CR): speed-up by length of chain";
    picture(title, &footer(results), shares.len(), |areas| {
        for (area, &share) in areas.iter().zip(&shares) {
            let lines = speed_ups(results, share);
            let most = lines.iter().flat_map(|line| line.points.iter().map(|(x, _)| *x)).fold(1.0, f64::max);
            let y = Axis {
                name: "CRAQ's operations/s by CR's, same length",
                is_log: false,
                ends: (0.0, most * 1.08),
                labels: steps(most),
            };
            let ideal = [(1.0, 1.0), (most, most)];
            let caption = format!("each node held to {share} of a core");
            panel(area, &caption, &lengths(most), &y, &lines, Some(("as many times as members", ideal)))?;
        }
        Ok(())
    })
}

fn speed_ups(results: &Results, share: f64) -> Vec<Line> {
    let of_share = |point: &&Point| point.share == Some(share);
    let craq: Vec<_> =
        results.line(Graph::Shares, Placement::Free, System::Craq).into_iter().filter(of_share).collect();
    let mut reads: Vec<_> = craq.iter().map(|point| point.reads_percent).collect();
    reads.dedup();
    let line = |(reads, colour): (u32, RGBColor)| {
        let points = craq.iter().filter(|point| point.reads_percent == reads).filter_map(|point| {
            let cr = shared(results, share, System::Cr, point.members, reads)?;
            Some((f64::from(point.members), paired(point, cr)))
        });
        Line::new(format!("{reads} % reads"), colour, points.collect())
    };
    reads.into_iter().zip(COLOURS).map(line).collect()
}

fn footer(results: &Results) -> [String; 3] {
    let (machine, settings) = (&results.machine, &results.settings);
    [
        machine.to_string(),
        format!(
            "Everything on loopback. Medians of {} samples of {} ms; bars from the least to the greatest. {} keys. {}.",
            settings.rounds, settings.sample_ms, settings.keys, settings.transport
        ),
        format!(
            "Blocking: {}. Concurrent: {}. Held to a part of a core: {} callers per member.",
            settings.blocking, settings.concurrent, settings.callers_per_member
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::throughput::results::made_up::{point, results};

    fn full() -> Results {
        let mut points = Vec::new();
        for placement in [Placement::Free, Placement::OneCore] {
            for callers in (1..=5).chain((10..=100).step_by(10)) {
                for (system, speed) in [(System::Tcp, 9e4), (System::Quic, 7e4), (System::Cr, 4e4), (System::Craq, 5e4)]
                {
                    points.push(point(Graph::Blocking, placement, system, callers, speed + f64::from(callers)));
                    points.push(point(Graph::Concurrent, placement, system, callers, speed));
                }
            }
        }
        for (members, speed) in [(1, 1000.0), (3, 2800.0), (5, 4500.0)] {
            for (system, speed) in [(System::Cr, 1000.0), (System::Craq, speed)] {
                let made = point(Graph::Shares, Placement::Free, system, 60 * members, speed);
                points.push(Point { share: Some(0.2), members, ..made });
            }
        }
        results(points)
    }

    #[test]
    fn pictures_say_what_they_show_and_stay_small() {
        let pictures = all(&full()).unwrap();
        let names: Vec<_> = pictures.iter().map(|(name, _)| name.as_str()).collect();
        let by_callers = ["throughput.svg", "latency.svg"];
        let by_callers = ["blocking-", "concurrent-"].map(|graph| by_callers.map(|name| format!("{graph}{name}")));
        assert_eq!(names[..4], by_callers.concat());
        assert_eq!(names[4..], ["speed-up.svg"]);
        for (name, svg) in &pictures {
            assert!(svg.len() < 60_000, "{name} has {} bytes", svg.len());
            assert!(svg.trim_start().starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{name}");
            assert!(svg.contains("2026-11-21 10:45 UTC, commit 0123abc, 2 × a processor, Linux 6.1"), "{name}");
            assert!(!svg.contains("NaN"), "{name}");
        }
        let says =
            |at: usize, words: &[&str]| words.iter().for_each(|word| assert!(pictures[at].1.contains(word), "{word}"));
        says(0, &["thousands of operations per second", "CRAQ", "CR", "raw TCP echo", "raw QUIC echo", "one core"]);
        says(1, &["median of reads, µs (log)", "callers at the same time (N)", "where the system puts them"]);
        says(4, &["members of the chain", "99 % reads", "0.2 of a core", "as many times as members"]);
    }

    #[test]
    fn each_point_has_its_bar() {
        let mut results = full();
        results.points.retain(|point| point.system == System::Cr && point.graph == Graph::Blocking);
        let svg = by_callers(&results, Graph::Blocking, Measure::Throughput).unwrap();
        assert_eq!(svg.matches("<circle").count(), 2 * 15);
        // Each panel has a bar for each point, the line through the points, and its key.
        let lines = svg.split('<').filter(|tag| tag.starts_with("polyline") && tag.contains("#0072B2"));
        assert_eq!(lines.count(), 2 * (15 + 2));
    }

    #[test]
    fn empty_results_make_no_picture() {
        assert!(all(&results(Vec::new())).unwrap().is_empty());
    }
}
