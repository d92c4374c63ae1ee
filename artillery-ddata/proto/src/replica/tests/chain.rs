//! Writes through the chain.

use std::time::Duration;

use super::{super::*, rig::*};
use crate::{Epoch, Mode, Version, api::*, types::update::MAX_KEY};
use bytes::Bytes;

#[test]
fn a_write_is_answered_when_the_tail_has_it() {
    let mut rig = Rig::chain(&[1, 2, 3]);
    let put = rig.put(1, "k", "v");
    rig.run(1, 2);
    assert!(!rig.replies.contains_key(&put), "an update at the middle is not committed");
    rig.run(2, 3);
    assert_eq!(rig.watermark(3), 1, "the tail's apply is the commit");
    assert!(!rig.replies.contains_key(&put), "the head has not learned of the commit");
    rig.run(3, 1);
    assert_eq!(rig.committed(put), Version::new(1, 1));
    let (version, result) = (Version::new(1, 1), Computed::Nothing);
    assert_eq!(rig.replies[&put], Reply::Committed(WriteReply { version, copies: 3, replayed: false, result }));
}

#[test]
fn a_chain_of_one_commits_at_once() {
    let mut rig = Rig::chain(&[1]);
    let put = rig.put(1, "k", "v");
    assert_eq!(rig.committed(put), Version::new(1, 1));
    assert_eq!(rig.local(1, "k").unwrap().unwrap().value.unwrap(), "v");
}

#[test]
fn updates_are_pipelined_in_shared_frames() {
    let mut rig = Rig::chain(&[1, 2, 3]);
    let puts: Vec<_> = (0..100).map(|_| rig.put(1, "k", "v")).collect();
    rig.transmit();
    let frames = rig.updates(1, 2);
    assert_eq!(frames.len(), 1);
    assert_eq!(frames[0].updates.len(), 100);
    rig.settle();
    assert!(puts.iter().enumerate().all(|(n, &put)| rig.committed(put) == Version::new(1, n as u64 + 1)));
}

#[test]
fn a_frame_holds_what_the_link_has_room_for_but_at_least_one() {
    let mut rig = Rig::chain(&[1, 2]);
    rig.room = 1;
    rig.put(1, "a", "v");
    rig.put(1, "b", "v");
    rig.transmit();
    assert_eq!(rig.updates(1, 2).iter().map(|frame| frame.updates.len()).collect::<Vec<_>>(), [1, 1]);
}

#[test]
fn only_the_head_takes_writes() {
    let mut rig = Rig::chain(&[1, 2, 3]);
    let put = rig.put(2, "k", "v");
    assert_eq!(rig.replies[&put], Reply::Refused(Refusal::NotHead(Some(member(1)))));
}

#[test]
fn without_a_configuration_everything_is_refused() {
    let mut rig = Rig::new(&[1], &ReplicaSettings::default());
    let (put, get) = (rig.put(1, "k", "v"), rig.read(1, "k", ReadMode::Strong));
    assert_eq!(rig.replies[&put], Reply::Refused(Refusal::NoChain));
    assert_eq!(rig.replies[&get], Reply::Refused(Refusal::NoChain));
    assert_eq!(rig.local(1, "k"), Err(NotLocal::NotHere));
}

#[test]
fn fewer_members_than_wanted_take_no_writes() {
    let mut rig = Rig::new(&[1, 2], &ReplicaSettings::default());
    let mut few = (*config(1, &[1, 2])).clone();
    few.min_members = 3;
    rig.enter_all(&Arc::new(few));
    rig.settle();
    let put = rig.put(1, "k", "v");
    assert_eq!(rig.replies[&put], Reply::Refused(Refusal::TooFewMembers { have: 2, need: 3 }));
}

#[test]
fn a_sealed_chain_orders_nothing_and_later_does() {
    let mut rig = Rig::chain(&[1, 2]);
    let open = config(3, &[1, 2]);
    rig.enter_all(&Arc::new(config(2, &[1, 2]).sealed()));
    rig.settle();
    let (put, read) = (rig.put(1, "k", "v"), rig.read(1, "k", ReadMode::ThroughChain));
    rig.settle();
    assert_eq!(rig.replies[&put], Reply::Refused(Refusal::Busy));
    assert!(!matches!(rig.replies.get(&read), Some(Reply::Read(_))), "it would have to order a barrier");
    rig.enter_all(&open);
    rig.settle();
    let put = rig.put(1, "k", "v");
    rig.settle();
    rig.committed(put);
}

#[test]
fn long_keys_are_refused_by_name_and_limit() {
    let mut rig = Rig::chain(&[1]);
    let key = Bytes::from(vec![0; MAX_KEY + 1]);
    let put = rig.write(1, Write::put(key, "v".into()));
    assert_eq!(rig.replies[&put], Reply::Refused(Refusal::KeyTooLong { len: 4097, limit: 4096 }));
    let put = rig.write(1, Write::put(vec![0; MAX_KEY].into(), "v".into()));
    rig.committed(put);
}

#[test]
fn a_full_window_refuses_and_reopens() {
    let mut rig = Rig::open(&[1, 2], &ReplicaSettings { window: 1000, ..ReplicaSettings::default() });
    let large = rig.write(1, Write::put("k".into(), vec![0; 5000].into()));
    assert!(!rig.replies.contains_key(&large), "an empty window admits any size");
    assert!(!rig.replicas[&1].has_room());
    let more = rig.put(1, "k", "v");
    assert_eq!(rig.replies[&more], Reply::Refused(Refusal::Busy));
    rig.settle();
    rig.committed(large);
    assert!(rig.replicas[&1].has_room());
}

#[test]
fn compare_and_swap_by_version() {
    let mut rig = Rig::chain(&[1, 2]);
    let cas = |key: &'static str, expected, value: &'static str| {
        Write::compare_and_swap(key.into(), expected, Some(value.into()))
    };
    let create = rig.write(1, cas("k", Version::NONE, "a"));
    let again = rig.write(1, cas("k", Version::NONE, "b"));
    assert!(!rig.replies.contains_key(&again), "the version in a conflict must be committed first");
    rig.settle();
    let first = rig.committed(create);
    let (at, value) = (Version::new(1, 2), Some("a".into()));
    assert_eq!(rig.replies[&again], Reply::Conflict { at, step: 0, version: first, value, replayed: false });
    let swap = rig.write(1, cas("k", first, "c"));
    rig.settle();
    assert_eq!(rig.committed(swap), Version::new(1, 3));
    let delete = rig.write(1, Write::Delete { key: "k".into() });
    let create = rig.write(1, cas("k", Version::NONE, "d"));
    rig.settle();
    rig.committed(delete);
    assert_eq!(rig.committed(create), Version::new(1, 5), "a deleted key is absent");
}

#[test]
fn deleted_keys_take_no_bytes() {
    let mut rig = Rig::chain(&[1, 2, 3]);
    rig.put(1, "k", "v");
    rig.write(1, Write::Delete { key: "k".into() });
    rig.beat(1);
    for n in [1, 2, 3] {
        assert_eq!(rig.local(n, "k"), Ok(None));
        assert_eq!(rig.stores[&n].bytes(), 0, "node {n}");
    }
}

#[test]
fn a_broken_link_resumes_where_the_successor_stands() {
    let mut rig = Rig::chain(&[1, 2, 3]);
    let lost = rig.put(1, "k", "1");
    rig.lose_frames();
    rig.input(1, ReplicaInput::Disconnected(member(2)));
    let later = rig.put(1, "k", "2");
    rig.settle();
    assert!(!rig.replies.contains_key(&lost));
    rig.input(1, ReplicaInput::Connected(member(2)));
    rig.settle();
    assert_eq!((rig.committed(lost), rig.committed(later)), (Version::new(1, 1), Version::new(1, 2)));
}

#[test]
fn a_gap_is_seen_and_filled() {
    let mut rig = Rig::chain(&[1, 2]);
    rig.room = 1;
    let puts = [rig.put(1, "a", "v"), rig.put(1, "b", "v"), rig.put(1, "c", "v")];
    rig.transmit();
    let _lost = rig.wire.get_mut(&(1, 2)).unwrap().pop_front();
    rig.settle();
    puts.iter().for_each(|&put| assert!(rig.committed(put) > Version::NONE));
    assert_eq!(rig.last(2), Version::new(1, 3));
}

#[test]
fn the_last_lost_update_is_sent_again_on_lossy_links() {
    let settings = ReplicaSettings { resend: Some(Duration::from_millis(200)), ..ReplicaSettings::default() };
    let mut rig = Rig::open(&[1, 2], &settings);
    let put = rig.put(1, "k", "v");
    rig.lose_frames();
    rig.beat(4);
    rig.committed(put);
}

#[test]
fn a_lost_watermark_is_repeated_until_echoed() {
    let mut rig = Rig::chain(&[1, 2, 3]);
    let put = rig.put(1, "k", "v");
    rig.run_along(&[1, 2, 3]);
    rig.lose_frames();
    rig.beat(1);
    rig.committed(put);
    rig.beat(1);
    assert!(rig.replicas.values().all(|replica| replica.next_tick().is_none()), "no member has a timer left");
}

#[test]
fn hop_acknowledgements_carry_the_watermark_past_a_dead_link() {
    let mut rig = Rig::chain(&[1, 2, 3]);
    rig.input(3, ReplicaInput::Disconnected(member(1)));
    let put = rig.put(1, "k", "v");
    rig.beat(1);
    rig.committed(put);
}

#[test]
fn a_write_expires_once_and_commits_all_the_same() {
    let mut rig = Rig::chain(&[1, 2]);
    let (token, deadline) = (Token(77), rig.now + Duration::from_millis(50));
    let write = Write::put("k".into(), "v".into());
    rig.input(1, ReplicaInput::Write { token, request: None, write, deadline });
    rig.heartbeat();
    assert_eq!(rig.replies[&77], Reply::Expired);
    rig.settle();
    assert_eq!(rig.watermark(1), 1);
    assert_eq!(rig.replicas[&1].status().waiting_writes, 0);
}

#[test]
fn repeated_and_late_updates_change_nothing() {
    let mut rig = Rig::chain(&[1, 2]);
    rig.put(1, "k", "1");
    rig.transmit();
    let early: Vec<_> = rig.wire[&(1, 2)].iter().cloned().collect();
    rig.settle();
    rig.commit(1, "k", "2");
    rig.receive(1, 2, early);
    assert_eq!(rig.last(2), Version::new(1, 2));
    assert_eq!(rig.local(2, "k").unwrap().unwrap().value.unwrap(), "2");
}

#[test]
fn an_unknown_kind_of_update_stops_the_member() {
    let mut rig = Rig::chain(&[1, 2]);
    rig.put(1, "k", "1");
    rig.transmit();
    let mut frames: Vec<_> = rig.wire.remove(&(1, 2)).unwrap().into_iter().collect();
    for frame in &mut frames {
        if let ChainMessage::Updates(updates) = &mut frame.message {
            updates.updates[0].kind = crate::types::update::UpdateKind(200);
        }
    }
    rig.receive(1, 2, frames);
    assert!(rig.events.contains(&(2, ReplicaEvent::Halted(Halt::UnknownKind(200)))));
    assert_eq!(rig.local(2, "k"), Err(NotLocal::NotHere));
    let get = rig.read(2, "k", ReadMode::Strong);
    assert_eq!(rig.replies[&get], Reply::Refused(Refusal::NoChain));
}

#[test]
fn frames_of_strangers_and_other_chains_are_ignored() {
    let mut rig = Rig::chain(&[1, 2]);
    rig.put(1, "k", "1");
    rig.transmit();
    let frame = rig.wire.remove(&(1, 2)).unwrap().pop_back().unwrap();
    rig.receive(9, 2, [frame.clone()]);
    rig.receive(1, 2, [ChainFrame { chain: ChainId(1), ..frame.clone() }]);
    rig.receive(1, 2, [2, 0].map(|epoch| ChainFrame { epoch: Epoch(epoch), ..frame.clone() }));
    assert_eq!(rig.last(2), Version::NONE);
}

#[test]
fn the_backlog_is_bounded() {
    let mut rig = Rig::open(&[1, 2], &ReplicaSettings { backlog: 1000, ..ReplicaSettings::default() });
    for _ in 0..100 {
        rig.commit(1, "k", "v");
    }
    for n in [1, 2] {
        let status = rig.replicas[&n].status();
        assert!(status.backlog <= 1000 && status.in_flight == 0, "{status:?}");
    }
}

#[test]
fn classic_reads_are_served_by_the_tail() {
    let mut rig = Rig::new(&[1, 2], &ReplicaSettings::default());
    let mut classic = (*config(1, &[1, 2])).clone();
    classic.mode = Mode::Classic;
    rig.enter_all(&Arc::new(classic));
    rig.settle();
    let get = rig.read(1, "k", ReadMode::Strong);
    assert_eq!(rig.replies[&get], Reply::Refused(Refusal::NotTail(Some(member(2)))));
    let get = rig.read(2, "k", ReadMode::Strong);
    assert_eq!(rig.found(get), (None, true, ReadPath::Local));
    assert!(rig.local(1, "k").is_err(), "no other member's gate serves them");
    assert_eq!(rig.local(2, "k"), Ok(None));
}
