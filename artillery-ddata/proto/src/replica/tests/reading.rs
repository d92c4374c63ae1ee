//! Clean and dirty reads.

use std::time::Duration;

use super::{super::*, rig::*};
use crate::api::*;

/// A chain of three in which "k" = "old" is committed, and "new" has reached the middle but not the tail.
fn dirty() -> Rig {
    let mut rig = Rig::chain(&[1, 2, 3]);
    rig.put(1, "k", "old");
    rig.beat(1);
    rig.put(1, "k", "new");
    rig.run(1, 2);
    rig
}

#[test]
fn clean_reads_are_local_everywhere() {
    let mut rig = Rig::chain(&[1, 2, 3]);
    rig.commit(1, "k", "v");
    for n in [1, 2, 3] {
        assert_eq!(rig.local(n, "k").unwrap().unwrap().value.unwrap(), "v");
        let get = rig.read(n, "k", ReadMode::Strong);
        assert_eq!(rig.found(get), (Some("v".into()), true, ReadPath::Local));
        let absent = rig.read(n, "absent", ReadMode::Strong);
        assert_eq!(rig.found(absent), (None, true, ReadPath::Local));
    }
    rig.heartbeat();
    rig.settle();
    rig.transmit();
    assert!(rig.wire.values().all(|frames| frames.is_empty()), "no frame is sent for them");
}

#[test]
fn a_dirty_read_asks_the_tail() {
    let mut rig = dirty();
    assert_eq!(rig.local(2, "k"), Err(NotLocal::Dirty));
    let get = rig.read(2, "k", ReadMode::Strong);
    assert!(!rig.replies.contains_key(&get));
    rig.run_along(&[2, 3, 2]);
    assert_eq!(rig.watermark(2), 2, "the new value was sent before the query, and is committed by now");
    assert_eq!(rig.found(get).0, Some("new".into()));
}

#[test]
fn a_dirty_read_is_served_the_committed_version() {
    let mut rig = dirty();
    // The middle's updates to the tail are lost, but not its query.
    rig.lose_frames();
    let get = rig.read(2, "k", ReadMode::Strong);
    rig.run_along(&[2, 3, 2]);
    assert_eq!(rig.found(get), (Some("old".into()), true, ReadPath::Query));
    let status = rig.replicas[&2].status();
    assert_eq!((status.reads.version_queries, status.reads.shared_queries, status.reads.dirty), (1, 0, 1));
}

/// The links of all frames between members until the only read, at `n`, is answered.
fn frames_for_a_read(rig: &mut Rig, n: u8) -> Vec<(u8, u8)> {
    rig.lose_frames();
    let get = rig.read(n, "k", ReadMode::Strong);
    let mut frames = Vec::new();
    while !rig.replies.contains_key(&get) {
        rig.transmit();
        let next = rig.wire.iter().find(|(_, lies)| !lies.is_empty()).map(|(&link, _)| link).expect("a frame");
        rig.deliver(next.0, next.1);
        frames.push(next);
    }
    rig.transmit();
    assert!(rig.wire.values().all(|lies| lies.is_empty()), "no frame follows");
    frames
}

#[test]
fn a_lone_dirty_read_costs_one_round_trip_more_than_a_clean_one() {
    for n in [1, 2] {
        let mut rig = Rig::chain(&[1, 2, 3]);
        rig.put(1, "k", "old");
        rig.beat(1);
        assert_eq!(frames_for_a_read(&mut rig, n), []);
        assert_eq!(rig.replicas[&n].status().reads.version_queries, 0);
        rig.put(1, "k", "new");
        rig.run(1, 2);
        for time in 1..4 {
            assert_eq!(frames_for_a_read(&mut rig, n), [(n, 3), (3, n)]);
            let reads = rig.replicas[&n].status().reads;
            assert_eq!((reads.dirty, reads.version_queries), (time, time));
        }
    }
}

#[test]
fn one_query_answers_all_that_waited_before_it() {
    let mut rig = dirty();
    rig.lose_frames();
    let gets: Vec<_> = (0..10).map(|_| rig.read(2, "k", ReadMode::Strong)).collect();
    rig.transmit();
    assert_eq!(rig.controls(2, 3).iter().map(|control| control.query).collect::<Vec<_>>(), [1]);
    let late = rig.read(2, "k", ReadMode::Strong);
    while rig.deliver(2, 3) {}
    rig.run(3, 2);
    assert!(gets.iter().all(|&get| rig.found(get).0 == Some("old".into())));
    assert!(!rig.replies.contains_key(&late), "it arrived after the query was sent (trap 3)");
    rig.run_along(&[2, 3, 2]);
    assert!(rig.replies.contains_key(&late));
    let status = rig.replicas[&2].status();
    assert_eq!((status.reads.version_queries, status.reads.shared_queries), (2, 9));
    // Ten reads shared the first answer, which is in the range from 9 to 16.
    assert_eq!(status.reads.readers, [1, 0, 0, 0, 1, 0, 0, 0, 0]);
}

/// Two updates of "k" are in transit from middle to tail, and a read at the middle has seen the second. Only the first
/// update arrives. The frames with the query are passed to `before` instead of being delivered.
fn half_of_two_committed(before: impl FnOnce(&mut Rig, Vec<ChainFrame>)) -> (Rig, u64) {
    let mut rig = dirty();
    rig.put(1, "k", "newer");
    rig.run(1, 2);
    rig.transmit();
    let mut updates: Vec<_> = rig.wire.remove(&(2, 3)).unwrap().into();
    updates.retain(|frame| matches!(frame.message, ChainMessage::Updates(_)));
    let get = rig.read(2, "k", ReadMode::Strong);
    rig.transmit();
    let query: Vec<_> = rig.wire.remove(&(2, 3)).unwrap().into();
    before(&mut rig, query);
    let mut first = updates.remove(0);
    if let ChainMessage::Updates(updates) = &mut first.message {
        updates.updates.truncate(1);
    }
    rig.input(3, ReplicaInput::Receive { from: member(2), frame: first });
    rig.run(3, 2);
    assert_eq!(rig.watermark(2), 2);
    (rig, get)
}

#[test]
fn the_own_watermark_ends_the_wait_only_at_the_version_seen() {
    let (mut rig, get) = half_of_two_committed(|_, _| {});
    assert!(!rig.replies.contains_key(&get), "the watermark is below the version seen (trap 29)");
    rig.input(2, ReplicaInput::Disconnected(member(3)));
    rig.input(2, ReplicaInput::Connected(member(3)));
    rig.settle();
    assert_eq!(rig.watermark(2), 3);
    assert!(rig.replies.contains_key(&get));
}

#[test]
fn an_answer_below_the_own_watermark_still_finds_a_version() {
    let mut answers = Vec::new();
    let (mut rig, get) = half_of_two_committed(|rig, query| {
        rig.receive(2, 3, query);
        rig.transmit();
        answers.extend(rig.wire.remove(&(3, 2)).unwrap());
    });
    assert!(!rig.replies.contains_key(&get));
    rig.receive(3, 2, answers);
    assert_eq!(rig.found(get).0, Some("new".into()), "the answer names a pruned version (trap 12)");
}

#[test]
fn a_tail_without_a_lease_answers_no_query() {
    let mut rig = dirty();
    rig.lose_frames();
    rig.input(3, ReplicaInput::Lease(rig.now));
    let get = rig.read(2, "k", ReadMode::Strong);
    rig.run_along(&[2, 3, 2]);
    assert!(!rig.replies.contains_key(&get));
    rig.input(3, ReplicaInput::Lease(Timestamp::MAX));
    rig.heartbeat();
    rig.run_along(&[2, 3, 2]);
    assert_eq!(rig.found(get).0, Some("old".into()));
}

#[test]
fn a_member_without_a_lease_asks_even_for_clean_versions() {
    let mut rig = Rig::chain(&[1, 2, 3]);
    rig.commit(1, "k", "v");
    rig.input(2, ReplicaInput::Lease(rig.now));
    assert_eq!(rig.local(2, "k"), Err(NotLocal::NoLease));
    let get = rig.read(2, "k", ReadMode::Strong);
    assert!(!rig.replies.contains_key(&get));
    rig.settle();
    assert_eq!(rig.found(get), (Some("v".into()), true, ReadPath::Query));
    rig.input(3, ReplicaInput::Lease(rig.now));
    let get = rig.read(3, "k", ReadMode::Strong);
    assert!(!rig.replies.contains_key(&get), "only the chain can answer the tail");
    rig.settle();
    assert_eq!(rig.found(get), (Some("v".into()), true, ReadPath::Chain));
}

#[test]
fn eventual_reads_say_that_they_are_dirty() {
    let mut rig = dirty();
    let get = rig.read(2, "k", ReadMode::Eventual);
    assert_eq!(rig.found(get), (Some("new".into()), false, ReadPath::Local));
    let get = rig.read(3, "k", ReadMode::Eventual);
    assert_eq!(rig.found(get), (Some("old".into()), true, ReadPath::Local));
}

#[test]
fn reads_through_the_chain_wait_for_their_barrier() {
    for n in [1, 2, 3] {
        let mut rig = Rig::chain(&[1, 2, 3]);
        rig.commit(1, "k", "v");
        for node in [1, 2, 3] {
            rig.input(node, ReplicaInput::Lease(Timestamp::ZERO));
        }
        let gets: Vec<_> = (0..5).map(|_| rig.read(n, "k", ReadMode::ThroughChain)).collect();
        assert!(gets.iter().all(|get| !rig.replies.contains_key(get)));
        rig.settle_without(&[(2, 3)]);
        assert!(gets.iter().all(|get| !rig.replies.contains_key(get)), "no barrier has reached the tail");
        rig.settle();
        for get in gets {
            assert_eq!(rig.found(get), (Some("v".into()), true, ReadPath::Chain), "at node {n}");
        }
        assert!(rig.last(1).sequence.0 <= 4, "barriers are shared");
    }
}

#[test]
fn a_lost_query_is_asked_again() {
    let mut rig = dirty();
    rig.lose_frames();
    let get = rig.read(2, "k", ReadMode::Strong);
    rig.lose_frames();
    rig.heartbeat();
    rig.run_along(&[2, 3, 2]);
    assert_eq!(rig.found(get).0, Some("old".into()));
}

#[test]
fn a_parked_read_ends_at_its_deadline() {
    let mut rig = dirty();
    let deadline = rig.now + Duration::from_millis(50);
    let get = rig.ask_until(2, Query::Key("k".into()), ReadMode::Strong, deadline);
    rig.heartbeat();
    assert_eq!(rig.replies[&get], Reply::Expired);
    assert_eq!(rig.replicas[&2].status().parked_reads, 0);
}

#[test]
fn parked_reads_start_anew_in_another_epoch() {
    let mut rig = dirty();
    rig.lose_frames();
    let get = rig.read(2, "k", ReadMode::Strong);
    rig.run(2, 3);
    rig.transmit();
    let stale = rig.wire.remove(&(3, 2)).unwrap();
    rig.enter(&[2], &config(2, &[1, 2, 3]));
    rig.receive(3, 2, stale);
    assert!(!rig.replies.contains_key(&get), "an answer of the old epoch (trap 2)");
    rig.wire.clear();
    rig.enter(&[1, 3], &config(2, &[1, 2, 3]));
    rig.beat(1);
    assert_eq!(rig.found(get).0, Some("new".into()));
}
