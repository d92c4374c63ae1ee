//! Updates that are too large for one frame.

use std::time::Duration;

use super::{super::*, rig::*};
use crate::{
    Version,
    message::{Chunk, ChunkPart, Partial},
};

const CHUNK: usize = 10;

fn chain(nodes: &[u8]) -> Rig {
    chain_with(nodes, ReplicaSettings::default())
}

fn chain_with(nodes: &[u8], settings: ReplicaSettings) -> Rig {
    Rig::open(nodes, &ReplicaSettings { chunk: CHUNK, ..settings })
}

/// A chain whose head has ordered a large value. `arrived` pieces of the value have reached the middle.
fn sending(nodes: &[u8], arrived: usize) -> Rig {
    let mut rig = chain(nodes);
    rig.put(1, "k", LARGE);
    rig.transmit();
    deliver_pieces(&mut rig, 1, 2, arrived);
    rig
}

const LARGE: &str = "a value of more than a few times ten bytes";

fn pieces(rig: &Rig, from: u8, to: u8) -> Vec<&Chunk> {
    rig.on_link(from, to, |message| match message {
        ChainMessage::Chunk(chunk) => Some(chunk),
        _ => None,
    })
}

/// Delivers frames to the next member until `count` pieces have arrived.
fn deliver_pieces(rig: &mut Rig, from: u8, to: u8, count: usize) {
    let before = pieces(rig, from, to).len();
    while before - pieces(rig, from, to).len() < count {
        assert!(rig.deliver(from, to), "too few pieces were sent");
    }
}

fn value(rig: &Rig, n: u8) -> bytes::Bytes {
    rig.local(n, "k").unwrap().unwrap().value.unwrap()
}

/// The middle of three has received two pieces of a large value and forwarded them. No frame is in transit.
fn halfway() -> Rig {
    let mut rig = sending(&[1, 2, 3], 2);
    rig.run(2, 3);
    rig.wire.clear();
    rig
}

#[test]
fn a_large_value_arrives_in_pieces() {
    let mut rig = chain(&[1, 2, 3]);
    let put = rig.put(1, "k", LARGE);
    rig.transmit();
    let sent = pieces(&rig, 1, 2);
    assert_eq!(sent.len(), (1 + LARGE.len()).div_ceil(CHUNK));
    assert!(matches!(sent[0].part, ChunkPart::First(_)));
    assert!(sent.iter().all(|piece| piece.bytes.len() <= CHUNK) && rig.updates(1, 2).is_empty());
    assert_eq!(rig.stores[&1].read(ChainId(0), b"k", Sequence::MAX).unwrap().unwrap().value.unwrap(), LARGE);
    rig.settle();
    rig.committed(put);
    for n in [1, 2, 3] {
        assert_eq!(value(&rig, n), LARGE);
    }
}

#[test]
fn a_member_hands_on_the_first_piece_before_it_has_the_last() {
    let mut rig = sending(&[1, 2, 3], 0);
    for n in 1..=3 {
        deliver_pieces(&mut rig, 1, 2, 1);
        rig.transmit();
        assert_eq!(pieces(&rig, 2, 3).len(), n);
    }
    assert_eq!(rig.last(2), Version::NONE, "the update is incomplete");
    rig.settle();
    assert_eq!(rig.watermark(1), 1);
}

#[test]
fn updates_behind_a_large_value_wait_for_it() {
    let mut rig = chain(&[1, 2, 3]);
    rig.put(1, "k", LARGE);
    rig.put(1, "s", "small");
    rig.transmit();
    assert_eq!(rig.updates(1, 2).len(), 1, "in the frame after the last piece");
    rig.settle();
    assert_eq!(rig.last(3), Version::new(1, 2));
}

#[test]
fn a_broken_connection_resumes_at_the_last_piece() {
    let mut rig = halfway();
    for (n, other) in [(1, 2), (2, 1)] {
        rig.input(n, ReplicaInput::Disconnected(member(other)));
        rig.input(n, ReplicaInput::Connected(member(other)));
    }
    for _ in 0..3 {
        rig.transmit();
        rig.deliver(1, 2);
        rig.deliver(2, 1);
    }
    rig.transmit();
    let again = pieces(&rig, 1, 2);
    assert_eq!(again[0].part, ChunkPart::Behind(2 * CHUNK as u64));
    rig.settle();
    assert_eq!(rig.watermark(1), 1);
    assert_eq!(value(&rig, 3), LARGE);
}

#[test]
fn a_lost_piece_is_asked_for() {
    let mut rig = sending(&[1, 2], 1);
    let lost = rig.wire.get_mut(&(1, 2)).unwrap().pop_front().unwrap();
    rig.run(1, 2);
    rig.transmit();
    let said = rig.controls(2, 1).last().copied().unwrap();
    assert_eq!(said.partial, Some(Partial { version: Version::new(1, 1), bytes: CHUNK as u64 }));
    assert_eq!(said.resume.as_ref().unwrap().last, Version::NONE);
    rig.settle();
    assert_eq!(value(&rig, 2), LARGE);
    rig.input(2, ReplicaInput::Receive { from: member(1), frame: lost });
    assert_eq!(rig.last(2), Version::new(1, 1), "a late piece changes nothing");
}

#[test]
fn the_last_lost_piece_is_sent_again_on_lossy_links() {
    let mut rig =
        chain_with(&[1, 2], ReplicaSettings { resend: Some(Duration::from_millis(100)), ..ReplicaSettings::default() });
    rig.put(1, "k", LARGE);
    rig.transmit();
    let count = pieces(&rig, 1, 2).len();
    deliver_pieces(&mut rig, 1, 2, count - 1);
    rig.wire.get_mut(&(1, 2)).unwrap().clear();
    rig.settle();
    rig.heartbeat();
    rig.heartbeat();
    rig.transmit();
    let again: Vec<_> = pieces(&rig, 1, 2).iter().map(|piece| piece.part.clone()).collect();
    assert_eq!(again, [ChunkPart::Behind((count as u64 - 1) * CHUNK as u64)], "only the last piece");
    rig.settle();
    assert_eq!(rig.watermark(2), 1);
}

#[test]
fn pieces_of_another_update_are_not_mixed_in() {
    let mut rig = sending(&[1, 2], 2);
    let frame = rig.wire[&(1, 2)].front().cloned().unwrap();
    let ChainMessage::Chunk(next) = frame.message.clone() else { panic!("{frame:?} is no piece") };
    let other = Chunk { version: Version::new(2, 1), bytes: "a stranger".into(), ..next };
    rig.receive(1, 2, [ChainFrame { message: ChainMessage::Chunk(other), ..frame }]);
    rig.settle();
    assert_eq!(value(&rig, 2), LARGE);
}

#[test]
fn a_new_epoch_begins_with_whole_updates() {
    let mut rig = halfway();
    rig.enter(&[2, 3], &config(2, &[2, 3]));
    rig.settle();
    assert_eq!(rig.commit(2, "k", "a value of as many bytes as the one that was lost"), Version::new(2, 1));
    assert_eq!(value(&rig, 3), "a value of as many bytes as the one that was lost");
}
