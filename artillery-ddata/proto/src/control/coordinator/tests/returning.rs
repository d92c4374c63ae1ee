//! A node with a disk leaves its chains temporarily: it keeps its vote, and its place if all others leave too.

use super::{
    leaving::{PROOF, ids, keep, keeping, three, wanted},
    *,
};

const RETURNS: Leave = Leave { number: 0, stage: LeaveStage::Asks, returns: true };

/// Node `n` asks to leave temporarily, and executes the leader's next step. Returns the last answer to it.
fn withdraw(world: &mut World, n: u8) -> Renewed {
    world.leaves.entry(n).or_insert(RETURNS);
    world.leave(n)
}

fn renew(world: &mut World, n: u8) {
    world.renew(n);
}

/// All of these nodes ask to leave temporarily before the leader answers.
fn ask_at_once(world: &mut World, nodes: &[u8]) {
    world.leaves.extend(nodes.iter().map(|&n| (n, RETURNS)));
    world.confirms = false;
    nodes.iter().for_each(|&n| renew(world, n));
    world.confirms = true;
    nodes.iter().for_each(|&n| renew(world, n));
}

#[test]
fn a_node_that_returns_is_removed_at_once_and_keeps_its_vote() {
    let mut world = three();
    assert_eq!(withdraw(&mut world, 2).lease, None);
    assert_eq!(world.serving().len(), 2, "nothing waits for its lease");
    world.pass(5_000, &[0, 1]);
    assert_eq!(wanted(&mut world), None);
    assert_eq!(world.said(1).settled, Ok(()), "it is gone, and no chain needs it");
}

#[test]
fn five_voters_stay_five_when_one_returns() {
    let mut world = keeping(5, 5, None);
    withdraw(&mut world, 4);
    world.pass(30_000, &[0, 1, 2, 3]);
    assert_eq!(wanted(&mut world), None);
    assert_eq!(world.said(1).settled, Ok(()));
    world.pass(600_000, &[0, 1, 2, 3]);
    assert_eq!(wanted(&mut world), ids(&[0, 1, 2]), "it stays away");
}

#[test]
fn a_voter_keeps_its_vote_when_its_next_life_is_met() {
    let mut world = keeping(5, 5, None);
    withdraw(&mut world, 4);
    let mut next = id(4);
    next.incarnation.starts += 1;
    world.voters = [id(0), id(1), id(2), id(3), next].into();
    world.log();
    world.pass(5_000, &[0, 1, 2, 3]);
    assert_eq!(wanted(&mut world), None, "it hasn't renewed yet");
    // It renews, and dies: now it is treated as dead.
    let me = NodeInfo { id: next, ..founder(4) };
    let renewal = Renewal { me, leave: Leave::default(), ..world.renewal(4) };
    world.handle(CoordinatorInput::Renewal { from: next, renewal });
    world.pass(5_000, &[0, 1, 2, 3]);
    assert_eq!(wanted(&mut world), ids(&[0, 1, 2]));
}

#[test]
fn a_node_that_ended_before_the_leader_agreed_leaves_no_trace() {
    let mut world = three();
    world.confirms = false;
    world.leaves.insert(2, RETURNS);
    world.renew(2);
    world.confirms = true;
    world.pass(5_000, &[0, 1]);
    assert_eq!((world.serving().len(), world.said(1).settled), (2, Ok(())));
}

#[test]
fn a_voter_that_returns_does_not_take_part_in_a_leave_for_good() {
    let mut world = keeping(5, 3, None);
    withdraw(&mut world, 4);
    world.pass(1_000, &[0, 1, 2, 3]);
    for _ in 0..2 {
        world.leave(3);
        world.pass(PROOF, &[0, 1, 2, 3]);
    }
    assert_eq!(wanted(&mut world), ids(&[0, 1, 2]));
}

#[test]
fn a_leader_that_returns_ends_once_the_members_act_without_it() {
    let mut world = three();
    withdraw(&mut world, 0);
    world.pass(PROOF, &[0, 1, 2]);
    let before = world.configs.applied();
    let late = [1, 2].map(|n| Renewal { applied: before, ..world.renewal(n) });
    let answer = withdraw(&mut world, 0);
    assert_eq!((world.configs.names(id(0)), answer.released), (false, false));
    late.into_iter().zip([1, 2]).for_each(|(late, n)| {
        world.renew_with(n, late);
    });
    assert!(!world.said(0).released, "nodes 1 and 2 may not know the configuration yet");
    [1, 2].into_iter().for_each(|n| renew(&mut world, n));
    assert!(world.said(0).released);
    assert_eq!(wanted(&mut world), None);
}

#[test]
fn nothing_is_settled_while_the_leader_is_about_to_end() {
    let mut world = three();
    withdraw(&mut world, 0);
    world.pass(PROOF, &[0, 1, 2]);
    withdraw(&mut world, 0);
    // No chain is left for which it would renew.
    world.pass(5_000, &[1, 2]);
    assert!(!world.configs.names(id(0)));
    assert_eq!(world.said(1).settled, Err(Unsettled::Leaves { member: id(0) }));
}

/// If they lost their places when all nodes are stopped, only the last of them could open the chain again.
#[test]
fn members_that_all_return_keep_their_places() {
    let mut world = three();
    ask_at_once(&mut world, &[1, 2, 0]);
    world.pass(PROOF, &[0, 1, 2]);
    for n in [1, 2, 0] {
        let answer = world.said(n);
        assert_eq!((answer.leave, answer.farewell), (None, Some(Farewell::Ends)), "{n}");
    }
    assert_eq!(world.serving().len(), 3);
}

#[test]
fn the_one_that_stays_longest_serves_last() {
    let mut world = three();
    withdraw(&mut world, 2);
    world.pass(PROOF, &[0, 1]);
    withdraw(&mut world, 1);
    assert_eq!(world.serving(), [id(0)]);
    world.pass(PROOF, &[0]);
    let answer = withdraw(&mut world, 0);
    assert_eq!((answer.leave, answer.farewell), (None, Some(Farewell::Ends)));
    assert_eq!(world.serving(), [id(0)], "its store opens the chain again");
}

#[test]
fn the_last_member_waits_for_others_only_if_it_leaves_for_good() {
    for (leave, farewell) in [(RETURNS, Farewell::Ends), (Leave { returns: false, ..RETURNS }, Farewell::HandsOver)] {
        let mut world = three();
        // The others are no longer voters: a leader with a confirmed quorum receives renewals from most voters.
        keep(&mut world, &[0]);
        world.pass(5_000, &[0]);
        world.leaves.insert(0, leave);
        assert_eq!(world.said(0).farewell, Some(farewell));
    }
}

#[test]
fn a_node_that_leaves_for_good_waits_for_one_that_returns() {
    let mut world = three();
    withdraw(&mut world, 2);
    world.pass(PROOF, &[0, 1]);
    withdraw(&mut world, 1);
    assert_eq!(world.leave(0).farewell, Some(Farewell::HandsOver));
}

#[test]
fn a_spare_takes_over_from_the_last_member() {
    let mut world = keeping(4, 1, None);
    let last = world.head();
    let spares: Vec<u8> = world.all().into_iter().filter(|&n| n != last).collect();
    assert_eq!(withdraw(&mut world, last).farewell, Some(Farewell::HandsOver));
    let joiner = world.config().syncing().map(number).expect("a spare joins");
    assert!(spares.contains(&joiner));
}

#[test]
fn the_next_life_takes_the_place_of_a_node_that_returned() {
    let mut world = three();
    keep(&mut world, &[0, 1, 2]);
    withdraw(&mut world, 2);
    world.pass(PROOF, &[0, 1]);
    let mut me = founder(2);
    me.id.incarnation.starts += 1;
    for _ in 0..3 {
        let renewal = Renewal { me: me.clone(), leave: Leave::default(), ..world.renewal(2) };
        world.handle(CoordinatorInput::Renewal { from: me.id, renewal });
    }
    assert_eq!(world.config().syncing(), Some(me.id), "it doesn't wait for the previous incarnation to be forgotten");
}
