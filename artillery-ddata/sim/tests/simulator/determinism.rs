//! The same seed makes the same run, to the byte.

use artillery_sim::{
    runner::{Runner, run},
    scenario::Scenario,
};

fn trace(scenario: Scenario, seed: u64) -> String {
    run(scenario, seed, None, true).trace.expect("a trace was requested")
}

#[test]
fn the_same_seed_is_the_same_run() {
    for scenario in Scenario::ALL {
        let once = trace(scenario, 7);
        assert!(once.lines().count() > 10_000, "{} has a short trace", scenario.name());
        assert!(once == trace(scenario, 7), "{}", scenario.name());
        assert!(once != trace(scenario, 8), "{}", scenario.name());
    }
}

#[test]
fn tracing_changes_nothing() {
    let watched = run(Scenario::Mixed, 11, None, true);
    let unwatched = run(Scenario::Mixed, 11, None, false);
    assert_eq!(watched.counts, unwatched.counts);
    assert_eq!(unwatched.trace, None);
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let all = |threads| {
        let mut counts = Vec::new();
        Runner::new(threads).each(6, |seed| run(Scenario::Links, seed, None, false).counts, |_, one| counts.push(one));
        counts
    };
    assert_eq!(all(1), all(3));
}
