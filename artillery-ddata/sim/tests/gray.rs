//! How soon writes are back when one member is made a hundred times slower, in virtual time.

use artillery_sim::{
    faults::{Fault, Planned},
    scenario::{BACK, SECOND, Scenario, gray_setup},
    world::World,
};

/// When it begins, and ends.
const START: u64 = 6 * SECOND;
const END: u64 = 16 * SECOND;
/// Writes are counted over spans of so long.
const SPAN: u64 = SECOND;
const STEP: u64 = SECOND / 4;

/// After how long a second's writes are back to 80 % of what they were.
fn back(fault: Fault, seed: u64) -> Option<u64> {
    let setup = gray_setup(seed, vec![Planned { fault, start: START, end: END }]);
    let outcome = World::run_scenario(Scenario::Gray, seed, setup, false);
    assert!(outcome.failure.is_none(), "{fault}: {:?}", outcome.failure);
    let counts = outcome.counts;
    let quiet = counts.writes_between(2 * SECOND, START);
    let hurt = (0..8).any(|at| counts.writes_between(START + at * STEP, START + at * STEP + SPAN) < quiet * 0.8);
    assert!(hurt, "{fault} is not felt at all");
    // The first moment from which on it is so again.
    let mut at = START + STEP;
    let mut since = None;
    while at + SPAN <= END {
        match counts.writes_between(at, at + SPAN) >= quiet * 0.8 {
            true => since = since.or(Some(at - START)),
            false => since = None,
        }
        at += STEP;
    }
    since
}

#[test]
fn writes_are_back_when_one_member_is_a_hundred_times_slower() {
    let cost = gray_setup(0, Vec::new()).cost;
    for seed in 0..2 {
        for node in 0..3 {
            for fault in [Fault::Far(node, 100), Fault::Slow(node, 100 * cost)] {
                let back = back(fault, seed);
                println!("seed {seed}, {fault}: writes are back after {:?} ms", back.map(|nanos| nanos / 1_000_000));
                assert!(back.is_some_and(|back| back <= BACK), "{fault}: {back:?}");
            }
        }
    }
}
