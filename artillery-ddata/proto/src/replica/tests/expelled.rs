//! Removal from the chain, and return.

use super::{super::*, rig::*};
use crate::{Epoch, Version, api::*};

#[test]
fn an_expelled_member_serves_no_strong_reads() {
    let mut rig = Rig::chain(&[1, 2, 3]);
    rig.put(1, "k", "old");
    rig.beat(1);
    let waiting = rig.put(1, "k", "new");
    let parked = rig.read(1, "k", ReadMode::Strong);
    rig.input(1, ReplicaInput::Expelled(Epoch(2)));
    assert_eq!(rig.local(1, "k"), Err(NotLocal::NotHere));
    assert_eq!(rig.replies[&waiting], Reply::Expired, "the write's outcome is unknown");
    assert_eq!(rig.replies[&parked], Reply::Refused(Refusal::NoChain));
    for mode in [ReadMode::Strong, ReadMode::ThroughChain] {
        let read = rig.read(1, "k", mode);
        assert_eq!(rig.replies[&read], Reply::Refused(Refusal::NoChain));
    }
    let write = rig.put(1, "k", "never");
    assert_eq!(rig.replies[&write], Reply::Refused(Refusal::NoChain));
    let eventual = rig.read(1, "k", ReadMode::Eventual);
    assert_eq!(rig.found(eventual), (Some("new".into()), false, ReadPath::Local));
    let floor = rig.ask(1, Query::Key("k".into()), ReadMode::Eventual, Some(Sequence(9)));
    assert_eq!(rig.replies[&floor], Reply::Refused(Refusal::NoChain), "the member will never reach the floor");
    assert_eq!(rig.status(1).expelled, Some(Epoch(2)));
    assert_eq!(rig.replicas[&1].next_tick(), None);
}

#[test]
fn an_expelled_member_ignores_and_sends_no_frames() {
    let mut rig = Rig::chain(&[1, 2, 3]);
    rig.put(1, "k", "v");
    rig.transmit();
    rig.input(2, ReplicaInput::Expelled(Epoch(2)));
    let frame = rig.wire[&(1, 2)].back().unwrap().clone();
    rig.receive(1, 2, (0..4).map(|epoch| ChainFrame { epoch: Epoch(epoch), ..frame.clone() }));
    assert_eq!(rig.last(2), Version::NONE);
    rig.transmit();
    assert!(rig.controls(2, 3).is_empty(), "and it sends none");
}

#[test]
fn an_older_configuration_than_the_expulsion_is_not_entered() {
    let mut rig = Rig::chain(&[1, 2, 3]);
    rig.input(2, ReplicaInput::Expelled(Epoch(5)));
    for epoch in [2, 4, 5] {
        rig.enter(&[2], &config(epoch, &[1, 2]));
        assert_eq!(rig.status(2).config, None);
    }
    rig.enter(&[2], &joining(6, &[1], 2));
    assert_eq!(rig.status(2).config.unwrap().epoch, Epoch(6));
    rig.input(2, ReplicaInput::Expelled(Epoch(6)));
    assert_eq!(rig.status(2).expelled, None, "the configuration of this epoch names it");
}

#[test]
fn an_expelled_member_comes_back_by_the_backlog_and_never_rolls_back_before() {
    let mut rig = Rig::chain(&[1, 2, 3]);
    rig.put(1, "k", "1");
    rig.beat(1);
    rig.put(1, "k", "2");
    // Member 2 gets the update, but does not learn of its commit.
    rig.run(1, 2);
    rig.input(2, ReplicaInput::Expelled(Epoch(2)));
    rig.enter(&[1, 3], &config(2, &[1, 3]));
    rig.beat(1);
    rig.put(1, "k", "3");
    rig.beat(1);
    rig.enter_all(&joining(3, &[1, 3], 2));
    assert_eq!(rig.last(2), Version::new(1, 2), "the chain may have committed it");
    rig.become_same(2, 3, 2);
    let status = rig.status(2);
    assert_eq!((status.resync.full, status.resync.partial), (0, 1));
    assert!(rig.local(2, "k").is_err(), "a joiner does not serve");
}

#[test]
fn a_write_pending_at_the_successor_is_known_to_the_new_head() {
    let mut rig = Rig::chain(&[1, 2, 3]);
    let session = rig.session(1);
    let request = Some(crate::types::update::RequestKey { session, number: 1, lowest: 1 });
    let append = || Write::append("k".into(), "x".into());
    let first = rig.request(1, request, append());
    rig.run(1, 2);
    rig.input(1, ReplicaInput::Expelled(Epoch(2)));
    assert_eq!(rig.replies[&first], Reply::Expired);
    rig.enter(&[2, 3], &config(2, &[2, 3]));
    let again = rig.request(2, request, append());
    assert!(!rig.replies.contains_key(&again), "it waits for the commit of the first attempt");
    rig.beat(1);
    let Reply::Committed(committed) = &rig.replies[&again] else { panic!("{:?}", rig.replies[&again]) };
    assert!(committed.replayed);
    assert_eq!((committed.version, committed.result.clone()), (Version::new(1, 2), Computed::Length(1)));
    let next = rig.put(2, "k", "y");
    rig.beat(1);
    assert_eq!(rig.committed(next), Version::new(2, 3), "the new head uses its own epoch");
}
