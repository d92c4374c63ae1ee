//! Hunts for mutants.

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

/// The results of runs without a mutant. A run is deterministic, so none is repeated whose result is known.
#[derive(Default, Debug)]
pub struct Baselines {
    results: Mutex<BTreeMap<(Scenario, u64), Arc<BaselineResult>>>,
}

/// Set once: a thread that needs the result of a run in progress waits for it.
type BaselineResult = OnceLock<Option<Failure>>;

impl Baselines {
    /// Adds the result of a run that was made elsewhere.
    pub fn add(&self, scenario: Scenario, seed: u64, failure: Option<Failure>) {
        self.result(scenario, seed).get_or_init(|| failure);
    }

    /// How `seed` of `scenario` fails. Runs it if that isn't known.
    pub fn failure(&self, scenario: Scenario, seed: u64) -> Option<Failure> {
        self.result(scenario, seed).get_or_init(|| run(scenario, seed, None, false).failure).clone()
    }

    fn result(&self, scenario: Scenario, seed: u64) -> Arc<BaselineResult> {
        let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(results.entry((scenario, seed)).or_default())
    }
}

/// Runs `scenario` with the mutant, seed by seed from `start`, until the mutant is convicted, with at most `most` seeds. Then
/// looks at the same seeds without the mutant. A member that halted, or too little service, is no conviction: the hunt
/// continues, and reports such a failure only if no seed convicts.
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
        // The run itself would pass.
        let known = Failure::new(Oracle::Panic, "known");
        baselines.add(Scenario::Calm, 0, Some(known.clone()));
        assert_eq!(baselines.failure(Scenario::Calm, 0), Some(known));
        assert_eq!(baselines.failure(Scenario::Calm, 1), None);
    }
}
