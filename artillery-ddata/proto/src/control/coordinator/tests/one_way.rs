//! Leaders and members that can be reached in one direction only, and nodes that die soon after their start.

use super::*;

fn voting(mut world: World, voters: &[u8]) -> World {
    world.voters = voters.iter().copied().map(id).collect();
    world.log();
    world
}

/// Nodes 1 and 2 answer the log but can't renew with the leader. All three are voters.
fn unreachable(mutant: Option<Mutant>) -> World {
    let mut world = voting(World::running(3, 3).without(mutant), &[0, 1, 2]);
    world.answering = vec![1, 2];
    world.pass(3000, &[0]);
    world
}

#[test]
fn a_leader_that_cannot_be_reached_removes_no_member_and_gives_up() {
    let mut world = unreachable(None);
    assert!(world.resigned);
    assert_eq!(world.serving().len(), 3);
    assert_eq!(world.renew(0), None, "it no longer leads");
    world.pass(3000, &[0]);
    assert!(world.resigned, "it must wait until others have reached it");
    world.renew(1);
    assert!(!world.resigned);
    world.log();
    assert_eq!(world.renew(1), None, "a proposal of this term may still enter the log");
    world.elect(2);
    assert!(world.renew(1).is_some());
}

#[test]
fn without_its_guards_a_leader_that_cannot_be_reached_ends_the_cluster() {
    assert_eq!(unreachable(Some(Mutant::TrustOneWay)).serving(), [id(0)]);
    let world = unreachable(Some(Mutant::LeadUnreached));
    assert!(!world.resigned && world.serving().len() == 3, "no member gets a lease while it leads");
}

#[test]
fn a_leader_that_no_quorum_confirms_gives_nothing_up() {
    let mut world = voting(World::running(3, 3), &[0, 1, 2]);
    world.confirms = false;
    world.pass(5000, &[0]);
    assert!(!world.resigned, "the others may be dead");
    assert_eq!(world.serving().len(), 3);
    world.confirms = true;
    world.pass(100, &[0]);
    world.pass(300, &[0, 1, 2]);
    assert!(!world.resigned, "they are back, but have had no time to renew");
    assert_eq!(world.warnings[..1], [LogWarning::Lost { missing: [id(1), id(2)].into() }]);
}

/// Only the path from node 2 to the leader is broken.
#[test]
fn a_member_that_answers_and_does_not_renew_goes_later_than_a_silent_one() {
    let removed = |answering: &[u8]| {
        let mut world = voting(World::running(3, 3), &[0, 1, 2]);
        world.answering = answering.to_vec();
        world.renew(2);
        let at = world.pass(5000, &[0, 1]);
        assert_eq!(world.serving().len(), 2);
        assert!(!world.resigned);
        at.unwrap()
    };
    assert!((1010..=1100).contains(&removed(&[])));
    assert!((2000..=2100).contains(&removed(&[2])), "it gets no lease, so it must be removed eventually");
}

#[test]
fn a_single_voter_removes_a_member_that_only_answers_later() {
    let mut world = World::running(2, 2);
    world.answering = vec![1];
    world.pass(1500, &[0]);
    assert_eq!(world.serving().len(), 2);
    world.pass(1500, &[0]);
    assert_eq!(world.serving(), [id(0)], "it gets no lease, and no other node could lead");
    assert!(!world.resigned);
}

/// How many milliseconds the node has been renewing when it becomes a voter.
fn votes_after(world: &mut World, n: u8, there: &[u8]) -> Option<u64> {
    (0..15_000).step_by(250).find(|_| {
        world.pass(250, there);
        world.new_voters.as_ref().is_some_and(|voters| voters.contains(&id(n)))
    })
}

#[test]
fn a_node_that_comes_later_votes_once_it_has_lived_for_a_while() {
    let mut world = voting(World::running(3, 3), &[0, 1, 2]);
    world.pass(3000, &[0, 1, 2]);
    world.configs.apply(&entry(&world, founder(3))).unwrap();
    world.configs.apply(&entry(&world, founder(4))).unwrap();
    world.log();
    let after = votes_after(&mut world, 3, &[0, 1, 2, 3, 4]).unwrap();
    assert!((9500..=10_500).contains(&after), "{after}");
}

#[test]
fn the_voters_are_not_more_while_one_is_dead() {
    let mut world = voting(World::running(5, 3), &[0, 1, 2]);
    world.pass(7000, &[0, 1, 2, 3, 4]);
    world.pass(4000, &[0, 1, 3, 4]);
    assert_eq!(world.new_voters.take(), Some([id(0), id(1), id(3)].into()), "one new voter replaces the dead one");
}

#[test]
fn a_node_takes_the_vote_of_its_former_incarnation_at_once() {
    let mut world = voting(World::running(3, 3), &[0, 1, 2]);
    let mut again = founder(2);
    again.id.incarnation.store += 1;
    for _ in 0..16 {
        world.pass(250, &[0, 1]);
        let answered = world.answered.get(&2).copied().unwrap_or(0);
        let renewal = Renewal { me: again.clone(), answered, ..world.renewal(2) };
        world.renewed.insert(again.id, world.now);
        world.handle(CoordinatorInput::Renewal { from: again.id, renewal });
    }
    assert_eq!(world.new_voters, Some([id(0), id(1), again.id].into()));
}

#[test]
fn a_leader_says_when_one_more_loss_ends_the_quorum() {
    let mut world = voting(World::running(3, 3), &[0, 1, 2]);
    world.pass(3000, &[0, 1]);
    assert_eq!(world.warnings, [LogWarning::AtRisk { missing: [id(2)].into() }]);
    world.pass(3000, &[0, 1, 2]);
    assert_eq!(world.warnings.pop(), Some(LogWarning::Safe));
}

fn entry(world: &World, node: NodeInfo) -> LogEntry {
    let change = ConfigChange::Nodes { add: vec![node], remove: vec![] };
    LogEntry { index: world.configs.applied().next(), term: Term(1), change }
}

/// Nodes 1 and 2 voted before node 0 became the only voter, and a new term began.
#[test]
fn a_node_that_has_voted_before_need_not_wait() {
    let mut world = voting(World::running(3, 3), &[0, 1, 2]);
    world = voting(world, &[0]);
    world.elect(2);
    world.pass(2500, &[0, 1, 2]);
    assert_eq!(world.new_voters, Some([id(0), id(1), id(2)].into()));
}
