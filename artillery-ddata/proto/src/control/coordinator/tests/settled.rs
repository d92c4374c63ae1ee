//! When a leader says that nothing is about to change.

use super::*;

fn keep(world: &mut World, voters: &[u8]) {
    world.voters = voters.iter().copied().map(id).collect();
    world.handle(Input::VotersSet);
    world.log();
}

fn is_told(world: &mut World, n: u8) -> bool {
    let renewal = world.renewal(n);
    world.handle(Input::Renewal { from: id(n), renewal }).last().unwrap().settled
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
    assert!(!is_told(&mut world, 1), "node 2 still keeps the log");
    keep(&mut world, &[0, 1]);
    assert!(is_told(&mut world, 1), "nobody else is there");
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
        world.handle(Input::Renewal { from: other.id, renewal }).last().unwrap().settled
    };
    assert!(!told(&mut world), "its former life was heard of a moment ago");
    world.pass(700, &[0, 1]);
    assert!(!told(&mut world), "its former life has a place still");
}

/// What another leader says at once, when one member is silent of which it has never heard.
fn said_at_once(mutant: Option<Mutant>) -> bool {
    let mut world = three();
    world.coordinator.mutant = mutant;
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
