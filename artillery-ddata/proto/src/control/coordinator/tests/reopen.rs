//! Which stores open a chain again of which no member lives on.

use super::*;
use crate::{Sequence, Version, control::message::StoreHolding};

/// The life in which the store of node `n` is back.
fn again(n: u8) -> NodeInfo {
    let mut founder = founder(n);
    founder.id.incarnation.starts = 2;
    founder
}

fn holding(sequence: u64) -> StoreHolding {
    let last = Version { epoch: Epoch(1), sequence: Sequence(sequence) };
    StoreHolding { chain: ChainId(0), whole: true, last, watermark: Sequence(3), synced: true }
}

/// A chain of nodes 1, 2 and 3 that all have ended; node 0 leads, and holds nothing.
fn all_ended(mutant: Option<Mutant>) -> World {
    let mut world = World::new(4, 3).without(mutant);
    let members = [1, 2, 3].map(|n| ChainMember { id: id(n), role: Role::Serving }).into();
    let config = ChainConfig { members, ..world.config().clone() };
    let change = ConfigChange::Chains(vec![ChainChange { replaces: config.epoch, config }]);
    let entry = LogEntry { index: world.configs.applied().next(), term: Term(1), change };
    world.configs.apply(&entry).unwrap();
    world.log();
    world.pass(1000, &[0, 1, 2, 3]);
    world.elect(2);
    world
}

/// These stores are back, and renew for a while.
fn back(world: &mut World, stores: &[(u8, StoreHolding)], millis: u64) {
    for _ in 0..millis / 250 {
        world.pass(250, &[0]);
        for &(n, held) in stores {
            let renewal = Renewal { me: again(n), holds: vec![held], answered: 0, ..world.renewal(n) };
            world.handle(CoordinatorInput::Renewal { from: again(n).id, renewal });
        }
    }
}

/// The nodes that have opened the chain again.
fn reopened(world: &World) -> Vec<u8> {
    world.serving().into_iter().filter(|member| member.incarnation.starts == 2).map(number).collect()
}

/// The nodes that open the chain when these stores are back for a long time.
fn after(mutant: Option<Mutant>, stores: &[(u8, StoreHolding)]) -> Vec<u8> {
    let mut world = all_ended(mutant);
    back(&mut world, stores, 6000);
    reopened(&world)
}

#[test]
fn stores_that_are_back_open_the_chain_the_longest_first() {
    let mut world = all_ended(None);
    let all = [(1, holding(5)), (2, holding(9)), (3, holding(7))];
    back(&mut world, &all, 750);
    assert_eq!(reopened(&world), [0u8; 0], "an old lease may still run");
    back(&mut world, &all, 1500);
    assert_eq!(reopened(&world), [2, 3, 1]);
    assert!(world.why.contains(&Why::Reopened));
}

#[test]
fn one_store_is_enough_once_the_others_have_had_their_time() {
    let mut world = all_ended(None);
    back(&mut world, &[(3, holding(7))], 1500);
    assert_eq!(reopened(&world), [0u8; 0], "the others may come");
    back(&mut world, &[(3, holding(7))], 2000);
    assert_eq!(reopened(&world), [3]);
}

#[test]
fn no_store_opens_a_chain_of_which_a_member_lives() {
    let mut world = all_ended(None);
    for _ in 0..40 {
        back(&mut world, &[(2, holding(9)), (3, holding(7))], 250);
        world.pass(10, &[1]);
    }
    assert!(world.serving().contains(&id(1)));
    assert_eq!(reopened(&world), [0u8; 0], "they join behind it");
}

fn torn() -> StoreHolding {
    StoreHolding { whole: false, ..holding(9) }
}

fn weak(sequence: u64) -> StoreHolding {
    StoreHolding { synced: false, ..holding(sequence) }
}

/// A store that ends before what another one knows to be committed.
fn behind() -> StoreHolding {
    StoreHolding { watermark: Sequence(1), ..holding(2) }
}

#[test]
fn stores_that_may_lack_something_wait() {
    assert_eq!(after(None, &[(1, torn())]), []);
    assert_eq!(after(None, &[(1, weak(9))]), []);
    assert_eq!(after(None, &[(1, torn()), (2, holding(9))]), [2]);
    assert_eq!(after(None, &[(1, behind()), (2, holding(9))]), [2]);
    assert_eq!(after(None, &[(1, weak(20)), (2, holding(9))]), [2], "one that was synced has everything");
    assert_eq!(after(None, &[(1, weak(5)), (2, weak(9)), (3, weak(7))]), [2], "the longest of all, alone");
    assert_eq!(after(None, &[(1, weak(5)), (2, weak(9)), (3, torn())]), []);
}

#[test]
fn a_torn_store_that_may_open_a_chain_does() {
    assert_eq!(after(Some(Mutant::ReopenTorn), &[(1, torn())]), [1]);
}

#[test]
fn a_weak_store_that_may_open_a_chain_does() {
    assert_eq!(after(Some(Mutant::ReopenWeak), &[(1, weak(9))]), [1]);
}

#[test]
fn a_store_that_ends_too_soon_and_may_open_a_chain_does() {
    assert!(after(Some(Mutant::ReopenBelow), &[(1, behind()), (2, holding(9))]).contains(&1));
}
