//! Shrinks a failing run: removes one fault after the other as long as the same oracle still fails.

use std::fmt;

use artillery_proto::guards::Mutant;

use crate::{
    faults::Planned,
    oracle::Failure,
    runner::run_setup,
    scenario::{ControlSetup, SECOND, Scenario, Setup},
};

/// A failing run, reduced to the faults that it needs.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The failure of the reduced run.
    pub failure: Failure,
    /// The faults that it needs, in planned order.
    pub faults: Vec<Planned>,
    /// The number of faults planned originally.
    pub planned: usize,
    /// The chances of elections and other unplanned faults, if the failure needs any of them.
    pub unplanned: Option<ControlSetup>,
}

/// Shrinks the failing run of `seed`. Returns `None` if it passes.
pub fn shrink(scenario: Scenario, seed: u64, mutant: Option<Mutant>) -> Option<Shrunk> {
    let setup = scenario.setup(seed, mutant);
    let failure = run_setup(seed, setup.clone()).failure?;
    let planned = setup.faults.len() + usize::from(setup.crash.is_some());
    let (setup, failure) = shrink_setup(seed, setup, failure);
    let faults = setup.faults.iter().chain(&setup.crash).copied().collect();
    let unplanned = setup.control.filter(|&control| is_restless(control));
    Some(Shrunk { failure, faults, planned, unplanned })
}

/// Tries to remove the crash, the unplanned faults, and then the planned ones from last to first.
fn shrink_setup(seed: u64, mut setup: Setup, mut failure: Failure) -> (Setup, Failure) {
    let mut without = |setup: &mut Setup, change: &dyn Fn(&mut Setup)| {
        let mut less = setup.clone();
        change(&mut less);
        let found = run_setup(seed, less.clone()).failure.filter(|found| found.oracle == failure.oracle);
        if let Some(found) = found {
            (*setup, failure) = (less, found);
        }
    };
    if setup.crash.is_some() {
        without(&mut setup, &|less| less.crash = None);
    }
    if setup.control.is_some_and(is_restless) {
        let calm = |control| ControlSetup { whims: 0, cut_off: 0, last_words: 0, disturbed: 0, ..control };
        without(&mut setup, &|less| less.control = less.control.map(calm));
    }
    for index in (0..setup.faults.len()).rev() {
        without(&mut setup, &|less| {
            less.faults.remove(index);
        });
    }
    (setup, failure)
}

fn is_restless(control: ControlSetup) -> bool {
    let ControlSetup { whims, cut_off, last_words, disturbed, .. } = control;
    whims + cut_off + last_words + disturbed > 0
}

impl fmt::Display for Shrunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  it needs {} of {} planned faults", self.faults.len(), self.planned)?;
        if let Some(ControlSetup { whims, .. }) = self.unplanned {
            write!(f, ", and unplanned faults{}", if whims > 0 { " or elections" } else { "" })?;
        }
        let seconds = |nanos: u64| nanos as f64 / SECOND as f64;
        for Planned { fault, start, end } in &self.faults {
            write!(f, "\n    {fault} from {:.3} s", seconds(*start))?;
            if *end < u64::MAX {
                write!(f, " to {:.3} s", seconds(*end))?;
            }
        }
        write!(f, "\n  then: {}", self.failure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::Kind;

    #[test]
    fn shrinking_leaves_out_unneeded_faults() {
        let mutant = Mutant::IgnoreLease;
        let failing = |&seed: &u64| run_setup(seed, Scenario::Partitions.setup(seed, Some(mutant))).failure.is_some();
        let seed = (0..40).find(failing).expect("one of 40 seeds needs the lease check");
        let shrunk = shrink(Scenario::Partitions, seed, Some(mutant)).expect("the run fails");
        assert!(shrunk.faults.len() < shrunk.planned / 2, "{shrunk}");
        let away = [Kind::Isolate, Kind::Pause, Kind::Cut, Kind::Break, Kind::Restart];
        assert!(shrunk.faults.iter().any(|planned| away.contains(&planned.fault.kind())), "{shrunk}");
        assert!(
            shrunk.to_string().contains("of the chain")
                || shrunk.failure.history.is_some()
                || shrunk.failure.oracle.convicts()
        );
    }
}
