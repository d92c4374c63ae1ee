//! Watches: queries for committed changes.

use std::time::Duration;

use bytes::Bytes;

use super::{super::*, rig::*};
use crate::api::*;

fn behind(prefix: impl Into<Bytes>, after: u64) -> Query {
    Query::Changes(WatchQuery { prefix: prefix.into(), after: Some(Sequence(after)), shown: 0 })
}

fn ask(rig: &mut Rig, n: u8, prefix: &'static str, after: Option<u64>) -> u64 {
    let watch = WatchQuery { prefix: prefix.into(), after: after.map(Sequence), shown: 0 };
    rig.ask(n, Query::Changes(watch), ReadMode::Eventual, None)
}

fn changes(rig: &Rig, token: u64) -> (Vec<(Bytes, Option<Bytes>)>, u64) {
    match &rig.replies[&token] {
        Reply::Changes(changes) => {
            let record = |record: &crate::store::ScanRecord| (record.key.clone(), record.held.value.clone());
            (changes.records.iter().map(record).collect(), changes.upto.0)
        }
        other => panic!("{other:?} are no changes"),
    }
}

#[test]
fn changes_come_in_order_when_they_are_committed() {
    let mut rig = Rig::chain(&[1, 2, 3]);
    let now = ask(&mut rig, 2, "", None);
    assert_eq!(changes(&rig, now), (vec![], 0));
    let waits = ask(&mut rig, 2, "k/", Some(0));
    rig.put(1, "other", "x");
    rig.beat(1);
    assert!(!rig.replies.contains_key(&waits), "no change of its prefix");
    rig.put(1, "k/1", "a");
    rig.run(1, 2);
    assert!(!rig.replies.contains_key(&waits), "the change isn't committed");
    rig.settle();
    assert_eq!(changes(&rig, waits), (vec![("k/1".into(), Some("a".into()))], 2));
    rig.put(1, "k/2", "b");
    let step = |key: &'static str| Step::put(key.into(), "c".into());
    rig.write(1, Write::Batch(vec![step("k/1"), step("k/3"), step("else")]));
    rig.write(1, Write::Delete { key: "k/2".into() });
    rig.beat(1);
    let all = ask(&mut rig, 3, "k/", Some(2));
    let expected = [("k/2", Some("b")), ("k/1", Some("c")), ("k/3", Some("c")), ("k/2", None)];
    let expected: Vec<_> = expected.map(|(key, value)| (Bytes::from(key), value.map(Bytes::from))).into();
    assert_eq!(changes(&rig, all), (expected, 5));
}

#[test]
fn an_expired_watch_gets_the_position_reached() {
    let mut rig = Rig::chain(&[1]);
    let deadline = rig.now + Duration::from_millis(50);
    let waits = rig.ask_until(1, behind("k/", 0), ReadMode::Eventual, deadline);
    rig.put(1, "other", "x");
    rig.heartbeat();
    assert_eq!(changes(&rig, waits), (vec![], 1));
    assert_eq!(rig.replicas[&1].status().watchers, 0);
}

/// A follower that isn't level: its pages are newer than its position.
#[test]
fn a_watch_with_a_floor_after_its_position_gets_the_position_reached() {
    let mut rig = Rig::chain(&[1, 2]);
    rig.put(1, "other", "x");
    rig.put(1, "other", "y");
    rig.beat(1);
    let ask = |rig: &mut Rig, after, floor| rig.ask(2, behind("k/", after), ReadMode::Eventual, Some(Sequence(floor)));
    let not_level = ask(&mut rig, 0, 1);
    assert_eq!(changes(&rig, not_level), (vec![], 2));
    let (level, below_floor) = (ask(&mut rig, 2, 2), ask(&mut rig, 1, 4));
    rig.put(1, "k/1", "a");
    rig.beat(1);
    assert_eq!(changes(&rig, level).1, 3);
    assert!(!rig.replies.contains_key(&below_floor), "the floor isn't reached");
    rig.put(1, "other", "z");
    rig.beat(1);
    assert_eq!(changes(&rig, below_floor), (vec![("k/1".into(), Some("a".into()))], 4));
    let status = rig.replicas[&2].status();
    assert_eq!((status.watchers, status.parked_reads), (0, 0));
}

#[test]
fn a_watch_below_its_floor_loses_no_change_at_its_deadline() {
    let mut rig = Rig::chain(&[1]);
    let deadline = rig.now + Duration::from_millis(50);
    let token = Token(1000);
    let (query, floor) = (behind("k/", 0), Some(Sequence(9)));
    rig.input(1, ReplicaInput::Read { token, query, mode: ReadMode::Eventual, floor, deadline });
    rig.put(1, "k/1", "a");
    rig.heartbeat();
    assert!(matches!(rig.replies[&token.0], Reply::Expired));
    let again = ask(&mut rig, 1, "k/", Some(0));
    assert_eq!(changes(&rig, again).0.len(), 1);
}

#[test]
fn a_watch_behind_the_backlog_is_refused() {
    let mut rig = Rig::open(&[1], &ReplicaSettings { backlog: 500, ..ReplicaSettings::default() });
    for _ in 0..20 {
        rig.put(1, "k", "v");
    }
    let old = ask(&mut rig, 1, "", Some(0));
    let Reply::Refused(Refusal::Compacted { first }) = rig.replies[&old] else { panic!("{:?}", rig.replies[&old]) };
    assert!(first > 1 && first <= 20);
    let kept = ask(&mut rig, 1, "", Some(first - 1));
    assert_eq!(changes(&rig, kept).0.len() as u64, 20 - (first - 1));
}

#[test]
fn a_halted_member_refuses_its_watches() {
    let mut rig = Rig::chain(&[1, 2]);
    let waits = ask(&mut rig, 2, "", Some(0));
    let below_floor = rig.ask(2, behind("", 0), ReadMode::Eventual, Some(Sequence(9)));
    let ahead = crate::message::Control { watermark: Sequence(9), ..Default::default() };
    let message = ChainMessage::Control(ahead);
    let frame = ChainFrame { chain: ChainId(0), epoch: crate::Epoch(1), index: 1, message };
    rig.input(2, ReplicaInput::Receive { from: member(1), frame });
    for refused in [waits, below_floor] {
        assert!(matches!(rig.replies[&refused], Reply::Refused(Refusal::NoChain)));
    }
}

#[test]
fn waiting_queries_are_bounded_in_bytes() {
    let mut rig = Rig::open(&[1], &ReplicaSettings { watches: 3 * 300, ..ReplicaSettings::default() });
    let waiting: Vec<_> = (0..3).map(|_| ask(&mut rig, 1, "a", Some(0))).collect();
    let refused = ask(&mut rig, 1, "a", Some(0));
    assert_eq!(rig.replies[&refused], Reply::Refused(Refusal::Busy));
    rig.put(1, "ab", "x");
    for token in waiting {
        assert_eq!(changes(&rig, token), (vec![("ab".into(), Some("x".into()))], 1));
    }
    ask(&mut rig, 1, "b", Some(1));
    assert_eq!(rig.replicas[&1].status().watchers, 1);
}

#[test]
fn a_fruitless_query_of_a_long_history_gets_the_position_reached() {
    let mut rig = Rig::chain(&[1]);
    let step = |n: usize| Step::put(format!("{n:04}").into(), "v".into());
    for _ in 0..8 {
        rig.write(1, Write::Batch((0..4096).map(step).collect()));
    }
    let asked = ask(&mut rig, 1, "none", Some(0));
    assert_eq!(changes(&rig, asked), (vec![], 4));
    let asked = ask(&mut rig, 1, "none", Some(4));
    assert!(!rig.replies.contains_key(&asked), "the whole history was examined");
}

#[test]
fn a_position_behind_all_sequences_waits_until_its_deadline() {
    let mut rig = Rig::chain(&[1]);
    let asked = ask(&mut rig, 1, "", Some(u64::MAX));
    rig.put(1, "k", "v");
    assert!(!rig.replies.contains_key(&asked));
    let query = Query::Changes(WatchQuery { prefix: "".into(), after: Some(Sequence(u64::MAX)), shown: u32::MAX });
    let waits = rig.ask_until(1, query, ReadMode::Eventual, rig.now);
    rig.heartbeat();
    assert_eq!(changes(&rig, waits), (vec![], u64::MAX));
}

#[test]
fn a_prefix_longer_than_any_key_is_refused() {
    let mut rig = Rig::chain(&[1]);
    let refused = Reply::Refused(Refusal::KeyTooLong { len: 4097, limit: 4096 });
    let long = Bytes::from(vec![b'k'; 4097]);
    let scan = |prefix, after| Query::Scan(ScanQuery { prefix, after, limit: 1, snapshot: Snapshot::No });
    for query in [behind(long.clone(), 0), scan(long.clone(), None), scan(Bytes::new(), Some(long.clone()))] {
        let token = rig.ask(1, query, ReadMode::Eventual, None);
        assert_eq!(rig.replies[&token], refused);
    }
}

#[test]
fn a_rare_change_behind_many_others_is_found() {
    let mut rig = Rig::chain(&[1]);
    let deadline = rig.now + Duration::from_millis(50);
    let watch = rig.ask_until(1, behind("rare/", 0), ReadMode::Eventual, deadline);
    for _ in 0..9000 {
        rig.put(1, "other", "x");
    }
    rig.put(1, "rare/1", "a");
    let at_once = rig.replies.contains_key(&watch);
    rig.heartbeat();
    let (records, upto) = changes(&rig, watch);
    assert!(!records.is_empty() || upto < 9001, "lost: upto {upto}, answered at once: {at_once}");
    assert!(at_once);
}

#[test]
fn a_watch_is_matched_once_for_many_changes() {
    const LEN: u64 = 200;
    let mut rig = Rig::chain(&[1]);
    let prefix = |len: u64| vec![b'a'; len as usize];
    let ask = |len| rig.ask(1, behind(prefix(len), 0), ReadMode::Eventual, None);
    let watches: Vec<u64> = (1..=LEN).map(ask).collect();
    let key = |n: u32| Bytes::from([prefix(LEN), n.to_be_bytes().to_vec()].concat());
    rig.write(1, Write::Batch((0..50).map(|n| Step::put(key(n), Bytes::new())).collect()));
    for watch in watches {
        assert_eq!(changes(&rig, watch).0.len(), 50);
    }
    assert_eq!(rig.replicas[&1].status().watchers, 0);
}
