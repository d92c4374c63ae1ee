//! Reads of many keys at one sequence, scans, snapshots, bounded reads, and session floors.

use std::time::Duration;

use bytes::Bytes;

use super::{super::*, rig::*};
use crate::api::*;

fn keys(names: &[&'static str]) -> Query {
    Query::Keys(names.iter().map(|&name| name.into()).collect())
}

fn values(rig: &Rig, token: u64) -> Vec<Option<Bytes>> {
    match &rig.replies[&token] {
        Reply::Cut(cut) => cut.found.iter().map(|held| held.as_ref()?.value.clone()).collect(),
        other => panic!("{other:?} is no cut"),
    }
}

fn page(rig: &Rig, token: u64) -> &ScanReply {
    match &rig.replies[&token] {
        Reply::Page(page) => page,
        other => panic!("{other:?} is no page"),
    }
}

fn names(page: &ScanReply) -> Vec<&str> {
    page.records.iter().map(|record| std::str::from_utf8(&record.key).unwrap()).collect()
}

fn scan(prefix: &'static str, after: Option<Bytes>, limit: u32, snapshot: Snapshot) -> Query {
    Query::Scan(ScanQuery { prefix: prefix.into(), after, limit, snapshot })
}

fn both(value: &'static str) -> Write {
    let put = |key: &'static str| Step::put(key.into(), value.into());
    Write::Batch(vec![put("a"), put("b")])
}

#[test]
fn a_batch_is_seen_whole_or_not_at_all() {
    let mut rig = Rig::chain(&[1, 2, 3]);
    rig.write(1, both("old"));
    rig.beat(1);
    let clean = rig.ask(2, keys(&["a", "absent", "b"]), ReadMode::Strong, None);
    assert_eq!(values(&rig, clean), [Some("old".into()), None, Some("old".into())]);
    rig.write(1, both("new"));
    rig.run(1, 2);
    let dirty = rig.ask(2, keys(&["a", "b"]), ReadMode::Strong, None);
    let through = rig.ask(2, keys(&["a", "b"]), ReadMode::ThroughChain, None);
    assert!(!rig.replies.contains_key(&dirty));
    rig.run_along(&[2, 3, 2]);
    assert_eq!(values(&rig, dirty), [Some("new".into()), Some("new".into())]);
    rig.settle();
    assert_eq!(values(&rig, through), [Some("new".into()), Some("new".into())]);
    let none = rig.ask(2, keys(&[]), ReadMode::Strong, None);
    assert!(matches!(rig.replies[&none], Reply::Refused(Refusal::BatchSize { len: 0, .. })));
}

#[test]
fn a_scan_goes_on_behind_its_last_key() {
    let mut rig = Rig::chain(&[1, 2]);
    for key in ["x/1", "x/2", "x/3", "x/4", "y/1", "w"] {
        rig.put(1, key, "v");
    }
    rig.write(1, Write::Delete { key: "x/2".into() });
    rig.settle();
    let first = rig.ask(2, scan("x/", None, 2, Snapshot::No), ReadMode::Strong, None);
    let (found, next) = (names(page(&rig, first)), page(&rig, first).next.clone());
    assert_eq!((found, next.clone()), (vec!["x/1", "x/3"], Some("x/3".into())));
    rig.put(1, "x/0", "before");
    rig.commit(1, "x/5", "behind");
    let second = rig.ask(2, scan("x/", next, 9, Snapshot::No), ReadMode::Strong, None);
    assert_eq!((names(page(&rig, second)), page(&rig, second).next.clone()), (vec!["x/4", "x/5"], None));
    let all = rig.ask(2, scan("", None, 9, Snapshot::No), ReadMode::Strong, None);
    assert_eq!(names(page(&rig, all)).len(), 7);
}

#[test]
fn a_scan_shows_no_pending_version() {
    let mut rig = Rig::chain(&[1, 2, 3]);
    rig.put(1, "a", "old");
    rig.beat(1);
    rig.put(1, "b", "new");
    rig.run(1, 2);
    let strong = rig.ask(2, scan("", None, 9, Snapshot::No), ReadMode::Strong, None);
    assert!(!rig.replies.contains_key(&strong), "it must query the tail");
    let eventual = rig.ask(2, scan("", None, 9, Snapshot::No), ReadMode::Eventual, None);
    assert_eq!(names(page(&rig, eventual)), ["a"]);
    rig.settle();
    assert_eq!(page(&rig, strong).way, ReadPath::Query);
}

#[test]
fn a_snapshot_shows_one_point_of_the_history() {
    let mut rig = Rig::chain(&[1, 2]);
    for key in ["a", "b", "c"] {
        rig.put(1, key, "old");
    }
    rig.beat(1);
    let first = rig.ask(2, scan("", None, 1, Snapshot::Begin), ReadMode::Strong, None);
    let (number, next) = (page(&rig, first).snapshot.unwrap(), page(&rig, first).next.clone());
    for key in ["b", "c", "d"] {
        rig.put(1, key, "new");
    }
    rig.write(1, Write::Delete { key: "b".into() });
    rig.beat(1);
    let rest = rig.ask(2, scan("", next.clone(), 9, Snapshot::Of(number)), ReadMode::Strong, None);
    assert_eq!(names(page(&rig, rest)), ["b", "c"]);
    assert!(page(&rig, rest).records.iter().all(|record| record.held.value == Some("old".into())));
    assert_eq!(rig.replicas[&2].status().snapshots, 0, "the last page ends the snapshot");
    let gone = rig.ask(2, scan("", next, 9, Snapshot::Of(number)), ReadMode::Strong, None);
    assert!(matches!(rig.replies[&gone], Reply::Refused(Refusal::SnapshotGone)));
    rig.ask(2, scan("", None, 9, Snapshot::Begin), ReadMode::Strong, None);
    assert_eq!(rig.replicas[&2].status().snapshots, 0, "the first page was the last one");
}

#[test]
fn snapshots_fail_before_writes_do() {
    let mut rig = Rig::open(
        &[1],
        &ReplicaSettings {
            snapshots: SnapshotLimits { bytes: 1000, ..SnapshotLimits::default() },
            ..ReplicaSettings::default()
        },
    );
    rig.put(1, "a", "v");
    rig.put(1, "b", "v");
    for _ in 0..2 {
        rig.ask(1, scan("", None, 1, Snapshot::Begin), ReadMode::Strong, None);
    }
    assert_eq!(rig.replicas[&1].status().snapshots, 2);
    for _ in 0..10 {
        rig.put(1, "a", "w");
    }
    assert_eq!(rig.replicas[&1].status().snapshots, 0, "too much was written");
    rig.ask(1, scan("", None, 1, Snapshot::Begin), ReadMode::Strong, None);
    for _ in 0..700 {
        rig.heartbeat();
    }
    assert_eq!(rig.replicas[&1].status().snapshots, 0, "no page was requested in time");
    for _ in 0..65 {
        rig.ask(1, scan("", None, 1, Snapshot::Begin), ReadMode::Strong, None);
    }
    assert_eq!(rig.replicas[&1].status().snapshots, 64, "the number of snapshots is limited");
}

/// A chain of three in which the middle holds two pending versions of "k" above a committed one.
fn two_ahead() -> Rig {
    let mut rig = Rig::chain(&[1, 2, 3]);
    rig.put(1, "k", "old");
    rig.beat(1);
    rig.put(1, "k", "one");
    rig.put(1, "k", "two");
    rig.run(1, 2);
    rig
}

#[test]
fn a_bounded_read_counts_pending_versions() {
    let mut rig = two_ahead();
    let age = Duration::from_secs(10);
    let enough = rig.read(2, "k", ReadMode::Bounded { versions: 2, age });
    assert_eq!(rig.found(enough), (Some("two".into()), false, ReadPath::Local));
    let strict = rig.read(2, "k", ReadMode::Bounded { versions: 1, age });
    assert!(!rig.replies.contains_key(&strict), "it must query the tail");
    rig.run(2, 3);
    rig.settle();
    assert_eq!(rig.found(strict), (Some("two".into()), true, ReadPath::Query));
}

#[test]
fn a_bounded_read_shows_how_far_it_may_be_behind() {
    let mut rig = two_ahead();
    let age = Duration::from_millis(50);
    rig.now = rig.now + Duration::from_secs(1);
    let old = rig.read(2, "k", ReadMode::Bounded { versions: 9, age });
    assert!(!rig.replies.contains_key(&old), "the last renewal is a second old");
    rig.settle();
    assert_eq!(rig.found(old).2, ReadPath::Query);
    rig.put(1, "k", "three");
    rig.run(1, 2);
    let fresh = rig.read(2, "k", ReadMode::Bounded { versions: 9, age });
    assert_eq!(rig.found(fresh), (Some("three".into()), false, ReadPath::Local), "the query proved it current");
    rig.input(2, ReplicaInput::Lease(Timestamp::MAX));
    rig.now = rig.now + age;
    let renewed = rig.read(2, "k", ReadMode::Bounded { versions: 9, age });
    assert_eq!(rig.found(renewed).2, ReadPath::Local, "and so does a lease renewal");
}

#[test]
fn a_session_never_goes_back() {
    let mut rig = Rig::chain(&[1, 2, 3]);
    let put = rig.put(1, "k", "v");
    rig.run_along(&[1, 2, 3]);
    rig.transmit();
    // The head learns of the commit, but not the middle.
    while rig.deliver(3, 1) {}
    let floor = rig.committed(put).sequence;
    let eventual = rig.ask(2, Query::Key("k".into()), ReadMode::Eventual, Some(floor));
    assert!(!rig.replies.contains_key(&eventual), "its watermark is below the floor");
    let at_head = rig.ask(1, Query::Key("k".into()), ReadMode::Eventual, Some(floor));
    assert_eq!(rig.found(at_head), (Some("v".into()), true, ReadPath::Local));
    rig.heartbeat();
    rig.settle();
    assert_eq!(rig.found(eventual), (Some("v".into()), true, ReadPath::Local));
    let Reply::Read(read) = &rig.replies[&eventual] else { panic!("a read") };
    assert!(read.as_of >= floor);
}

#[test]
fn in_a_session_only_committed_versions_are_shown() {
    let mut rig = two_ahead();
    let query = || Query::Key("k".into());
    let eventual = rig.ask(2, query(), ReadMode::Eventual, Some(Sequence(1)));
    assert_eq!(rig.found(eventual), (Some("old".into()), true, ReadPath::Local));
    let mode = ReadMode::Bounded { versions: 5, age: Duration::from_secs(10) };
    let bounded = rig.ask(2, query(), mode, Some(Sequence(1)));
    assert_eq!(rig.found(bounded), (Some("old".into()), true, ReadPath::Local));
}
