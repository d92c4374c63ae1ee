//! A resync interrupted at any message is resumed or restarted, and the chain is soon correct and complete.

use std::time::Duration;

use artillery_proto::guards::{Guards, Mutant};
use artillery_sim::{
    client::{Keys, Mix},
    faults::{Fault, Planned},
    runner::{Runner, run_setup},
    scenario::{SECOND, Scenario, Setup},
    world::{Boundary, Outcome, ResyncCounts, ResyncEnd},
};

const SEED: u64 = 20;
const MILLI: u64 = 1_000_000;
/// A node is considered dead within suspicion time and lease, returns after 0.4 s, and then needs time to join.
const WITHIN: u64 = 3 * SECOND;

/// Five nodes, three of them members. One of these restarts while clients write, and another node joins by a snapshot.
fn world(end: ResyncEnd, behind: u64) -> Setup {
    let mut setup = Scenario::Resync.setup(SEED, None);
    let Some(control) = &mut setup.control else { panic!("configurations change in this scenario") };
    (control.founders, control.replicas, control.drift, control.whims, control.cut_off) = (5, 3, 0, 0, 0);
    (control.lease, control.suspect) = (Duration::from_millis(300), Duration::from_millis(150));
    (setup.members, setup.clients, setup.pace) = (5, 8, 1);
    setup.keys = Keys { registers: 12, lists: 0, counters: 0, chains: 1 };
    setup.mix = Mix { writes: 600, batches: 0, cuts: 0, scans: 0, ..setup.mix };
    (setup.backlog, setup.padding, setup.batch, setup.late_polls) = (4 << 10, 300, 1, 0);
    setup.profile.delay = MILLI;
    setup.profile.jitter = MILLI / 2;
    setup.profile.uneven = false;
    // Messages that were sent before a node dies still arrive.
    setup.profile.nasty = true;
    setup.profile.room = 600;
    setup.faults = vec![Planned { fault: Fault::Restart(0), start: 2 * SECOND, end: 2 * SECOND + 300 * MILLI }];
    (setup.stop, setup.fewest) = (8 * SECOND, 400);
    setup.boundary = Some(Boundary { behind, end });
    setup
}

#[test]
fn interrupted_resync_is_resumed_or_restarted() {
    let whole = run_setup(SEED, world(ResyncEnd::LinkBreaks, u64::MAX));
    let ResyncCounts { parts, updates, acknowledgements, controls, promotions, through, .. } = whole.counts.resync;
    let messages = whole.counts.resync.messages();
    println!(
        "{messages} messages: {parts} parts of the snapshot, {updates} frames of updates, {acknowledgements} \
         acknowledgements, {controls} controls of the source, {promotions} requests for the promotion; {through} through"
    );
    assert_eq!(whole.failure, None);
    assert!(parts >= 5 && updates > 0 && acknowledgements > 0 && promotions > 0 && through == 1);
    for end in [ResyncEnd::SourceDies, ResyncEnd::JoinerDies, ResyncEnd::LinkBreaks] {
        let (mut longest, mut again) = (0, 0);
        let work = |behind| run_setup(SEED, world(end, behind));
        Runner::default().each(messages, work, |behind, outcome: Outcome| {
            let ResyncCounts { begun, ended, whole, .. } = outcome.counts.resync;
            let name = format!("{end:?} behind message {behind}");
            assert_eq!(outcome.failure, None, "{name}");
            let (Some(ended), Some(whole)) = (ended, whole) else { panic!("{name}: the chain was never whole again") };
            assert!(whole - ended <= WITHIN, "{name}: whole after {} ms", (whole - ended) / MILLI);
            longest = longest.max(whole - ended);
            again += u64::from(begun > 1);
        });
        println!(
            "{end:?} at each of {messages} boundaries: whole again within {} ms, {again} times by another snapshot",
            longest / MILLI
        );
    }
}

#[test]
fn snapshot_resumed_from_another_one_is_caught() {
    let convicts = |seed, end, behind| {
        let mut setup = world(end, behind);
        setup.guards = Guards::without(Mutant::SkipFinished);
        run_setup(seed, setup).failure.is_some_and(|failure| failure.oracle.convicts())
    };
    let ends = [ResyncEnd::SourceDies, ResyncEnd::LinkBreaks, ResyncEnd::JoinerDies];
    let anywhere = |seed| ends.into_iter().any(|end| (1..96).any(|behind| convicts(seed, end, behind)));
    // Only a few runs convict: between two snapshots, clients must write data that only the second one contains.
    assert!((SEED..SEED + 8).any(anywhere));
}
