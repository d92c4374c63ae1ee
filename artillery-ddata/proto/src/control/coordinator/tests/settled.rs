//! When a leader says that nothing is about to change.

use super::*;

fn keep(world: &mut World, voters: &[u8]) {
    world.voters = voters.iter().copied().map(id).collect();
    world.handle(Input::VotersSet);
    world.log();
}

fn is_told(world: &mut World, n: u8) -> bool {
    let renewal = world.renewal(n);
    world.handle(Input::Renewal { from: id(n), renewal }).last().unwrap().settled.is_ok()
}

/// Three members, who also keep the log.
fn three() -> World {
    let mut world = World::new(3, 3);
    keep(&mut world, &[0, 1, 2]);
    world.pass(1_000, &[0, 1, 2]);
    world
}

#[test]
fn all_are_there_and_nothing_is_to_do() {
    let mut world = three();
    assert!(is_told(&mut world, 1));
}

#[test]
fn somebody_is_missing_until_he_is_replaced() {
    let mut world = three();
    world.pass(600, &[0, 1]);
    assert!(!is_told(&mut world, 1), "node 2 is gone");
    world.pass(2_000, &[0, 1]);
    assert_eq!(world.serving().len(), 2);
    assert!(is_told(&mut world, 1), "nobody else is there, and two of the three that keep the log live");
    world.pass(600, &[0]);
    assert!(!is_told(&mut world, 0), "node 1 is gone, and with it the quorum");
}

#[test]
fn whoever_has_just_come_is_about_to_change_something() {
    let mut world = three();
    world.put_off = Some(vec![]);
    assert!(!is_told(&mut world, 3), "it isn't known yet");
    assert!(!is_told(&mut world, 1), "that is being decided");
    for (term, at, change) in world.put_off.take().unwrap() {
        world.append(term, at, change);
    }
    keep(&mut world, &[0, 1, 2]);
    assert!(is_told(&mut world, 3));
}

#[test]
fn whoever_has_yet_to_show_whether_it_hears_may_be_about_to_join() {
    let mut world = three();
    world.pass(2_600, &[0, 1]);
    assert_eq!(world.serving().len(), 2);
    // Another leader has heard nobody yet.
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
fn another_life_of_a_member_waits_for_its_place() {
    let mut world = three();
    let mut other = founder(2);
    other.id.incarnation = Incarnation { store: 2, starts: 1 };
    let told = |world: &mut World| {
        let renewal = Renewal { me: other.clone(), ..world.renewal(2) };
        world.handle(Input::Renewal { from: other.id, renewal }).last().unwrap().settled.is_ok()
    };
    assert!(!told(&mut world), "its former life was heard of a moment ago");
    world.pass(700, &[0, 1]);
    assert!(!told(&mut world), "its former life has a place still");
}

/// What another leader says at once, when one member is silent of which it has never heard.
fn said_at_once(mutant: Option<Mutant>) -> bool {
    let mut world = three();
    world.coordinator.settings.guards = mutant.into();
    world.term = 2;
    keep(&mut world, &[0, 1]);
    (0..3).for_each(|_| {
        world.renew(0);
        world.renew(1);
    });
    is_told(&mut world, 1)
}

#[test]
fn a_leader_that_has_just_begun_has_not_heard_of_all() {
    assert!(!said_at_once(None));
}

#[test]
fn a_leader_that_settles_at_once_counts_only_nodes_that_it_has_heard() {
    assert!(said_at_once(Some(Mutant::SettleAtOnce)));
}

/// What the leader says to a node, of the moment.
fn said(world: &mut World, n: u8) -> Renewed {
    let renewal = world.renewal(n);
    world.handle(Input::Renewal { from: id(n), renewal }).pop().unwrap()
}

fn leaves(world: &mut World, n: u8) {
    world.leaves.insert(n, Leave { number: 0, stage: Stage::Asks });
    world.renew(n);
}

#[test]
fn a_chain_is_short_as_long_as_a_node_that_lives_may_become_a_member() {
    let mut world = three();
    let away = slow::Outside::for_a_test(world.now + Duration::from_secs(30));
    world.coordinator.outside.insert(id(3).node, away);
    world.pass(2_000, &[0, 1, 3]);
    let short = Err(Unsettled::Short { chain: ChainId(0), member: id(3) });
    assert_eq!(said(&mut world, 1).settled, short, "node 2 is gone, and node 3 is kept away");
    world.pass(2_000, &[0, 1]);
    keep(&mut world, &[0]);
    assert_eq!(said(&mut world, 1).settled, Ok(()), "node 3 is gone too");
}

#[test]
fn a_node_that_leaves_has_yet_to_go() {
    let mut world = three();
    leaves(&mut world, 2);
    assert_eq!(said(&mut world, 1).settled, Err(Unsettled::Leaves { member: id(2) }));
}

#[test]
fn a_joiner_has_yet_to_serve() {
    let mut world = three();
    world.pass(2_000, &[0, 1, 3]);
    assert_eq!(said(&mut world, 1).settled, Err(Unsettled::Joins { chain: ChainId(0), member: id(3) }));
}

/// One member, and a spare beside it; the member is to stop.
fn last_leaves(mutant: Option<Mutant>) -> World {
    let mut world = World::new(1, 1);
    world.coordinator.settings.guards = mutant.into();
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
    assert_eq!(said(&mut world, 0).farewell, Some(Farewell::HandsOver));
    assert_eq!(said(&mut world, 0).leave, None, "it goes on serving");
    let wish = Promotion { chain: ChainId(0), epoch: world.config().epoch, member: id(1) };
    let renewal = Renewal { promotions: vec![wish], ..world.renewal(0) };
    world.renew_with(0, renewal);
    world.pass(500, &[0, 1]);
    keep(&mut world, &[1]);
    let said = said(&mut world, 0);
    assert_eq!(said.farewell, Some(Farewell::GoesOn));
    assert_eq!(said.leave, Some(Leave { number: 0, stage: Stage::Resigned }));
}

#[test]
fn a_last_member_that_gets_no_joiner_can_not_leave() {
    let mut world = last_leaves(Some(Mutant::KeepLast));
    world.pass(5_000, &[0, 1]);
    assert_eq!(world.config().syncing(), None);
    assert_eq!(said(&mut world, 0).leave, None);
}

#[test]
fn a_last_member_ends_its_chain_when_nobody_stays() {
    let mut world = last_leaves(None);
    leaves(&mut world, 1);
    assert_eq!(said(&mut world, 0).farewell, Some(Farewell::Ends), "the joiner leaves too");
    let mut alone = World::new(1, 1);
    alone.pass(3_000, &[0]);
    leaves(&mut alone, 0);
    assert_eq!(said(&mut alone, 0).farewell, Some(Farewell::Ends));
}

#[test]
fn a_last_member_waits_for_a_node_that_is_gone_and_has_not_left() {
    let mut world = World::new(1, 1);
    world.pass(3_000, &[0, 1]);
    world.pass(3_000, &[0]);
    leaves(&mut world, 0);
    assert_eq!(said(&mut world, 0).farewell, Some(Farewell::HandsOver));
}

#[test]
fn a_leader_that_has_just_begun_ends_no_chain() {
    let mut world = World::new(1, 1);
    world.pass(3_000, &[0]);
    world.term = 2;
    keep(&mut world, &[0]);
    leaves(&mut world, 0);
    assert_eq!(said(&mut world, 0).farewell, Some(Farewell::HandsOver), "it may not have heard of a spare");
}

#[test]
fn a_node_that_stays_hears_no_farewell() {
    assert_eq!(said(&mut three(), 1).farewell, None);
}

#[test]
fn the_last_node_that_keeps_the_log_hands_it_over() {
    let mut world = World::new(2, 2);
    world.pass(3_000, &[0, 1]);
    world.pass(300, &[0]);
    leaves(&mut world, 0);
    assert_eq!(said(&mut world, 0).farewell, Some(Farewell::HandsOver), "node 1 hasn't shown an answer since");
}

#[test]
fn a_last_member_waits_for_a_member_that_this_leader_has_never_heard() {
    let mut world = three();
    world.term = 2;
    keep(&mut world, &[0, 1, 2]);
    leaves(&mut world, 0);
    leaves(&mut world, 1);
    world.pass(600, &[0, 1]);
    assert_eq!(said(&mut world, 0).farewell, Some(Farewell::HandsOver), "node 2 is a member");
}

#[test]
fn a_spare_that_alone_keeps_the_log_is_not_released_while_a_member_may_come_back() {
    let mut world = World::new(2, 1);
    let spare = (0..2).find(|&n| !world.serving().contains(&id(n))).unwrap();
    assert!(spare == 0 || world.serving() == [id(0)]);
    world.pass(3_000, &[0, 1]);
    world.pass(5_000, &[0]);
    leaves(&mut world, 0);
    let told = said(&mut world, 0);
    assert_eq!((told.released, told.farewell), (false, Some(Farewell::HandsOver)));
}

/// A chain of one that the leader, node 0, doesn't serve; node 0 alone keeps the log. Both leave, and the other one too.
fn all_leave() -> (World, u8) {
    let mut worlds = (2..8).map(|founders| World::new(founders, 1));
    let mut world = worlds.find(|world| world.serving() != [id(0)]).expect("such a chain");
    let all: Vec<u8> = (0..world.nodes).collect();
    world.coordinator.settings.max_voters = 1;
    keep(&mut world, &[0]);
    world.pass(3_000, &all);
    let last = world.serving()[0].node.as_bytes()[0];
    all.iter().filter(|&&n| n > 0).for_each(|&n| leaves(&mut world, n));
    world.now = world.now + Duration::from_millis(10);
    leaves(&mut world, 0);
    (world, last)
}

#[test]
fn the_log_is_kept_for_a_member_that_leaves_too() {
    let (mut world, last) = all_leave();
    assert!(!said(&mut world, 0).released, "who would say to the last member that it may end?");
    assert_eq!(said(&mut world, last).farewell, Some(Farewell::Ends));
    world.pass(1_000, &[0]);
    assert!(said(&mut world, 0).released);
}

#[test]
fn a_member_that_was_told_to_end_does_not_come_to_keep_the_log() {
    let (mut world, last) = all_leave();
    // It has shown that it lives, and another change of voters comes to nothing.
    let leading = world.coordinator.leading.as_mut().unwrap();
    leading.sets_voters = true;
    leading.nodes.get_mut(&id(last)).unwrap().proven = world.now;
    world.now = world.now + Duration::from_millis(10);
    assert_eq!(said(&mut world, last).farewell, Some(Farewell::Ends));
    world.handle(Input::VotersSet);
    world.pass(4_000, &[0]);
    assert_eq!(world.new_voters, None, "it is gone, and the change would never be confirmed");
}

#[test]
fn a_member_that_goes_on_though_it_was_told_to_end_comes_to_keep_the_log() {
    let (mut world, last) = all_leave();
    assert_eq!(said(&mut world, last).farewell, Some(Farewell::Ends));
    world.new_voters = None;
    world.pass(600, &[0, last]);
    assert_eq!(world.new_voters, Some([id(last)].into()), "it was drained only");
}

#[test]
fn a_member_that_may_have_come_to_keep_the_log_is_not_told_to_end() {
    let (mut world, last) = all_leave();
    world.pass(1_000, &[0, last]);
    let leading = world.coordinator.leading.as_mut().unwrap();
    (leading.sets_voters, leading.added) = (true, [id(last)].into());
    let told = said(&mut world, last);
    assert_eq!((told.farewell, told.released), (None, false), "it doesn't know of that yet, and would end at once");
    world.voters = [id(last)].into();
    world.log();
    world.handle(Input::VotersSet);
    assert_eq!(said(&mut world, last).farewell, None);
    world.now = world.now + Settings::default().tick;
    assert_eq!(said(&mut world, last).farewell, Some(Farewell::Ends));
}

#[test]
fn a_leader_that_ends_with_its_chain_keeps_the_log() {
    let mut world = World::new(4, 3);
    let spare = (0..4).find(|&n| !world.serving().contains(&id(n))).unwrap();
    assert_ne!(spare, 0);
    let others: Vec<u8> = (1..4).filter(|&n| n != spare).collect();
    keep(&mut world, &[0, spare, others[0]]);
    world.pass(1_000, &[0, 1, 2, 3]);
    leaves(&mut world, spare);
    world.pass(1_000, &[0, 1, 2, 3]);
    world.put_off = Some(vec![]);
    others.iter().for_each(|&n| leaves(&mut world, n));
    leaves(&mut world, 0);
    assert_eq!(said(&mut world, 0).farewell, Some(Farewell::Ends));
    world.new_voters = None;
    world.handle(Input::VotersSet);
    world.now = world.now + Settings::default().tick;
    world.handle(Input::Tick);
    assert_eq!(world.new_voters, None, "who would say to the others that they may end?");
}

/// The leader alone serves the chain, and is drained; the two others that keep the log are told to stop, and end after a while.
#[test]
fn a_drained_leader_comes_to_keep_the_log_alone() {
    let mut world = World::new(1, 1);
    world.coordinator.settings.max_voters = 3;
    world.pass(1_000, &[0, 1, 2]);
    keep(&mut world, &[0, 1, 2]);
    world.pass(3_000, &[0, 1, 2]);
    for n in [0, 2, 1] {
        world.now = world.now + Duration::from_millis(10);
        leaves(&mut world, n);
    }
    assert_eq!(said(&mut world, 0).farewell, Some(Farewell::Ends), "it doesn't go by that");
    world.new_voters = None;
    world.pass(2_800, &[0, 1, 2]);
    assert_eq!(world.new_voters, Some([id(0)].into()));
}

/// A chain of two that the leader, which is node 0, doesn't serve.
fn served_by_others() -> (World, Vec<u8>) {
    let worlds = (3..8).map(|founders| World::new(founders, 2));
    let mut world = worlds.into_iter().find(|world| !world.serving().contains(&id(0))).expect("such a chain");
    let all: Vec<u8> = (0..world.nodes).collect();
    keep(&mut world, &[0]);
    world.pass(3_000, &all);
    (world, all)
}

#[test]
fn a_leader_that_has_just_begun_says_of_no_chain_that_it_goes_on() {
    let (mut world, all) = served_by_others();
    let leaver = world.serving()[0].node.as_bytes()[0];
    world.term = 2;
    keep(&mut world, &[0]);
    leaves(&mut world, leaver);
    assert_eq!(said(&mut world, leaver).farewell, None, "no other member was heard in this term");
    world.pass(500, &all);
    assert_eq!(said(&mut world, leaver).farewell, Some(Farewell::GoesOn));
}

#[test]
fn a_chain_goes_on_by_a_member_that_has_lived_since() {
    let (mut world, all) = served_by_others();
    let [leaver, other] = [0, 1].map(|at| world.serving()[at].node.as_bytes()[0]);
    let rest: Vec<u8> = all.into_iter().filter(|&n| n != other).collect();
    world.pass(200, &rest);
    leaves(&mut world, leaver);
    let told = said(&mut world, leaver);
    assert_eq!((told.leave, told.farewell), (None, None), "the other one was killed a moment before");
}
