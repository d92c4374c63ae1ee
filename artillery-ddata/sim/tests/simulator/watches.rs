//! Watchers see every committed change once and in order, or get the answer that they fell behind.

use artillery_sim::{runner::run, scenario::Scenario, world::Counts};

#[test]
fn watchers_see_every_change_or_fall_behind() {
    let mut sum = Counts::default();
    for seed in 0..12 {
        let outcome = run(Scenario::Watches, seed, None, false);
        assert_eq!(outcome.failure, None, "seed {seed}");
        sum.add(&outcome.counts);
    }
    assert!(sum.watched >= 10_000 && sum.fell_behind >= 10 && sum.watched_parts >= 100, "{sum:?}");
}
