//! Records that a restart found above the watermark (docs/DESIGN.md §8): this member doesn't know whether their last
//! update is committed. The start of an epoch settles them. They are counted by their last updates, so operations have
//! no extra cost once none is left.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use crate::{
    Sequence, Timestamp,
    replica::{Rereplication, ends::Ends as _},
    types::update::Update,
};

/// The interval of reports while records are unreplicated.
const REPORT_PERIOD: Duration = Duration::from_secs(10);

/// An update that is the last one of some records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct LastUpdate {
    sequence: Sequence,
    records: u64,
    /// When a strong read first requested one of the records.
    read: Option<Timestamp>,
}

/// The unreplicated records, and the counts of the settled ones.
#[derive(Clone, Hash, Debug, Default)]
pub(crate) struct UnreplicatedRecords {
    /// In the order of their sequences.
    updates: VecDeque<LastUpdate>,
    /// When the first epoch after the restart was entered.
    since: Option<Timestamp>,
    next_report: Timestamp,
    so_far: Rereplication,
}

impl UnreplicatedRecords {
    /// The records that these updates changed. The updates are above the watermark, oldest first.
    pub(crate) fn of<'a>(updates: impl Iterator<Item = &'a Update>) -> Self {
        let mut found = Self { updates: last_updates(updates), ..Self::default() };
        found.so_far.left = found.left();
        found
    }

    pub(crate) const fn so_far(&self) -> &Rereplication {
        &self.so_far
    }

    fn left(&self) -> u64 {
        self.updates.iter().map(|update| update.records).sum()
    }

    pub(in crate::replica) fn is_empty(&self) -> bool {
        self.updates.is_empty()
    }

    pub(crate) fn next_report(&self) -> Option<Timestamp> {
        (!self.is_empty()).then_some(self.next_report)
    }

    /// The report, if it is due.
    pub(crate) fn report(&mut self, now: Timestamp) -> Option<Rereplication> {
        self.next_report().filter(|&due| now >= due)?;
        self.next_report = now + REPORT_PERIOD;
        Some(self.so_far)
    }

    /// The counts, if no record is left.
    fn settled_all(&self) -> Option<Rereplication> {
        self.is_empty().then_some(self.so_far)
    }

    pub(crate) fn begin(&mut self, now: Timestamp) {
        if !self.is_empty() {
            self.since.get_or_insert(now);
        }
    }

    /// A strong read requested this version of a record.
    pub(super) fn read(&mut self, now: Timestamp, version: Sequence) {
        if let Ok(at) = self.updates.binary_search_by_key(&version, |update| update.sequence) {
            self.updates[at].read.get_or_insert(now);
        }
    }

    /// Every update up to `watermark` is committed. Returns the counts if this settles the last record.
    pub(super) fn commit(&mut self, now: Timestamp, watermark: Sequence) -> Option<Rereplication> {
        if self.is_empty() {
            return None;
        }
        while let Some(update) = self.updates.take_front_if(|update| update.sequence <= watermark) {
            self.settled(now, update, true);
        }
        self.settled_all()
    }

    /// Every update above `keep` was dropped; `kept` are those between the watermark and `keep`. Returns the counts if
    /// this settles the last record.
    pub(super) fn cut<'a>(
        &mut self,
        now: Timestamp,
        keep: Sequence,
        kept: impl Iterator<Item = &'a Update>,
    ) -> Option<Rereplication> {
        if self.updates.back().is_none_or(|newest| newest.sequence <= keep) {
            return None;
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
        self.settled_all()
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

fn last_updates<'a>(updates: impl Iterator<Item = &'a Update>) -> VecDeque<LastUpdate> {
    let changes = updates.flat_map(|update| update.changes.iter().map(|change| (&change.key, update.version.sequence)));
    let newest: BTreeMap<_, _> = changes.collect();
    let mut records = BTreeMap::new();
    for sequence in newest.into_values() {
        *records.entry(sequence).or_default() += 1;
    }
    records.into_iter().map(|(sequence, records)| LastUpdate { sequence, records, read: None }).collect()
}
