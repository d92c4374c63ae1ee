//! Guards whose absence no simulated seed detects: each test runs with and without its guard.

use super::{gray::report, *};
use crate::{Sequence, control::message::PathDelay};

/// The leader's own lease is shorter than the one that the previous leader granted.
#[test]
fn a_leader_started_with_a_shorter_lease_waits_for_the_end_of_the_clusters() {
    let own = Duration::from_millis(400);
    let lead = |mutant| {
        let mut world = World::new(3, 3);
        let settings = CoordinatorSettings { lease: own, ..CoordinatorSettings::default() };
        world.coordinator = Coordinator::new(id(0), settings);
        world = world.without(mutant);
        world.log();
        world.pass(2000, &[0, 1, 2]);
        let granted = world.renew(1);
        world.elect(2);
        (granted, world.pass(3000, &[0, 1]).expect("the silent member is removed"))
    };
    let (granted, at) = lead(None);
    assert_eq!(granted, Some(Duration::from_secs(1)));
    assert!((1010..=1100).contains(&at), "removed {at} ms after the term began");
    let (granted, at) = lead(Some(Mutant::KeepOwnTimes));
    assert_eq!(granted, Some(own));
    assert!(at < 1000, "{at} ms: the lease that another leader granted may still run");
}

#[test]
fn a_member_that_may_act_as_its_former_self_gets_no_lease() {
    let lease = |mutant| {
        let mut world = World::new(3, 3).without(mutant);
        let old = Renewal { applied: LogIndex(0), ..world.renewal(1) };
        world.renew_with(1, old)
    };
    assert_eq!(lease(None), None);
    assert_eq!(lease(Some(Mutant::GrantToFormerSelf)), Some(Duration::from_secs(1)));
}

/// The leader leaves, and only old messages of the two other members arrive.
#[test]
fn the_last_member_known_to_live_stays_when_the_others_are_heard_by_old_messages() {
    let left = |mutant| {
        let mut world = World::new(3, 3).without(mutant);
        world.pass(2000, &[0, 1, 2]);
        hear_old_messages(&mut world);
        world.renew(0);
        let leave = Leave { number: 0, stage: LeaveStage::Resigned, returns: false };
        let leaving = Renewal { leave, ..world.renewal(0) };
        world.renew_with(0, leaving);
        world.serving().contains(&id(0))
    };
    assert!(left(None));
    assert!(!left(Some(Mutant::BelieveOldMessages)), "its chain is left to two members that may be dead");
}

/// The joiner is alive and renews, but the tail's pending updates don't reach it.
#[test]
fn a_joiner_that_holds_up_what_is_to_be_committed_is_moved_out() {
    let waits_for = |mutant, millis| {
        let (mut world, spare, there) = joined();
        world = world.without(mutant);
        let way = PathDelay { waits: Some((Sequence(6), Duration::from_millis(millis))), ..PathDelay::default() };
        let report = Report { hop: way, commit: way, ..report(&world, 9) };
        world.report(world.tail(), report);
        let joins = world.config().syncing() == Some(id(spare));
        world.pass(1000, &there);
        (joins, world.config().syncing() == Some(id(spare)), world.why.last().copied())
    };
    assert_eq!(waits_for(None, 1990), (true, true, Some(Why::Joins)), "the time isn't over yet");
    let (joins, joins_again, why) = waits_for(None, 2000);
    assert_eq!((joins, why), (false, Some(Why::Unreached)));
    assert!(!joins_again, "it must not return behind the same tail");
    assert_eq!(waits_for(Some(Mutant::TolerateDeadJoiner), 2000), (true, true, Some(Why::Joins)));
}

/// The outcome of a removal is unknown, and a later append of it is refused. The member must not get a lease then.
#[test]
fn a_proposal_that_may_be_in_the_log_stays_so_though_another_attempt_is_refused() {
    let leased = |mutant| {
        let mut world = World::new(3, 3).without(mutant);
        world.pass(2000, &[0, 1, 2]);
        world.put_off = Some(vec![]);
        world.pass(1200, &[0, 1]);
        let (_, at, _) = world.put_off.take().unwrap().remove(0);
        world.put_off = Some(vec![]);
        world.handle(CoordinatorInput::Appended { at, fate: ProposalFate::Unknown });
        world.pass(100, &[0, 1]);
        assert_eq!(world.put_off.as_ref().unwrap().len(), 1, "it is proposed again");
        world.handle(CoordinatorInput::Appended { at, fate: ProposalFate::Refused });
        world.renew(2);
        world.renew(2).is_some()
    };
    assert!(!leased(None), "its removal may be in the log");
    assert!(leased(Some(Mutant::ForgetUnknown)));
}
