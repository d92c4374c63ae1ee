//! The minimum activity of every seed.

use std::fmt;

use serde::Serialize;

use crate::{
    faults::FEWEST,
    scenario::{OPERATIONS, STOP},
    world::Outcome,
};

/// The fewest holders, where processes contend for locks.
const HOLDERS: u64 = 5;
/// The fewest changes that copies report, where they are kept.
const COPIED: u64 = 50;
/// The fewest copies that are read in whole.
const COPIES: u64 = 2;

/// A figure that is too low: the run found no violation, but proves little.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Shortfall {
    seed: u64,
    figure: &'static str,
    value: u64,
    least: u64,
}

impl Shortfall {
    /// The first figure of the run that is too low. `None` for a run that ended early because it failed, met a loss
    /// permitted by `--sync never`, or saw its cluster give way to another one.
    pub fn of(seed: u64, outcome: &Outcome) -> Option<Self> {
        let counts = &outcome.counts;
        if outcome.failure.is_some() || counts.disks.losses > 0 || counts.gave_way > 0 {
            return None;
        }
        let figures = [
            ("operations", counts.operations, OPERATIONS),
            ("virtual nanoseconds", counts.virtual_nanos, STOP),
            ("planned faults", counts.planned, FEWEST as u64),
        ];
        let locks = counts.locks;
        let of_locks = [
            ("holders of locks", locks.holds, HOLDERS),
            ("changes in copies", locks.copied, COPIED),
            ("copies read in whole", locks.copies, COPIES),
        ];
        let of_locks = of_locks.into_iter().filter(|_| locks.contenders > 0);
        let low = figures.into_iter().chain(of_locks).find(|(_, value, least)| value < least);
        low.map(|(figure, value, least)| Self { seed, figure, value, least })
    }
}

impl fmt::Display for Shortfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, figure, value, least } = self;
        write!(f, "FAILED: seed {seed} has {value} {figure}, and every seed must have {least}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        oracle::{Failure, Oracle},
        report::ScenarioReport,
        scenario::Scenario,
        world::{Counts, LockCounts},
    };

    /// The report of a seed that does exactly enough, except for `change`. `None` if it passes.
    fn complaint(change: impl FnOnce(&mut Outcome)) -> Option<String> {
        let counts =
            Counts { operations: OPERATIONS, virtual_nanos: STOP, planned: FEWEST as u64, ..Counts::default() };
        let mut outcome = Outcome { counts, failure: None, served: Vec::new(), trace: None };
        change(&mut outcome);
        let mut report = ScenarioReport::new(Scenario::Calm);
        report.add(7, outcome);
        (!report.seeds_passed()).then(|| report.to_string())
    }

    #[test]
    fn a_seed_that_does_too_little_fails() {
        assert_eq!(complaint(|_| {}), None);
        let few = complaint(|outcome| outcome.counts.operations -= 1).expect("too few operations");
        assert!(few.contains("FAILED: seed 7 has 1999 operations, and every seed must have 2000"), "{few}");
        let short = complaint(|outcome| outcome.counts.virtual_nanos -= 1).expect("too short");
        assert!(short.contains("seed 7 has 29999999999 virtual nanoseconds"), "{short}");
        let calm = complaint(|outcome| outcome.counts.planned -= 1).expect("too few faults");
        assert!(calm.contains("seed 7 has 4 planned faults"), "{calm}");
    }

    #[test]
    fn a_seed_with_few_holders_fails() {
        let locks =
            |holds| LockCounts { contenders: 4, holds, copied: COPIED, copies: COPIES, ..LockCounts::default() };
        assert_eq!(complaint(|outcome| outcome.counts.locks = locks(HOLDERS)), None);
        let few = complaint(|outcome| outcome.counts.locks = locks(HOLDERS - 1)).expect("too few holders");
        assert!(few.contains("seed 7 has 4 holders of locks"), "{few}");
    }

    #[test]
    fn a_run_that_ended_early_for_a_reason_is_not_judged() {
        let loss = |outcome: &mut Outcome| (outcome.counts.operations, outcome.counts.disks.losses) = (0, 1);
        assert_eq!(complaint(loss), None);
        let failed = Outcome {
            counts: Counts::default(),
            failure: Some(Failure::new(Oracle::Panic, "on purpose")),
            served: Vec::new(),
            trace: None,
        };
        assert_eq!(Shortfall::of(7, &failed), None);
    }
}
