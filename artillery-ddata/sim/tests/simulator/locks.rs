//! The scenario of locks and copies meets the events for which it exists.

use artillery_sim::{runner::run, scenario::Scenario, world::Counts};

#[test]
fn locks_are_held_lost_and_fenced_and_copies_fall_behind() {
    let mut sum = Counts::default();
    for seed in 0..12 {
        let outcome = run(Scenario::Locks, seed, None, false);
        assert_eq!(outcome.failure, None, "seed {seed}");
        sum.add(&outcome.counts);
    }
    let locks = sum.locks;
    assert!(locks.holds >= 300 && locks.watched >= 300 && locks.confirms >= 20, "{locks:?}");
    assert!(locks.lost >= 10 && locks.paused_holders >= 10 && locks.fenced >= 10, "{locks:?}");
    assert!(locks.unknown_renewals >= 100 && locks.deaths >= 20, "{locks:?}");
    assert!(locks.copied >= 2_000 && locks.copies >= 50 && locks.restarts >= 20, "{locks:?}");
}
