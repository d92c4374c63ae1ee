//! Reduces a violation to a history that a reader can follow.

use std::collections::BTreeSet;

use artillery_proto::Version;

use super::form::{seen, told, written};
use super::violation::{Kind, Violation};
use super::{Budget, by_key, decide, form, verdict};
use crate::history::{Answer, Call, History, Operation, Value};

/// Limit on the number of operations that all checks of one reduction examine.
const WORK: usize = 2_000_000;

/// Shortens the explanation of a violation found by the search to the shortest prefix.
///
/// Prefixes of a linearizable history are linearizable, so bisection finds the shortest bad one. The prefix may break a
/// rule that the whole history doesn't break, which is then the more precise explanation.
pub(super) fn explain(history: &History, budget: Budget, violation: Violation) -> Violation {
    if violation.kind != Kind::NotLinearizable {
        return violation;
    }
    let operations = form::complete(&history.operations);
    let Ok(versions) = form::check(&operations) else { return violation };
    let operations = by_key(&operations).remove(&violation.key).unwrap_or_default();
    let found = |answers: usize| {
        let mut left = budget.states;
        let found = decide(violation.key, &prefix(&operations, answers).0, &versions, &mut left).err();
        found.filter(|found| found.kind != Kind::Undecided)
    };
    let (mut good, mut bad) = (0, operations.len());
    while good + 1 < bad {
        let middle = good.midpoint(bad);
        if found(middle).is_some() { bad = middle } else { good = middle }
    }
    if let Some(found) = found(bad).filter(|found| found.kind != Kind::NotLinearizable) {
        return found;
    }
    let (operations, last) = prefix(&operations, bad);
    let stuck = operations.iter().position(|operation| Some(*operation) == last);
    Violation { stuck, operations, ..violation }
}

/// The history up to and including the `answers`-th answer, and the operation of that answer. Refused operations have
/// no effect: they are left out, even while they were in progress.
fn prefix(operations: &[Operation], answers: usize) -> (Vec<Operation>, Option<Operation>) {
    let speaks = |operation: &&Operation| !matches!(operation.answer, Answer::Unknown | Answer::Refused);
    let mut answered: Vec<&Operation> = operations.iter().filter(speaks).collect();
    answered.sort_by_key(|operation| operation.returned);
    let last = answered.get(answers.min(answered.len()).wrapping_sub(1)).map(|last| **last);
    let end = last.map_or(0, |last| last.returned);
    let cut = |operation: &Operation| match operation.answer {
        Answer::Unknown | Answer::Refused => *operation,
        _ if operation.returned <= end => *operation,
        _ => Operation { answer: Answer::Unknown, ..*operation },
    };
    let says_nothing = |operation: &Operation| match operation.answer {
        Answer::Unknown => operation.call == Call::Read,
        Answer::Refused => true,
        _ => false,
    };
    let operations = operations.iter().filter(|operation| operation.called <= end).map(cut);
    (operations.filter(|operation| !says_nothing(operation)).collect(), last)
}

/// The shortest history found with bounded work that has the same kind of violation. It has operations of the
/// violation's key only (for one version under two keys, also the operation of the other key).
///
/// An operation is dropped only if a good history stays good without it, so the rest never shows a violation that the
/// whole history explains. An undecided key is returned completely.
pub fn shortest(history: &History, violation: &Violation) -> History {
    let fails = |operations: &[Operation]| {
        verdict(operations, Budget::default()).is_err_and(|found| found.kind == violation.kind)
    };
    let whole = || by_key(&history.operations).remove(&violation.key).unwrap_or_default();
    let mut operations = match violation.kind {
        Kind::Undecided => return History::of(whole()),
        _ if fails(&violation.operations) => violation.operations.clone(),
        _ => whole(),
    };
    let mut work = WORK;
    let mut size = operations.len().div_ceil(2).max(1);
    loop {
        let shorter = drop_chunks(&operations, size, &mut work, &fails);
        let progress = shorter.len() < operations.len();
        operations = shorter;
        if work == 0 || (size == 1 && !progress) {
            return History::of(operations);
        }
        size = if progress { size } else { size.div_ceil(2) };
    }
}

/// Tries to drop the droppable operations of each chunk of `size`.
fn drop_chunks(
    operations: &[Operation],
    size: usize,
    work: &mut usize,
    fails: &impl Fn(&[Operation]) -> bool,
) -> Vec<Operation> {
    let mut kept = operations.to_vec();
    let mut end = kept.len();
    while end > 0 {
        let start = end.saturating_sub(size);
        let rest = without(&kept, start..end);
        end = start;
        if rest.len() == kept.len() {
            continue;
        }
        let Some(left) = work.checked_sub(rest.len().max(1)) else {
            *work = 0;
            break;
        };
        *work = left;
        if fails(&rest) {
            kept = rest;
        }
    }
    kept
}

/// Drops the operations in `range` that may be dropped. A good history stays good.
pub(super) fn without(operations: &[Operation], range: std::ops::Range<usize>) -> Vec<Operation> {
    let observers = |position: &usize| match operations[*position].answer {
        Answer::Written(_) | Answer::Took { .. } => false,
        Answer::Unknown => operations[*position].call == Call::Read,
        _ => true,
    };
    let dropped: BTreeSet<usize> = range.clone().filter(observers).collect();
    let keep = |dropped: &BTreeSet<usize>| -> Vec<Operation> {
        let positions = operations.iter().enumerate().filter(|(position, _)| !dropped.contains(position));
        positions.map(|(_, operation)| *operation).collect()
    };
    let rest = keep(&dropped);
    let needed = Needed::new(&rest);
    let writes = range.filter(|position| !observers(position) && needed.can_go(&operations[*position]));
    let dropped: BTreeSet<usize> = dropped.iter().copied().chain(writes).collect();
    keep(&dropped)
}

struct Needed {
    values: BTreeSet<Value>,
    /// The versions that successful compare-and-swaps expected.
    expected: BTreeSet<Version>,
    /// Whether a successful compare-and-swap expected a version that no answer reported. A write of unknown outcome may
    /// have created it.
    orphans: bool,
    /// The versions that may expire, so that their writes can be the reason of an absence.
    expiring: BTreeSet<Version>,
    /// Whether a version may expire that no answer reported.
    hidden_expiries: bool,
    /// The operations that depend on an absent key.
    absences: Vec<Operation>,
    acknowledged: Vec<(Version, Operation)>,
}

impl Needed {
    fn new(operations: &[Operation]) -> Self {
        let values: BTreeSet<Value> = operations.iter().filter_map(seen).map(|(_, value)| value).collect();
        let created = |operation: &&Operation| match operation.answer {
            Answer::Written(_) | Answer::Took { .. } => true,
            Answer::Unknown => written(operation).is_some_and(|value| values.contains(&value)),
            _ => false,
        };
        let swaps = operations.iter().filter(created).filter_map(expected);
        let expected: BTreeSet<Version> = swaps.filter(|expected| !expected.is_none()).collect();
        let known: BTreeSet<Version> = operations.iter().filter_map(told).collect();
        let absences = operations.iter().filter(|operation| match operation.answer {
            Answer::Found(found) | Answer::Conflict(found) => found.is_none(),
            Answer::Failed(version) => version.is_none(),
            _ => created(operation) && expects_absence(operation),
        });
        let absences = absences.copied().collect();
        let acknowledged = operations.iter().filter_map(|operation| Some((acknowledged(operation)?, *operation)));
        let acknowledged = acknowledged.collect();
        let expiring: BTreeSet<Version> = operations.iter().filter_map(expiring).collect();
        let hidden_expiries = !expiring.is_subset(&known);
        let orphans = !expected.is_subset(&known);
        Self { orphans, expiring, hidden_expiries, values, expected, absences, acknowledged }
    }

    /// Whether a good history stays good without `write`.
    fn can_go(&self, write: &Operation) -> bool {
        if self.orphans {
            return false;
        }
        match written(write) {
            // No operation saw or expected this value, and it doesn't expire, so the next operation in the order
            // doesn't depend on the overwritten value.
            Some(value) => {
                let needed = acknowledged(write).map_or(self.hidden_expiries, |version| {
                    self.expected.contains(&version) || self.expiring.contains(&version)
                });
                !self.values.contains(&value) && !needed
            }
            None => self.absences.iter().all(|absence| self.has_other_reason(absence, write)),
        }
    }

    /// Whether `delete` can't be the cause of `absence`, because it was called later or a write lies between the two.
    fn has_other_reason(&self, absence: &Operation, delete: &Operation) -> bool {
        if absence.answer != Answer::Unknown && absence.returned < delete.called {
            return true;
        }
        let Some(version) = acknowledged(delete) else { return false };
        let overwritten = |(newer, write): &(Version, Operation)| *newer > version && write.returned < absence.called;
        acknowledged(absence).is_some_and(|absence| absence < version) || self.acknowledged.iter().any(overwritten)
    }
}

fn acknowledged(operation: &Operation) -> Option<Version> {
    match operation.answer {
        Answer::Written(version) | Answer::Took { version, .. } => Some(version),
        _ => None,
    }
}

fn expected(operation: &Operation) -> Option<Version> {
    match (operation.call, operation.answer) {
        (Call::CompareAndSwap { expected, .. }, _) => Some(expected),
        (_, Answer::Took { found: (expected, _), .. }) => Some(expected),
        _ => None,
    }
}

fn expiring(operation: &Operation) -> Option<Version> {
    if let Call::Expire { version } = operation.call { Some(version) } else { None }
}

fn expects_absence(operation: &Operation) -> bool {
    expected(operation).is_some_and(Version::is_none)
}
