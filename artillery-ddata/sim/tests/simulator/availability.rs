//! A cluster that refuses all requests is safe but useless. This test checks that each node serves at least 99 % of the
//! requests made far from faults.

use std::{collections::BTreeMap, time::Duration};

use artillery_sim::{
    client::Mix,
    faults::{Fault, Planned},
    runner::{Runner, run_setup},
    scenario::{SECOND, Scenario, Setup},
    world::Served,
};

const SEEDS: u64 = 8;
const MEMBERS: usize = 3;
/// Intervals after the start and the end of a fault in which requests may fail.
const FAULT: u64 = 3 * SECOND;
const HEAL: u64 = 5 * SECOND;

/// Three nodes with the default lease and suspicion times. Two of them are killed in turn, and return later.
fn world(seed: u64) -> Setup {
    let mut setup = Scenario::Failover.setup(seed, None);
    let Some(control) = &mut setup.control else { panic!("configurations change in this scenario") };
    (control.lease, control.suspect) = (Duration::from_millis(1000), Duration::from_millis(500));
    (control.founders, control.replicas, control.whims, control.cut_off) = (MEMBERS, MEMBERS as u32, 0, 0);
    setup.members = MEMBERS;
    // All writes carry a request id, so that clients may retry them.
    setup.mix = Mix { numbered: 1000, settled: 0, ..setup.mix };
    let kill = |n: u64, start: u64, end: u64| {
        let node = ((seed + n) % MEMBERS as u64) as usize;
        Planned { fault: Fault::Restart(node), start: start * SECOND, end: end * SECOND }
    };
    setup.faults = vec![kill(0, 3, 8), kill(1, 14, 19)];
    setup.audited = true;
    setup
}

#[derive(Default)]
struct Figures {
    all: u64,
    done: u64,
    reads: u64,
    itself: u64,
}

/// Whether an operation was far from all faults, and its node was up.
fn counts(setup: &Setup, served: &Served) -> bool {
    setup.faults.iter().all(|Planned { fault, start, end }| {
        let apart = |from: u64, until: u64| served.over < from || served.begun > until;
        let there = *fault != Fault::Restart(served.node) || apart(*start, *end);
        there && apart(*start, start + FAULT) && apart(*end, end + HEAL)
    })
}

#[test]
fn every_node_serves_far_from_faults() {
    let mut nodes: BTreeMap<usize, Figures> = BTreeMap::new();
    Runner::default().each(
        SEEDS,
        |seed| run_setup(seed, world(seed)),
        |seed, outcome| {
            assert_eq!(outcome.failure, None, "seed {seed}");
            let setup = world(seed);
            for served in outcome.served.iter().filter(|served| counts(&setup, served)) {
                let figures = nodes.entry(served.node).or_default();
                figures.all += 1;
                figures.done += u64::from(served.done);
                figures.reads += u64::from(served.itself.is_some());
                figures.itself += u64::from(served.itself == Some(true));
            }
        },
    );
    assert_eq!(nodes.len(), MEMBERS);
    for (node, Figures { all, done, reads, itself }) in nodes {
        println!("n{node}: {done} of {all} operations done, {itself} of {reads} strong reads served locally");
        assert!(all > 1000 && done * 100 >= all * 99, "n{node}: {done} of {all}");
        assert!(reads > 200 && itself * 100 >= reads * 15, "n{node}: {itself} of {reads}");
    }
}
