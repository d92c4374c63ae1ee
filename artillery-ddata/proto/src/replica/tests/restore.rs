//! A restart: a member's state is restored from its journal.

use std::collections::BTreeMap;

use bytes::Bytes;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{super::*, rig::*};
use crate::{
    Version,
    api::Write,
    guards::Mutant,
    journal::{EntryPlace, GroupNumber, JournalEntry},
    message::{ChainMessage, SnapshotContent, SnapshotPart},
    store::{MemoryStore, ScanRecord},
    types::update::RequestKey,
};

/// The content of a journal: the chain, its records, and its sessions in debug format.
pub(super) struct Found {
    pub(super) last: Version,
    pub(super) watermark: u64,
    pub(super) unreplicated: u64,
    sessions: String,
    pub(super) records: Vec<ScanRecord>,
    pub(super) store: Arc<MemoryStore>,
    pub(super) replica: Replica,
}

pub(super) fn restored(entries: &[JournalEntry]) -> Result<Option<Found>, RestoreError> {
    restored_as(1, entries)
}

/// Restores member `n` from these entries. `None` if its store is not whole.
pub(super) fn restored_as(n: u8, entries: &[JournalEntry]) -> Result<Option<Found>, RestoreError> {
    let places = (0..).map(|n| EntryPlace { group: GroupNumber(n / 3), index: (n % 3) as u32 });
    let mut survey = RestoreSurvey::default();
    places.clone().zip(entries).for_each(|(place, entry)| survey.note(place, entry));
    let store = Arc::new(MemoryStore::with_seed(1));
    let settings = ReplicaSettings { durable: true, ..ReplicaSettings::default() };
    let Some(mut chain) = survey.restore(ChainId(0), store.clone(), settings.backlog)? else { return Ok(None) };
    let floor = survey.floor().expect("a chain has a beginning");
    for (place, entry) in places.zip(entries).filter(|(place, _)| place.group >= floor) {
        chain.take(place, entry.clone())?;
    }
    let chain = chain.finish()?;
    let (last, watermark, unreplicated) = (chain.last(), chain.watermark().0, chain.unreplicated());
    let gate = Arc::new(Gate::new(ChainId(0)));
    let mut replica = Replica::new(member(n), ChainId(0), settings, store.clone(), gate);
    replica.restore(chain);
    let sessions = format!("{:?}", replica.log.sessions());
    let records = store.scan(ChainId(0), b"", Sequence::MAX).map(Result::unwrap).collect();
    Ok(Some(Found { last, watermark, unreplicated, sessions, records, store, replica }))
}

/// A chain of three whose order is rotated occasionally, with writes of many kinds. No acknowledged update is ever
/// lost, so each member's history finally has every committed update.
struct Unrest {
    rig: Rig,
    rng: ChaCha8Rng,
    epoch: u64,
    order: Vec<u8>,
    session: Version,
    number: u64,
}

impl Unrest {
    fn new(seed: u64) -> Self {
        let settings = ReplicaSettings { durable: true, chunk: 64, backlog: 1 << 20, ..ReplicaSettings::default() };
        let mut rig = Rig::open(&[1, 2, 3], &settings);
        let session = rig.session(1);
        let rng = ChaCha8Rng::seed_from_u64(seed);
        Self { rig, rng, epoch: 1, order: vec![1, 2, 3], session, number: 0 }
    }

    fn write(&mut self) {
        let head = self.order[0];
        let key = Bytes::from(format!("k{}", self.rng.random_range(0..5)));
        let len = if self.rng.random_range(0..6) == 0 { 200 } else { self.rng.random_range(0..30) };
        let value = Bytes::from(vec![self.number as u8; len]);
        let write = match self.rng.random_range(0..4) {
            0 => Write::Delete { key },
            1 => Write::GetDelete { key },
            _ => Write::put(key, value),
        };
        self.number += 1;
        let lowest = self.number.saturating_sub(3).max(1);
        let request = RequestKey { session: self.session, number: self.number, lowest };
        self.rig.request(head, Some(request), write);
    }

    /// All members enter an epoch with another order. Uncommitted updates may be cut.
    fn reorder(&mut self) {
        self.rig.reconnect();
        self.epoch += 1;
        let by = self.rng.random_range(1..3);
        self.order.rotate_left(by);
        self.rig.enter_all(&config(self.epoch, &self.order));
    }

    fn step(&mut self) {
        match self.rng.random_range(0..20) {
            0..8 => self.write(),
            8 => self.reorder(),
            9 => self.rig.begin_a_checkpoint(&mut self.rng),
            10 => self.rig.heartbeat(),
            _ => self.rig.pass(&mut self.rng),
        }
    }

    fn rest(&mut self) {
        self.rig.unwritten.clear();
        [1, 2, 3].into_iter().for_each(|n| self.rig.disk(n, true));
        self.rig.beat(4);
    }
}

/// The records after all updates up to `upto`, according to the history of a member that has all of them.
fn folded(replica: &Replica, upto: u64) -> BTreeMap<Bytes, (Version, Bytes)> {
    let mut records = BTreeMap::new();
    for update in replica.history().take_while(|update| update.version.sequence.0 <= upto) {
        for change in &update.changes {
            match &change.value {
                Some(value) => drop(records.insert(change.key.clone(), (update.version, value.clone()))),
                None => drop(records.remove(&change.key)),
            }
        }
    }
    records
}

pub(super) fn values(records: &[ScanRecord]) -> BTreeMap<Bytes, (Version, Bytes)> {
    let held = |record: &ScanRecord| Some((record.key.clone(), (record.held.version, record.held.value.clone()?)));
    records.iter().filter_map(held).collect()
}

#[test]
fn a_whole_journal_makes_the_same_member() {
    for seed in 0..60 {
        let mut unrest = Unrest::new(seed);
        (0..120).for_each(|_| unrest.step());
        unrest.rest();
        let rig = &unrest.rig;
        for n in [1, 2, 3] {
            assert_eq!(rig.status(n).halted, None, "seed {seed}");
            let found = restored(&rig.journals[&n]).unwrap().expect("a whole store");
            assert_eq!(
                (found.last, found.watermark, found.unreplicated),
                (rig.last(n), rig.watermark(n), 0),
                "seed {seed}"
            );
            assert_eq!(values(&found.records), values(&rig.contents(n)), "seed {seed}, member {n}");
            assert_eq!(found.sessions, rig.sessions(n), "seed {seed}, member {n}");
        }
    }
}

#[test]
fn each_beginning_of_a_journal_makes_a_state_that_was_committed() {
    let (mut pending, mut whole, mut cuts, mut checkpoints) = (0, 0, 0, 0);
    for seed in 0..60 {
        let mut unrest = Unrest::new(seed);
        (0..80).for_each(|_| unrest.step());
        unrest.rest();
        let rig = &unrest.rig;
        let journal = &rig.journals[&2];
        cuts += journal.iter().filter(|entry| matches!(entry, JournalEntry::Cut { .. })).count();
        checkpoints += rig.replicas[&2].log.journal().map_or(0, |journal| journal.checkpoints() - 1);
        for end in 0..=journal.len() {
            let Some(found) = restored(&journal[..end]).unwrap_or_else(|why| panic!("seed {seed}, {end}: {why}"))
            else {
                continue;
            };
            whole += 1;
            pending += found.unreplicated;
            let records = found.replica.log.store().scan(b"", Sequence(found.watermark));
            let records: Vec<_> = records.map(Result::unwrap).collect();
            assert_eq!(values(&records), folded(&rig.replicas[&2], found.watermark), "seed {seed}, {end} entries");
        }
    }
    let enough = whole > 1000 && pending > 1000 && cuts > 20 && checkpoints > 50;
    assert!(enough, "{whole} beginnings, {pending} pending updates, {cuts} cuts, {checkpoints} checkpoints");
}

fn parts(entries: &[JournalEntry]) -> impl DoubleEndedIterator<Item = (usize, &SnapshotPart)> {
    entries.iter().enumerate().filter_map(|(place, entry)| {
        let JournalEntry::Sent(frame) = entry else { return None };
        if let ChainMessage::Snapshot(part) = &frame.message { Some((place, part)) } else { None }
    })
}

#[test]
fn a_checkpoint_that_a_later_start_continues_makes_the_same_state() {
    let (mut continued, mut in_sessions, mut in_a_value) = (0, 0, 0);
    for seed in 0..60 {
        let mut unrest = Unrest::new(seed);
        (0..80).for_each(|_| unrest.step());
        let journal = &unrest.rig.journals[&2];
        for end in 0..=journal.len() {
            let Some(mut found) = restored(&journal[..end]).unwrap() else { continue };
            // Updates included in a part must not be cut any longer.
            let shown = parts(&journal[..end]).map(|(_, part)| part.watermark.0).max();
            assert!(shown <= Some(found.watermark), "seed {seed}, {end} entries");
            let Some(checkpoint) = found.replica.log.journal().unwrap().checkpoint() else { continue };
            continued += 1;
            in_sessions += u64::from(checkpoint.has_sessions());
            in_a_value += u64::from(checkpoint.is_in_a_value());
            let mut entries = journal[..end].to_vec();
            while let Some(batch) = found.replica.poll_journal(1 << 20) {
                entries.extend(batch.entries);
            }
            // The entries before the beginning of the checkpoint may be gone.
            let is_begin = |(_, part): &(usize, &SnapshotPart)| matches!(part.content, SnapshotContent::Begin(_));
            let begin = parts(&entries).rev().find(is_begin).unwrap().0;
            let why = |error| panic!("seed {seed}, {end} entries: {error}");
            let again = restored(&entries[begin..]).unwrap_or_else(why).expect("a whole store");
            let state = |found: &Found| (found.last, found.watermark, found.unreplicated, found.sessions.clone());
            assert_eq!(state(&again), state(&found), "seed {seed}, {end} entries");
            assert_eq!(values(&again.records), values(&found.records), "seed {seed}, {end} entries");
        }
    }
    let enough = continued > 200 && in_sessions > 20 && in_a_value > 5;
    assert!(
        enough,
        "{continued} were continued, {in_sessions} of them within the session table, {in_a_value} within a value"
    );
}

/// While a member's journal accepts no writes, an update is cut and replaced by one that the chain commits without this
/// member. Returns the restored state, or an error if a watermark covers the cut update.
fn restored_behind_a_late_journal(mutant: Option<Mutant>) -> Result<Option<Found>, RestoreError> {
    let mut rig = Rig::open(&[1, 2, 3], &ReplicaSettings { durable: true, ..without(mutant) });
    rig.commit(1, "k", "1");
    rig.unwritten.insert(2);
    rig.put(1, "k", "lost");
    rig.run(1, 2);
    rig.wire.clear();
    for (a, b) in [(1, 2), (1, 3), (2, 3)] {
        rig.cut_link(a, b);
    }
    rig.enter(&[3, 2], &joining(2, &[3], 2));
    rig.commit(3, "k", "2");
    rig.join_link(2, 3);
    rig.beat(2);
    assert_eq!((rig.last(2), rig.watermark(2)), (Version::new(2, 2), 2));
    rig.unwritten.clear();
    rig.settle();
    restored(&rig.journals[&2])
}

#[test]
fn a_watermark_speaks_of_what_stands_before_it() {
    let found = restored_behind_a_late_journal(None).unwrap().unwrap();
    assert_eq!(found.last, Version::new(2, 2));
    assert_eq!(values(&found.records)["k".as_bytes()].1, "2");
}

#[test]
fn a_late_watermark_commits_what_was_cut() {
    let restored = restored_behind_a_late_journal(Some(Mutant::StampLate));
    assert!(matches!(restored, Err(RestoreError::Gap { .. })));
}

#[test]
fn a_store_that_is_not_whole_begins_empty() {
    let mut rig = Rig::chain_of_durable(&[1, 2]);
    rig.commit(1, "k", "1");
    let mut entries = rig.journals[&1].clone();
    entries.push(JournalEntry::NotWhole { chain: ChainId(0) });
    assert!(restored(&entries).unwrap().is_none());
    // A journal without its beginning is damaged.
    let lost = &rig.journals[&1][2..];
    assert_eq!(restored(lost).err(), Some(RestoreError::NoBeginning(ChainId(0))));
}

#[test]
fn a_restored_member_serves_and_commits_what_was_pending() {
    let mut rig = Rig::chain_of_durable(&[1]);
    rig.commit(1, "a", "1");
    rig.disk(1, false);
    rig.put(1, "b", "2");
    rig.settle();
    let found = restored(&rig.journals[&1]).unwrap().unwrap();
    assert_eq!((found.watermark, found.unreplicated), (1, 1));
    rig.replicas.insert(1, found.replica);
    rig.journals.clear();
    rig.disks.clear();
    rig.enter_all(&config(2, &[1]));
    rig.settle();
    assert_eq!(rig.watermark(1), 2);
    assert_eq!(rig.commit(1, "c", "3"), Version::new(2, 3));
}
