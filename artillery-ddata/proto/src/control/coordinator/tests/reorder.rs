//! Reorders: the same members in another order.

use super::*;
use crate::{
    Sequence,
    control::message::{Close, PathDelay, Report},
};

fn report(world: &World, closed: bool) -> Report {
    let epoch = world.config().epoch;
    let (held, way) = (Sequence(5), PathDelay::default());
    let slowed = Duration::ZERO;
    let (open, watermark, unheard, halted) = (true, held, Duration::ZERO, false);
    let (chain, hop, commit) = (ChainId(0), way, way);
    Report { chain, epoch, open, held, watermark, hop, commit, slowed, closed, unheard, halted }
}

fn turned(world: &World) -> Vec<MemberId> {
    world.serving().into_iter().rev().collect()
}

#[test]
fn the_head_closes_first() {
    let mut world = World::new(3, 3);
    world.pass(2000, &[0, 1, 2]);
    let (order, epoch) = (turned(&world), world.config().epoch);
    world.handle(CoordinatorInput::Reorder { token: 7, chain: ChainId(0), order: order.clone() });
    let head = (0..3).find(|&n| Some(id(n)) == world.config().head()).unwrap();
    for n in 0..3 {
        let renewal = Renewal { reports: vec![report(&world, false)], ..world.renewal(n) };
        let answers = world.handle(CoordinatorInput::Renewal { from: id(n), renewal });
        let close = answers.last().unwrap().close.clone();
        let expected = if n == head { vec![Close { chain: ChainId(0), epoch }] } else { vec![] };
        assert_eq!(close, expected, "{n}");
    }
    assert_eq!(world.config().epoch, epoch, "not before all is committed");
    let renewal = Renewal { reports: vec![report(&world, true)], ..world.renewal(head) };
    world.renew_with(head, renewal);
    assert_eq!(world.serving(), order);
    world.handle(CoordinatorInput::Tick);
    assert_eq!(world.reordered, [(7, Ok(Epoch(epoch.0 + 1)))]);
    assert!(world.why.contains(&Why::Reordered));
}

/// A head that closed for an earlier reorder has gone on since. Whether a new reorder is proposed by its old report.
fn proposes_by_an_old_report(mutant: Option<Mutant>) -> bool {
    let mut world = World::new(3, 3);
    world.coordinator.settings.guards = mutant.into();
    world.pass(2000, &[0, 1, 2]);
    let (order, before) = (turned(&world), world.serving());
    let head = (0..3).find(|&n| Some(id(n)) == world.config().head()).unwrap();
    let closed = Renewal { reports: vec![report(&world, true)], ..world.renewal(head) };
    world.renew_with(head, closed);
    world.handle(CoordinatorInput::Reorder { token: 7, chain: ChainId(0), order });
    // The head sent this report before the answer with the new reorder came.
    let late = Renewal { reports: vec![report(&world, true)], answered: 0, ..world.renewal(head) };
    world.renew_with(head, late);
    world.serving() != before
}

#[test]
fn a_reorder_waits_for_a_report_that_shows_its_own_closing() {
    assert!(!proposes_by_an_old_report(None));
}

#[test]
fn an_answer_of_another_leader_shows_no_closing() {
    let mut world = World::new(3, 3);
    world.pass(2000, &[0, 1, 2]);
    let (order, before) = (turned(&world), world.serving());
    let head = (0..3).find(|&n| Some(id(n)) == world.config().head()).unwrap();
    world.handle(CoordinatorInput::Reorder { token: 7, chain: ChainId(0), order });
    world.renew(head);
    let (reports, answered) = (vec![report(&world, true)], world.number + 1);
    let renewal = Renewal { reports, answered, ..world.renewal(head) };
    world.renew_with(head, renewal);
    assert_eq!(world.serving(), before);
}

#[test]
fn an_old_report_of_a_closing_shows_none() {
    assert!(proposes_by_an_old_report(Some(Mutant::BelieveOldClosing)));
}

#[test]
fn a_head_that_does_not_close_goes_on() {
    let mut world = World::new(3, 3);
    world.pass(2000, &[0, 1, 2]);
    let (order, before) = (turned(&world), world.serving());
    world.handle(CoordinatorInput::Reorder { token: 7, chain: ChainId(0), order: order.clone() });
    world.handle(CoordinatorInput::Reorder { token: 8, chain: ChainId(0), order });
    world.pass(3000, &[0, 1, 2]);
    assert_eq!(world.serving(), before);
    assert_eq!(world.reordered, [(8, Err(ReorderError::Busy)), (7, Err(ReorderError::NotClosed))]);
}

#[test]
fn an_order_names_each_serving_member_once() {
    let mut world = World::new(4, 3);
    let chain = ChainId(0);
    let order = world.serving();
    let spare = (0..4).map(id).find(|id| !order.contains(id)).unwrap();
    let mut ask = |order: Vec<MemberId>, chain| {
        world.handle(CoordinatorInput::Reorder { token: 1, chain, order });
        world.reordered.pop().map(|(_, result)| result)
    };
    let (first, second, third) = (order[0], order[1], order[2]);
    assert_eq!(ask(vec![first, second, spare], chain), Some(Err(ReorderError::NotServing { member: spare })));
    assert_eq!(ask(vec![second, first], chain), Some(Err(ReorderError::NotAll { serving: 3, named: 2 })));
    assert_eq!(ask(vec![third, second, third], chain), Some(Err(ReorderError::NotAll { serving: 3, named: 3 })));
    assert_eq!(ask(order.clone(), ChainId(9)), Some(Err(ReorderError::NoChain { chain: ChainId(9) })));
    assert_eq!(ask(order.clone(), chain), Some(Ok(Epoch(1))), "so they stand already");
    world.term = 0;
    world.log();
    world.handle(CoordinatorInput::Reorder { token: 2, chain, order });
    assert_eq!(world.reordered, [(2, Err(ReorderError::NotLeading { leader: None }))]);
}

#[test]
fn a_deposed_leader_gives_the_reorder_up() {
    let mut world = World::new(3, 3);
    world.pass(2000, &[0, 1, 2]);
    let order = turned(&world);
    world.handle(CoordinatorInput::Reorder { token: 7, chain: ChainId(0), order });
    world.term = 2;
    world.log();
    assert!(matches!(world.reordered[..], [(7, Err(ReorderError::NotLeading { .. }))]));
}
