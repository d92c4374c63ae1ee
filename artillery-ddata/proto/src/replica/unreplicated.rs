//! Records that a restart has found above the watermark (docs/DESIGN.md §8): whether their last update is committed isn't known
//! here. The start of an epoch settles them. They are counted by the updates that they wait for, so an operation costs nothing
//! more once none is left.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use super::ends::Ends as _;
use super::{Replica, ReplicaEvent};
use crate::{Sequence, Timestamp, api::Query, store::StoreError, types::update::Update};

/// While records are unreplicated, a report is due so often.
const REPORT_PERIOD: Duration = Duration::from_secs(10);

/// Upper bounds of the ranges of [`SettledRecords::durations`], in milliseconds.
pub const REREPLICATION_MILLIS: [u64; 12] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 5_000, 30_000];

/// What has become of the records that a restart found above the watermark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rereplication {
    /// Records whose last update isn't known to be committed, of those that the restart found.
    pub left: u64,
    /// Records that the start of an epoch settled.
    pub by_start: SettledRecords,
    /// Records that a strong read met before they were settled. A read meets all records of an update at once, and a scan or
    /// a watch none.
    pub by_read: SettledRecords,
    /// From the first epoch that was entered after the restart until the last record was settled, or the last one so far.
    pub time: Duration,
}

/// Records that are settled, by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SettledRecords {
    /// Their last update is committed.
    pub done: u64,
    /// Their last update was cut off, or a snapshot took the place of the store: the chain had gone on without this member.
    /// An older update of such a record that is above the watermark too counts anew.
    pub superseded: u64,
    /// Records by the time that it took: since the first epoch that was entered, or since the read. [`REREPLICATION_MILLIS`] has
    /// the upper bounds of the ranges; the last range has none.
    pub durations: [u64; REREPLICATION_MILLIS.len() + 1],
    /// The sum of these times.
    pub total: Duration,
}

impl SettledRecords {
    fn count(&mut self, records: u64, took: Duration, is_committed: bool) {
        *(if is_committed { &mut self.done } else { &mut self.superseded }) += records;
        let range = REREPLICATION_MILLIS.iter().position(|&bound| took <= Duration::from_millis(bound));
        self.durations[range.unwrap_or(REREPLICATION_MILLIS.len())] += records;
        self.total += took.saturating_mul(u32::try_from(records).unwrap_or(u32::MAX));
    }
}

/// An update that is the last one of some records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LastUpdate {
    sequence: Sequence,
    records: u64,
    /// When a strong read first met one of the records.
    read: Option<Timestamp>,
}

/// The records that are left, and what became of the others.
#[derive(Clone, Debug, Default)]
pub(super) struct UnreplicatedRecords {
    /// In the order of their sequences.
    updates: VecDeque<LastUpdate>,
    /// When the first epoch after the restart was entered.
    since: Option<Timestamp>,
    next_report: Timestamp,
    so_far: Rereplication,
}

impl UnreplicatedRecords {
    /// The records that these updates changed, which are all above the watermark, oldest first.
    pub(super) fn of<'a>(updates: impl Iterator<Item = &'a Update>) -> Self {
        let mut found = Self { updates: last_updates(updates), ..Self::default() };
        found.so_far.left = found.left();
        found
    }

    pub(super) const fn so_far(&self) -> &Rereplication {
        &self.so_far
    }

    fn left(&self) -> u64 {
        self.updates.iter().map(|update| update.records).sum()
    }

    fn is_empty(&self) -> bool {
        self.updates.is_empty()
    }

    /// A strong read met this version of a record.
    fn read(&mut self, now: Timestamp, version: Sequence) {
        if let Ok(at) = self.updates.binary_search_by_key(&version, |update| update.sequence) {
            self.updates[at].read.get_or_insert(now);
        }
    }

    /// All updates up to `watermark` are committed.
    fn commit(&mut self, now: Timestamp, watermark: Sequence) {
        while let Some(update) = self.updates.take_front_if(|update| update.sequence <= watermark) {
            self.settled(now, update, true);
        }
    }

    /// All updates above `keep` were dropped; `kept` are those from the watermark up to there.
    fn cut<'a>(&mut self, now: Timestamp, keep: Sequence, kept: impl Iterator<Item = &'a Update>) {
        if self.updates.back().is_none_or(|newest| newest.sequence <= keep) {
            return;
        }
        let before = std::mem::take(&mut self.updates);
        self.updates = last_updates(kept);
        for update in before {
            if update.sequence > keep {
                self.settled(now, update, false);
            } else if let Some(read) = update.read {
                self.read(read, update.sequence);
            }
        }
        self.so_far.left = self.left();
    }

    fn settled(&mut self, now: Timestamp, update: LastUpdate, is_committed: bool) {
        let since = self.since.unwrap_or(now);
        let so_far = &mut self.so_far;
        so_far.left -= update.records;
        so_far.time = now - since;
        match update.read {
            Some(read) => so_far.by_read.count(update.records, now - read, is_committed),
            None => so_far.by_start.count(update.records, now - since, is_committed),
        }
    }
}

/// For each record its last update.
fn last_updates<'a>(updates: impl Iterator<Item = &'a Update>) -> VecDeque<LastUpdate> {
    let changes = updates.flat_map(|update| update.changes.iter().map(|change| (&change.key, update.version.sequence)));
    let newest: BTreeMap<_, _> = changes.collect();
    let mut records = BTreeMap::new();
    for sequence in newest.into_values() {
        *records.entry(sequence).or_default() += 1;
    }
    records.into_iter().map(|(sequence, records)| LastUpdate { sequence, records, read: None }).collect()
}

impl Replica {
    /// What became of the records that a restart found above the watermark.
    pub(super) fn rereplication(&self) -> Rereplication {
        self.unreplicated.as_ref().map(|records| *records.so_far()).unwrap_or_default()
    }

    fn unreplicated(&mut self) -> Option<&mut UnreplicatedRecords> {
        self.unreplicated.as_deref_mut().filter(|records| !records.is_empty())
    }

    pub(super) fn rereplication_begins(&mut self, now: Timestamp) {
        if let Some(records) = self.unreplicated() {
            records.since.get_or_insert(now);
        }
    }

    /// The watermark has risen.
    pub(super) fn count_rereplicated(&mut self, now: Timestamp) {
        let watermark = self.watermark;
        if let Some(records) = self.unreplicated() {
            records.commit(now, watermark);
            self.report_rereplicated();
        }
    }

    /// The history was cut; it ends at `keep` now.
    pub(super) fn drop_unreplicated(&mut self, now: Timestamp, keep: Sequence) {
        let kept = self.history.from(self.watermark.next());
        if let Some(records) = self.unreplicated.as_deref_mut().filter(|records| !records.is_empty()) {
            records.cut(now, keep, kept);
            self.report_rereplicated();
        }
    }

    /// A strong read of these keys waits, since the newest version of one isn't known to be committed.
    pub(super) fn count_read_of_unreplicated(&mut self, now: Timestamp, query: &Query) -> Result<(), StoreError> {
        if self.unreplicated().is_none() {
            return Ok(());
        }
        let keys = match query {
            Query::Key(key) => std::slice::from_ref(key),
            Query::Keys(keys) => keys,
            Query::Scan(_) | Query::Changes(_) | Query::Hashed(_) => &[],
        };
        for key in keys {
            let newest = self.newest(key)?;
            if let Some(records) = self.unreplicated() {
                records.read(now, newest);
            }
        }
        Ok(())
    }

    /// When the next report is due.
    pub(super) fn next_rereplication_report(&self) -> Option<Timestamp> {
        self.unreplicated.as_ref().filter(|records| !records.is_empty()).map(|records| records.next_report)
    }

    /// Reports what is left, now and then.
    pub(super) fn report_rereplication_in_time(&mut self, now: Timestamp) {
        if let Some(records) = self.unreplicated().filter(|records| now >= records.next_report) {
            records.next_report = now + REPORT_PERIOD;
            let so_far = records.so_far;
            self.event(ReplicaEvent::Rereplicating(so_far.into()));
        }
    }

    /// Reports the end.
    fn report_rereplicated(&mut self) {
        if let Some(records) = self.unreplicated.as_ref().filter(|records| records.is_empty()) {
            let so_far = records.so_far;
            self.event(ReplicaEvent::Rereplicating(so_far.into()));
        }
    }
}
