//! How soon writes recover when one member becomes a hundred times slower, in virtual time.

use artillery_sim::{
    disk::DiskSetup,
    faults::{Fault, Planned},
    scenario::{BACK, SECOND, Scenario, gray_setup},
    world::World,
};

const START: u64 = 6 * SECOND;
const END: u64 = 16 * SECOND;
const SPAN: u64 = SECOND;
const STEP: u64 = SECOND / 4;

/// The time until the write rate is back to 80 % of its former value.
fn back(fault: Fault, seed: u64) -> Option<u64> {
    let mut setup = gray_setup(seed, vec![Planned { fault, start: START, end: END }]);
    if matches!(fault, Fault::SlowDisk(..)) {
        let (sync, segment) = (SECOND / 1000, 1 << 20);
        setup.durable =
            Some(DiskSetup { sync, fails: 0, cuts: 0, wipes: 0, segment, room: segment, reserve: 1 << 20, never: 0 });
    }
    let outcome = World::run_scenario(Scenario::Gray, seed, setup, false);
    assert!(outcome.failure.is_none(), "{fault}: {:?}", outcome.failure);
    let counts = outcome.counts;
    let quiet = counts.writes_between(2 * SECOND, START);
    let hurt = (0..8).any(|at| counts.writes_between(START + at * STEP, START + at * STEP + SPAN) < quiet * 0.8);
    assert!(hurt, "{fault} has no effect");
    let rates: Vec<u64> =
        (START / SECOND..END / SECOND).map(|at| counts.writes_between(at * SECOND, (at + 1) * SECOND) as u64).collect();
    println!("{quiet:.0} writes a second, then {rates:?}");
    // The first time after which the rate has recovered.
    let mut times = (START + SECOND..=START + 2 * BACK - SPAN).step_by(STEP as usize);
    times
        .find(|&at| {
            counts.writes_between(at, END) >= quiet * 0.8 && counts.writes_between(at, at + SPAN) >= quiet * 0.8
        })
        .map(|at| at - START)
}

#[test]
fn writes_are_back_when_one_member_is_a_hundred_times_slower() {
    let cost = gray_setup(0, Vec::new()).cost;
    for seed in 0..2 {
        for node in 0..3 {
            for fault in [Fault::Far(node, 100), Fault::Slow(node, 100 * cost), Fault::SlowDisk(node, 100)] {
                let back = back(fault, seed);
                println!("seed {seed}, {fault}: writes are back after {:?} ms", back.map(|nanos| nanos / 1_000_000));
                assert!(back.is_some_and(|back| back <= BACK), "{fault}: {back:?}");
            }
        }
    }
}
