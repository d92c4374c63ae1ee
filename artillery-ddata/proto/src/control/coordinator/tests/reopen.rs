//! The choice of stores that reopen a chain none of whose members survived.

use super::*;
use crate::{Sequence, Version, control::message::StoreHolding};

/// The next incarnation of node `n`'s store.
fn again(n: u8) -> NodeInfo {
    let mut founder = founder(n);
    founder.id.incarnation.starts = 2;
    founder
}

fn holding(sequence: u64) -> StoreHolding {
    let last = Version { epoch: Epoch(1), sequence: Sequence(sequence) };
    StoreHolding { chain: ChainId(0), whole: true, last, watermark: Sequence(3), synced: true }
}

/// A chain of nodes 1, 2 and 3, which have all ended; node 0 leads, and holds nothing.
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

/// These stores are back, and renew for `millis`.
fn back(world: &mut World, stores: &[(u8, StoreHolding)], millis: u64) {
    for _ in 0..millis / 250 {
        world.pass(250, &[0]);
        for &(n, held) in stores {
            let renewal = Renewal { me: again(n), holds: vec![held], answered: 0, ..world.renewal(n) };
            world.handle(CoordinatorInput::Renewal { from: again(n).id, renewal });
        }
    }
}

/// The returned nodes that serve the reopened chain.
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
    assert_eq!(reopened(&world), [0u8; 0], "the others may still return");
    back(&mut world, &[(3, holding(7))], 2000);
    assert_eq!(reopened(&world), [3]);
}

#[test]
fn the_wait_for_other_stores_begins_when_one_is_loaded() {
    let mut world = all_ended(None);
    for _ in 0..16 {
        world.pass(250, &[0]);
        let renewal = Renewal { me: again(3), loads: true, answered: 0, ..world.renewal(3) };
        world.handle(CoordinatorInput::Renewal { from: again(3).id, renewal });
    }
    assert!(world.configs.node(again(3).id).is_some(), "it is treated as alive");
    assert_eq!(world.config().syncing(), None, "it can't join yet");
    back(&mut world, &[(3, holding(7))], 1500);
    assert_eq!(reopened(&world), [0u8; 0], "the others may still return");
    back(&mut world, &[(3, holding(7))], 1000);
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
    assert_eq!(reopened(&world), [0u8; 0], "the returned nodes join behind it");
}

fn torn() -> StoreHolding {
    StoreHolding { whole: false, ..holding(9) }
}

fn weak(sequence: u64) -> StoreHolding {
    StoreHolding { synced: false, ..holding(sequence) }
}

/// A store that ends below a watermark that another one knows.
fn behind() -> StoreHolding {
    StoreHolding { watermark: Sequence(1), ..holding(2) }
}

#[test]
fn stores_that_may_lack_something_wait() {
    assert_eq!(after(None, &[(1, torn())]), []);
    assert_eq!(after(None, &[(1, weak(9))]), []);
    assert_eq!(after(None, &[(1, torn()), (2, holding(9))]), [2]);
    assert_eq!(after(None, &[(1, behind()), (2, holding(9))]), [2]);
    assert_eq!(after(None, &[(1, weak(20)), (2, holding(9))]), [2], "a store that synced each batch has everything");
    assert_eq!(after(None, &[(1, weak(5)), (2, weak(9)), (3, weak(7))]), [2], "the longest of all, alone");
    assert_eq!(after(None, &[(1, weak(5)), (2, weak(9)), (3, torn())]), []);
    let shorter = StoreHolding { last: holding(4).last, ..torn() };
    assert_eq!(after(None, &[(1, weak(5)), (2, weak(9)), (3, shorter)]), [], "it may have lost the newest commits");
}

/// The members may be alive, and only this leader receives nothing from them.
#[test]
fn a_leader_that_no_quorum_confirms_opens_no_chain() {
    let unconfirmed = || World { confirms: false, ..all_ended(None) };
    let mut world = unconfirmed();
    back(&mut world, &[(2, holding(9))], 6000);
    assert_eq!(reopened(&world), [0u8; 0]);
    let (result, serving) = accept(&mut unconfirmed(), &[], 8000);
    assert_eq!((result, serving), (Some(Err(NotReopened::Unconfirmed)), vec![1, 2, 3]));
}

#[test]
fn a_store_that_ends_below_a_watermark_reported_in_this_term_waits() {
    let mut world = all_ended(None);
    let report = super::gray::report(&world, 8);
    world.report(1, report);
    back(&mut world, &[(1, holding(7)), (2, holding(7))], 6000);
    assert_eq!(reopened(&world), [0u8; 0]);
    back(&mut world, &[(3, holding(8))], 6000);
    assert_eq!(reopened(&world), [3]);
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

/// An operator accepts the loss, and these stores are back for `millis`. Returns the leader's answer, and the nodes
/// that serve then.
fn accept(
    world: &mut World,
    stores: &[(u8, StoreHolding)],
    millis: u64,
) -> (Option<Result<Reopened, NotReopened>>, Vec<u8>) {
    world.handle(CoordinatorInput::AcceptLoss { token: 7, chain: ChainId(0) });
    back(world, stores, millis);
    (world.reopened.pop().map(|(_, result)| result), world.serving().into_iter().map(number).collect())
}

/// The outcome of an order when only these stores are back.
fn accepted(mutant: Option<Mutant>, stores: &[(u8, StoreHolding)]) -> (Result<Reopened, NotReopened>, Vec<u8>) {
    let (result, serving) = accept(&mut all_ended(mutant), stores, 8000);
    (result.expect("an answer"), serving)
}

#[test]
fn a_chain_without_stores_begins_empty_on_an_order() {
    let mut world = all_ended(None);
    back(&mut world, &[], 10_000);
    assert_eq!(world.serving(), [id(1), id(2), id(3)], "without an order it waits");
    let (result, serving) = accept(&mut world, &[], 250);
    let reopened = result.unwrap().unwrap();
    assert_eq!(
        (reopened.by, reopened.last, reopened.epoch, serving),
        (id(0), Version::NONE, world.config().epoch, vec![0])
    );
    assert_eq!(world.configs.loss(ChainId(0)).map(|loss| loss.epoch), Some(reopened.epoch));
    assert!(world.why.contains(&Why::AcceptedLoss));
}

#[test]
fn of_stores_that_may_lack_something_the_longest_whole_one_opens_on_an_order() {
    let (result, serving) = accepted(None, &[(1, weak(5)), (2, weak(8))]);
    assert_eq!((result.unwrap().last, serving), (weak(8).last, vec![2]));
    let (result, serving) = accepted(None, &[(1, torn()), (2, weak(4))]);
    let reopened = result.unwrap();
    assert_eq!((reopened.last, reopened.known, serving), (weak(4).last, Sequence(3), vec![2]));
    let (result, serving) = accepted(None, &[(1, torn())]);
    assert_eq!((result.unwrap().last, serving), (Version::NONE, vec![0]), "a torn store isn't used");
}

#[test]
fn a_former_member_opens_the_chain_with_its_old_copy_on_an_order() {
    let mut world = all_ended(None);
    let old = StoreHolding { synced: false, ..holding(6) };
    world.handle(CoordinatorInput::AcceptLoss { token: 7, chain: ChainId(0) });
    for _ in 0..40 {
        world.now = world.now + Duration::from_millis(200);
        let renewal = Renewal { holds: vec![old], ..world.renewal(0) };
        world.handle(CoordinatorInput::Renewal { from: id(0), renewal });
        let renewal = Renewal { me: again(1), holds: vec![torn()], answered: 0, ..world.renewal(1) };
        world.handle(CoordinatorInput::Renewal { from: again(1).id, renewal });
        world.handle(CoordinatorInput::Tick);
    }
    let (_, result) = world.reopened.pop().unwrap();
    assert_eq!(result.map(|reopened| (reopened.by, reopened.last)), Ok((id(0), old.last)));
}

#[test]
fn an_order_waits_for_the_copy_of_a_former_member_that_loads() {
    let mut world = all_ended(None);
    world.handle(CoordinatorInput::AcceptLoss { token: 7, chain: ChainId(0) });
    for _ in 0..60 {
        world.pass(250, &[]);
        let renewal = Renewal { loads: true, ..world.renewal(0) };
        world.handle(CoordinatorInput::Renewal { from: id(0), renewal });
        world.handle(CoordinatorInput::Tick);
    }
    assert_eq!(world.reopened.pop(), Some((7, Err(NotReopened::Comes { member: id(0) }))));
}

#[test]
fn an_order_is_refused_while_nothing_is_lost() {
    assert_eq!(accepted(None, &[(3, holding(7))]), (Err(NotReopened::Whole { member: again(3).id }), vec![3]));
    let together = [(1, weak(5)), (2, weak(9)), (3, weak(7))];
    assert_eq!(accepted(None, &together), (Err(NotReopened::Whole { member: again(2).id }), vec![2]));
    let mut world = World::running(4, 3);
    let (result, _) = accept(&mut world, &[], 250);
    assert!(matches!(result, Some(Err(NotReopened::Lives { .. }))), "{result:?}");
    world.handle(CoordinatorInput::AcceptLoss { token: 8, chain: ChainId(9) });
    assert_eq!(world.reopened.pop(), Some((8, Err(NotReopened::NoChain { chain: ChainId(9) }))));
}

#[test]
fn an_order_waits_until_all_nodes_have_told_what_they_hold() {
    let mut world = all_ended(None);
    // A store that may be complete returns while the order is in progress.
    assert_eq!(accept(&mut world, &[], 2000), (None, vec![1, 2, 3]));
    world.handle(CoordinatorInput::AcceptLoss { token: 8, chain: ChainId(0) });
    assert_eq!(world.reopened.pop(), Some((8, Err(NotReopened::Busy))));
    back(&mut world, &[(2, holding(9))], 4000);
    assert_eq!(world.reopened.pop(), Some((7, Err(NotReopened::Whole { member: again(2).id }))));
    assert_eq!(reopened(&world), [2]);
}

#[test]
fn members_that_were_heard_a_moment_ago_are_not_lost() {
    let mut world = all_ended(None);
    for _ in 0..16 {
        world.pass(250, &[0, 1, 2, 3]);
    }
    back(&mut world, &[], 750);
    let (result, serving) = accept(&mut world, &[], 1500);
    assert_eq!((result, serving), (None, vec![1, 2, 3]), "the members may only be cut off");
    back(&mut world, &[], 1500);
    assert!(matches!(world.reopened.pop(), Some((7, Ok(_)))));
}

#[test]
fn an_order_ends_with_its_term() {
    let mut world = all_ended(None);
    accept(&mut world, &[], 500);
    world.elect(0);
    assert_eq!(world.reopened.pop(), Some((7, Err(NotReopened::NotLeading { leader: None }))));
    world.handle(CoordinatorInput::AcceptLoss { token: 8, chain: ChainId(0) });
    assert_eq!(world.reopened.pop(), Some((8, Err(NotReopened::NotLeading { leader: None }))));
}

/// The outcome of an order when the only returned store may be complete, but its node has stopped serving the chain.
fn halted(mutant: Option<Mutant>) -> Result<Reopened, NotReopened> {
    let mut world = all_ended(mutant);
    world.handle(CoordinatorInput::AcceptLoss { token: 7, chain: ChainId(0) });
    for _ in 0..40 {
        world.pass(250, &[0]);
        let reports = vec![Report { halted: true, open: false, ..super::gray::report(&world, 0) }];
        let renewal = Renewal { me: again(3), holds: vec![holding(7)], reports, answered: 0, ..world.renewal(3) };
        world.handle(CoordinatorInput::Renewal { from: again(3).id, renewal });
    }
    world.reopened.pop().expect("an answer").1
}

#[test]
fn an_order_is_refused_while_a_store_has_only_stopped_serving() {
    assert_eq!(halted(None), Err(NotReopened::Comes { member: again(3).id }));
}

#[test]
fn an_order_that_takes_any_store_for_lost_loses_a_whole_one() {
    assert_eq!(halted(Some(Mutant::LoseWhole)).map(|reopened| reopened.last), Ok(Version::NONE));
}

#[test]
fn after_an_accepted_loss_what_was_known_before_does_not_count() {
    let mut world = all_ended(None);
    let old = StoreHolding { watermark: Sequence(90), ..weak(4) };
    let (result, serving) = accept(&mut world, &[(1, old)], 8000);
    assert_eq!((result.unwrap().unwrap().known, serving), (Sequence(90), vec![1]));
    world.pass(1000, &[0]);
    let config = world.config().clone();
    let third = NodeInfo {
        id: MemberId { incarnation: Incarnation { starts: 3, ..again(1).id.incarnation }, ..again(1).id },
        ..again(1)
    };
    let last = Version { epoch: config.epoch, sequence: Sequence(6) };
    for _ in 0..40 {
        world.pass(250, &[0]);
        let held = StoreHolding { last, watermark: Sequence(5), ..holding(6) };
        let renewal = Renewal { me: third.clone(), holds: vec![held], answered: 0, ..world.renewal(1) };
        world.handle(CoordinatorInput::Renewal { from: third.id, renewal });
    }
    assert_eq!(world.serving(), [third.id], "it may have every update that was committed since");
}
