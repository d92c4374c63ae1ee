//! Joiners whose position is no longer in the backlog.

use std::time::Duration;

use bytes::Bytes;

use super::{super::*, rig::*};
use crate::{
    Epoch, Version,
    api::*,
    message::{SnapshotContent, SnapshotPart},
    types::update::RequestKey,
};

pub(super) fn small() -> ReplicaSettings {
    ReplicaSettings { backlog: 300, chunk: 256, ..ReplicaSettings::default() }
}

/// A chain of 1 and 2 with data and a short backlog, and 3 without data.
pub(super) fn filled(settings: &ReplicaSettings) -> Rig {
    let mut rig = Rig::new(&[1, 2, 3], settings);
    rig.enter(&[1, 2], &config(1, &[1, 2]));
    rig.settle();
    let session = rig.session(1);
    for number in 1..=20 {
        let request = RequestKey { session, number, lowest: number.min(3) };
        let key = Bytes::from(format!("key/{number:02}"));
        rig.request(1, Some(request), Write::put(key, vec![number as u8; 50].into()));
        rig.settle();
    }
    let took = RequestKey { session, number: 21, lowest: 3 };
    rig.request(1, Some(took), Write::GetDelete { key: "key/07".into() });
    rig.session(1);
    rig.beat(2);
    rig
}

pub(super) fn parts(rig: &Rig, from: u8, to: u8) -> Vec<SnapshotPart> {
    rig.on_link(from, to, |message| match message {
        ChainMessage::Snapshot(part) => Some(part.clone()),
        _ => None,
    })
}

/// The joiner has begun a snapshot, and all of its parts are on the link from 2 to 3.
pub(super) fn begin(rig: &mut Rig) {
    rig.settle_without(&[(2, 3)]);
    rig.heartbeat();
    rig.settle_without(&[(2, 3)]);
    while rig.deliver(2, 3) {}
    rig.settle_without(&[(2, 3)]);
}

/// Delivers one frame at a time until `count` parts have arrived.
pub(super) fn run_parts(rig: &mut Rig, from: u8, to: u8, count: usize) {
    let mut come = 0;
    for _ in 0..1000 {
        rig.transmit();
        rig.run_others(from, to);
        let is_part = matches!(
            rig.wire.get(&(from, to)).and_then(|queue| queue.front()).map(|frame| &frame.message),
            Some(ChainMessage::Snapshot(_))
        );
        if is_part && come == count {
            return;
        }
        come += usize::from(is_part);
        rig.deliver(from, to);
    }
    panic!("only {come} parts arrived");
}

/// The joiner has received `count` parts of a snapshot. No link holds more than two frames.
pub(super) fn part_way(count: usize) -> Rig {
    let mut rig = filled(&small());
    begin_parts(&mut rig, count);
    rig
}

/// Node 3 joins and receives `count` parts, while no link holds more than two frames.
pub(super) fn begin_parts(rig: &mut Rig, count: usize) {
    rig.enter_all(&joining(2, &[1, 2], 3));
    rig.frames = 2;
    run_parts(rig, 2, 3, count);
}

/// Checks that one snapshot makes the joiner identical to its source.
pub(super) fn comes_in(rig: &mut Rig) {
    rig.beat(2);
    rig.assert_same(2, 3);
    assert_eq!(rig.status(3).resync.full, 1);
}

#[test]
fn a_joiner_gets_all_data() {
    let mut rig = filled(&small());
    rig.enter_all(&joining(2, &[1, 2], 3));
    rig.settle();
    rig.assert_same(2, 3);
    assert_eq!(rig.contents(3).len(), 19);
    let status = rig.status(3);
    assert_eq!((status.resync.full, status.resync.partial, status.resync.receiving), (1, 0, None));
    assert!(status.open);
    assert_eq!(rig.status(2).resync.sending, None);
    rig.put(1, "key/01", "new");
    rig.become_same(2, 1, 3);
    assert_eq!(rig.stores[&2].bytes(), rig.stores[&1].bytes(), "no version is kept for the joiner");
}

#[test]
fn a_joiner_within_the_backlog_needs_no_snapshot() {
    let mut rig = filled(&ReplicaSettings::default());
    rig.enter_all(&joining(2, &[1, 2], 3));
    rig.settle();
    rig.assert_same(2, 3);
    let status = rig.status(3);
    assert_eq!((status.resync.full, status.resync.partial), (0, 1));
}

#[test]
fn updates_travel_beside_the_snapshot() {
    let mut rig = filled(&small());
    rig.enter_all(&joining(2, &[1, 2], 3));
    rig.frames = 3;
    run_parts(&mut rig, 2, 3, 16);
    let before = rig.status(3).resync.receiving.unwrap();
    assert!(before.records > 0 && before.records < 19, "{before:?}");
    assert_eq!(rig.status(3).last, Version::NONE, "it has no history yet");
    let put = rig.put(1, "key/01", "beside");
    let delete = rig.write(1, Write::Delete { key: "key/20".into() });
    rig.settle_without(&[(2, 3)]);
    assert!(rig.committed(put) < rig.committed(delete), "commits do not wait for the joiner");
    rig.settle();
    rig.assert_same(2, 3);
    assert_eq!(rig.contents(3).len(), 18);
}

#[test]
fn a_full_buffer_holds_the_source_back() {
    let mut rig = filled(&ReplicaSettings { joiner_buffer: 200, backlog: 2000, ..small() });
    begin_parts(&mut rig, 3);
    for _ in 0..8 {
        rig.put(1, "key/01", "more");
        rig.settle_without(&[(2, 3)]);
        for _ in 0..2 {
            rig.deliver(2, 3);
        }
    }
    let filling = rig.replicas[&3].joiner.progress(false).unwrap();
    assert!(filling.hold, "{filling:?}");
    comes_in(&mut rig);
}

#[test]
fn a_joiner_that_ends_behind_the_backlog_gets_another_snapshot() {
    let mut rig = filled(&small());
    begin_parts(&mut rig, 16);
    let at = rig.replicas[&2].log.watermark();
    for value in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        rig.put(1, "key/01", value);
        for _ in 0..6 {
            rig.transmit();
            rig.run_others(2, 3);
            rig.wire.get_mut(&(2, 3)).unwrap().retain(|frame| !matches!(frame.message, ChainMessage::Snapshot(_)));
            rig.deliver(2, 3);
        }
    }
    let (now, source) = (rig.now, rig.replicas.get_mut(&2).unwrap());
    let (id, last) = (source.source.number(), Version { epoch: Epoch(1), sequence: at });
    assert!(source.source.is_sending() && at.next() < source.log.history().first());
    // The joiner reports that it completed this snapshot, but without the updates received alongside.
    source.follow(now, member(3), &crate::message::Position { last, epochs: vec![(Epoch(1), Sequence(1))] }, None);
    assert_eq!(rig.replicas[&2].source.number(), id + 1);
}

#[test]
fn a_broken_link_resumes_at_the_last_part() {
    let mut rig = part_way(16);
    let before = rig.status(3).resync.receiving.unwrap();
    rig.cut_link(2, 3);
    rig.put(1, "key/02", "meanwhile");
    rig.beat(1);
    assert_eq!(rig.status(3).resync.receiving, Some(before), "no received part is lost");
    rig.join_link(2, 3);
    rig.frames = usize::MAX;
    rig.run(3, 2);
    rig.transmit();
    let first = parts(&rig, 2, 3).first().map(|part| part.at.clone());
    let mark = rig.replicas[&3].joiner.progress(false).unwrap().mark;
    assert_eq!(first, Some(mark), "nothing is sent twice");
    rig.beat(1);
    rig.assert_same(2, 3);
    assert_eq!(rig.status(3).resync.full, 1);
}

#[test]
fn lost_repeated_and_swapped_parts_are_harmless() {
    let mut rig = filled(&ReplicaSettings { resend: Some(Duration::from_millis(200)), ..small() });
    rig.enter_all(&joining(2, &[1, 2], 3));
    begin(&mut rig);
    let queue = rig.wire.get_mut(&(2, 3)).unwrap();
    let mut frames: Vec<_> = queue.drain(..).collect();
    frames.truncate(frames.len() - 2);
    let lost = frames.len() / 2;
    frames.swap(2, 3);
    frames.extend(frames[..5].to_vec());
    frames.remove(lost);
    rig.wire.insert((2, 3), frames.into());
    rig.beat(6);
    comes_in(&mut rig);
}

#[test]
fn a_lost_place_begins_a_new_snapshot() {
    let mut rig = part_way(16);
    rig.cut_link(2, 3);
    // More changes follow than the backlog holds, so the joiner needs another snapshot.
    for key in ["key/01", "key/02", "key/03", "key/04"] {
        rig.write(1, Write::Delete { key: key.into() });
        rig.commit(1, "key/05", "new");
    }
    assert_eq!(rig.status(2).resync.sending, None, "no snapshot is sent without a joiner");
    rig.join_link(2, 3);
    rig.become_same(2, 2, 3);
    assert_eq!(rig.contents(3).len(), 15);
    let begun = rig.events.iter().filter(|(n, event)| *n == 3 && *event == ReplicaEvent::Resyncing).count();
    assert_eq!((begun, rig.status(3).resync.full), (2, 1));
}

#[test]
fn another_source_begins_anew() {
    let mut rig = part_way(16);
    rig.write(1, Write::Delete { key: "key/01".into() });
    rig.run_others(2, 3);
    rig.input(2, ReplicaInput::Expelled(Epoch(3)));
    assert_eq!(rig.status(2).resync.sending, None);
    rig.enter(&[1, 3], &joining(3, &[1], 3));
    rig.frames = usize::MAX;
    rig.become_same(2, 1, 3);
    assert_eq!(rig.contents(3).len(), 18);
}

#[test]
fn a_member_in_a_snapshot_serves_nothing() {
    let mut rig = filled(&small());
    rig.enter_all(&joining(2, &[1, 2], 3));
    rig.frames = 2;
    let before = rig.read(3, "key/01", ReadMode::Eventual);
    assert_eq!(rig.found(before).0, None, "an eventual read is served from an empty store");
    run_parts(&mut rig, 2, 3, 8);
    for mode in [ReadMode::Eventual, ReadMode::Strong, ReadMode::ThroughChain] {
        let read = rig.read(3, "key/01", mode);
        assert_eq!(rig.replies[&read], Reply::Refused(Refusal::NoChain));
    }
    assert_eq!(rig.local(3, "key/01"), Err(NotLocal::NotHere));
    rig.settle();
    let after = rig.read(3, "key/01", ReadMode::Eventual);
    assert!(rig.found(after).0.is_some());
}

#[test]
fn a_member_in_a_snapshot_that_is_named_as_serving_halts() {
    let mut rig = part_way(8);
    rig.enter(&[3], &config(3, &[1, 2, 3]));
    assert_eq!(rig.status(3).halted, Some(Halt::NotWhole));
}

#[test]
fn large_values_come_in_pieces() {
    let mut rig = filled(&small());
    let value = Bytes::from((0..=255).cycle().take(5000).collect::<Vec<u8>>());
    rig.write(1, Write::put("key/10".into(), value.clone()));
    rig.write(1, Write::put("zero".into(), Bytes::new()));
    rig.beat(2);
    rig.put(1, "last", "v");
    rig.beat(1);
    rig.enter_all(&joining(2, &[1, 2], 3));
    begin(&mut rig);
    assert!(parts(&rig, 2, 3).len() > 20);
    for part in parts(&rig, 2, 3) {
        let bytes = match &part.content {
            SnapshotContent::Piece(piece) => piece.bytes.len(),
            SnapshotContent::Records(records) => {
                records.iter().map(|record| record.key.len() + record.held.value.as_ref().unwrap().len()).sum()
            }
            _ => 0,
        };
        assert!(bytes <= 256, "{bytes}");
    }
    rig.become_same(1, 2, 3);
}

#[test]
fn a_returning_head_drops_updates_that_no_other_member_had() {
    let mut rig = filled(&small());
    rig.enter(&[3], &config(1, &[1, 2]));
    let lost = rig.put(1, "lost", "v");
    rig.input(1, ReplicaInput::Expelled(Epoch(2)));
    rig.wire.clear();
    rig.enter(&[2], &config(2, &[2]));
    for _ in 0..5 {
        rig.put(2, "key/01", "new");
    }
    // The old head has an update that the new head's history doesn't have.
    rig.enter(&[1, 2], &joining(3, &[2], 1));
    rig.become_same(2, 2, 1);
    assert_eq!(rig.replies[&lost], Reply::Expired);
    assert!(!rig.contents(1).iter().any(|record| record.key == "lost"));
    assert_eq!(rig.status(1).resync.full, 1);
}

#[test]
fn an_unopened_tail_is_no_source() {
    let mut rig = filled(&small());
    rig.put(1, "key/01", "dirty");
    rig.run(1, 2);
    // Only the tail and the joiner have entered.
    rig.enter(&[2, 3], &joining(2, &[1, 2], 3));
    rig.beat(2);
    assert_eq!((rig.status(2).resync.sending, rig.status(3).resync.receiving), (None, None));
    rig.enter(&[1], &joining(2, &[1, 2], 3));
    rig.become_same(2, 2, 3);
}

#[test]
fn an_unopened_tail_continues_no_snapshot() {
    let mut rig = part_way(16);
    rig.enter(&[2, 3], &joining(3, &[1, 2], 3));
    rig.beat(2);
    assert_eq!(rig.status(3).resync.full, 0, "committed updates may be above its watermark");
    rig.enter(&[1], &joining(3, &[1, 2], 3));
    rig.become_same(2, 2, 3);
}
