//! A guard taken out is noticed, by what clients saw or by an invariant; the same seeds pass with the guard in place.

use artillery_sim::{hunt::hunt, mutants::MutantName, oracle::Oracle};

/// Far below what a hunt may take, so that weaker teeth are noticed early.
const MOST: u64 = 60;

#[test]
fn every_mutant_is_caught() {
    for mutant in MutantName::ALL {
        let report = hunt(mutant, mutant.scenario(), 0, MOST);
        assert!(report.passed(), "{report}");
    }
}

#[test]
fn clients_see_what_a_mutant_does() {
    let report = hunt(MutantName::WaitEndsEarly, MutantName::WaitEndsEarly.scenario(), 0, MOST);
    let Some((_, _, failure)) = report.caught else { panic!("not caught") };
    assert_eq!(failure.oracle, Oracle::History);
    let history = failure.history.as_ref().expect("a history that shows it");
    assert!((2..=12).contains(&history.operations.len()), "{failure}");
}
