//! Small explorations; the large one is `cargo run --release -p artillery-model`.

use std::time::Duration;

use artillery_model::{
    bounds::Bounds,
    explore::{Explored, explore},
    same::compare,
};
use artillery_proto::guards::{Guards, Mutant};

/// Effectively unlimited: these explorations are small.
const ENDLESS: Duration = Duration::from_secs(3600);

fn passes(bounds: Bounds) {
    let Explored { failure, missing, complete, states, .. } = explore(bounds, 1, false, ENDLESS);
    assert_eq!(failure, None);
    assert!(complete && missing.is_empty(), "{states} states of {bounds}: {missing:?}");
}

#[test]
fn healthy_nodes_pass() {
    passes(Bounds { faults: 0, ..Bounds::default() });
}

#[test]
fn read_during_a_removal_passes() {
    passes(Bounds { writes: 0, ..Bounds::default() });
}

#[test]
fn write_and_read_during_a_loss_pass() {
    passes(Bounds { writes: 1, ticks: 1, changes: 0, ..Bounds::default() });
}

/// A reorder instead of a fault, before or after a write begins.
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
fn write_during_a_reorder_passes() {
    passes(reordered(Guards::ALL));
}

#[test]
fn following_too_soon_is_caught() {
    let bounds = reordered(Guards::without(Mutant::FollowTooSoon));
    explore(bounds, 1, false, ENDLESS).failure.expect("a failing run");
}

#[test]
fn early_removal_is_caught() {
    let bounds =
        Bounds { writes: 1, ticks: 3, coordinator: Guards::without(Mutant::RemoveAtOnce), ..Bounds::default() };
    let (what, _) = explore(bounds, 1, false, ENDLESS).failure.expect("a failing run");
    assert_eq!(what, "what clients saw is linearizable");
    passes(Bounds { ticks: 3, writes: 0, ..Bounds::default() });
}

#[test]
fn worlds_of_equal_fingerprint_are_alike() {
    for bounds in [
        Bounds { writes: 0, ..Bounds::default() },
        Bounds { faults: 0, writes: 2, ..Bounds::default() },
        Bounds { writes: 1, ticks: 2, changes: 0, ..Bounds::default() },
    ] {
        let compared = compare(bounds).unwrap_or_else(|(last, _)| panic!("{bounds}: not equivalent after {last:?}"));
        assert!(compared.again > compared.states / 2, "{compared:?} of {bounds}");
    }
}

/// Bounds with a single fault, which makes a node or the leader undialable.
fn undialable(writes: usize, ticks: u64, coordinator: Guards) -> Bounds {
    Bounds { writes, reads: false, ticks, undialable: true, coordinator, ..Bounds::default() }
}

#[test]
fn one_way_dialling_passes() {
    passes(undialable(0, 12, Guards::ALL));
    passes(undialable(1, 1, Guards::ALL));
}

/// The leader serves nothing here, and no leader removes all members, so only the leader's term shows the effect of the
/// guard.
#[test]
fn trust_in_one_direction_is_caught() {
    let explored = explore(undialable(0, 12, Guards::without(Mutant::TrustOneWay)), 1, false, ENDLESS);
    assert_eq!(explored.missing, ["a leader that no node can dial resigns"]);
}
