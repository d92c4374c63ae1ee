//! Small explorations; the large one is `cargo run --release -p artillery-model`.

use std::time::Duration;

use artillery_model::{
    bounds::Bounds,
    explore::{Explored, explore},
    same::compare,
};
use artillery_proto::guards::{Guards, Mutant};

/// No limit: these are small.
const ENDLESS: Duration = Duration::from_secs(3600);

fn passes(bounds: Bounds) {
    let Explored { failure, missing, complete, states, .. } = explore(bounds, 1, false, ENDLESS);
    assert_eq!(failure, None);
    assert!(complete && missing.is_empty(), "{states} states of {bounds}: {missing:?}");
}

#[test]
fn two_writes_and_a_read_of_healthy_nodes() {
    passes(Bounds { faults: 0, ..Bounds::default() });
}

#[test]
fn a_read_while_one_is_lost_and_removed() {
    passes(Bounds { writes: 0, ..Bounds::default() });
}

#[test]
fn a_write_and_a_read_while_one_is_lost() {
    passes(Bounds { writes: 1, ticks: 1, changes: 0, ..Bounds::default() });
}

/// A reorder in place of the fault, before or after a write was begun.
fn reordered(replica: Guards) -> Bounds {
    Bounds {
        writes: 1,
        reads: false,
        ticks: 0,
        faults: 0,
        reorders: 1,
        coordinator: Guards::without(Mutant::ReorderOpen),
        replica,
        ..Bounds::default()
    }
}

#[test]
fn a_write_and_a_read_while_members_change_places() {
    passes(reordered(Guards::ALL));
}

#[test]
fn following_too_soon_is_found_out() {
    let bounds = reordered(Guards::without(Mutant::FollowTooSoon));
    explore(bounds, 1, false, ENDLESS).failure.expect("a failing run");
}

#[test]
fn whoever_removes_a_member_too_early_is_found_out() {
    let bounds =
        Bounds { writes: 1, ticks: 3, coordinator: Guards::without(Mutant::RemoveAtOnce), ..Bounds::default() };
    let (what, _) = explore(bounds, 1, false, ENDLESS).failure.expect("a failing run");
    assert_eq!(what, "what clients saw is linearizable");
    passes(Bounds { ticks: 3, writes: 0, ..Bounds::default() });
}

#[test]
fn worlds_that_are_taken_for_one_lead_to_the_same() {
    for bounds in [
        Bounds { writes: 0, ..Bounds::default() },
        Bounds { faults: 0, writes: 2, ..Bounds::default() },
        Bounds { writes: 1, ticks: 2, changes: 0, ..Bounds::default() },
    ] {
        let compared = compare(bounds).unwrap_or_else(|(last, _)| panic!("{bounds}: not alike behind {last:?}"));
        assert!(compared.again > compared.states / 2, "{compared:?} of {bounds}");
    }
}
