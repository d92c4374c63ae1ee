//! Snapshots of keys that change during the transfer.

use bytes::Bytes;

use super::{
    super::*,
    resync::{begin, begin_parts, comes_in, filled, parts, small},
    rig::*,
};
use crate::{
    Version,
    api::*,
    message::{SnapshotContent, SnapshotPart},
    types::update::RequestKey,
};

/// The backlog is too short for the updates before the snapshot, but holds all later ones.
fn settings() -> ReplicaSettings {
    ReplicaSettings { backlog: 2000, ..small() }
}

fn write(rig: &mut Rig, write: Write) -> u64 {
    let token = rig.write(1, write);
    rig.settle_without(&[(2, 3)]);
    token
}

fn put(rig: &mut Rig, key: &'static str, value: impl Into<Bytes>) {
    write(rig, Write::put(key.into(), value.into()));
}

fn delete(rig: &mut Rig, key: &'static str) {
    write(rig, Write::Delete { key: key.into() });
}

/// Some parts have arrived. Then keys are overwritten, deleted and added, both before and after the joiner's position.
fn half_way(rig: &mut Rig) {
    begin_parts(rig, 16);
    for key in ["key/01", "key/18", "key/18", "key/0", "key/3"] {
        put(rig, key, "new");
    }
    for key in ["key/02", "key/19", "key/3"] {
        delete(rig, key);
    }
    rig.frames = usize::MAX;
}

/// Delivers all frames between source and joiner except for updates, which are lost.
fn lose_updates(rig: &mut Rig) {
    for _ in 0..100 {
        rig.transmit();
        rig.run_others(2, 3);
        let queue = rig.wire.get_mut(&(2, 3)).unwrap();
        queue.retain(|frame| !matches!(frame.message, ChainMessage::Updates(_) | ChainMessage::Chunk(_)));
        rig.deliver(2, 3);
    }
}

fn has_ended(rig: &Rig) -> bool {
    rig.replicas[&3].joiner.has_ended()
}

#[test]
fn the_source_keeps_one_version_of_each_key() {
    let mut rig = filled(&settings());
    half_way(&mut rig);
    assert!(rig.status(2).resync.sending.is_some());
    let len = |record: &crate::store::ScanRecord| record.key.len() + record.held.value.as_ref().unwrap().len();
    let bytes: usize = rig.contents(2).iter().map(len).sum();
    assert_eq!(rig.stores[&2].bytes(), bytes as u64);
    comes_in(&mut rig);
}

#[test]
fn a_joiner_is_not_whole_before_it_holds_the_updates_of_the_parts() {
    let mut rig = filled(&settings());
    half_way(&mut rig);
    lose_updates(&mut rig);
    assert!(has_ended(&rig), "all parts have arrived");
    let status = rig.status(3);
    assert_eq!((status.last, status.watermark.0, status.resync.full), (Version::NONE, 0, 0));
    assert!(status.resync.receiving.is_some());
    for mode in [ReadMode::Eventual, ReadMode::Strong] {
        let read = rig.read(3, "key/05", mode);
        assert_eq!(rig.replies[&read], Reply::Refused(Refusal::NoChain));
    }
    assert!(rig.promotions.is_empty());
    // From the next update, the joiner detects the gap.
    put(&mut rig, "key/04", "last");
    comes_in(&mut rig);
}

#[test]
fn a_joiner_that_is_not_whole_begins_anew_in_another_epoch() {
    let mut rig = filled(&settings());
    half_way(&mut rig);
    lose_updates(&mut rig);
    assert!(has_ended(&rig));
    rig.wire.clear();
    rig.input(2, ReplicaInput::Expelled(crate::Epoch(3)));
    rig.enter(&[1, 3], &joining(3, &[1], 3));
    assert_eq!(rig.status(3).last, Version::NONE);
    rig.become_same(2, 1, 3);
    let begun = rig.events.iter().filter(|(n, event)| *n == 3 && *event == ReplicaEvent::Resyncing).count();
    assert_eq!((begun, rig.status(3).resync.full), (2, 1));
}

#[test]
fn a_joiner_that_is_not_whole_may_lose_its_place() {
    let mut rig = filled(&settings());
    half_way(&mut rig);
    lose_updates(&mut rig);
    rig.cut_link(2, 3);
    for _ in 0..20 {
        put(&mut rig, "key/04", "more than the backlog holds");
    }
    rig.join_link(2, 3);
    comes_in(&mut rig);
}

#[test]
fn updates_behind_the_last_part_wait_for_capacity() {
    let mut rig = filled(&ReplicaSettings { joiner_buffer: 200, ..settings() });
    half_way(&mut rig);
    comes_in(&mut rig);
}

fn large(byte: u8) -> Bytes {
    vec![byte; 5000].into()
}

/// Breaks the link while the first of two large values, that of `key/10`, is sent. Then `change` may write at the head.
fn broken_within(change: impl FnOnce(&mut Rig)) {
    let mut rig = filled(&ReplicaSettings { backlog: 12_000, ..small() });
    put(&mut rig, "key/15", large(2));
    put(&mut rig, "key/10", large(1));
    (0..40).for_each(|_| put(&mut rig, "key/20", vec![3; 200]));
    rig.beat(2);
    rig.enter_all(&joining(2, &[1, 2], 3));
    begin(&mut rig);
    let of_first =
        |part: &SnapshotPart| matches!(&part.content, SnapshotContent::Piece(piece) if piece.key == "key/10");
    let mut pieces = 0;
    while pieces < 5 {
        pieces += parts(&rig, 2, 3).first().is_some_and(of_first) as usize;
        assert!(rig.deliver(2, 3), "{pieces} pieces");
    }
    let bytes = rig.status(3).resync.receiving.unwrap().bytes;
    rig.cut_link(2, 3);
    change(&mut rig);
    rig.join_link(2, 3);
    rig.beat(3);
    assert!(rig.status(3).resync.receiving.is_none() && bytes > 0);
    rig.assert_same(2, 3);
    assert_eq!(rig.status(3).resync.full, 1);
}

#[test]
fn all_pieces_are_of_one_version() {
    broken_within(|_| ());
    broken_within(|rig| put(rig, "key/10", large(9)));
    broken_within(|rig| put(rig, "key/10", vec![8; 6000]));
    broken_within(|rig| put(rig, "key/10", vec![7; 700]));
    broken_within(|rig| put(rig, "key/10", "small"));
    broken_within(|rig| delete(rig, "key/10"));
    broken_within(|rig| put(rig, "key/09x", "in between"));
    broken_within(|rig| put(rig, "key/09x", large(4)));
}

#[test]
fn the_next_value_may_be_large_and_older() {
    broken_within(|rig| {
        ["key/10", "key/11", "key/12", "key/13", "key/14"].into_iter().for_each(|key| delete(rig, key))
    });
}

#[test]
fn all_keys_behind_a_piece_may_be_deleted() {
    broken_within(|rig| {
        for n in 10..=20 {
            write(rig, Write::Delete { key: format!("key/{n}").into() });
        }
    });
}

#[test]
fn a_large_value_that_keeps_changing_is_transferred() {
    // The joiner has no buffer space for updates, so none arrive in between.
    let mut rig = filled(&ReplicaSettings { joiner_buffer: 100, ..small() });
    for replica in rig.replicas.values_mut() {
        replica.membership.settings_mut().backlog = 1 << 20;
    }
    rig.enter_all(&joining(2, &[1, 2], 3));
    put(&mut rig, "key/10", large(0));
    rig.frames = 2;
    let mut n = 0;
    while !has_ended(&rig) && rig.status(3).resync.full == 0 {
        n += 1;
        assert!(n < 200, "the value is never transferred");
        put(&mut rig, "key/10", large(n));
        // At most two frames, and the control frames between them.
        while rig.deliver(2, 3) {}
    }
    assert!(n > 10, "the value changed during its transfer");
    rig.frames = usize::MAX;
    rig.become_same(2, 2, 3);
}

/// Half-way through a snapshot from member 2, the head is asked to get and delete `key`. Afterwards the joiner is the
/// only member. Returns the head's reply, and the joiner's reply to a retry.
fn taken_meanwhile(before: impl FnOnce(&mut Rig), key: &'static str, after: impl FnOnce(&mut Rig)) -> (Reply, Reply) {
    let mut rig = filled(&settings());
    let session = rig.session(1);
    rig.beat(2);
    begin_parts(&mut rig, 16);
    before(&mut rig);
    let request = Some(RequestKey { session, number: 1, lowest: 1 });
    let take = || Write::GetDelete { key: key.into() };
    let first = rig.request(1, request, take());
    rig.settle_without(&[(2, 3)]);
    after(&mut rig);
    rig.frames = usize::MAX;
    rig.beat(2);
    rig.assert_alike(2, 3);
    rig.enter(&[3], &config(4, &[3]));
    let again = rig.request(3, request, take());
    rig.beat(1);
    (rig.replies[&first].clone(), rig.replies[&again].clone())
}

fn took(reply: &Reply) -> &Computed {
    match reply {
        Reply::Committed(committed) => &committed.result,
        other => panic!("{other:?}"),
    }
}

#[test]
fn only_a_taken_value_that_never_came_is_forgotten() {
    // The part with the key is made after the value was taken.
    let (first, again) = taken_meanwhile(|_| (), "key/20", |_| ());
    let Computed::Took(Some((version, _))) = *took(&first) else { panic!("{first:?}") };
    assert_eq!(*took(&again), Computed::TookForgotten(version));
    // The part with the key is made after another value was written.
    let (first, again) =
        taken_meanwhile(|rig| put(rig, "key/20", "taken"), "key/20", |rig| put(rig, "key/20", "another"));
    let Computed::Took(Some((version, _))) = *took(&first) else { panic!("{first:?}") };
    assert_eq!(*took(&again), Computed::TookForgotten(version));
    // The part with the key arrived earlier.
    let (first, again) = taken_meanwhile(|_| (), "key/01", |rig| put(rig, "key/01", "another"));
    assert!(matches!(took(&first), Computed::Took(Some(_))));
    assert_eq!(took(&first), took(&again));
    // The value arrived as an update.
    let (first, again) = taken_meanwhile(|rig| put(rig, "key/01", "taken"), "key/01", |_| ());
    assert!(matches!(took(&first), Computed::Took(Some((_, value))) if value == "taken"));
    assert_eq!(took(&first), took(&again));
    // The key had no value.
    let (first, again) = taken_meanwhile(|rig| delete(rig, "key/20"), "key/20", |rig| put(rig, "key/20", "later"));
    assert_eq!((took(&first), took(&again)), (&Computed::Took(None), &Computed::Took(None)));
}
