//! Hunts for mutants.

use crate::{
    mutants::MutantName,
    report::MutantReport,
    runner::{Runner, run},
    scenario::Scenario,
};

/// Runs `scenario` with the mutant, seed by seed from `start`, until it is noticed, `most` times at most; then runs the same
/// seeds without it.
pub fn hunt(mutant: MutantName, scenario: Scenario, start: u64, most: u64) -> MutantReport {
    let runner = Runner::default();
    let caught = runner.first(most, |n| run(scenario, start.wrapping_add(n), Some(mutant), false).failure);
    let tried = caught.as_ref().map_or(most, |(n, _)| n + 1);
    let baseline = runner.first(tried, |n| run(scenario, start.wrapping_add(n), None, false).failure);
    MutantReport {
        mutant,
        scenario,
        caught: caught.map(|(n, failure)| (start.wrapping_add(n), n + 1, failure)),
        tried: most,
        baseline: baseline.map(|(n, failure)| (start.wrapping_add(n), failure)),
    }
}
