//! The observations of clients, and whether a single register can produce them.

use crate::bounds::WRITES;

/// The index of the read, after the writes.
pub const READ: usize = WRITES;
const OPERATIONS: usize = WRITES + 1;

/// The outcome of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Outcome {
    /// There is no answer yet, or the outcome is unknown.
    Unknown,
    /// The write is committed.
    Acknowledged,
    /// The read found the value of this write, counted from 1; 0: the key was absent.
    Found(u8),
    /// The operation was not applied and never will be.
    Refused,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Operation {
    /// The operations that had ended when this one began, as bits.
    after: u8,
    outcome: Outcome,
}

/// The observations of clients: the operations that had ended before each one began, and all outcomes. The history
/// keeps nothing else about the order, so that equivalent histories are equal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct History {
    operations: [Option<Operation>; OPERATIONS],
}

impl History {
    /// Begins an operation: a write, by its number from 0, or [`READ`].
    pub fn begin(&mut self, which: usize) {
        let after = (0..OPERATIONS).filter(|&other| self.is_over(other)).map(|other| 1 << other).sum();
        self.operations[which] = Some(Operation { after, outcome: Outcome::Unknown });
    }

    /// Ends an operation.
    pub fn end(&mut self, which: usize, outcome: Outcome) {
        if let Some(operation) = &mut self.operations[which] {
            operation.outcome = outcome;
        }
    }

    /// The number of writes that have begun.
    pub fn writes(&self) -> usize {
        self.operations[..WRITES].iter().flatten().count()
    }

    /// Whether the operation has begun.
    pub fn has_begun(&self, which: usize) -> bool {
        self.operations[which].is_some()
    }

    /// The outcome of the operation, if it has begun.
    pub fn outcome(&self, which: usize) -> Option<Outcome> {
        self.operations[which].map(|operation| operation.outcome)
    }

    fn is_over(&self, which: usize) -> bool {
        self.outcome(which).is_some_and(|outcome| outcome != Outcome::Unknown)
    }

    /// Whether the operations can have happened one after the other, each between its beginning and its end.
    pub fn is_linearizable(&self) -> bool {
        self.goes_on(0, 0)
    }

    /// Whether the operations that are not in `done` can have happened after those that are, the last of which wrote
    /// `value`.
    fn goes_on(&self, done: u8, value: u8) -> bool {
        let left = |which: &usize| done & 1 << which == 0;
        if !(0..OPERATIONS).filter(left).any(|which| self.must_have_happened(which)) {
            return true;
        }
        (0..OPERATIONS).filter(left).any(|which| {
            let Some(Operation { after, outcome }) = self.operations[which] else { return false };
            let missing = (0..OPERATIONS).any(|before| {
                let earlier = after & 1 << before != 0 && done & 1 << before == 0;
                earlier && self.must_have_happened(before)
            });
            let next = done | 1 << which;
            match outcome {
                _ if missing => false,
                Outcome::Refused => false,
                Outcome::Found(found) => found == value && self.goes_on(next, value),
                Outcome::Unknown if which == READ => false,
                Outcome::Unknown | Outcome::Acknowledged => self.goes_on(next, which as u8 + 1),
            }
        })
    }

    fn must_have_happened(&self, which: usize) -> bool {
        matches!(self.outcome(which), Some(Outcome::Acknowledged | Outcome::Found(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(outcomes: &[Outcome]) -> History {
        let mut history = History::default();
        for (which, &outcome) in outcomes.iter().enumerate() {
            history.begin(which);
            history.end(which, outcome);
        }
        history
    }

    fn reads(mut history: History, found: u8) -> bool {
        history.begin(READ);
        history.end(READ, Outcome::Found(found));
        history.is_linearizable()
    }

    #[test]
    fn a_read_behind_acknowledged_writes_finds_the_last() {
        let history = written(&[Outcome::Acknowledged, Outcome::Acknowledged]);
        assert!(reads(history, 2));
        assert!(!reads(history, 1), "it was overwritten");
        assert!(!reads(history, 0), "the key was written");
    }

    #[test]
    fn unknown_write_takes_effect_at_any_time_or_never() {
        let history = written(&[Outcome::Unknown, Outcome::Acknowledged]);
        assert!(reads(history, 1) && reads(history, 2));
        assert!(!reads(history, 0));
        let refused = written(&[Outcome::Acknowledged, Outcome::Refused]);
        assert!(reads(refused, 1) && !reads(refused, 2));
    }

    #[test]
    fn a_read_beside_a_write_finds_either() {
        for (found, right) in [(0, true), (1, true), (2, false)] {
            let mut history = History::default();
            history.begin(READ);
            history.begin(0);
            history.end(0, Outcome::Acknowledged);
            history.end(READ, Outcome::Found(found));
            assert_eq!(history.is_linearizable(), right, "{found}");
        }
    }
}
