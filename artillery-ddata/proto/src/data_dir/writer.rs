//! Writes the journal of a node. Waiting batches of all chains form one group, which one sync makes durable.
//!
//! It also keeps the journal short (docs/adr/0042). A chain begins a checkpoint after a resync, and when its updates
//! since the beginning of the last one exceed both the size of that checkpoint and the chain's share of the node's
//! space for updates. In addition, the chain that holds the oldest segment is asked if the journal is longer than twice
//! its data plus twice that space, and updates have filled that space since the last such request. The same chain is
//! also asked if a checkpoint of another chain is due, but doesn't fit, and on a full disk if checkpoints would free a
//! quarter of the reserve.
//!
//! The disk is considered full early: while the next checkpoint of every chain still fits in addition to the values
//! that clients have in flight (rule R15). The size of a checkpoint is computed from the written bytes of its entries.
//! On a full disk, each chain begins a checkpoint as soon as that would free more than an eighth of the last one. A
//! checkpoint without enough space to complete is never begun: it would use the space of deletes, and free nothing.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    ControlFile,
    space::{ChainBytes, DiskSpace, JournalBytes},
};
use crate::{
    ChainId,
    guards::Guards,
    journal::{EntryPlace, GroupNumber, Journal, JournalEntry, JournalError, SyncMode},
    message::{ChainMessage, SnapshotContent, SnapshotPart},
    replica::{JournalBatch, RestoreSurvey},
    types::update::Update,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurableBatch {
    pub chain: ChainId,
    /// The number of the chain's last durable batch.
    pub upto: u64,
}

#[derive(Debug)]
pub struct JournalWriter {
    journal: Journal,
    control: ControlFile,
    survey: RestoreSurvey,
    bytes: JournalBytes,
    written: BTreeMap<ChainId, u64>,
    /// The newest segment named in the control file.
    named: u64,
    mode: SyncMode,
    space: DiskSpace,
    /// Chains that were asked to begin a checkpoint, but haven't begun it.
    asked: BTreeSet<ChainId>,
    /// Bytes of all groups with updates. Checkpoints are excluded, so that they don't cause further checkpoints.
    grown: u64,
    /// `grown` when the chain with the oldest segment was last asked.
    grown_at: u64,
    /// The last group must still be proven by an empty one.
    open: bool,
    guards: Guards,
}

impl JournalWriter {
    pub(super) fn new(
        journal: Journal,
        control: ControlFile,
        (survey, bytes): (RestoreSurvey, JournalBytes),
        space: DiskSpace,
        (mode, guards): (SyncMode, Guards),
    ) -> Result<Self, JournalError> {
        let mut writer = Self {
            named: 0,
            journal,
            control,
            survey,
            bytes,
            written: BTreeMap::new(),
            mode,
            space,
            asked: BTreeSet::new(),
            grown: 0,
            grown_at: 0,
            open: false,
            guards,
        };
        writer.name_segment()?;
        writer.note_space()?;
        Ok(writer)
    }

    /// Notes a chain that a start has loaded, whose checkpoint has `data` bytes. `continues`: the chain may continue
    /// the checkpoint in progress.
    pub(super) fn restored(&mut self, chain: ChainId, data: u64, continues: bool) {
        self.bytes.0.entry(chain).or_default().restored(data, continues);
    }

    /// Writes the batches of some chains as one group.
    ///
    /// [`JournalError::Full`]: nothing valid was written, and the batches can be retried. After any other error the
    /// process must exit.
    pub fn write(&mut self, batches: &[(ChainId, JournalBatch)]) -> Result<(), JournalError> {
        let entries = || batches.iter().flat_map(|(_, batch)| &batch.entries);
        let before = self.journal.bytes();
        let journal = &mut self.journal;
        let mut append = || match journal.append(entries()) {
            Err(JournalError::Full) => journal.remove_freed(usize::MAX).and_then(|()| journal.append(entries())),
            appended => appended,
        };
        let group = if entries().any(has_values) { append()? } else { self.space.ballast.spend(append)? };
        if entries().any(|entry| updates(entry).is_some()) {
            self.grown += self.journal.bytes().saturating_sub(before);
        }
        for (chain, batch) in batches {
            let bytes = self.bytes.0.entry(*chain).or_default();
            (bytes.data, bytes.queued, bytes.awaits) = (batch.data, batch.queued as u64, batch.awaits);
        }
        for ((place, entry), &len) in EntryPlace::all_in(group).zip(entries()).zip(self.journal.entry_lengths()) {
            self.survey.note(place, entry);
            self.bytes.note(entry, len);
            if matches!(entry, JournalEntry::NotWhole { .. }) || is_beginning(entry) {
                self.asked.remove(&entry.chain());
            }
        }
        self.written.extend(batches.iter().map(|(chain, batch)| (*chain, batch.upto)));
        self.open = true;
        Ok(())
    }

    /// Makes all written groups durable, if the mode requires that. Returns the last batch of each chain that may be
    /// reported as durable.
    ///
    /// # Errors
    /// [`JournalError`]. The process must exit, unless the disk is full.
    pub fn sync(&mut self) -> Result<Vec<DurableBatch>, JournalError> {
        if self.mode == SyncMode::Batch {
            self.journal.sync()?;
        }
        // A group in a segment is valid only once the control file names the segment.
        self.name_segment()?;
        Ok(std::mem::take(&mut self.written).into_iter().map(|(chain, upto)| DurableBatch { chain, upto }).collect())
    }

    /// Frees the segments that no chain needs, and removes files of freed segments. Returns the chains that must begin
    /// a checkpoint; a chain that was already asked isn't returned again.
    pub fn tidy(&mut self) -> Result<Vec<ChainId>, JournalError> {
        let was_full = self.space.is_full;
        // Removing a file delays the next group. So remove one at a time, unless the space is needed.
        self.remove_freed(if was_full { usize::MAX } else { 1 })?;
        if let Some(floor) = self.floor() {
            self.space.ballast.spend(|| self.journal.release(floor))?;
            self.name_segment()?;
        }
        self.note_space()?;
        if self.space.is_full && !was_full {
            // The disk may be full only because of freed segments. Remove all of them, and check again.
            self.remove_freed(usize::MAX)?;
            self.space.is_full = false;
            self.note_space()?;
        }
        let wanted = self.wanted();
        if self.space.is_full && !wanted.is_empty() {
            // These checkpoints supersede the present entries, so nothing else should keep their segment.
            self.space.ballast.spend(|| self.journal.leave_segment())?;
            self.name_segment()?;
        }
        Ok(wanted)
    }

    /// Removes the files of at most `most` freed segments: see [`Journal::remove_freed`].
    pub fn remove_freed(&mut self, most: usize) -> Result<(), JournalError> {
        self.space.ballast.spend(|| self.journal.remove_freed(most))
    }

    /// Writes an empty group if the last one isn't proven yet. Call it when no batch is waiting.
    pub fn close(&mut self) -> Result<(), JournalError> {
        if std::mem::take(&mut self.open) && self.mode == SyncMode::Batch {
            self.space.ballast.spend(|| self.journal.close_group())?;
        }
        Ok(())
    }

    /// Records the last synced group in the control file, so that an older copy of the journal is recognized.
    pub fn note_synced(&mut self) -> Result<(), JournalError> {
        let synced = self.journal.synced().0;
        if self.control.look(|record| record.synced) < synced {
            self.control.change(|record| record.synced = synced)?;
        }
        Ok(())
    }

    fn wanted(&mut self) -> Vec<ChainId> {
        let order = self.survey.by_age();
        let share = self.space.updates / self.bytes.0.len().max(1) as u64;
        let of = |chain: &ChainId| self.bytes.0.get(chain).copied().unwrap_or_default();
        let is_due = |chain: &&ChainId| {
            let bytes = of(chain);
            let is_long = bytes.behind > bytes.checkpoint.max(share);
            is_long || bytes.awaits || self.space.is_full && bytes.gain() > bytes.checkpoint / 8
        };
        // A checkpoint frees nothing before the checkpoints of older chains are complete, so it must leave them their
        // space.
        let mut free = self.space.free;
        let finds_room = |chain: &ChainId| {
            free = free.checked_sub(of(chain).least())?;
            Some(())
        };
        let (fitting, _) = order.split_at(order.iter().map_while(finds_room).count());
        let waits = order[fitting.len()..].iter().any(|chain| is_due(&chain));
        let pins = waits || self.is_long() || self.keeps_room();
        let oldest = fitting.first().filter(|_| pins);
        // A chain ignores a request during a resync, and wouldn't be asked again.
        let may_begin = |chain: &&ChainId| {
            let has_store = of(chain).awaits || !self.survey.lacks(**chain);
            has_store && of(chain).begun.is_none() && !self.asked.contains(chain)
        };
        let wanted: Vec<_> = fitting.iter().filter(is_due).chain(oldest).filter(may_begin).copied().collect();
        if self.is_long() {
            self.grown_at = self.grown;
        }
        wanted.into_iter().filter(|&chain| self.asked.insert(chain)).collect()
    }

    /// Whether the disk is full and new checkpoints would free a quarter of the reserve, which deletes alone may use
    /// up.
    fn keeps_room(&self) -> bool {
        let chains = || self.bytes.0.values();
        let counts: u64 = chains().map(|bytes| bytes.checkpoint + bytes.begun.unwrap_or_default()).sum();
        let deleted: u64 = chains().map(ChainBytes::deleted).sum();
        self.space.is_full && self.journal.bytes().saturating_sub(counts) + deleted > self.space.reserve / 4
    }

    /// Whether the oldest part of the journal should be freed.
    fn is_long(&self) -> bool {
        let (updates, data) = (self.space.updates, self.bytes.0.values().map(|bytes| bytes.checkpoint).sum::<u64>());
        self.journal.bytes() > 2 * data + 2 * updates && self.grown - self.grown_at > updates
    }

    /// Whether the disk is considered full, so that clients' data may no longer use it.
    pub const fn is_full(&self) -> bool {
        self.space.is_full
    }

    fn note_space(&mut self) -> Result<(), JournalError> {
        let expected = self.bytes.0.values().map(|bytes| bytes.needs() + bytes.queued).sum();
        self.space.note(self.journal.bytes(), expected)
    }

    pub fn bytes(&self) -> u64 {
        self.journal.bytes()
    }

    /// The number after the last durable group.
    pub fn synced(&self) -> GroupNumber {
        self.journal.synced()
    }

    fn floor(&self) -> Option<GroupNumber> {
        if allows!(self.guards, ReleaseAll) { Some(self.journal.synced()) } else { self.survey.floor() }
    }

    fn name_segment(&mut self) -> Result<(), JournalError> {
        let newest = self.journal.newest_segment();
        if self.named != newest && !allows!(self.guards, NameNoSegment) {
            let synced = self.journal.synced().0;
            self.control.change(|record| (record.segment, record.synced) = (newest, record.synced.max(synced)))?;
            self.named = newest;
        }
        Ok(())
    }
}

fn updates(entry: &JournalEntry) -> Option<&[Update]> {
    let JournalEntry::Sent(frame) = entry else { return None };
    if let ChainMessage::Updates(updates) = &frame.message { Some(&updates.updates) } else { None }
}

/// Whether the entry has clients' values, which must not use the ballast.
fn has_values(entry: &JournalEntry) -> bool {
    let values = |update: &Update| update.changes.iter().any(|change| change.value.is_some());
    updates(entry).is_some_and(|updates| updates.iter().any(values))
}

fn is_beginning(entry: &JournalEntry) -> bool {
    let JournalEntry::Sent(frame) = entry else { return false };
    matches!(&frame.message, ChainMessage::Snapshot(SnapshotPart { content: SnapshotContent::Begin(_), .. }))
}
