//! A leaving node resigns when the leader has agreed, is replaced as a voter, and may end once it isn't needed.

use super::*;

/// Sets the current voters. Returns the ones that the leader wants next.
pub(super) fn keep(world: &mut World, voters: &[u8]) -> Option<Vec<MemberId>> {
    world.voters = voters.iter().copied().map(id).collect();
    world.log();
    world.handle(CoordinatorInput::VotersSet);
    assert_eq!(world.new_voters, None, "the log may not show the outcome yet");
    world.now = world.now + CoordinatorSettings::default().tick;
    world.handle(CoordinatorInput::Tick);
    wanted(world)
}

pub(super) fn wanted(world: &mut World) -> Option<Vec<MemberId>> {
    world.new_voters.take().map(|voters| voters.into_iter().collect())
}

pub(super) fn keeping(nodes: u8, replicas: u32, mutant: Option<Mutant>) -> World {
    let mut world = World::new(nodes, replicas).without(mutant);
    let all = world.all();
    keep(&mut world, &all);
    world.pass(1_000, &all);
    wanted(&mut world);
    world
}

pub(super) fn three() -> World {
    keeping(3, 3, None)
}

pub(super) fn ids(nodes: &[u8]) -> Option<Vec<MemberId>> {
    Some(nodes.iter().copied().map(id).collect())
}

/// Milliseconds in which the living nodes show an answer.
pub(super) const PROOF: u64 = 600;

/// Node `n` leaves while the nodes of `there` are alive.
fn go(world: &mut World, n: u8, there: &[u8]) {
    for _ in 0..2 {
        world.leave(n);
        world.pass(PROOF, there);
    }
}

#[test]
fn a_leaving_node_is_released_when_others_keep_the_log() {
    let mut world = three();
    assert!(!world.leave(2).released);
    assert_eq!(wanted(&mut world), None, "node 1 may still show that it is alive");
    world.pass(PROOF, &[0, 1]);
    assert_eq!(wanted(&mut world), ids(&[0]), "with two voters, the loss of either would stop the log");
    assert!(!world.leave(2).released, "the change of voters is in flight");
    keep(&mut world, &[0]);
    assert!(world.leave(2).released);
}

#[test]
fn five_voters_become_three_when_one_leaves() {
    let mut world = keeping(5, 3, None);
    go(&mut world, 4, &[0, 1, 2, 3, 4]);
    assert_eq!(wanted(&mut world), ids(&[0, 1, 2]));
}

#[test]
fn a_spare_that_lives_takes_the_place_of_a_voter_that_leaves() {
    let mut world = keeping(4, 3, None);
    keep(&mut world, &[0, 1, 2]);
    world.pass(10_000, &[0, 1, 2, 3]);
    go(&mut world, 2, &[0, 1, 2, 3]);
    assert_eq!(wanted(&mut world), ids(&[0, 1, 3]));
}

#[test]
fn a_killed_voter_is_not_kept_after_a_leave() {
    let mut world = three();
    // Node 1 is killed; shortly afterwards node 2 leaves.
    world.pass(300, &[0, 2]);
    world.leave(2);
    world.pass(PROOF, &[0, 2]);
    assert_eq!(wanted(&mut world), ids(&[0]));
}

#[test]
fn believing_what_was_heard_keeps_a_killed_voter() {
    let mut world = keeping(5, 5, Some(Mutant::KeepUnproven));
    world.pass(300, &[0, 3, 4]);
    world.leave(4);
    assert_eq!(wanted(&mut world), ids(&[0, 1, 2]), "two of them are dead: the change never commits");
}

#[test]
fn a_voter_heard_but_not_shown_to_live_is_not_kept() {
    let mut world = three();
    let old = world.renewal(1);
    world.leave(2);
    for _ in 0..20 {
        world.renew_with(1, old.clone());
        world.pass(100, &[0, 2]);
    }
    assert_eq!(wanted(&mut world), ids(&[0]));
}

#[test]
fn without_a_majority_that_lives_the_voters_are_not_changed() {
    let mut world = keeping(5, 5, None);
    // Three of five are killed. No change of voters could commit, and a pending one would block all others.
    world.pass(200, &[0, 4]);
    world.leave(4);
    world.pass(5_000, &[0, 4]);
    assert_eq!(wanted(&mut world), None);
}

#[test]
fn two_voters_that_leave_at_once_leave_one() {
    let mut world = three();
    world.leave(1);
    world.leave(2);
    assert_eq!(world.serving(), [id(0)]);
    world.pass(PROOF, &[0, 1, 2]);
    assert_eq!(wanted(&mut world), ids(&[0]));
}

#[test]
fn a_leader_that_leaves_stays_until_its_chains_go_on_without_it() {
    let mut world = three();
    world.pass(500, &[0, 1, 2]);
    world.put_off = Some(vec![]);
    go(&mut world, 0, &[0, 1, 2]);
    assert_eq!(wanted(&mut world), None);
    let put_off = world.put_off.take().unwrap();
    assert_eq!(put_off.len(), 1);
    for (term, at, change) in put_off {
        world.append(term, at, change);
    }
    assert!(!world.configs.names(id(0)));
    assert_eq!(wanted(&mut world).map(|voters| voters.len()), Some(1), "one of the other two");
}

#[test]
fn where_all_leave_the_last_one_stays() {
    let mut world = three();
    for n in [1, 2, 0] {
        world.leave(n);
    }
    world.pass(3_000, &[0, 1, 2]);
    assert_eq!((world.serving(), wanted(&mut world)), (vec![id(0)], ids(&[0])));
    assert!(!world.ask(0).released && world.ask(0).leave.is_none() && world.ask(0).lease.is_some());
}

#[test]
fn the_only_voter_has_an_heir() {
    let mut world = World::new(2, 2);
    world.pass(1_000, &[0, 1]);
    go(&mut world, 0, &[0, 1]);
    assert_eq!((world.serving(), wanted(&mut world)), (vec![id(1)], ids(&[1])));
}

/// A chain of two without the leader, node 0; and its members. Node 0 is the only spare that is alive.
pub(super) fn pair(mutant: Option<Mutant>) -> (World, u8, u8) {
    let mut worlds = (3..9).map(|nodes| World::new(nodes, 2));
    let mut world = worlds.find(|world| !world.serving().contains(&id(0))).unwrap().without(mutant);
    let (one, other) = (world.head(), world.tail());
    keep(&mut world, &[0, one, other]);
    world.pass(1_000, &[0, one, other]);
    (world, one, other)
}

#[test]
fn the_last_copy_does_not_resign() {
    let (mut world, dead, last) = pair(None);
    world.pass(300, &[0, last]);
    for _ in 0..20 {
        assert_eq!(world.ask(last).leave, None, "node {dead} renewed 0.3 s ago, and may be dead");
        world.pass(100, &[0, last]);
    }
    assert!(world.renew(last).is_some(), "it serves on");
    assert_eq!(world.serving(), [id(last)]);
}

#[test]
fn agreeing_at_once_lets_the_last_copy_resign() {
    let (mut world, _, last) = pair(Some(Mutant::AgreeAtOnce));
    world.pass(300, &[0, last]);
    assert!(world.ask(last).leave.is_some());
}

#[test]
fn proofs_from_before_a_pause_do_not_count() {
    let (mut world, dead, last) = pair(None);
    world.ask(last);
    world.pass(PROOF, &[0, dead]);
    world.now = world.now + Duration::from_secs(5);
    assert_eq!(world.ask(last).leave, None, "node {dead} may have died in the pause");
}

#[test]
fn a_resignation_is_taken_back_when_the_other_member_dies() {
    let (mut world, dead, last) = pair(None);
    let agreed = leave_and_lose(&mut world, dead, last);
    world.pass(700, &[0, last]);
    let answer = world.ask(last);
    assert_eq!(answer.leave, Some(agreed.back(LeaveStage::Asks)), "node {dead} is dead: {last} is the last one");
    world.leaves.insert(last, agreed.back(LeaveStage::Asks));
    world.renew(last);
    assert!(world.renew(last).is_some(), "it serves again");
    world.pass(2_000, &[0, last]);
    assert_eq!(world.serving()[0], id(last));
    assert!(world.renew(last).is_some());
}

/// Node `last` is asked to resign, and node `dead` dies before the leader learns of the resignation.
fn leave_and_lose(world: &mut World, dead: u8, last: u8) -> Leave {
    world.ask(last);
    world.pass(PROOF, &[0, dead, last]);
    let agreed = world.ask(last).leave.expect("the other node has shown an answer");
    world.pass(600, &[0]);
    world.leaves.insert(last, agreed);
    assert_eq!(world.renew(last), None);
    agreed
}

#[test]
fn only_one_of_two_members_that_leave_at_once_resigns() {
    let (mut world, one, other) = pair(None);
    for n in [one, other] {
        world.ask(n);
    }
    world.pass(PROOF, &[0, one, other]);
    let agreed = [one, other].map(|n| world.ask(n).leave.is_some());
    assert_eq!(agreed.iter().filter(|&&agreed| agreed).count(), 1, "the other one would be the last copy");
}

#[test]
fn a_member_that_has_fallen_silent_since_its_proof_lets_no_other_resign() {
    let (mut world, dead, last) = pair(None);
    world.ask(last);
    world.pass(PROOF, &[0, dead, last]);
    world.pass(600, &[0, last]);
    assert_eq!(world.serving().len(), 2, "node {dead} isn't removed yet");
    assert_eq!(world.ask(last).leave, None);
}

/// Node `last` withdraws its resignation. Its next request is a new one: the other member may have died since it showed
/// an answer.
#[test]
fn a_proof_from_before_a_withdrawn_resignation_does_not_count() {
    let (mut world, other, last) = pair(None);
    world.ask(last);
    world.pass(PROOF, &[0, other, last]);
    let agreed = world.ask(last).leave.expect("the other node has shown an answer");
    world.leaves.insert(last, agreed.back(LeaveStage::Asks));
    assert_eq!(world.ask(last).leave, None);
    world.pass(PROOF, &[0, other, last]);
    assert!(world.ask(last).leave.is_some());
}

#[test]
fn a_resignation_that_stands_for_ever_stops_the_chain() {
    let (mut world, dead, last) = pair(Some(Mutant::KeepResigned));
    leave_and_lose(&mut world, dead, last);
    world.pass(10_000, &[0, last]);
    assert_eq!((world.renew(last), world.ask(last).leave), (None, None), "strong reads fail permanently");
}

/// Node 2 of three resigns. The message is lost, or no proposal succeeds: node 2 withdraws the resignation and has a
/// lease again. Returns the old message, which the network still holds.
fn taken_back(mutant: Option<Mutant>) -> (World, Renewal) {
    let mut world = keeping(3, 3, mutant);
    let agreed = world.ask(2).leave.unwrap();
    world.leaves.insert(2, agreed);
    let late = world.renewal(2);
    world.leaves.insert(2, agreed.back(LeaveStage::Asks));
    assert!(world.renew(2).is_some());
    (world, late)
}

#[test]
fn a_late_resignation_is_ignored() {
    let (mut world, late) = taken_back(None);
    world.renew_with(2, late);
    assert_eq!(world.serving().len(), 3, "its lease is still running");
    // Node 2 dies: the leader waits for the end of its lease.
    let at = world.pass(3_000, &[0, 1]).unwrap();
    assert!((1010..=1100).contains(&at), "{at} ms after its last renewal");
}

#[test]
fn a_late_resignation_that_counts_removes_a_member_with_a_lease() {
    let (mut world, late) = taken_back(Some(Mutant::TakeOldResignation));
    world.renew_with(2, late);
    assert!(!world.serving().contains(&id(2)));
}

/// Like [`taken_back`], but an earlier leader granted the lease, and the current leader doesn't know of it.
fn under_another_leader(mutant: Option<Mutant>) -> (World, Renewal) {
    let (mut world, late) = taken_back(mutant);
    world.elect(2);
    world.renew(1);
    world.renew(1);
    (world, late)
}

#[test]
fn an_earlier_terms_resignation_counts_once_it_is_shown_to_stand() {
    let (mut world, late) = under_another_leader(None);
    world.renew_with(2, late.clone());
    assert_eq!(world.serving().len(), 3, "it may have been withdrawn under the previous leader");
    world.leaves.insert(2, late.leave);
    world.renew(2);
    assert_eq!(world.serving().len(), 2, "it has this leader's answer, and is still resigned");
}

#[test]
fn a_resignation_of_before_the_term_that_counts_removes_a_member_with_a_lease() {
    let (mut world, late) = under_another_leader(Some(Mutant::TakeUnvouchedResignation));
    world.renew_with(2, late);
    assert!(!world.serving().contains(&id(2)));
}

#[test]
fn two_that_have_resigned_under_two_leaders_both_serve_again_and_one_leaves() {
    let (mut world, one, other) = pair(None);
    let resigned = Leave { number: 0, stage: LeaveStage::Resigned, returns: false };
    world.leaves = [(one, resigned), (other, resigned)].into();
    world.pass(1_500, &[0, one, other]);
    assert_eq!(world.serving().len(), 2, "neither has an heir");
    for n in [one, other] {
        assert_eq!(world.ask(n).leave, Some(resigned.back(LeaveStage::Asks)));
        world.leaves.insert(n, resigned.back(LeaveStage::Asks));
    }
    world.pass(PROOF, &[0, one, other]);
    let told = [one, other].map(|n| world.leave(n).leave.is_some());
    world.pass(PROOF, &[0, one, other]);
    let told_later = [one, other].map(|n| world.leave(n));
    assert_eq!(world.serving().len(), 1, "{told:?} {told_later:?}");
}

#[test]
fn a_node_that_leaves_is_no_spare() {
    let mut world = World::new(3, 2);
    world.pass(1_000, &[0, 1, 2]);
    let spare = world.spare();
    let dead = (1..3).find(|&n| world.serving().contains(&id(n))).unwrap();
    assert!(world.leave(spare).leave.is_some() || world.leaves[&spare].has_resigned(), "nothing needs it");
    let there: Vec<u8> = (0..3).filter(|&n| n != dead).collect();
    world.pass(3_000, &there);
    assert_eq!((world.serving().len(), world.config().syncing()), (1, None));
}

#[test]
fn a_dead_node_does_not_become_a_voter_again_when_another_one_comes() {
    let mut world = three();
    go(&mut world, 2, &[0, 1, 2]);
    assert_eq!(wanted(&mut world), ids(&[0]));
    keep(&mut world, &[0]);
    // Node 1 is killed, and node 3 starts before node 1 is treated as dead.
    world.pass(1_200, &[0]);
    world.pass(700, &[0, 3]);
    assert_eq!(wanted(&mut world), None, "nodes 0 and 3 are as fragile as node 0 alone");
    world.pass(1_000, &[0, 3, 4]);
    assert_eq!(wanted(&mut world), None, "nodes 3 and 4 are young");
    world.pass(10_000, &[0, 3, 4]);
    assert_eq!(wanted(&mut world), ids(&[0, 3, 4]));
}
