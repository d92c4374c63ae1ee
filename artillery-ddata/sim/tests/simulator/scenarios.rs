//! Every scenario passes with one seed, and its worlds exercise their purpose.

use artillery_sim::{
    report::ScenarioReport,
    runner::{Runner, run},
    scenario::Scenario,
    world::DiskEvents,
};

/// One seed of each. A release build runs more, which together must contain every kind of fault (`.ci/sim`).
#[test]
fn every_scenario_passes() {
    let work = |n| run(Scenario::ALL[n as usize], 0, None, false);
    Runner::default().each(Scenario::ALL.len() as u64, work, |n, outcome| {
        let mut report = ScenarioReport::new(Scenario::ALL[n as usize]);
        report.add(0, outcome);
        assert!(report.seeds_passed(), "{report}");
    });
}

#[test]
fn every_seed_has_its_clients_and_members() {
    for scenario in Scenario::ALL {
        for seed in 0..50 {
            let setup = scenario.setup(seed, None);
            assert!(setup.clients >= 4);
            assert!((1..=7).contains(&setup.members));
            assert!((1..=3).contains(&setup.chains));
        }
    }
}

#[test]
fn all_read_paths_are_taken() {
    let counts = run(Scenario::Links, 3, None, false).counts;
    assert!(counts.local_reads > 0 && counts.dirty_reads > 0, "{counts:?}");
    let hot = (0..4).map(|seed| run(Scenario::Hot, seed, None, false).counts.shared_queries).sum::<u64>();
    assert!(hot > 0, "no query was ever shared");
    let busy = (0..4).map(|seed| run(Scenario::Slow, seed, None, false).counts.busy).sum::<u64>();
    assert!(busy > 0, "no window was ever full");
    let classic = run(Scenario::Classic, 3, None, false).counts;
    assert!(classic.local_reads > 0 && classic.dirty_reads == 0, "classic reads are the tail's: {classic:?}");
}

#[test]
fn what_power_cuts_leave_unreplicated_is_settled_by_starts_and_by_reads() {
    let first = |has: fn(&DiskEvents) -> bool| {
        let work = |seed| {
            let outcome = run(Scenario::Power, seed, None, false);
            assert_eq!(outcome.failure, None, "seed {seed}");
            has(&outcome.counts.disks).then_some(())
        };
        Runner::default().first(200, work)
    };
    assert!(first(|disks| disks.settled_by_start > 0).is_some(), "no start settled a record");
    // Few runs have a read of such a record.
    assert!(first(|disks| disks.settled_by_read > 0).is_some(), "no read settled a record");
}
