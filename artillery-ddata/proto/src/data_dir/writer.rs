//! Writes the journal of a node: what all chains have to write goes into one group, which one sync makes durable.
//!
//! It also keeps the journal short (docs/adr/0042). A chain begins a checkpoint when its updates behind the beginning of the last
//! one are longer than that checkpoint, and than its share of the node's room. The chain that keeps the oldest segment is next if
//! the journal is longer than twice its data and that room, and if updates have filled that room since the last such turn.
//!
//! The disk is considered full early: while the next checkpoint of every chain still fits in addition to the values that clients
//! have in flight (rule R15). The size of a checkpoint is computed from the bytes of its entries as they are written. Then each
//! chain begins a checkpoint as soon as that would make the journal shorter. A checkpoint without enough space to end is never
//! begun: it would use the space of deletes, and free nothing.

use std::collections::{BTreeMap, BTreeSet};

use super::{ControlFile, OpenSettings, ballast::Ballast};
use crate::{
    ChainId, Sequence,
    guards::Guards,
    journal::{EntryPlace, GroupNumber, Journal, JournalEntry, JournalError, SyncMode},
    message::{ChainMessage, SnapshotContent, SnapshotPart},
    replica::{JournalBatch, RECORD_BYTES, RestoreSurvey},
    types::update::Update,
};

/// What a chain has to hear of: its batches up to this number are durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurableBatch {
    /// Which chain.
    pub chain: ChainId,
    /// The number of its last durable batch.
    pub upto: u64,
}

/// The end of a node's journal.
#[derive(Debug)]
pub struct JournalWriter {
    journal: Journal,
    control: ControlFile,
    survey: RestoreSurvey,
    bytes: JournalBytes,
    /// Batches that were written, and aren't durable yet.
    written: BTreeMap<ChainId, u64>,
    /// The newest segment that the control file names.
    named: u64,
    mode: SyncMode,
    room: Room,
    /// Chains that were told to begin a checkpoint, and haven't.
    asked: BTreeSet<ChainId>,
    /// Bytes of all groups with updates. Checkpoints don't count, so that they alone lead to no further ones.
    grown: u64,
    /// What `grown` was when the chain with the oldest segment was asked last.
    grown_at: u64,
    /// An empty group has to prove the last one.
    open: bool,
    guards: Guards,
}

/// The room that the journal has.
#[derive(Debug)]
pub(super) struct Room {
    ballast: Ballast,
    /// Bytes of updates beside the data.
    updates: u64,
    /// Bytes that clients' data never takes.
    reserve: u64,
    /// The most bytes that the journal may have.
    most: u64,
    /// Bytes that were free when this was looked at last.
    free: u64,
    is_full: bool,
}

/// What the chains have in the journal.
#[derive(Debug, Clone, Default)]
pub(super) struct JournalBytes(BTreeMap<ChainId, ChainBytes>);

/// Bytes of a chain in the journal, about.
#[derive(Debug, Clone, Copy, Default)]
struct ChainBytes {
    /// The last whole checkpoint.
    checkpoint: u64,
    /// The checkpoint that is under way.
    begun: Option<u64>,
    /// What earlier starts wrote of it: it may be of records that are gone.
    begun_before: u64,
    /// The largest size that the checkpoint in progress may reach.
    most_begun: u64,
    /// Bytes of updates behind the beginning of the last whole checkpoint, with the overhead of their records in a checkpoint.
    behind: u64,
    /// Updates behind the beginning of the checkpoint that is under way.
    behind_begun: u64,
    /// Bytes of a checkpoint of the chain's whole store when it wrote its last batch, without the padding of groups.
    data: u64,
    /// Updates that the chain hasn't handed over yet.
    queued: u64,
    /// The chain is whole again behind a resync, and must begin its first checkpoint.
    awaits: bool,
    /// The newest update. Those up to it are written once more behind the beginning of a checkpoint.
    newest: Sequence,
    /// The same when the last whole checkpoint began, and the one that is under way.
    data_at: u64,
    data_at_begun: u64,
}

impl JournalWriter {
    pub(super) fn new(
        journal: Journal,
        control: ControlFile,
        (survey, bytes): (RestoreSurvey, JournalBytes),
        room: Room,
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
            room,
            asked: BTreeSet::new(),
            grown: 0,
            grown_at: 0,
            open: false,
            guards,
        };
        writer.name_segment()?;
        writer.note_room()?;
        Ok(writer)
    }

    /// A start has loaded a chain whose checkpoint has `data` bytes. `continues`: it may continue the checkpoint in progress.
    pub(super) fn restored(&mut self, chain: ChainId, data: u64, continues: bool) {
        self.bytes.0.entry(chain).or_default().restored(data, continues);
    }

    /// Writes the batches of some chains as one group.
    ///
    /// # Errors
    /// [`JournalError::Full`]: nothing was written that counts, and the batches may be tried again. Otherwise the process has to
    /// end.
    pub fn write(&mut self, batches: &[(ChainId, JournalBatch)]) -> Result<(), JournalError> {
        let entries = || batches.iter().flat_map(|(_, batch)| &batch.entries);
        let before = self.journal.bytes();
        let journal = &mut self.journal;
        let mut append = || match journal.append(entries()) {
            Err(JournalError::Full) => journal.remove_freed(usize::MAX).and_then(|()| journal.append(entries())),
            appended => appended,
        };
        let group = if entries().any(has_values) { append()? } else { self.room.ballast.spend(append)? };
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

    /// Makes all that was written durable, as the mode wants it. Returns what the chains have to hear.
    ///
    /// # Errors
    /// [`JournalError`]. The process has to end, unless the disk is full.
    pub fn sync(&mut self) -> Result<Vec<DurableBatch>, JournalError> {
        if self.mode == SyncMode::Batch {
            self.journal.sync()?;
        }
        // A group in a segment counts once the control file names that segment.
        self.name_segment()?;
        Ok(std::mem::take(&mut self.written).into_iter().map(|(chain, upto)| DurableBatch { chain, upto }).collect())
    }

    /// Removes the segments that no chain needs any more. Returns the chains that are to begin a checkpoint, each once.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    pub fn tidy(&mut self) -> Result<Vec<ChainId>, JournalError> {
        let was_full = self.room.is_full;
        // The removal of a file holds up the next group. So they go one at a time, unless their room is wanted.
        self.remove_freed(if was_full { usize::MAX } else { 1 })?;
        if let Some(floor) = self.floor() {
            self.room.ballast.spend(|| self.journal.release(floor))?;
            self.name_segment()?;
        }
        self.note_room()?;
        if self.room.is_full && !was_full {
            // The disk may be full only of freed segments: they go, and their room counts.
            self.remove_freed(usize::MAX)?;
            self.room.is_full = false;
            self.note_room()?;
        }
        let wanted = self.wanted();
        if self.room.is_full && !wanted.is_empty() {
            // What is there now will not count behind these checkpoints: nothing else is to keep its segment.
            self.room.ballast.spend(|| self.journal.leave_segment())?;
            self.name_segment()?;
        }
        Ok(wanted)
    }

    /// Removes the files of so many freed segments, as [`Journal::remove_freed`] does.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    pub fn remove_freed(&mut self, most: usize) -> Result<(), JournalError> {
        self.room.ballast.spend(|| self.journal.remove_freed(most))
    }

    /// Writes an empty group if the last one isn't proven yet. Call it when nothing is to be written.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    pub fn close(&mut self) -> Result<(), JournalError> {
        if std::mem::take(&mut self.open) && self.mode == SyncMode::Batch {
            self.room.ballast.spend(|| self.journal.close_group())?;
        }
        Ok(())
    }

    /// Notes in the control file how much was synced, so that an older copy of the journal is recognised.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    pub fn note_synced(&mut self) -> Result<(), JournalError> {
        let synced = self.journal.synced().0;
        if self.control.look(|record| record.synced) < synced {
            self.control.change(|record| record.synced = synced)?;
        }
        Ok(())
    }

    /// The chains that must begin a checkpoint now.
    fn wanted(&mut self) -> Vec<ChainId> {
        let order = self.survey.by_age();
        let share = self.room.updates / self.bytes.0.len().max(1) as u64;
        let of = |chain: &ChainId| self.bytes.0.get(chain).copied().unwrap_or_default();
        let is_due = |chain: &&ChainId| {
            let bytes = of(chain);
            let is_long = bytes.behind > bytes.checkpoint.max(share);
            is_long || bytes.awaits || self.room.is_full && bytes.gain() > bytes.checkpoint / 8
        };
        // A checkpoint frees nothing before those of older chains have ended. So it uses no space that they need.
        let mut free = self.room.free;
        let finds_room = |chain: &ChainId| {
            free = free.checked_sub(of(chain).least())?;
            Some(())
        };
        let (fitting, _) = order.split_at(order.iter().map_while(finds_room).count());
        let waits = order[fitting.len()..].iter().any(|chain| is_due(&chain));
        let pins = waits || self.is_long() || self.keeps_room();
        let oldest = fitting.first().filter(|_| pins);
        // During a resync a chain passes over an order, and would not get another one.
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

    /// Whether the disk is full, and new checkpoints would free a quarter of the reserve. Each lone delete takes a block of the
    /// reserve, so it must not be more.
    fn keeps_room(&self) -> bool {
        let chains = || self.bytes.0.values();
        let counts: u64 = chains().map(|bytes| bytes.checkpoint + bytes.begun.unwrap_or_default()).sum();
        let deleted: u64 = chains().map(ChainBytes::deleted).sum();
        self.room.is_full && self.journal.bytes().saturating_sub(counts) + deleted > self.room.reserve / 4
    }

    /// Whether it is time to make the journal shorter at its beginning.
    fn is_long(&self) -> bool {
        let (updates, data) = (self.room.updates, self.bytes.0.values().map(|bytes| bytes.checkpoint).sum::<u64>());
        self.journal.bytes() > 2 * data + 2 * updates && self.grown - self.grown_at > updates
    }

    /// Whether so little room is left that clients' data takes no more of it.
    pub const fn is_full(&self) -> bool {
        self.room.is_full
    }

    /// Finds out how much room is left.
    fn note_room(&mut self) -> Result<(), JournalError> {
        let expected = self.bytes.0.values().map(|bytes| bytes.needs() + bytes.queued).sum();
        self.room.note(self.journal.bytes(), expected)
    }

    /// The length of the journal in bytes.
    pub fn bytes(&self) -> u64 {
        self.journal.bytes()
    }

    /// How much was synced: the number behind the last group that is durable.
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

impl Room {
    pub(super) const fn new(ballast: Ballast, of: &OpenSettings) -> Self {
        Self { ballast, updates: of.room, reserve: of.reserve, most: of.most, free: 0, is_full: false }
    }

    /// The journal has `journal` bytes. The next checkpoints, and pending writes, need `expected` bytes.
    fn note(&mut self, journal: u64, expected: u64) -> Result<(), JournalError> {
        let needed = self.reserve.saturating_add(expected);
        self.ballast.hold(needed)?;
        let free = self.ballast.free()?.min(self.most.saturating_sub(journal));
        self.free = free;
        // Some room more ends it, so that it doesn't begin again at once.
        let more = if self.is_full { self.reserve / 2 } else { 0 };
        self.is_full = free < needed.saturating_add(more);
        Ok(())
    }
}

impl JournalBytes {
    /// Takes note of an entry of `len` bytes.
    pub(super) fn note(&mut self, entry: &JournalEntry, len: u64) {
        let bytes = self.0.entry(entry.chain()).or_default();
        match entry {
            JournalEntry::NotWhole { .. } => {
                let ChainBytes { data, queued, awaits, .. } = *bytes;
                *bytes = ChainBytes { data, queued, awaits, ..ChainBytes::default() };
            }
            JournalEntry::Cut { keep, .. } => bytes.newest = bytes.newest.min(keep.sequence),
            JournalEntry::Sent(frame) => match &frame.message {
                ChainMessage::Updates(updates) => {
                    let changes: usize = updates.updates.iter().map(|update| update.changes.len()).sum();
                    let last = updates.updates.last().map_or(Sequence::ZERO, |update| update.version.sequence);
                    bytes.updates(last, len + changes as u64 * RECORD_BYTES);
                    bytes.newest = bytes.newest.max(last);
                }
                ChainMessage::Snapshot(part) => bytes.part(&part.content, len),
                _ => {}
            },
            JournalEntry::Taken { version, .. } => bytes.updates(version.sequence, len),
            JournalEntry::Watermark { .. } => {}
        }
    }
}

fn updates(entry: &JournalEntry) -> Option<&[Update]> {
    let JournalEntry::Sent(frame) = entry else { return None };
    if let ChainMessage::Updates(updates) = &frame.message { Some(&updates.updates) } else { None }
}

/// Whether clients' values are in it. They don't spend the ballast.
fn has_values(entry: &JournalEntry) -> bool {
    let values = |update: &Update| update.changes.iter().any(|change| change.value.is_some());
    updates(entry).is_some_and(|updates| updates.iter().any(values))
}

fn is_beginning(entry: &JournalEntry) -> bool {
    let JournalEntry::Sent(frame) = entry else { return false };
    matches!(&frame.message, ChainMessage::Snapshot(SnapshotPart { content: SnapshotContent::Begin(_), .. }))
}

impl ChainBytes {
    /// A start has loaded the chain, which may continue the checkpoint in progress.
    fn restored(&mut self, data: u64, continues: bool) {
        self.begun = self.begun.filter(|_| continues);
        self.begun_before = self.begun.unwrap_or_default();
        (self.data, self.most_begun, self.data_at_begun) = (data, data, data);
        self.data_at = self.checkpoint.max(data);
    }

    /// Updates up to `last` were written. Those that are written again are a part of the checkpoint.
    fn updates(&mut self, last: Sequence, more: u64) {
        if last <= self.newest {
            self.begun = self.begun.map(|begun| begun + more);
        } else {
            (self.behind, self.behind_begun) = (self.behind + more, self.behind_begun + more);
        }
    }

    /// The largest size of the next checkpoint. Before the store is known: each record is in the last one, or an update behind
    /// its beginning has it.
    const fn most(&self) -> u64 {
        if self.data > 0 { self.data } else { self.checkpoint + self.behind }
    }

    /// Bytes of a checkpoint that begins now, or of the rest of the one in progress and of the additional bytes of the next one.
    fn bytes(&self) -> u64 {
        match self.begun {
            None => self.most(),
            Some(written) => (self.most_begun + self.begun_before).saturating_sub(written) + self.behind_begun,
        }
    }

    /// Bytes without which a checkpoint doesn't begin. The additional quarter is for the padding of groups, and for deletes
    /// before its end.
    fn least(&self) -> u64 {
        self.bytes() + self.bytes() / 4
    }

    /// Bytes that clients' values leave for a checkpoint. It is more, since some values are in flight when the disk is found
    /// full.
    fn needs(&self) -> u64 {
        self.bytes() + self.bytes() / 2
    }

    /// Bytes deleted since the last whole checkpoint began.
    const fn deleted(&self) -> u64 {
        self.data_at.saturating_sub(self.data)
    }

    /// By how much a checkpoint would make the journal shorter, about.
    const fn gain(&self) -> u64 {
        self.behind + self.deleted()
    }

    fn part(&mut self, content: &SnapshotContent, len: u64) {
        match content {
            SnapshotContent::Begin(_) => {
                (self.most_begun, self.begun, self.begun_before) = (self.most(), Some(len), 0);
                (self.behind_begun, self.data_at_begun) = (0, self.data);
            }
            SnapshotContent::End => {
                (self.checkpoint, self.behind) = (self.begun.take().unwrap_or_default(), self.behind_begun);
                self.data_at = self.data_at_begun;
            }
            _ => self.begun = self.begun.map(|begun| begun + len),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Version, fixtures, message::SnapshotHeader, types::update::KeyChange};

    fn begin() -> SnapshotContent {
        let (said, version) = (Version::NONE, Version::new(1, 1));
        SnapshotContent::Begin(SnapshotHeader { said, version, epochs: Vec::new(), chain_time: 0, sessions: 0 })
    }

    /// Records that are gone may be what an earlier start wrote.
    #[test]
    fn a_checkpoint_that_is_continued_needs_all_that_is_there() {
        let mut bytes = ChainBytes { data: 1000, ..ChainBytes::default() };
        bytes.part(&begin(), 10);
        bytes.part(&SnapshotContent::Records(Vec::new()), 500);
        assert!((490..500).contains(&bytes.bytes()), "{} bytes are left", bytes.bytes());
        bytes.restored(400, true);
        assert_eq!(bytes.bytes(), 400);
        bytes.part(&SnapshotContent::Records(Vec::new()), 100);
        assert_eq!(bytes.bytes(), 300);
    }

    /// They would have the chain begin another checkpoint at once, with no client.
    #[test]
    fn updates_that_are_written_again_are_no_reason_for_another_checkpoint() {
        let update = fixtures::update(Version::new(1, 2), [KeyChange { key: "k".into(), value: Some("v".into()) }]);
        let updates =
            crate::message::Updates { watermark: Sequence(1), after: Version::new(1, 1), updates: vec![update] };
        let (chain, epoch) = (ChainId(0), crate::Epoch(0));
        let frame = crate::message::ChainFrame { chain, epoch, index: 0, message: ChainMessage::Updates(updates) };
        let entry = JournalEntry::Sent(Box::new(frame));
        let mut all = JournalBytes::default();
        all.note(&entry, 100);
        assert!(all.0[&chain].behind >= 100);
        all.0.get_mut(&chain).unwrap().part(&begin(), 10);
        all.note(&entry, 100);
        all.0.get_mut(&chain).unwrap().part(&SnapshotContent::End, 10);
        assert_eq!(all.0[&chain].behind, 0);
        all.note(&JournalEntry::Cut { chain, keep: Version::new(1, 1) }, 10);
        all.note(&entry, 100);
        assert!(all.0[&chain].behind >= 100, "the update in the place of one that was cut");
    }
}
