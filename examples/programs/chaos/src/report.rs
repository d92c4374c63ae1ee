//! The reports on each fault, and the summary at the end.

use std::{cell::RefCell, collections::BTreeMap};

use artillery_programs::story::Story;
use serde::Serialize;

use super::{
    book::Line,
    door::Reply,
    fault::Kind,
    isolation::Isolation,
    recovery::{BEGIN_END, BOUND, Regained},
    ruin::RuinTally,
    tally::Tally,
};

/// Counts of the faults and orders that were drawn but not allowed.
#[derive(Default)]
pub(super) struct Skipped(RefCell<BTreeMap<String, u64>>);

impl Skipped {
    pub(super) fn add(&self, what: &str) {
        *self.0.borrow_mut().entry(what.to_owned()).or_default() += 1;
    }

    pub(super) fn into_counts(self) -> BTreeMap<String, u64> {
        self.0.into_inner()
    }
}

/// One fault, and how the cluster recovered from it.
#[derive(Debug, Serialize)]
pub(super) struct FaultRound {
    /// Seconds since the start of the run.
    pub(super) at: f64,
    pub(super) kind: String,
    pub(super) fault: String,
    pub(super) role: String,
    /// From the heal until the current order had ended, in milliseconds; `regained` is measured from then on.
    pub(super) waited_ms: u64,
    /// The time within which each node must have served.
    pub(super) bound_ms: u64,
    /// How soon the unaffected nodes served after the fault had begun, where that is checked.
    pub(super) meanwhile: Vec<Regained>,
    /// Misbehaviour of a process that the fault started in addition to the nodes.
    pub(super) other: Option<String>,
    pub(super) regained: Vec<Regained>,
    /// From the heal until the chain had all its members, in milliseconds.
    pub(super) whole_ms: u64,
    pub(super) isolation: Option<Isolation>,
}

impl FaultRound {
    pub(super) fn line(&self) -> String {
        let (write, read) = spans(&self.regained);
        let meanwhile = if self.meanwhile.is_empty() {
            String::new()
        } else {
            let (write, read) = spans(&self.meanwhile);
            format!("meanwhile writes after {write}, reads {read}; ")
        };
        let waited = if self.waited_ms > 0 { format!("{} ms for an order, ", self.waited_ms) } else { String::new() };
        let alone = self.isolation.as_ref().map_or(String::new(), |seen| {
            let Isolation { nolease, served, eventual, other } = seen;
            let other: String = other.iter().map(|other| format!(", {other}")).collect();
            format!("; alone: {nolease} NOLEASE, {served} served, {eventual} eventual{other}")
        });
        format!(
            "{:7.1} s  {} ({}); {meanwhile}then {waited}writes at all after {write}, reads {read}, whole after {} ms{alone}",
            self.at, self.fault, self.role, self.whole_ms
        )
    }
}

/// The times by which all nodes had written, and by which all had read.
fn spans(nodes: &[Regained]) -> (String, String) {
    let span = |of: fn(&Regained) -> Option<u64>| {
        let all: Option<Vec<u64>> = nodes.iter().map(of).collect();
        all.and_then(|all| all.into_iter().max()).map_or_else(|| "never".to_owned(), |ms| format!("{ms} ms"))
    };
    (span(|node| node.write_ms), span(|node| node.read_ms))
}

/// The summary that `docs/json.md` describes.
#[derive(Debug, Default, Serialize)]
pub(super) struct Summary {
    pub(super) nodes: u32,
    pub(super) replicas: u32,
    pub(super) seed: u64,
    pub(super) seconds: f64,
    pub(super) operations: usize,
    pub(super) done: usize,
    pub(super) refused: usize,
    pub(super) unknown: usize,
    pub(super) keys: usize,
    pub(super) faults: BTreeMap<String, u64>,
    /// With `--orders`.
    pub(super) orders: Option<Tally>,
    /// With `--data`.
    pub(super) directories: Option<RuinTally>,
    pub(super) not_drawn: BTreeMap<String, u64>,
    pub(super) violations: Vec<String>,
    pub(super) undecided: usize,
    pub(super) odd: Vec<String>,
    pub(super) bound_ms: u64,
    pub(super) slowest_write_ms: Option<u64>,
    pub(super) slowest_read_ms: Option<u64>,
    /// Everything that took too long: a node's service after a heal or the beginning of a fault, an order, or the
    /// return of all members after a restart.
    pub(super) late: Vec<String>,
    /// Misbehaviour of processes that faults started in addition to the nodes.
    pub(super) others_wrongly: Vec<String>,
    pub(super) isolation: Isolation,
    /// Isolated members that misbehaved, or that were not observed.
    pub(super) isolated_wrongly: Vec<String>,
    pub(super) error: Option<String>,
    pub(super) rounds: Vec<FaultRound>,
}

impl Summary {
    pub(super) fn round(&mut self, round: FaultRound) {
        *self.faults.entry(round.kind.clone()).or_default() += 1;
        for node in &round.regained {
            self.slowest_write_ms = self.slowest_write_ms.max(node.write_ms);
            self.slowest_read_ms = self.slowest_read_ms.max(node.read_ms);
            if !node.in_time(round.bound_ms) {
                self.late.push(format!("{}: {node:?}", round.fault));
            }
        }
        // A leader that can't be dialled resigns first, and the next one waits for the previous leases to expire.
        let is_outbound = round.kind == Kind::Outbound.to_string();
        let bound_ms = if is_outbound { BEGIN_END } else { BOUND }.as_millis() as u64;
        for node in round.meanwhile.iter().filter(|node| !node.in_time(bound_ms)) {
            self.late.push(format!("{}, at its begin: {node:?}", round.fault));
        }
        self.others_wrongly.extend(round.other.iter().map(|what| format!("{}: {what}", round.fault)));
        if let Some(seen) = &round.isolation {
            self.isolation.add(seen);
            if !seen.is_right() {
                self.isolated_wrongly.push(format!("{}: {seen:?}", round.fault));
            }
        }
        self.rounds.push(round);
    }

    pub(super) fn count(&mut self, lines: &[Line]) {
        self.bound_ms = BOUND.as_millis() as u64;
        self.operations = lines.len();
        for line in lines {
            match &line.reply {
                Reply::Refused(_) => self.refused += 1,
                Reply::Unknown | Reply::Odd(_) => self.unknown += 1,
                _ => self.done += 1,
            }
        }
    }

    pub(super) fn is_fine(&self) -> bool {
        let none = Vec::new();
        let taken_in = self.directories.as_ref().map_or(&none, |directories| &directories.wrong);
        let wrong = [&self.violations, &self.odd, &self.late, &self.isolated_wrongly, &self.others_wrongly, taken_in];
        let lacks_orders = self.orders.as_ref().is_some_and(|orders| orders.lacks().is_some());
        wrong.iter().all(|list| list.is_empty())
            && !lacks_orders
            && self.undecided == 0
            && self.error.is_none()
            && self.done > 0
    }

    pub(super) fn tell(&self, story: &Story) {
        story.say(&format!(
            "{} operations on {} keys: {} done, {} refused, {} unknown",
            self.operations, self.keys, self.done, self.refused, self.unknown
        ));
        story.say(&format!("faults: {}", counts(&self.faults)));
        if let Some(orders) = &self.orders {
            orders.tell(story);
        }
        if let Some(directories) = &self.directories {
            story.say(&format!("directories: {}", counts(&directories.outcomes)));
            directories.wrong.iter().for_each(|what| story.say(&format!("DIRECTORY: {what}")));
        }
        if !self.not_drawn.is_empty() {
            story.say(&format!("not drawn: {}", counts(&self.not_drawn)));
        }
        for (label, list) in [
            ("VIOLATION", &self.violations),
            ("ODD ANSWER", &self.odd),
            ("LATE", &self.late),
            ("ISOLATED", &self.isolated_wrongly),
            ("BESIDES", &self.others_wrongly),
        ] {
            list.iter().for_each(|what| story.say(&format!("{label}: {what}")));
        }
        if let Some(error) = &self.error {
            story.say(&format!("ENDED EARLY: {error}"));
        }
        let ms = |ms: Option<u64>| ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms} ms"));
        let (violations, undecided, bound) = (self.violations.len(), self.undecided, self.bound_ms);
        let (write, read) = (ms(self.slowest_write_ms), ms(self.slowest_read_ms));
        let healed = format!("after a heal every node wrote within {write}, read within {read} ({bound} ms allowed)");
        story.say(&format!("{violations} violations, {undecided} undecided; {healed}"));
    }
}

pub(super) fn counts(of: &BTreeMap<String, u64>) -> String {
    let all: Vec<_> = of.iter().map(|(what, count)| format!("{count} {what}")).collect();
    all.join(", ")
}
