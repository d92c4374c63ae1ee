//! Who leaves keeps the log no longer, and may end as soon as nobody needs it for that.

use super::*;

/// These keep the log now: who is to, next?
fn keep(world: &mut World, voters: &[u8]) -> Option<Vec<MemberId>> {
    world.voters = voters.iter().copied().map(id).collect();
    world.log();
    world.handle(Input::VotersSet);
    assert_eq!(world.new_voters, None, "the log may not have told yet");
    world.now = world.now + Settings::default().tick;
    world.handle(Input::Tick);
    wanted(world)
}

fn wanted(world: &mut World) -> Option<Vec<MemberId>> {
    world.new_voters.take().map(|voters| voters.into_iter().collect())
}

fn three() -> World {
    let mut world = World::new(3, 3);
    keep(&mut world, &[0, 1, 2]);
    world.pass(1_000, &[0, 1, 2]);
    world
}

/// Node `n` says that it leaves: who is to keep the log then, and whether it may end.
fn leave(world: &mut World, n: u8) -> (Option<Vec<MemberId>>, bool) {
    let renewal = Renewal { leaving: true, ..world.renewal(n) };
    let answers = world.handle(Input::Renewal { from: id(n), renewal });
    (wanted(world), answers.last().is_some_and(|answer| answer.released))
}

fn ids(nodes: &[u8]) -> Option<Vec<MemberId>> {
    Some(nodes.iter().copied().map(id).collect())
}

#[test]
fn who_leaves_is_let_go_when_others_keep_the_log() {
    let mut world = three();
    assert_eq!(leave(&mut world, 2), (ids(&[0, 1]), false));
    assert_eq!(leave(&mut world, 2), (None, false), "that is under way");
    keep(&mut world, &[0, 1]);
    assert_eq!(leave(&mut world, 2), (None, true));
    assert_eq!(
        leave(&mut world, 1),
        (ids(&[0]), false),
        "one that stays is enough, as long as nobody else has to agree"
    );
    keep(&mut world, &[0]);
    assert_eq!(leave(&mut world, 1), (None, true));
}

#[test]
fn two_at_once_leave_one() {
    let mut world = three();
    assert_eq!(leave(&mut world, 1), (ids(&[0, 2]), false));
    assert_eq!(leave(&mut world, 2), (None, false), "one change at a time");
    assert_eq!(keep(&mut world, &[0, 2]), ids(&[0]));
}

#[test]
fn a_leader_stays_until_its_chains_go_on_without_it() {
    let mut world = three();
    world.put_off = Some(vec![]);
    assert_eq!(leave(&mut world, 0), (None, false));
    for (term, at, change) in world.put_off.take().unwrap() {
        world.append(term, at, change);
    }
    assert!(!world.configs.names(id(0)));
    assert_eq!(wanted(&mut world), ids(&[1, 2]));
}

#[test]
fn where_all_leave_nobody_waits() {
    let mut world = three();
    leave(&mut world, 0);
    leave(&mut world, 1);
    assert!(leave(&mut world, 2).1);
}

#[test]
fn the_only_one_that_keeps_the_log_has_an_heir() {
    let mut world = World::new(2, 2);
    world.pass(1_000, &[0, 1]);
    assert_eq!(leave(&mut world, 0), (ids(&[1]), false));
}

#[test]
fn somebody_silent_is_no_reason_to_stay() {
    let mut world = three();
    world.pass(200, &[0, 2]);
    assert_eq!(leave(&mut world, 2).0, ids(&[0, 1]));
}
