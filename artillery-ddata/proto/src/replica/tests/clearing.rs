//! Joiners that clear their store before they accept a snapshot, and the cost of a cut.

use bytes::Bytes;

use super::{
    super::*,
    resync::{comes_in, parts},
    rig::*,
};
use crate::{
    api::*,
    guards::{Guards, Mutant},
    message::SnapshotContent,
    store::{MemoryStore, memory::work},
};

fn key(n: u64) -> Bytes {
    Bytes::from(format!("key/{n:05}"))
}

fn by(clear_keys: usize) -> ReplicaSettings {
    ReplicaSettings { clear_keys, ..ReplicaSettings::default() }
}

fn put(rig: &mut Rig, n: u8, key: Bytes, value: &'static str) {
    rig.write(n, Write::put(key, value.into()));
}

/// A member with 40 keys leaves, and returns when the backlog no longer reaches back to its position. In between, one
/// of its keys was deleted, and every second key was overwritten.
fn returns(settings: &ReplicaSettings) -> Rig {
    let mut rig = Rig::open(&[1, 2, 3], &ReplicaSettings { backlog: 300, ..settings.clone() });
    (0..40).for_each(|n| put(&mut rig, 1, key(n), "old"));
    rig.beat(2);
    rig.enter(&[1, 2], &config(2, &[1, 2]));
    rig.input(3, ReplicaInput::Expelled(Epoch(2)));
    rig.settle();
    rig.write(1, Write::Delete { key: key(7) });
    (0..40).step_by(2).for_each(|n| put(&mut rig, 1, key(n), "new"));
    rig.beat(2);
    rig.enter_all(&joining(3, &[1, 2], 3));
    rig
}

/// Delivers one frame of each link per round, until the joiner begins to clear its store.
fn begin_clearing(rig: &mut Rig) {
    for _ in 0..100 {
        if rig.replicas[&3].joiner.is_clearing() {
            return;
        }
        rig.transmit();
        let links: Vec<_> = rig.wire.keys().copied().collect();
        for (from, to) in links {
            rig.deliver(from, to);
        }
    }
    panic!("no snapshot has begun");
}

fn clear(rig: &mut Rig) -> Vec<usize> {
    let mut held = vec![rig.contents(3).len()];
    while rig.replicas[&3].joiner.is_clearing() {
        rig.replicas.get_mut(&3).unwrap().settle(rig.now);
        held.push(rig.contents(3).len());
    }
    held
}

#[test]
fn a_joiner_clears_its_store_a_few_keys_at_a_time() {
    let mut rig = returns(&by(4));
    begin_clearing(&mut rig);
    assert_eq!(rig.local(3, "key/00001"), Err(NotLocal::NotHere), "the gate closes before the first change");
    assert!(rig.replicas[&3].is_behind() && !rig.replicas[&3].is_between());
    assert_eq!(clear(&mut rig), [36, 32, 28, 24, 20, 16, 12, 8, 4, 0]);
    assert!(!rig.replicas[&3].is_behind());
    comes_in(&mut rig);
    assert_eq!(rig.contents(3).len(), 39, "the deleted key stays deleted");
}

#[test]
fn a_source_waits_until_its_joiner_has_cleared_its_store() {
    let mut rig = returns(&by(1));
    begin_clearing(&mut rig);
    put(&mut rig, 1, key(50), "meanwhile");
    for _ in 0..3 {
        rig.run(1, 2);
        rig.run(3, 2);
        rig.transmit();
        assert_eq!(parts(&rig, 2, 3).len(), 0, "the joiner would not accept any part");
        while rig.deliver(2, 3) {}
    }
    assert!(rig.replicas[&3].joiner.is_clearing());
    clear(&mut rig);
    rig.run(3, 2);
    rig.transmit();
    assert!(matches!(parts(&rig, 2, 3)[0].content, SnapshotContent::Records(_)));
    comes_in(&mut rig);
    assert_eq!(rig.contents(3).len(), 40);
}

#[test]
fn early_parts_are_sent_again() {
    let mut rig = returns(&by(1));
    begin_clearing(&mut rig);
    // On a new connection the source continues from the joiner's position.
    rig.cut_link(2, 3);
    rig.join_link(2, 3);
    rig.run(3, 2);
    rig.transmit();
    assert!(!parts(&rig, 2, 3).is_empty());
    while rig.deliver(2, 3) {}
    assert!(rig.replicas[&3].joiner.is_clearing());
    assert!(rig.contents(3).iter().all(|record| record.held.value == Some("old".into())), "no part was accepted");
    comes_in(&mut rig);
}

#[test]
fn an_epoch_may_end_while_a_joiner_clears_its_store() {
    let mut rig = returns(&by(1));
    begin_clearing(&mut rig);
    rig.enter_all(&joining(4, &[1, 2], 3));
    rig.beat(2);
    comes_in(&mut rig);
}

#[test]
fn early_parts_would_be_cleared_without_the_guard() {
    let whole = |guards| {
        let mut rig = returns(&ReplicaSettings { guards, ..by(1) });
        begin_clearing(&mut rig);
        rig.cut_link(2, 3);
        rig.join_link(2, 3);
        rig.beat(3);
        rig.status(3).halted.is_none() && rig.contents(2) == rig.contents(3)
    };
    assert!(whole(Guards::ALL));
    assert!(!whole(Guards::without(Mutant::TakeWhileClearing)));
}

/// A chain whose head is 2, while 1 holds four more updates of an earlier epoch.
fn ahead(keys: u64) -> Rig {
    let mut rig = Rig::chain_with(&[1, 2], || MemoryStore::with_seed(1));
    (0..keys).for_each(|n| put(&mut rig, 1, key(n), "old"));
    rig.beat(2);
    (0..3).for_each(|n| put(&mut rig, 1, key(n), "never"));
    put(&mut rig, 1, "new".into(), "never");
    rig.lose_frames();
    assert_eq!(rig.contents(1).len() as u64, keys + 1);
    rig.enter_all(&config(2, &[2, 1]));
    rig
}

#[test]
fn the_cost_of_a_cut_is_that_of_the_dropped_updates() {
    let [few, many] = [100, 2_000].map(|keys| {
        let mut rig = ahead(keys);
        let cost = work::of(|| rig.settle());
        rig.become_same(2, 1, 2);
        assert_eq!(rig.contents(1).len() as u64, keys);
        cost
    });
    assert!(many <= 2 * few, "{few} comparisons with 100 keys, {many} with 2,000");
}
