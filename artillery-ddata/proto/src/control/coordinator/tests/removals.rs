//! Which members may be removed while no other one is certain to serve.

use super::{
    leaving::{PROOF, pair},
    *,
};

/// Messages of the other member still arrive, but they may be old: it shows no answer of this term.
#[test]
fn a_silent_member_stays_while_no_other_one_is_proven_to_live() {
    let (mut world, silent, other) = pair(None);
    let old = world.renewal(other);
    world.elect(2);
    for _ in 0..60 {
        world.pass(50, &[0]);
        world.renew_with(other, old.clone());
    }
    assert_eq!(world.serving().len(), 2, "node {silent} may be the last copy");
    world.pass(PROOF, &[0, other]);
    assert_eq!(world.serving(), [id(other)]);
}

/// The other member has halted: the store of the silent one may be the only one that opens the chain again.
#[test]
fn a_silent_member_stays_while_the_other_one_serves_nothing() {
    let (mut world, silent, other) = pair(None);
    world.pass(600, &[0, other]);
    for _ in 0..12 {
        let halted = Report { halted: true, ..gray::report(&world, 5) };
        world.report(other, halted);
        world.pass(250, &[0]);
    }
    assert!(world.serving().contains(&id(silent)));
}

/// Node `dead` shows an answer and then dies; node `last` has been asked to resign. After `event`, the leader learns of
/// the resignation.
fn resign_after(mutant: Option<Mutant>, event: impl FnOnce(&mut World, u8)) -> (World, u8, Leave) {
    let (mut world, dead, last) = pair(mutant);
    world.ask(last);
    world.pass(PROOF, &[0, dead, last]);
    let agreed = world.ask(last).leave.expect("the other node has shown an answer");
    event(&mut world, dead);
    world.leaves.insert(last, agreed);
    for _ in 0..2 {
        assert_eq!(world.renew(last), None);
    }
    (world, last, agreed)
}

/// Another term begins, whose leader receives renewals of node `dead`, which prove that it is alive, before it receives
/// the request to leave.
fn elect_and_lose(world: &mut World, dead: u8) {
    world.elect(2);
    for _ in 0..2 {
        world.renew(dead);
    }
    world.pass(50, &[0]);
}

#[test]
fn a_new_leader_keeps_a_resigned_member_until_another_one_is_proven_to_live() {
    let (mut world, last, agreed) = resign_after(None, elect_and_lose);
    assert_eq!(world.serving().len(), 2, "the other member may have died since");
    world.pass(700, &[0, last]);
    assert_eq!(world.ask(last).leave, Some(agreed.back(LeaveStage::Asks)), "it did, and {last} is the last one");
}

#[test]
fn a_new_leader_that_believes_old_messages_removes_the_last_copy() {
    let (world, last, _) = resign_after(Some(Mutant::BelieveOldMessages), elect_and_lose);
    assert!(!world.serving().contains(&id(last)));
}

#[test]
fn after_a_pause_a_resigned_member_stays_until_another_one_is_proven_to_live() {
    let (world, ..) = resign_after(None, |world, dead| {
        for _ in 0..2 {
            world.renew(dead);
        }
        world.now = world.now + Duration::from_millis(300);
    });
    assert_eq!(world.serving().len(), 2, "the other member may have died in the pause");
}
