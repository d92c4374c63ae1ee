//! Compares the figures with the promises.

use std::fmt;

use crate::throughput::{
    results::{Graph, Placement, Point, Results, System},
    stats::{median, range},
};

/// Whether a promise is kept.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// The promise, including the system to which it applies.
    pub promise: String,
    /// Whether it is kept. `None`: it wasn't measured.
    pub met: Option<bool>,
    /// The numbers from which the verdict follows.
    pub numbers: String,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let met = match self.met {
            Some(true) => "met",
            Some(false) => "NOT MET",
            None => "not measured",
        };
        write!(f, "{met}: {}: {}", self.promise, self.numbers)
    }
}

/// Minimum throughput of CRAQ divided by that of CR-3, where nodes are limited to equal fractions of a core: members,
/// percentage of reads, ratio.
const SPEED_UPS: [(u32, u32, f64); 3] = [(3, 100, 2.7), (5, 100, 4.4), (3, 90, 2.0)];

/// The minimum throughput as a fraction of that of a raw blocking TCP echo.
const OF_TCP: f64 = 0.6;

/// The verdicts on all promises.
pub fn all(results: &Results) -> Vec<Verdict> {
    let mut all = speed_ups(results);
    for graph in [Graph::Blocking, Graph::Concurrent] {
        all.extend(results.placements(graph).into_iter().map(|placement| not_slower(results, graph, placement)));
    }
    all.extend(results.placements(Graph::Blocking).into_iter().map(|placement| near_tcp(results, placement)));
    all
}

/// The fractions of a core to which nodes were limited, greatest first.
pub fn shares(results: &Results) -> Vec<f64> {
    let mut shares: Vec<_> = results.points.iter().filter_map(|point| point.share).collect();
    shares.sort_by(|a, b| b.total_cmp(a));
    shares.dedup();
    shares
}

/// The point of a chain whose nodes were limited to `share` of a core.
pub fn shared(results: &Results, share: f64, system: System, members: u32, reads_percent: u32) -> Option<&Point> {
    results.points.iter().find(|point| {
        let what = (point.graph, point.system, point.members, point.reads_percent);
        point.share == Some(share) && what == (Graph::Shares, system, members, reads_percent)
    })
}

fn speed_ups(results: &Results) -> Vec<Verdict> {
    let of_share = |share| SPEED_UPS.map(|(members, reads, least)| speed_up(results, share, members, reads, least));
    let verdicts: Vec<_> = shares(results).into_iter().flat_map(of_share).collect();
    if verdicts.is_empty() {
        let promise = "CRAQ beside CR, nodes held to equal parts of a core".to_owned();
        return vec![Verdict { promise, met: None, numbers: results.skipped.join("; ") }];
    }
    verdicts
}

fn speed_up(results: &Results, share: f64, members: u32, reads: u32, least: f64) -> Verdict {
    let promise = format!("CRAQ-{members} ≥ {least} × CR-3 at {reads} % reads, each node held to {share} of a core");
    let found = |system, members| shared(results, share, system, members, reads);
    let (Some(craq), Some(cr)) = (found(System::Craq, members), found(System::Cr, 3)) else {
        return Verdict { promise, met: None, numbers: "no such points".to_owned() };
    };
    let (ratio, ratios) = (ratio(craq, cr), paired(craq, cr));
    let (low, high) = range(&ratios);
    let numbers = format!(
        "{ratio:.2} ({low:.2} to {high:.2} in single rounds): {:.1} k by {:.1} k operations/s; callers busy on {:.2} cores",
        median(&craq.per_second) / 1000.0,
        median(&cr.per_second) / 1000.0,
        median(&craq.client_cores)
    );
    Verdict { promise, met: Some(ratio >= least), numbers }
}

/// One median throughput divided by the other.
pub fn ratio(one: &Point, other: &Point) -> f64 {
    median(&one.per_second) / median(&other.per_second)
}

/// The ratio of throughputs in each round.
pub fn paired(one: &Point, other: &Point) -> Vec<f64> {
    one.per_second.iter().zip(&other.per_second).map(|(one, other)| one / other).collect()
}

/// Points of two systems with the same number of callers.
pub fn pairs(
    results: &Results,
    graph: Graph,
    placement: Placement,
    one: System,
    other: System,
) -> Vec<(&Point, &Point)> {
    let others = results.line(graph, placement, other);
    let ones = results.line(graph, placement, one).into_iter();
    ones.filter_map(|one| Some((one, *others.iter().find(|other| other.callers == one.callers)?))).collect()
}

fn not_slower(results: &Results, graph: Graph, placement: Placement) -> Verdict {
    let promise = format!("CRAQ at no number of callers slower than CR beyond the bars, {graph}, {placement}");
    let pairs = pairs(results, graph, placement, System::Craq, System::Cr);
    let is_slower = |(craq, cr): &&(&Point, &Point)| range(&craq.per_second).1 < range(&cr.per_second).0;
    let slower: Vec<_> = pairs.iter().filter(is_slower).map(described).collect();
    let ratios: Vec<_> = pairs.iter().map(|(craq, cr)| ratio(craq, cr)).collect();
    let (low, high) = range(&ratios);
    let mut numbers = format!("CRAQ by CR {low:.2} to {high:.2}, median {:.2}", median(&ratios));
    if !slower.is_empty() {
        numbers += &format!("; slower at N = {}", slower.join(", "));
    }
    Verdict { promise, met: (!pairs.is_empty()).then_some(slower.is_empty()), numbers }
}

fn described((one, other): &(&Point, &Point)) -> String {
    format!("{} ({:.2})", one.callers, ratio(one, other))
}

fn near_tcp(results: &Results, placement: Placement) -> Verdict {
    let promise = format!("blocking CRAQ ≥ {OF_TCP} × a raw blocking TCP echo at every number of callers, {placement}");
    let pairs = pairs(results, Graph::Blocking, placement, System::Craq, System::Tcp);
    let is_near = pairs.iter().all(|(craq, tcp)| ratio(craq, tcp) >= OF_TCP);
    let all: Vec<_> = pairs.iter().map(described).collect();
    Verdict { promise, met: (!pairs.is_empty()).then_some(is_near), numbers: format!("N (ratio): {}", all.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::throughput::results::made_up::{point, results};

    fn with_share(system: System, members: u32, reads_percent: u32, per_second: f64) -> Point {
        let made = point(Graph::Shares, Placement::Free, system, 60 * members, per_second);
        Point { share: Some(0.2), members, reads_percent, ..made }
    }

    fn met(points: Vec<Point>) -> Vec<Option<bool>> {
        all(&results(points)).iter().map(|verdict| verdict.met).collect()
    }

    #[test]
    fn speed_ups_are_by_the_chain_of_three() {
        let points = |craq_5| {
            vec![
                with_share(System::Cr, 3, 100, 100.0),
                with_share(System::Cr, 5, 100, 1.0),
                with_share(System::Craq, 3, 100, 271.0),
                with_share(System::Craq, 5, 100, craq_5),
                with_share(System::Cr, 3, 90, 100.0),
                with_share(System::Craq, 3, 90, 199.0),
            ]
        };
        assert_eq!(met(points(441.0)), [Some(true), Some(true), Some(false)]);
        assert_eq!(met(points(439.0)), [Some(true), Some(false), Some(false)]);
        let text = all(&results(points(439.0)))[1].to_string();
        assert!(
            text.starts_with("NOT MET: CRAQ-5 ≥ 4.4 × CR-3") && text.contains("4.39 (4.39 to 4.39 in single"),
            "{text}"
        );
    }

    #[test]
    fn omitted_part_is_not_measured() {
        let mut results = results(Vec::new());
        results.skipped.push("no root".to_owned());
        let verdicts = all(&results);
        assert_eq!(verdicts[0].met, None);
        assert!(verdicts[0].to_string().contains("no root"));
    }

    #[test]
    fn slower_means_that_bars_do_not_overlap() {
        let points = |craq| {
            vec![
                point(Graph::Blocking, Placement::Free, System::Cr, 1, 100.0),
                point(Graph::Blocking, Placement::Free, System::Craq, 1, craq),
            ]
        };
        assert_eq!(met(points(97.0))[1], Some(true), "the bars meet");
        let slower = &all(&results(points(95.0)))[1];
        assert_eq!(slower.met, Some(false));
        assert!(slower.numbers.contains("slower at N = 1 (0.95)"), "{}", slower.numbers);
    }

    #[test]
    fn one_slow_number_of_callers_breaks_the_promise() {
        let points = |at_ten| {
            vec![
                point(Graph::Blocking, Placement::OneCore, System::Tcp, 1, 100.0),
                point(Graph::Blocking, Placement::OneCore, System::Craq, 1, 90.0),
                point(Graph::Blocking, Placement::OneCore, System::Tcp, 10, 100.0),
                point(Graph::Blocking, Placement::OneCore, System::Craq, 10, at_ten),
            ]
        };
        assert_eq!(met(points(61.0)).last(), Some(&Some(true)));
        assert_eq!(met(points(59.0)).last(), Some(&Some(false)));
    }
}
