//! The figures as Markdown.

use std::fmt::Write;

use super::verdict::{ratio, shared, shares};
use crate::throughput::{
    results::{Graph, Machine, Placement, Point, Results, Settings, System},
    stats::median,
};

const ORDER: [System; 4] = [System::Tcp, System::Quic, System::Cr, System::Craq];

/// All tables, with the machine and the settings.
pub fn all(results: &Results) -> String {
    let mut text = about(results);
    for graph in [Graph::Blocking, Graph::Concurrent] {
        for placement in results.placements(graph) {
            let _ = write!(text, "\n{graph} callers, {placement}:\n\n{}", by_callers(results, graph, placement));
        }
    }
    for share in shares(results) {
        let _ = write!(text, "\nEach node held to {share} of a core:\n\n{}", by_share(results, share));
    }
    text
}

/// The machine, the time and the settings of the run.
pub fn about(results: &Results) -> String {
    let Machine { date, commit, kernel, processor, cores, compiler, load_before } = &results.machine;
    let Settings { value_bytes, keys, rounds, warm_up_ms, sample_ms, .. } = &results.settings;
    let Settings { blocking, concurrent, transport, .. } = &results.settings;
    format!(
        "{date} UTC, commit {commit}, {cores} × {processor}, {kernel}, {compiler}, load {load_before} before the run. \
         {keys} keys, values of {value_bytes} bytes, {rounds} samples of {sample_ms} ms after {warm_up_ms} ms each. \
         Threads: {blocking}. Concurrent: {concurrent}. {transport}.\n"
    )
}

fn by_callers(results: &Results, graph: Graph, placement: Placement) -> String {
    let lines = ORDER.map(|system| results.line(graph, placement, system));
    let mut text = String::from(
        "| N | TCP k/s · µs | QUIC k/s · µs | CR k/s · µs | CRAQ k/s · µs | CRAQ / CR | CRAQ / TCP | CRAQ / QUIC |\n\
         |--:|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for craq in &lines[3] {
        let beside = |line: usize| lines[line].iter().find(|point| point.callers == craq.callers).copied();
        let cell = |point: Option<&Point>| point.map_or("–".to_owned(), figure);
        let by = |line: usize| beside(line).map_or("–".to_owned(), |other| format!("{:.2}", ratio(craq, other)));
        let cells = [0, 1, 2, 3].map(|line| cell(beside(line))).join(" | ");
        let _ = writeln!(text, "| {} | {cells} | {} | {} | {} |", craq.callers, by(2), by(0), by(1));
    }
    text
}

fn figure(point: &Point) -> String {
    format!("{:.1} · {:.0}", median(&point.per_second) / 1000.0, median(&point.p50_us))
}

fn by_share(results: &Results, share: f64) -> String {
    let mut text = String::from(
        "| reads | chain | CR k/s · µs | CRAQ k/s · µs | CRAQ / CR | CRAQ / CR-3 | nodes busy: CR, CRAQ | callers busy: CR, CRAQ |\n\
         |--:|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for craq in results.line(Graph::Shares, Placement::Free, System::Craq) {
        let reads = craq.reads_percent;
        let Some(cr) = shared(results, share, System::Cr, craq.members, reads) else { continue };
        if craq.share != Some(share) {
            continue;
        }
        let third = shared(results, share, System::Cr, 3, reads);
        let by_third = third.map_or("–".to_owned(), |third| format!("{:.2}", ratio(craq, third)));
        let busy = |of: fn(&Point) -> &Vec<f64>| format!("{:.2}, {:.2}", median(of(cr)), median(of(craq)));
        let (nodes, callers) = (busy(|point| &point.server_cores), busy(|point| &point.client_cores));
        let (members, by, cr, craq) = (craq.members, ratio(craq, cr), figure(cr), figure(craq));
        let row = format!("{reads} % | {members} | {cr} | {craq} | {by:.2} | {by_third} | {nodes} | {callers}");
        let _ = writeln!(text, "| {row} |");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::throughput::results::made_up::{point, results};

    #[test]
    fn a_row_for_each_number_of_callers() {
        let points = [System::Tcp, System::Cr, System::Craq]
            .into_iter()
            .zip([4000.0, 2000.0, 3000.0])
            .flat_map(|(system, speed)| {
                [1, 10].map(|callers| point(Graph::Concurrent, Placement::OneCore, system, callers, speed))
            })
            .collect();
        let text = all(&results(points));
        let row = "| 10 | 4.0 · 100 | – | 2.0 · 100 | 3.0 · 100 | 1.50 | 0.75 | – |";
        assert!(text.contains(row) && text.contains("all threads on one core"), "{text}");
        assert!(text.contains("commit 0123abc") && text.contains("1000 bytes"), "{text}");
    }

    #[test]
    fn shares_stand_beside_the_chain_of_three() {
        let made = |system, members, speed| {
            let made = point(Graph::Shares, Placement::Free, system, 60, speed);
            Point { share: Some(0.2), members, ..made }
        };
        let points = vec![
            made(System::Cr, 3, 1000.0),
            made(System::Cr, 5, 500.0),
            made(System::Craq, 3, 2500.0),
            made(System::Craq, 5, 4000.0),
        ];
        let text = all(&results(points));
        assert!(text.contains("| 99 % | 5 | 0.5 · 100 | 4.0 · 100 | 8.00 | 4.00 |"), "{text}");
    }
}
