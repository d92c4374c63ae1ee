//! Writes the journal of a node: what all chains have to write goes into one group, which one sync makes durable.
//!
//! It also keeps the journal short (docs/adr/0042). A chain begins a checkpoint when its updates behind the beginning of the last
//! one are longer than that checkpoint, and than its share of the node's room. The chain that keeps the oldest segment is next if
//! the journal is longer than twice its data and that room, and if updates have filled that room since the last such turn.
//!
//! The disk counts as full before it is: while the next checkpoint of every chain still finds room beside what clients have in
//! flight (rule R15). What a checkpoint needs is computed from the bytes of its entries as they are written. Then each chain
//! begins a checkpoint as soon as that would make the journal shorter. A checkpoint that would find no room for its end is never
//! begun: it would take the room of deletes, and free nothing.

use std::collections::{BTreeMap, BTreeSet};

use super::{ControlFile, OpenSettings, ballast::Ballast};
use crate::{
    ChainId,
    guards::Guards,
    journal::{EntryPlace, GroupNumber, Journal, JournalEntry, JournalError, SyncMode},
    message::{ChainMessage, SnapshotContent, SnapshotPart},
    replica::{JournalBatch, RECORD_BYTES, RestoreSurvey},
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

/// The most bytes that one request has in a checkpoint's table of sessions, but for the value that it took away.
const SESSION_BYTES: u64 = 64;

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
    /// The most that the checkpoint that is under way may come to.
    most_begun: u64,
    /// Updates behind the beginning of the last whole checkpoint, with what their records have beside them in a checkpoint.
    behind: u64,
    /// Updates behind the beginning of the checkpoint that is under way.
    behind_begun: u64,
    /// What a checkpoint of the records that the store held of the chain when it wrote its last batch would come to. 0: it has
    /// written none in this start.
    data: u64,
    /// The most that its table of sessions may come to there.
    sessions: u64,
    /// The same when the last whole checkpoint began, and the one that is under way.
    data_at: u64,
    data_at_begun: u64,
}

impl JournalWriter {
    pub(super) fn new(
        journal: Journal,
        control: ControlFile,
        (survey, mut bytes): (RestoreSurvey, JournalBytes),
        room: Room,
        (mode, guards): (SyncMode, Guards),
    ) -> Result<Self, JournalError> {
        // A checkpoint that was under way has ended with its start.
        bytes.0.values_mut().for_each(|bytes| bytes.begun = None);
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

    /// Writes the batches of some chains as one group.
    ///
    /// # Errors
    /// [`JournalError::Full`]: nothing was written that counts, and the batches may be tried again. Otherwise the process has to
    /// end.
    pub fn write(&mut self, batches: &[(ChainId, JournalBatch)]) -> Result<(), JournalError> {
        let entries = || batches.iter().flat_map(|(_, batch)| &batch.entries);
        let before = self.journal.bytes();
        let journal = &mut self.journal;
        let group = self.room.ballast.spend(|| match journal.append(entries()) {
            Err(JournalError::Full) => journal.remove_freed(usize::MAX).and_then(|()| journal.append(entries())),
            appended => appended,
        })?;
        let has_updates = |entry: &JournalEntry| matches!(entry, JournalEntry::Sent(frame) if matches!(frame.message, ChainMessage::Updates(_)));
        if entries().any(has_updates) {
            self.grown += self.journal.bytes().saturating_sub(before);
        }
        batches.iter().for_each(|(chain, batch)| self.bytes.0.entry(*chain).or_default().data = batch.data);
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

    fn wanted(&mut self) -> Vec<ChainId> {
        let chains = &self.bytes.0;
        let share = self.room.updates / chains.len().max(1) as u64;
        let is_full = self.room.is_full;
        let is_due = |bytes: &ChainBytes| {
            let is_long = bytes.behind > bytes.checkpoint.max(share);
            is_long || is_full && bytes.gain() > bytes.checkpoint / 8
        };
        let due = chains.iter().filter(|(_, bytes)| is_due(bytes)).map(|(&chain, _)| chain);
        let may_begin = |chain: &ChainId| {
            let bytes = chains.get(chain).copied().unwrap_or_default();
            bytes.begun.is_none() && bytes.needs() <= self.room.free && !self.asked.contains(chain)
        };
        let wanted: Vec<_> = due.chain(self.pinning()).filter(may_begin).collect();
        if self.is_long() {
            self.grown_at = self.grown;
        }
        wanted.into_iter().filter(|&chain| self.asked.insert(chain)).collect()
    }

    /// The chain that keeps the oldest segment, if the journal is too long for what its chains have in it.
    fn pinning(&self) -> Option<ChainId> {
        let counts: u64 = self.bytes.0.values().map(|bytes| bytes.checkpoint + bytes.behind).sum();
        let keeps_room = self.room.is_full && self.journal.bytes() > counts + counts / 4 + self.room.reserve / 8;
        (self.is_long() || keeps_room).then(|| self.survey.oldest()).flatten()
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
        let checkpoints = self.bytes.0.values().map(ChainBytes::needs).sum();
        self.room.note(self.journal.bytes(), checkpoints)
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

    /// The journal has so many bytes, and the next checkpoints need so many.
    fn note(&mut self, journal: u64, checkpoints: u64) -> Result<(), JournalError> {
        let needed = self.reserve.saturating_add(checkpoints);
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
    /// Takes note of an entry of so many bytes.
    pub(super) fn note(&mut self, entry: &JournalEntry, len: u64) {
        let bytes = self.0.entry(entry.chain()).or_default();
        match entry {
            JournalEntry::NotWhole { .. } => *bytes = ChainBytes::default(),
            JournalEntry::Sent(frame) => match &frame.message {
                ChainMessage::Updates(updates) => {
                    let changes: usize = updates.updates.iter().map(|update| update.changes.len()).sum();
                    let asked = updates.updates.iter().filter(|update| update.request.is_some()).count() as u64;
                    bytes.sessions += asked * SESSION_BYTES;
                    bytes.updates(len + changes as u64 * RECORD_BYTES + asked * SESSION_BYTES);
                }
                ChainMessage::Snapshot(part) => bytes.part(&part.content, len),
                _ => {}
            },
            // A checkpoint may have the value in its table of sessions.
            JournalEntry::Taken { .. } => {
                bytes.sessions += len;
                bytes.updates(len);
            }
            _ => {}
        }
    }
}

fn is_beginning(entry: &JournalEntry) -> bool {
    let JournalEntry::Sent(frame) = entry else { return false };
    matches!(&frame.message, ChainMessage::Snapshot(SnapshotPart { content: SnapshotContent::Begin(_), .. }))
}

impl ChainBytes {
    fn updates(&mut self, more: u64) {
        (self.behind, self.behind_begun) = (self.behind + more, self.behind_begun + more);
    }

    /// The most that the next checkpoint may come to. Before the store is known: each record is in the last one, or an update
    /// behind its beginning has it.
    const fn most(&self) -> u64 {
        if self.data > 0 { self.data + self.sessions } else { self.checkpoint + self.behind }
    }

    /// Bytes that have to be free for a checkpoint that begins now, or for the rest of the one that is under way and for what the
    /// next one will have beyond that. An eighth more is what fills up groups, and a quarter is for updates meanwhile.
    fn needs(&self) -> u64 {
        let bytes = match self.begun {
            None => self.most(),
            Some(written) => self.most_begun.saturating_sub(written) + self.behind_begun,
        };
        bytes + bytes / 8 + bytes / 4
    }

    /// By how much a checkpoint would make the journal shorter, about.
    const fn gain(&self) -> u64 {
        self.behind + self.data_at.saturating_sub(self.data)
    }

    fn part(&mut self, content: &SnapshotContent, len: u64) {
        match content {
            SnapshotContent::Begin(_) => {
                (self.most_begun, self.begun) = (self.most(), Some(len));
                (self.behind_begun, self.data_at_begun, self.sessions) = (0, self.data, 0);
            }
            SnapshotContent::Sessions(_) => {
                self.begun = self.begun.map(|begun| begun + len);
                self.sessions += len;
            }
            SnapshotContent::End => {
                (self.checkpoint, self.behind) = (self.begun.take().unwrap_or_default(), self.behind_begun);
                self.data_at = self.data_at_begun;
            }
            _ => self.begun = self.begun.map(|begun| begun + len),
        }
    }
}
