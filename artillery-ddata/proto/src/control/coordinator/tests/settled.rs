//! When a leader reports that any one node may be stopped.

use super::*;

fn keep(world: &mut World, voters: &[u8]) {
    world.voters = voters.iter().copied().map(id).collect();
    world.handle(CoordinatorInput::VotersSet);
    world.log();
}

fn is_told(world: &mut World, n: u8) -> bool {
    world.said(n).settled.is_ok()
}

fn three() -> World {
    let mut world = World::new(3, 3);
    keep(&mut world, &[0, 1, 2]);
    world.pass(1_000, &[0, 1, 2]);
    world
}

#[test]
fn a_whole_cluster_is_settled() {
    let mut world = three();
    assert!(is_told(&mut world, 1));
}

#[test]
fn a_silent_member_unsettles_until_it_is_replaced() {
    let mut world = three();
    world.pass(600, &[0, 1]);
    assert!(!is_told(&mut world, 1), "node 2 is gone");
    world.pass(2_000, &[0, 1]);
    assert_eq!(world.serving().len(), 2);
    assert!(is_told(&mut world, 1), "there is no other node, and two of three voters are alive");
    world.pass(600, &[0]);
    assert!(!is_told(&mut world, 0), "with node 1 the quorum is lost");
}

/// A node may lead before its own chains act by the log, and renews only once they do.
#[test]
fn a_leader_that_has_not_renewed_yet_is_a_node_that_may_serve() {
    let mut world = World::new(4, 3);
    let members = [1, 2, 3].map(|n| ChainMember { id: id(n), role: Role::Serving }).into();
    let config = ChainConfig { members, ..world.config().clone() };
    let change = ConfigChange::Chains(vec![ChainChange { replaces: config.epoch, config }]);
    world.configs.apply(&LogEntry { index: world.configs.applied().next(), term: Term(1), change }).unwrap();
    world.elect(2);
    keep(&mut world, &[0, 1, 2]);
    world.pass(3_000, &[1]);
    assert_eq!(world.serving(), [id(1)]);
    assert!(!is_told(&mut world, 1), "the leader may join");
}

#[test]
fn a_new_node_unsettles_until_it_is_known() {
    let mut world = three();
    world.put_off = Some(vec![]);
    assert!(!is_told(&mut world, 3), "the node isn't known yet");
    assert!(!is_told(&mut world, 1), "its addition is being decided");
    for (term, at, change) in world.put_off.take().unwrap() {
        world.append(term, at, change);
    }
    keep(&mut world, &[0, 1, 2]);
    assert!(is_told(&mut world, 3));
}

#[test]
fn a_node_that_may_yet_show_that_it_hears_unsettles() {
    let mut world = three();
    world.pass(2_600, &[0, 1]);
    assert_eq!(world.serving().len(), 2);
    // Another leader has received no renewals yet.
    world.term = 2;
    keep(&mut world, &[0, 1, 2]);
    for n in [0, 0, 1, 1] {
        world.renew(n);
    }
    assert!(!is_told(&mut world, 2));
    assert!(!is_told(&mut world, 1));
    assert_eq!(world.config().syncing(), None);
    world.renew(2);
    assert_eq!(world.config().syncing(), Some(id(2)));
}

#[test]
fn a_new_incarnation_of_a_member_unsettles() {
    let mut world = three();
    let mut other = founder(2);
    other.id.incarnation = Incarnation { store: 2, starts: 1 };
    let told = |world: &mut World| {
        let renewal = Renewal { me: other.clone(), ..world.renewal(2) };
        world.handle(CoordinatorInput::Renewal { from: other.id, renewal }).last().unwrap().settled.is_ok()
    };
    assert!(!told(&mut world), "its former incarnation renewed recently");
    world.pass(700, &[0, 1]);
    assert!(!told(&mut world), "its former incarnation still has a place");
}

/// Whether a new leader reports at once that the cluster is settled, although one member has never renewed in its term.
fn said_at_once(mutant: Option<Mutant>) -> bool {
    let mut world = three().without(mutant);
    world.term = 2;
    keep(&mut world, &[0, 1]);
    (0..3).for_each(|_| {
        world.renew(0);
        world.renew(1);
    });
    is_told(&mut world, 1)
}

#[test]
fn a_new_leader_is_not_settled() {
    assert!(!said_at_once(None));
}

#[test]
fn a_leader_that_settles_at_once_counts_only_nodes_that_it_has_heard() {
    assert!(said_at_once(Some(Mutant::SettleAtOnce)));
}

fn leaves(world: &mut World, n: u8) {
    world.leaves.insert(n, Leave { number: 0, stage: LeaveStage::Asks, returns: false });
    world.renew(n);
}

#[test]
fn a_chain_is_short_while_a_living_node_may_join() {
    let mut world = three();
    world.coordinator.suspicions.outside_mut().add_until(id(3).node, world.now + Duration::from_secs(30));
    world.pass(2_000, &[0, 1, 3]);
    let short = Err(Unsettled::Short { chain: ChainId(0), member: id(3) });
    assert_eq!(world.said(1).settled, short, "node 2 is gone, and node 3 is in quarantine");
    world.pass(2_000, &[0, 1]);
    keep(&mut world, &[0]);
    assert_eq!(world.said(1).settled, Ok(()), "node 3 is gone too");
}

#[test]
fn a_leaving_node_unsettles() {
    let mut world = three();
    leaves(&mut world, 2);
    assert_eq!(world.said(1).settled, Err(Unsettled::Leaves { member: id(2) }));
}

#[test]
fn a_joiner_unsettles() {
    let mut world = three();
    world.pass(2_000, &[0, 1, 3]);
    assert_eq!(world.said(1).settled, Err(Unsettled::Joins { chain: ChainId(0), member: id(3) }));
}

/// One member and a spare; the member should stop.
fn last_leaves(mutant: Option<Mutant>) -> World {
    let mut world = World::new(1, 1).without(mutant);
    world.pass(3_000, &[0, 1]);
    assert_eq!(world.config().syncing(), None);
    leaves(&mut world, 0);
    world.pass(500, &[0, 1]);
    world
}

#[test]
fn a_last_member_that_leaves_hands_its_chain_over() {
    let mut world = last_leaves(None);
    assert_eq!(world.config().syncing(), Some(id(1)));
    assert_eq!(world.said(0).farewell, Some(Farewell::HandsOver));
    assert_eq!(world.said(0).leave, None, "it keeps serving");
    let wish = Promotion { chain: ChainId(0), epoch: world.config().epoch, member: id(1) };
    world.wish(0, wish);
    world.pass(500, &[0, 1]);
    keep(&mut world, &[1]);
    let said = world.said(0);
    assert_eq!(said.farewell, Some(Farewell::GoesOn));
    assert_eq!(said.leave, Some(Leave { number: 0, stage: LeaveStage::Resigned, returns: false }));
}

#[test]
fn a_last_member_that_gets_no_joiner_can_not_leave() {
    let mut world = last_leaves(Some(Mutant::KeepLast));
    world.pass(5_000, &[0, 1]);
    assert_eq!(world.config().syncing(), None);
    assert_eq!(world.said(0).leave, None);
}

#[test]
fn a_last_member_ends_its_chain_when_no_node_stays() {
    let mut world = last_leaves(None);
    leaves(&mut world, 1);
    assert_eq!(world.said(0).farewell, Some(Farewell::Ends), "the joiner leaves too");
    let mut alone = World::new(1, 1);
    alone.pass(3_000, &[0]);
    leaves(&mut alone, 0);
    assert_eq!(alone.said(0).farewell, Some(Farewell::Ends));
}

#[test]
fn a_last_member_waits_for_a_node_that_is_gone_and_has_not_left() {
    let mut world = World::new(1, 1);
    world.pass(3_000, &[0, 1]);
    world.pass(3_000, &[0]);
    leaves(&mut world, 0);
    assert_eq!(world.said(0).farewell, Some(Farewell::HandsOver));
}

#[test]
fn a_new_leader_ends_no_chain() {
    let mut world = World::new(1, 1);
    world.pass(3_000, &[0]);
    world.term = 2;
    keep(&mut world, &[0]);
    leaves(&mut world, 0);
    assert_eq!(world.said(0).farewell, Some(Farewell::HandsOver), "the leader may not know a spare yet");
}

#[test]
fn a_node_that_stays_hears_no_farewell() {
    assert_eq!(three().said(1).farewell, None);
}

#[test]
fn the_last_voter_hands_the_log_over() {
    let mut world = World::new(2, 2);
    world.pass(3_000, &[0, 1]);
    world.pass(300, &[0]);
    leaves(&mut world, 0);
    assert_eq!(world.said(0).farewell, Some(Farewell::HandsOver), "node 1 hasn't shown an answer since");
}

#[test]
fn a_last_member_waits_for_a_member_that_this_leader_has_never_heard() {
    let mut world = three();
    world.term = 2;
    keep(&mut world, &[0, 1, 2]);
    leaves(&mut world, 0);
    leaves(&mut world, 1);
    world.pass(600, &[0, 1]);
    assert_eq!(world.said(0).farewell, Some(Farewell::HandsOver), "node 2 is a member");
}

#[test]
fn the_only_voter_is_not_released_while_a_member_may_come_back() {
    let mut world = World::new(2, 1);
    assert!(world.spare() == 0 || world.serving() == [id(0)]);
    world.pass(3_000, &[0, 1]);
    world.pass(5_000, &[0]);
    leaves(&mut world, 0);
    let told = world.said(0);
    assert_eq!((told.released, told.farewell), (false, Some(Farewell::HandsOver)));
}

/// A chain of one member that isn't the leader, node 0; node 0 is the only voter. All nodes leave.
fn all_leave() -> (World, u8) {
    let mut worlds = (2..8).map(|founders| World::new(founders, 1));
    let mut world = worlds.find(|world| world.serving() != [id(0)]).expect("such a chain");
    let all = world.all();
    world.coordinator.cluster.settings_mut().max_voters = 1;
    keep(&mut world, &[0]);
    world.pass(3_000, &all);
    let last = world.head();
    all.iter().filter(|&&n| n > 0).for_each(|&n| leaves(&mut world, n));
    world.now = world.now + Duration::from_millis(10);
    leaves(&mut world, 0);
    (world, last)
}

#[test]
fn the_log_is_kept_for_a_member_that_leaves_too() {
    let (mut world, last) = all_leave();
    assert!(!world.said(0).released, "the last member has yet to learn that it may end");
    assert_eq!(world.said(last).farewell, Some(Farewell::Ends));
    world.pass(1_000, &[0]);
    assert!(world.said(0).released);
}

#[test]
fn a_member_told_to_end_does_not_become_a_voter() {
    let (mut world, last) = all_leave();
    // The member has shown that it is alive, and another change of voters fails.
    let leading = world.coordinator.leading.as_mut().unwrap();
    leading.voters.add(BTreeSet::new());
    leading.nodes.get_mut(id(last)).unwrap().proven = world.now;
    world.now = world.now + Duration::from_millis(10);
    assert_eq!(world.said(last).farewell, Some(Farewell::Ends));
    world.handle(CoordinatorInput::VotersSet);
    world.pass(4_000, &[0]);
    assert_eq!(world.new_voters, None, "the member is gone, and the change would never be confirmed");
}

#[test]
fn a_drained_member_told_to_end_may_become_a_voter() {
    let (mut world, last) = all_leave();
    assert_eq!(world.said(last).farewell, Some(Farewell::Ends));
    world.new_voters = None;
    world.pass(600, &[0, last]);
    assert_eq!(world.new_voters, Some([id(last)].into()), "it was only drained");
}

#[test]
fn a_member_that_may_be_a_new_voter_is_not_told_to_end() {
    let (mut world, last) = all_leave();
    world.pass(1_000, &[0, last]);
    let leading = world.coordinator.leading.as_mut().unwrap();
    leading.voters.add([id(last)].into());
    let told = world.said(last);
    assert_eq!((told.farewell, told.released), (None, false), "it doesn't know yet that it is a voter, and would end");
    world.voters = [id(last)].into();
    world.log();
    world.handle(CoordinatorInput::VotersSet);
    assert_eq!(world.said(last).farewell, None);
    world.now = world.now + CoordinatorSettings::default().tick;
    assert_eq!(world.said(last).farewell, Some(Farewell::Ends));
}

#[test]
fn a_leader_that_ends_with_its_chain_keeps_the_log() {
    let mut world = World::new(4, 3);
    let spare = world.spare();
    assert_ne!(spare, 0);
    let others: Vec<u8> = (1..4).filter(|&n| n != spare).collect();
    keep(&mut world, &[0, spare, others[0]]);
    world.pass(1_000, &[0, 1, 2, 3]);
    leaves(&mut world, spare);
    world.pass(1_000, &[0, 1, 2, 3]);
    world.put_off = Some(vec![]);
    others.iter().for_each(|&n| leaves(&mut world, n));
    leaves(&mut world, 0);
    assert_eq!(world.said(0).farewell, Some(Farewell::Ends));
    world.new_voters = None;
    world.handle(CoordinatorInput::VotersSet);
    world.now = world.now + CoordinatorSettings::default().tick;
    world.handle(CoordinatorInput::Tick);
    assert_eq!(world.new_voters, None, "the others have yet to learn that they may end");
}

/// The leader alone serves the chain, and is drained. The two other voters are asked to stop, and end later.
#[test]
fn a_drained_leader_becomes_the_only_voter() {
    let mut world = World::new(1, 1);
    world.coordinator.cluster.settings_mut().max_voters = 3;
    world.pass(1_000, &[0, 1, 2]);
    keep(&mut world, &[0, 1, 2]);
    world.pass(3_000, &[0, 1, 2]);
    for n in [0, 2, 1] {
        world.now = world.now + Duration::from_millis(10);
        leaves(&mut world, n);
    }
    assert_eq!(world.said(0).farewell, Some(Farewell::Ends), "a drained node ignores the farewell");
    world.new_voters = None;
    world.pass(2_800, &[0, 1, 2]);
    assert_eq!(world.new_voters, Some([id(0)].into()));
}

/// A chain of two without the leader, node 0.
fn served_by_others() -> (World, Vec<u8>) {
    let worlds = (3..8).map(|founders| World::new(founders, 2));
    let mut world = worlds.into_iter().find(|world| !world.serving().contains(&id(0))).expect("such a chain");
    let all = world.all();
    keep(&mut world, &[0]);
    world.pass(3_000, &all);
    (world, all)
}

#[test]
fn a_new_leader_says_of_no_chain_that_it_goes_on() {
    let (mut world, all) = served_by_others();
    let leaver = world.head();
    world.term = 2;
    keep(&mut world, &[0]);
    leaves(&mut world, leaver);
    assert_eq!(world.said(leaver).farewell, None, "no other member has renewed in this term");
    world.pass(500, &all);
    assert_eq!(world.said(leaver).farewell, Some(Farewell::GoesOn));
}

#[test]
fn a_chain_goes_on_by_a_member_that_has_answered_since() {
    let (mut world, all) = served_by_others();
    let (leaver, other) = (world.head(), world.tail());
    let rest: Vec<u8> = all.into_iter().filter(|&n| n != other).collect();
    world.pass(200, &rest);
    leaves(&mut world, leaver);
    let told = world.said(leaver);
    assert_eq!((told.leave, told.farewell), (None, None), "the other one was killed shortly before");
}
