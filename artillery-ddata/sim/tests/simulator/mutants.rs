//! A guard taken out is noticed, by what clients saw or by an invariant; the same seeds pass with the guard in place.

use artillery_proto::guards::Mutant;
use artillery_sim::{hunt::hunt, mutants::HUNTED, oracle::Oracle, scenario::Scenario};

/// Far below what a hunt may take, so that weaker teeth are noticed early.
const MOST: u64 = 60;

/// Missed so seldom that only `artillery-sim --mutant all` has the time to notice.
const RARE: [Mutant; 4] =
    [Mutant::AcceptTwo, Mutant::RemoveUnheard, Mutant::NewLeaderDoesNotWait, Mutant::TakeOlderEpoch];

#[test]
fn every_mutant_is_caught() {
    every(0);
}

#[test]
fn every_other_mutant_is_caught() {
    every(1);
}

/// Every second one, from this one on: two tests run beside each other.
fn every(first: usize) {
    for (mutant, scenario) in HUNTED.into_iter().filter(|(mutant, _)| !RARE.contains(mutant)).skip(first).step_by(2) {
        let report = hunt(mutant, scenario, 0, MOST);
        assert!(report.passed(), "{report}");
    }
}

#[test]
fn clients_see_what_a_mutant_does() {
    // The history of seed 1 can hardly be cut.
    let report = hunt(Mutant::WaitEndsEarly, Scenario::Storm, 2, MOST);
    let Some((_, _, failure)) = report.caught else { panic!("not caught") };
    assert_eq!(failure.oracle, Oracle::History);
    let history = failure.history.as_ref().expect("a history that shows it");
    assert!((2..=12).contains(&history.operations.len()), "{failure}");
}
