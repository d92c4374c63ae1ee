//! The effect of disabling a guard. `artillery-sim --mutant all` disables every hunted guard.

use artillery_proto::guards::Mutant;
use artillery_sim::{
    hunt::{Baselines, hunt},
    mutants::USUAL_SEEDS,
    oracle::Oracle,
    runner::Runner,
    scenario::Scenario,
};

#[test]
fn clients_see_what_a_mutant_does() {
    // The history of seed 1 can hardly be shrunk.
    let report =
        hunt(Runner::default(), &Baselines::default(), (Mutant::WaitEndsEarly, Scenario::Storm), 2, USUAL_SEEDS);
    let Some((_, _, failure)) = report.caught else { panic!("not caught") };
    assert_eq!(failure.oracle, Oracle::History);
    let history = failure.history.as_ref().expect("a history that shows it");
    assert!((2..=12).contains(&history.operations.len()), "{failure}");
}
