//! Hunts mutants: runs seeds without a guard until a check fails.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use artillery_proto::guards::Mutant;

use crate::{
    mutants::is_convicted_by,
    oracle::Failure,
    report::MutantReport,
    runner::{Runner, run},
    scenario::Scenario,
};

/// Results of runs without a mutant. Runs are deterministic, so each is made at most once.
#[derive(Default, Debug)]
pub struct Baselines {
    results: Mutex<BTreeMap<(Scenario, u64), Arc<BaselineResult>>>,
}

/// Set once. A thread that needs the result of a run in progress waits for it.
type BaselineResult = OnceLock<Option<Failure>>;

impl Baselines {
    /// Records the result of a run that was made elsewhere.
    pub fn add(&self, scenario: Scenario, seed: u64, failure: Option<Failure>) {
        self.result(scenario, seed).get_or_init(|| failure);
    }

    /// The failure of `seed` of `scenario`, if it fails. Runs the seed unless its result is known.
    pub fn failure(&self, scenario: Scenario, seed: u64) -> Option<Failure> {
        self.result(scenario, seed).get_or_init(|| run(scenario, seed, None, false).failure).clone()
    }

    fn result(&self, scenario: Scenario, seed: u64) -> Arc<BaselineResult> {
        let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(results.entry((scenario, seed)).or_default())
    }
}

/// Runs `scenario` with the mutant, seed by seed from `start`, until one of at most `most` seeds convicts it. Then runs
/// the same seeds without it. Failures that do not convict, such as a halted member, are reported only if no seed
/// convicts.
pub fn hunt(
    runner: Runner,
    baselines: &Baselines,
    (mutant, scenario): (Mutant, Scenario),
    start: u64,
    most: u64,
) -> MutantReport {
    let failure = |n: u64| run(scenario, start.wrapping_add(n), Some(mutant), false).failure;
    let convicted = runner.first(most, |n| failure(n).filter(|failure| is_convicted_by(mutant, failure.oracle)));
    let caught = convicted.or_else(|| runner.first(most, failure));
    let tried = caught.as_ref().map_or(most, |(n, _)| n + 1);
    let baseline = runner.first(tried, |n| baselines.failure(scenario, start.wrapping_add(n)));
    MutantReport {
        mutant,
        scenario,
        caught: caught.map(|(n, failure)| (start.wrapping_add(n), n + 1, failure)),
        tried: most,
        shrunk: None,
        baseline: baseline.map(|(n, failure)| (start.wrapping_add(n), failure)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::Oracle;

    #[test]
    fn a_known_result_is_not_looked_for_again() {
        let baselines = Baselines::default();
        // An actual run of this seed would pass.
        let known = Failure::new(Oracle::Panic, "known");
        baselines.add(Scenario::Calm, 0, Some(known.clone()));
        assert_eq!(baselines.failure(Scenario::Calm, 0), Some(known));
        assert_eq!(baselines.failure(Scenario::Calm, 1), None);
    }
}
