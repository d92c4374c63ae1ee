//! An empty cluster gives way to another one of its name, and one that holds data doesn't.

use super::*;
use crate::{
    ClusterId, Sequence, Version,
    control::{
        log::ChainChange,
        message::{NotGivenUp, StoreHolding},
    },
};

const OTHER: ClusterId = ClusterId(9);

/// All nodes report `held` in the current epoch, and know the other cluster.
fn meet(world: &mut World, held: u64) {
    world.handle(CoordinatorInput::Outranked { by: Some(OTHER) });
    report_all(world, held);
}

fn report_all(world: &mut World, held: u64) {
    for n in world.all() {
        let report = gray::report(world, held);
        world.report(n, report);
    }
    world.handle(CoordinatorInput::Tick);
}

fn met(mutant: Option<Mutant>) -> World {
    World::running(3, 3).without(mutant)
}

#[test]
fn an_empty_cluster_is_sealed_first_and_then_over() {
    let mut world = met(None);
    let epoch = world.config().epoch;
    world.handle(CoordinatorInput::Outranked { by: Some(OTHER) });
    for n in [0, 1] {
        let report = gray::report(&world, 0);
        world.report(n, report);
    }
    assert!(!world.config().is_sealed(), "a member hasn't reported yet");
    report_all(&mut world, 0);
    assert!(world.config().is_sealed() && !world.configs.is_over());
    for n in [0, 1] {
        let report = gray::report(&world, 0);
        world.report(n, report);
    }
    assert!(!world.configs.is_over(), "a member hasn't reported in the sealed epoch");
    report_all(&mut world, 0);
    assert!(world.configs.is_over());
    assert_eq!(world.config().epoch, Epoch(epoch.0 + 2));
    assert_eq!(world.why, [Why::Sealed, Why::GaveWay]);
    assert_eq!(world.pass(5000, &[0]), None, "the configuration is final");
}

#[test]
fn a_cluster_that_holds_something_is_never_sealed() {
    let mut world = met(None);
    meet(&mut world, 1);
    meet(&mut world, 0);
    assert!(world.config().is_sealed(), "the update was not committed, and was dropped");
    let mut world = met(None);
    meet(&mut world, 1);
    assert_eq!(world.why, []);
}

#[test]
fn an_uncommitted_update_of_a_dead_member_is_no_data() {
    for (watermark, seals) in [(0, true), (1, false)] {
        let mut world = met(None);
        let report = gray::report(&world, 1);
        world.report(2, Report { watermark: Sequence(watermark), ..report });
        assert!(world.pass(5000, &[0, 1]).is_some(), "the member is removed");
        world.handle(CoordinatorInput::Outranked { by: Some(OTHER) });
        for n in [0, 1] {
            let report = gray::report(&world, 0);
            world.report(n, report);
        }
        world.handle(CoordinatorInput::Tick);
        assert_eq!(world.config().is_sealed(), seals, "watermark {watermark}");
    }
}

#[test]
fn data_that_a_sealed_member_reports_takes_the_seal_off() {
    let mut world = met(None);
    meet(&mut world, 0);
    assert!(world.config().is_sealed());
    report_all(&mut world, 1);
    assert!(!world.config().is_sealed());
    assert_eq!(world.why, [Why::Sealed, Why::Unsealed]);
}

/// Whether the cluster is over once one of its members, in the sealed epoch, gives this report.
fn is_over_by(change: impl FnOnce(&mut Report)) -> bool {
    let mut world = met(None);
    meet(&mut world, 0);
    for n in [0, 1] {
        let report = gray::report(&world, 0);
        world.report(n, report);
    }
    let mut last = gray::report(&world, 0);
    change(&mut last);
    world.report(2, last);
    world.configs.is_over()
}

#[test]
fn an_update_that_a_member_holds_may_be_committed() {
    assert!(is_over_by(|_| {}));
    assert!(!is_over_by(|report| (report.held, report.watermark) = (Sequence(1), Sequence(0))));
    assert!(!is_over_by(|report| report.open = false), "it may still drop or keep what it holds");
    assert!(!is_over_by(|report| report.halted = true), "it may hold more than it can report");
}

#[test]
fn the_data_of_a_returned_store_keeps_a_cluster() {
    let seals = |watermark| {
        let mut world = met(None);
        let last = Version { epoch: Epoch(1), sequence: Sequence(4) };
        let watermark = Sequence(watermark);
        let held = StoreHolding { chain: ChainId(0), whole: true, last, watermark, synced: true };
        let renewal = Renewal { holds: vec![held], ..world.renewal(3) };
        world.renew_with(3, renewal);
        meet(&mut world, 0);
        world.config().is_sealed()
    };
    assert!(seals(0));
    assert!(!seals(1));
}

/// Whether the cluster has given way after a report from before the seal.
fn is_over_by_an_old_report(mutant: Option<Mutant>) -> bool {
    let mut world = met(mutant);
    let before = gray::report(&world, 0);
    meet(&mut world, 0);
    for n in world.all() {
        world.report(n, before);
    }
    world.configs.is_over()
}

#[test]
fn a_report_of_an_earlier_epoch_proves_nothing() {
    assert!(!is_over_by_an_old_report(None));
    assert!(is_over_by_an_old_report(Some(Mutant::CountUnsealed)));
}

#[test]
fn without_a_seal_a_member_may_still_order() {
    let mut world = met(Some(Mutant::GiveWayUnsealed));
    meet(&mut world, 0);
    assert_eq!(world.why, [Why::GaveWay]);
}

#[test]
fn the_mutant_gives_way_with_data() {
    let mut world = met(Some(Mutant::GiveWayWithData));
    meet(&mut world, 3);
    meet(&mut world, 3);
    assert!(world.configs.is_over());
}

/// How many milliseconds a sealed chain accepts no writes: after the other cluster is no longer met if it `goes`,
/// otherwise while no member reports.
fn sealed_for(mutant: Option<Mutant>, goes: bool) -> Option<u64> {
    let mut world = met(mutant);
    meet(&mut world, 0);
    assert!(world.config().is_sealed());
    if goes {
        world.handle(CoordinatorInput::Outranked { by: None });
        world.handle(CoordinatorInput::Tick);
        return (!world.config().is_sealed()).then_some(0);
    }
    for at in 0..200 {
        world.handle(CoordinatorInput::Outranked { by: Some(OTHER) });
        world.pass(50, &world.all());
        if !world.config().is_sealed() {
            return Some(at * 50);
        }
    }
    None
}

#[test]
fn a_seal_is_taken_off_in_time() {
    assert_eq!(sealed_for(None, true), Some(0));
    let millis = sealed_for(None, false).expect("no member reports, and the chain is opened again");
    assert!((5000..7000).contains(&millis), "{millis}");
    assert_eq!(sealed_for(Some(Mutant::NeverUnseal), true), None);
}

#[test]
fn a_new_leader_that_meets_no_other_cluster_takes_the_seal_off() {
    let mut world = met(None);
    meet(&mut world, 0);
    assert!(world.config().is_sealed());
    world.handle(CoordinatorInput::Outranked { by: None });
    world.put_off = Some(vec![]);
    world.handle(CoordinatorInput::Tick);
    world.put_off = None;
    world.elect(2);
    world.handle(CoordinatorInput::Tick);
    assert!(!world.config().is_sealed());
}

#[test]
fn the_knowledge_of_another_cluster_ends_by_itself() {
    let mut world = met(None);
    world.handle(CoordinatorInput::Outranked { by: Some(OTHER) });
    world.pass(3100, &world.all());
    report_all(&mut world, 0);
    assert!(!world.config().is_sealed());
}

#[test]
fn an_operator_gives_up_a_cluster_that_holds_data() {
    let mut world = met(None);
    report_all(&mut world, 4);
    world.handle(CoordinatorInput::GiveUp { token: 3 });
    assert!(world.configs.is_over());
    world.handle(CoordinatorInput::Tick);
    assert_eq!(world.given_up, [(3, Ok(()))]);
}

#[test]
fn an_order_of_the_operator_ends() {
    let mut world = met(None);
    world.put_off = Some(vec![]);
    world.handle(CoordinatorInput::GiveUp { token: 3 });
    world.handle(CoordinatorInput::GiveUp { token: 4 });
    world.pass(6000, &world.all());
    assert_eq!(world.given_up, [(4, Err(NotGivenUp::Busy)), (3, Err(NotGivenUp::Undecided))]);
    world.elect(0);
    world.handle(CoordinatorInput::GiveUp { token: 5 });
    assert_eq!(world.given_up.pop(), Some((5, Err(NotGivenUp::NotLeading { leader: None }))));
}

#[test]
fn an_order_is_undecided_if_the_term_ends_while_a_proposal_is_in_flight() {
    let mut world = met(None);
    world.put_off = Some(vec![]);
    world.handle(CoordinatorInput::GiveUp { token: 3 });
    assert!(world.put_off.as_ref().is_some_and(|proposals| !proposals.is_empty()));
    world.elect(0);
    assert_eq!(world.given_up, [(3, Err(NotGivenUp::Undecided))]);
}

#[test]
fn a_cluster_that_lost_something_has_held_data() {
    let mut world = met(None);
    let change = ChainChange { replaces: world.config().epoch, config: world.config().clone() };
    let at = world.configs.applied().next();
    let entry = LogEntry { index: at, term: Term(1), change: ConfigChange::AcceptLoss(change) };
    world.configs.apply(&entry).unwrap();
    world.log();
    meet(&mut world, 0);
    assert!(!world.config().is_sealed());
    assert_eq!(world.config().fewest(), 1);
}
