//! Chain time: the stamps of a head after changes of heads, cuts, snapshots and restarts (docs/adr/0031-chain-time.md).

use std::time::Duration;

use super::{super::*, restore::restored, rig::*};
use crate::{
    api::Write,
    guards::Mutant,
    journal::JournalEntry,
    message::{SnapshotContent, SnapshotPart},
};

fn seconds(seconds: u64) -> Timestamp {
    Timestamp::from_nanos(seconds * 1_000_000_000)
}

/// Writes at the head `n` when its clock shows this many seconds. Returns the stamp in milliseconds.
fn put_at(rig: &mut Rig, n: u8, at: u64) -> u64 {
    rig.now = seconds(at);
    rig.put(n, "k", "v");
    newest(rig, n)
}

fn newest(rig: &Rig, n: u8) -> u64 {
    rig.replicas[&n].history().next_back().expect("an update").chain_time
}

#[test]
fn a_head_counts_by_its_own_clock() {
    let mut rig = Rig::chain(&[1, 2]);
    let first = put_at(&mut rig, 1, 5);
    assert_eq!(put_at(&mut rig, 1, 7), first + 2000);
    assert_eq!(put_at(&mut rig, 1, 6), first + 2000, "a clock reading from before the last one");
    assert_eq!(put_at(&mut rig, 1, 9), first + 4000);
}

#[test]
fn a_new_head_counts_from_the_receipt_of_the_newest_update() {
    let mut rig = Rig::chain(&[1, 2]);
    let last = put_at(&mut rig, 1, 5);
    rig.now = seconds(6);
    rig.settle();
    rig.now = seconds(20);
    rig.enter(&[2], &config(2, &[2]));
    assert_eq!(put_at(&mut rig, 2, 30), last + 24_000, "it received the update one second after it was made");
}

/// Member 1 is cut off as head and stamps ten minutes on, by a clock that is ahead of the others' by as much. The
/// others make no update. It returns and becomes head. Returns its next stamp, and the newest one before.
fn returns_from_the_future(mutant: Option<Mutant>) -> [u64; 2] {
    let mut rig = Rig::open(&[1, 2, 3], &without(mutant));
    put_at(&mut rig, 1, 1);
    rig.settle();
    put_at(&mut rig, 1, 600);
    rig.lose_frames();
    rig.now = seconds(2);
    rig.enter(&[2, 3], &config(2, &[2, 3]));
    rig.settle_without(&[(1, 2), (2, 1), (1, 3), (3, 1)]);
    rig.enter_all(&joining(3, &[2, 3], 1));
    rig.beat(2);
    rig.enter_all(&config(4, &[2, 3, 1]));
    rig.beat(2);
    rig.enter_all(&config(5, &[1, 2, 3]));
    rig.beat(2);
    let before = newest(&rig, 1);
    rig.put(1, "k", "later");
    [newest(&rig, 1), before]
}

#[test]
fn a_dropped_stamp_does_not_count() {
    let [next, before] = returns_from_the_future(None);
    assert!(next - before < 2000, "{before} {next}");
    let [next, before] = returns_from_the_future(Some(Mutant::KeepDroppedStamps));
    assert!(next - before > 500_000, "{before} {next}");
}

/// Member 2 receives an update of head 1 a minute late, becomes head, and makes one with the same stamp. Returns by how
/// much the stamps of head 1 rise afterwards, within ten seconds.
fn rises_in_ten_seconds(mutant: Option<Mutant>) -> u64 {
    let mut rig = Rig::open(&[1, 2], &without(mutant));
    put_at(&mut rig, 1, 5);
    rig.now = seconds(65);
    rig.settle();
    rig.enter_all(&config(2, &[2, 1]));
    rig.settle();
    let between = put_at(&mut rig, 2, 65);
    rig.settle();
    rig.enter_all(&config(3, &[1, 2]));
    rig.settle();
    put_at(&mut rig, 1, 75) - between
}

#[test]
fn time_before_the_newest_update_does_not_count() {
    assert_eq!(rises_in_ten_seconds(None), 10_000);
    assert_eq!(rises_in_ten_seconds(Some(Mutant::KeepOlderBase)), 70_000);
}

#[test]
fn a_refused_write_moves_no_base() {
    let mut rig = Rig::chain(&[1, 2]);
    put_at(&mut rig, 1, 0);
    rig.settle();
    rig.now = seconds(500);
    rig.enter_all(&config(2, &[1, 2]));
    rig.settle();
    let last = newest(&rig, 2);
    rig.replicas.get_mut(&1).unwrap().log.next_stamp(seconds(600));
    rig.enter_all(&config(3, &[2, 1]));
    rig.settle();
    let between = put_at(&mut rig, 2, 601);
    rig.settle();
    rig.enter_all(&config(4, &[1, 2]));
    rig.settle();
    assert_eq!(put_at(&mut rig, 1, 700) - between, 99_000, "{last} {between}");
}

/// The stamp with which the checkpoint of a head begins that has a pending update, made ten seconds after the
/// watermark's, and the stamp of the watermark's update.
fn begins_with(mutant: Option<Mutant>) -> [u64; 2] {
    let mut rig = Rig::open(&[1, 2], &ReplicaSettings { durable: true, backlog: 0, ..without(mutant) });
    let committed = put_at(&mut rig, 1, 5);
    rig.beat(2);
    put_at(&mut rig, 1, 15);
    rig.replicas.get_mut(&1).unwrap().begin_checkpoint();
    rig.transmit();
    let parts = rig.journals[&1].iter().filter_map(|entry| match entry {
        JournalEntry::Sent(frame) => Some(&frame.message),
        _ => None,
    });
    let begun = parts.filter_map(|message| match message {
        ChainMessage::Snapshot(SnapshotPart { content: SnapshotContent::Begin(header), .. }) => Some(header.chain_time),
        _ => None,
    });
    let begun = begun.last();
    [begun.expect("a checkpoint"), committed]
}

#[test]
fn a_snapshot_begins_with_the_stamp_of_its_last_update() {
    let [begun, committed] = begins_with(None);
    assert_eq!(begun, committed);
    let [begun, committed] = begins_with(Some(Mutant::ShowPendingStamp));
    assert_eq!(begun, committed + 10_000);
}

/// Restarts the head of a chain of two from its journal. Returns the stamp of its next update, made alone five seconds
/// after it has entered a configuration again, and the stamps of its committed and of its pending update.
fn restarts(drops: bool) -> [u64; 3] {
    let mut rig = Rig::open(&[1, 2], &ReplicaSettings { durable: true, ..ReplicaSettings::default() });
    let committed = put_at(&mut rig, 1, 5);
    rig.beat(2);
    let keep = rig.last(1);
    let pending = put_at(&mut rig, 1, 15);
    rig.transmit();
    let mut entries = rig.journals[&1].clone();
    if drops {
        entries.push(JournalEntry::Cut { chain: ChainId(0), keep });
    }
    let mut replica = restored(&entries).unwrap().unwrap().replica;
    replica.handle(seconds(1000), ReplicaInput::Lease(Timestamp::MAX));
    replica.handle(seconds(1000), ReplicaInput::Enter(config(2, &[1])));
    let write = Write::Delete { key: "k".into() };
    replica.handle(seconds(1005), ReplicaInput::Write { token: Token(9), request: None, write, deadline: FAR });
    let next = replica.history().next_back().expect("an update").chain_time;
    [next, committed, pending]
}

#[test]
fn a_restart_begins_with_the_newest_stamp_that_is_left() {
    let [next, _, pending] = restarts(false);
    assert_eq!(next, pending + 5000);
    let [next, committed, _] = restarts(true);
    assert_eq!(next, committed + 5000);
}

#[test]
fn a_joiner_begins_with_the_stamp_of_the_newest_update_that_it_received() {
    // The backlog has space for one update, so the joiner needs a snapshot.
    let settings = ReplicaSettings { backlog: 150, ..ReplicaSettings::default() };
    let mut rig = Rig::new(&[1, 2], &settings);
    rig.enter(&[1], &config(1, &[1]));
    put_at(&mut rig, 1, 5);
    let last = put_at(&mut rig, 1, 15);
    rig.enter_all(&joining(2, &[1], 2));
    rig.beat(3);
    let joined = rig.now;
    assert!(rig.status(2).resync.full > 0);
    rig.enter(&[2], &config(3, &[2]));
    rig.now = joined + Duration::from_secs(7);
    rig.put(2, "k", "v");
    let passed = newest(&rig, 2) - last;
    assert!((7000..8000).contains(&passed), "{passed}");
}
