//! Reorders: the same members in another order.

use super::*;
use crate::control::message::Close;

fn report(world: &World, closed: bool) -> Report {
    Report { closed, ..gray::report(world, 5) }
}

fn turned(world: &World) -> Vec<MemberId> {
    world.serving().into_iter().rev().collect()
}

#[test]
fn the_head_closes_first() {
    let mut world = World::running(3, 3);
    let (order, epoch) = (turned(&world), world.config().epoch);
    world.handle(CoordinatorInput::Reorder { token: 7, chain: ChainId(0), order: order.clone() });
    let head = world.head();
    for n in 0..3 {
        let answer = world.report(n, report(&world, false)).unwrap();
        let expected = if n == head { vec![Close { chain: ChainId(0), epoch }] } else { vec![] };
        assert_eq!(answer.close, expected, "{n}");
    }
    world.report(head, report(&world, false));
    assert_eq!(world.config().epoch, epoch, "it must wait until every update is committed");
    world.report(head, report(&world, true));
    assert_eq!(world.serving(), order);
    world.handle(CoordinatorInput::Tick);
    assert_eq!(world.reordered, [(7, Ok(Epoch(epoch.0 + 1)))]);
    assert!(world.why.contains(&Why::Reordered));
}

/// A head that closed for an earlier reorder has continued since. Returns whether its old report makes the leader
/// propose a new reorder.
fn proposes_by_an_old_report(mutant: Option<Mutant>) -> bool {
    let mut world = World::running(3, 3).without(mutant);
    let (order, before) = (turned(&world), world.serving());
    let head = world.head();
    world.report(head, report(&world, true));
    world.handle(CoordinatorInput::Reorder { token: 7, chain: ChainId(0), order });
    // The head sent this report before it received the answer with the new reorder.
    let late = Renewal { reports: vec![report(&world, true)], answered: 0, ..world.renewal(head) };
    world.renew_with(head, late);
    world.serving() != before
}

#[test]
fn a_reorder_waits_for_a_report_that_shows_its_own_closing() {
    assert!(!proposes_by_an_old_report(None));
}

/// The head's newest renewal is answered, then the reorder begins, and a delayed renewal of the head is answered with
/// it. The head receives only the first of the two answers.
#[test]
fn an_answer_from_before_the_reorder_shows_no_closing() {
    let mut world = World::running(3, 3);
    let (order, before) = (turned(&world), world.serving());
    let head = world.head();
    let delayed = world.renewal(head);
    world.renew(head);
    let answered = world.answered[&head];
    world.handle(CoordinatorInput::Reorder { token: 7, chain: ChainId(0), order });
    world.renew_with(head, delayed);
    let renewal = Renewal { reports: vec![report(&world, true)], answered, ..world.renewal(head) };
    world.renew_with(head, renewal);
    assert_eq!(world.serving(), before);
}

#[test]
fn an_answer_of_another_leader_shows_no_closing() {
    let mut world = World::running(3, 3);
    let (order, before) = (turned(&world), world.serving());
    let head = world.head();
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
    let mut world = World::running(3, 3);
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
    let spare = id(world.spare());
    let mut ask = |order: Vec<MemberId>, chain| {
        world.handle(CoordinatorInput::Reorder { token: 1, chain, order });
        world.reordered.pop().map(|(_, result)| result)
    };
    let (first, second, third) = (order[0], order[1], order[2]);
    assert_eq!(ask(vec![first, second, spare], chain), Some(Err(ReorderError::NotServing { member: spare })));
    assert_eq!(ask(vec![second, first], chain), Some(Err(ReorderError::NotAll { serving: 3, named: 2 })));
    assert_eq!(ask(vec![third, second, third], chain), Some(Err(ReorderError::NotAll { serving: 3, named: 3 })));
    assert_eq!(ask(order.clone(), ChainId(9)), Some(Err(ReorderError::NoChain { chain: ChainId(9) })));
    assert_eq!(ask(order.clone(), chain), Some(Ok(Epoch(1))), "they already have this order");
    world.elect(0);
    world.handle(CoordinatorInput::Reorder { token: 2, chain, order });
    assert_eq!(world.reordered, [(2, Err(ReorderError::NotLeading { leader: None }))]);
}

#[test]
fn a_deposed_leader_gives_the_reorder_up() {
    let mut world = World::running(3, 3);
    let order = turned(&world);
    world.handle(CoordinatorInput::Reorder { token: 7, chain: ChainId(0), order });
    world.elect(2);
    assert!(matches!(world.reordered[..], [(7, Err(ReorderError::NotLeading { .. }))]));
}
