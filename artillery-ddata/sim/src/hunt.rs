//! Hunts for mutants.

use artillery_proto::guards::Mutant;

use crate::{
    mutants::is_convicted_by,
    report::MutantReport,
    runner::{Runner, run},
    scenario::Scenario,
};

/// Runs `scenario` with the mutant, seed by seed from `start`, until the mutant is convicted, with at most `most` seeds. Then
/// runs the same seeds without the mutant. A member that halted, or too little service, is no conviction: the hunt goes on,
/// and reports such a failure only if no seed convicts.
pub fn hunt(mutant: Mutant, scenario: Scenario, start: u64, most: u64) -> MutantReport {
    let runner = Runner::default();
    let failure = |n: u64| run(scenario, start.wrapping_add(n), Some(mutant), false).failure;
    let convicted = runner.first(most, |n| failure(n).filter(|failure| is_convicted_by(mutant, failure.oracle)));
    let caught = convicted.or_else(|| runner.first(most, failure));
    let tried = caught.as_ref().map_or(most, |(n, _)| n + 1);
    let baseline = runner.first(tried, |n| run(scenario, start.wrapping_add(n), None, false).failure);
    MutantReport {
        mutant,
        scenario,
        caught: caught.map(|(n, failure)| (start.wrapping_add(n), n + 1, failure)),
        tried: most,
        shrunk: None,
        baseline: baseline.map(|(n, failure)| (start.wrapping_add(n), failure)),
    }
}
