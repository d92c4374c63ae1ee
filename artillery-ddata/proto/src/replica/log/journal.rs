//! The records that a durable member writes to its journal, and the part of the chain that its disk holds
//! (docs/DESIGN.md §8).
//!
//! The journal returns entries in order, and the driver reports which of them are durable.

use std::collections::VecDeque;

use bytes::Bytes;

use super::checkpoint::Checkpoint;
use crate::{
    ChainId, Epoch, Sequence, Version,
    guards::Guards,
    journal::JournalEntry,
    message::{ChainFrame, ChainMessage, SnapshotPart, Updates},
    replica::{MAX_UPDATES, ends::Ends as _},
    store::Size,
    types::update::Update,
};

/// Entries that are written together. [`Turn::durable`](crate::runner::Turn::durable) reports by `upto` that they are
/// durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalBatch {
    /// The number of the batch's last record. Numbers increase.
    pub upto: u64,
    pub entries: Vec<JournalEntry>,
    /// The approximate size of the entries in bytes.
    pub bytes: usize,
    /// The approximate size of the records still queued after them, in bytes.
    pub queued: usize,
    /// The maximum size of a checkpoint of the chain's whole store, in bytes, without the padding of groups.
    pub data: u64,
    /// The chain has ended a resync, and waits for the request to begin the next checkpoint.
    pub awaits: bool,
}

/// The maximum overhead of a record in a checkpoint, in bytes, in addition to its key and value.
pub(crate) const RECORD_BYTES: u64 = 32;
/// While the disk is full and parts of a checkpoint are queued, a batch also ends once it has about `FULL_UPDATES`
/// bytes of updates. It adds up to `FULL_PARTS` parts, if they fit in a batch.
const FULL_UPDATES: usize = 64 << 10;
const FULL_PARTS: usize = 8;
/// Otherwise a batch adds at most this number of parts.
const MAX_PARTS: usize = 2;

/// The maximum size in bytes of a checkpoint of records of `size`, and of a table of sessions with `sessions` bytes in
/// memory.
pub(crate) fn checkpoint_bytes(size: Size, sessions: usize) -> u64 {
    size.bytes + (size.keys + 1) * RECORD_BYTES + sessions as u64
}

#[derive(Clone, Hash, Debug)]
#[allow(clippy::large_enum_variant, reason = "most records are updates")]
enum JournalRecord {
    /// An update, the version before it, the watermark when the record was appended, and the value that the update
    /// deleted.
    Update {
        update: Update,
        after: Version,
        watermark: Sequence,
        taken: Option<Bytes>,
    },
    Cut(Version),
    NotWhole,
    Part(Box<SnapshotPart>),
    Watermark(Sequence),
}

#[derive(Clone, Hash, Debug, Default)]
pub(crate) struct Journal {
    /// Records that haven't been returned in a batch yet.
    records: VecDeque<JournalRecord>,
    /// Their approximate size in bytes.
    queued: usize,
    /// Updates were refused, because too many are waiting for the disk.
    refuses: bool,
    last: u64,
    newest: Version,
    /// The highest watermark among the records.
    watermark: Sequence,
    /// Updates that aren't durable yet, with the numbers of their records.
    waiting: VecDeque<(u64, Version)>,
    /// Everything up to this version is durable here, once the whole store is on the disk.
    held: Version,
    wholeness: Wholeness,
    /// Parts of a checkpoint among the records, and their bytes.
    parts: usize,
    part_bytes: usize,
    checkpoint: Option<Checkpoint>,
    /// The number of checkpoints that were begun.
    checkpoints: u64,
    is_full: bool,
    /// A resync has ended, and its checkpoint begins once the disk has space for it.
    awaits: bool,
}

/// Whether the journal holds the whole store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Wholeness {
    /// A checkpoint is missing.
    #[default]
    Lacking,
    /// The journal holds the whole store once the record with this number, which ends a checkpoint, is durable.
    Until(u64),
    Whole,
}

impl Journal {
    /// A journal that holds the store up to `last`, all of it durable, and `checkpoint` up to its last part.
    pub(super) fn resumed(last: Version, watermark: Sequence, checkpoint: Option<Checkpoint>) -> Self {
        Self {
            checkpoints: checkpoint.is_some().into(),
            checkpoint,
            newest: last,
            held: last,
            watermark,
            wholeness: Wholeness::Whole,
            ..Self::default()
        }
    }

    fn push(&mut self, record: JournalRecord) {
        self.last += 1;
        self.queued += record.cost();
        self.records.push_back(record);
    }

    /// The newest version up to which this member's disk holds everything.
    pub(crate) fn held(&self) -> Version {
        if self.wholeness == Wholeness::Whole { self.held } else { Version::NONE }
    }

    /// The newest update on this member's disk, whether or not the rest of the store is on the disk too.
    pub(crate) fn written(&self) -> Sequence {
        self.held.sequence
    }

    pub(super) fn watermark(&self) -> Sequence {
        self.watermark
    }

    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    pub(crate) fn set_full(&mut self, is_full: bool) {
        self.is_full = is_full;
    }

    #[cfg(test)]
    pub(crate) const fn newest(&self) -> Version {
        self.newest
    }

    #[cfg(test)]
    pub(crate) const fn queued(&self) -> usize {
        self.queued
    }

    #[cfg(test)]
    pub(crate) const fn checkpoints(&self) -> u64 {
        self.checkpoints
    }

    #[cfg(test)]
    pub(crate) const fn checkpoint(&self) -> Option<&Checkpoint> {
        self.checkpoint.as_ref()
    }

    pub(super) const fn has_checkpoint(&self) -> bool {
        self.checkpoint.is_some()
    }

    pub(super) fn set_checkpoint(&mut self, checkpoint: Checkpoint) {
        self.checkpoint = Some(checkpoint);
    }

    pub(super) fn take_checkpoint(&mut self) -> Option<Checkpoint> {
        self.checkpoint.take()
    }

    /// The number of the checkpoint in progress. With `is_next`, another checkpoint begins and gets the next number.
    pub(super) fn checkpoint_number(&mut self, is_next: bool) -> u64 {
        self.checkpoints += u64::from(is_next);
        self.checkpoints
    }

    pub(super) fn append_part(&mut self, part: SnapshotPart) {
        self.parts += 1;
        self.part_bytes += part.content.bytes();
        self.push(JournalRecord::Part(part.into()));
    }

    pub(super) fn ended(&mut self) {
        self.checkpoint = None;
        if self.wholeness == Wholeness::Lacking {
            self.wholeness = Wholeness::Until(self.last);
        }
    }

    /// The beginning of a checkpoint of the history up to `version` was appended.
    pub(super) fn begun(&mut self, version: Version) {
        (self.newest, self.awaits) = (version, false);
        if self.wholeness == Wholeness::Lacking {
            (self.held, self.waiting) = (version, VecDeque::new());
        }
    }

    /// Appends an update with the present watermark. A later watermark may cover other updates that replace this one
    /// after a cut.
    pub(super) fn append(&mut self, update: &Update, taken: Option<Bytes>, watermark: Sequence) {
        self.push_update(update, taken, watermark);
        self.waiting.push_back((self.last, update.version));
    }

    /// Appends an update again, after the beginning of a checkpoint. Its record before that beginning is valid only if
    /// the store was whole.
    pub(super) fn append_again(&mut self, update: &Update, taken: Option<Bytes>, watermark: Sequence) {
        self.push_update(update, taken, watermark);
        if self.wholeness == Wholeness::Lacking {
            self.waiting.push_back((self.last, update.version));
        }
    }

    fn push_update(&mut self, update: &Update, taken: Option<Bytes>, watermark: Sequence) {
        let after = std::mem::replace(&mut self.newest, update.version);
        self.push(JournalRecord::Update { update: update.clone(), after, watermark, taken });
        self.watermark = self.watermark.max(watermark);
    }

    /// Every update above `keep` was dropped. Their records still become durable, and must not be counted.
    pub(super) fn cut(&mut self, keep: Version, guards: Guards) {
        self.push(JournalRecord::Cut(keep));
        self.newest = keep;
        if allows!(guards, KeepCutMarks) {
            return;
        }
        self.waiting.retain(|(_, version)| version.sequence <= keep.sequence);
        if self.held.sequence > keep.sequence {
            self.held = keep;
        }
    }

    /// A resync begins: the content of the journal is invalid until a checkpoint of the received data is durable.
    pub(crate) fn not_whole(&mut self) {
        self.push(JournalRecord::NotWhole);
        (self.wholeness, self.checkpoint, self.awaits) = (Wholeness::Lacking, None, false);
        (self.newest, self.held, self.watermark) = (Version::NONE, Version::NONE, Sequence::ZERO);
        self.waiting.clear();
    }

    /// A resync has ended. The driver receives the size of a checkpoint, and requests the checkpoint once the disk has
    /// space: half a checkpoint would use the space of other chains, and free nothing. Updates may be written before it
    /// begins.
    pub(super) fn await_checkpoint(&mut self, last: Version, watermark: Sequence) {
        (self.awaits, self.newest) = (true, last);
        self.write_watermark(watermark);
    }

    pub(super) fn write_watermark(&mut self, watermark: Sequence) {
        self.push(JournalRecord::Watermark(watermark));
        self.watermark = watermark;
    }

    /// The number of parts of the checkpoint in progress that the next batch needs. On a full disk, parts make up most
    /// of the batch, since updates use the space that the checkpoint needs to end.
    pub(super) fn wanted_parts(&self, room: usize, chunk: usize) -> usize {
        let batches = 1 + self.queued.saturating_sub(self.part_bytes) / room.max(1);
        let full = (room / chunk).clamp(1, FULL_PARTS);
        let (wanted, most) = if self.is_full { (2 * full - 1, full) } else { (batches, MAX_PARTS) };
        wanted.saturating_sub(self.parts).min(most)
    }

    /// Takes records until the batch has about `room` bytes, or none is left. `data`: see [`JournalBatch::data`].
    /// `late` is the watermark of the mutant `StampLate`.
    pub(super) fn next_batch(
        &mut self,
        chain: ChainId,
        room: usize,
        data: u64,
        late: Option<Sequence>,
    ) -> Option<JournalBatch> {
        let before = self.last - self.records.len() as u64;
        let queued = self.queued;
        let (mut entries, mut left, mut taken) = (Vec::new(), room, 0);
        let mut updates = if self.is_full && self.parts > 0 { FULL_UPDATES.min(room) } else { room };
        while let Some(record) = self.records.pop_front() {
            taken += 1;
            let cost = record.cost();
            if matches!(record, JournalRecord::Part(_)) {
                (self.parts, self.part_bytes) = (self.parts - 1, self.part_bytes.saturating_sub(cost));
            } else {
                updates = updates.saturating_sub(cost);
            }
            left = left.saturating_sub(cost);
            self.queued = self.queued.saturating_sub(cost);
            record.put(chain, late, &mut entries);
            if left == 0 || updates == 0 {
                break;
            }
        }
        let (bytes, queued, awaits) = (queued - self.queued, self.queued, self.awaits);
        (taken > 0).then_some(JournalBatch { upto: before + taken, entries, bytes, queued, data, awaits })
    }

    /// Whether updates must be refused: from the time at which more than `most` bytes wait for the disk, until
    /// [`unclogs`](Self::unclogs).
    pub(crate) fn is_clogged(&mut self, most: usize) -> bool {
        self.refuses |= self.queued > most;
        self.refuses
    }

    /// Whether updates were refused and can be requested again, since at most `most` bytes wait for the disk.
    pub(crate) fn unclogs(&mut self, most: usize) -> bool {
        self.queued <= most && std::mem::take(&mut self.refuses)
    }

    /// All records up to number `upto` are durable.
    pub(crate) fn durable(&mut self, upto: u64) {
        while let Some((_, version)) = self.waiting.take_front_if(|(number, _)| *number <= upto) {
            self.held = version;
        }
        if matches!(self.wholeness, Wholeness::Until(end) if end <= upto) {
            self.wholeness = Wholeness::Whole;
        }
    }
}

impl JournalRecord {
    fn cost(&self) -> usize {
        match self {
            Self::Update { update, taken, .. } => update.cost() + taken.as_ref().map_or(0, Bytes::len),
            Self::Part(part) => part.content.bytes(),
            _ => 0,
        }
    }

    /// Adds the record to `entries`. Consecutive updates share an entry.
    fn put(self, chain: ChainId, late: Option<Sequence>, entries: &mut Vec<JournalEntry>) {
        let sent = |message| JournalEntry::Sent(Box::new(ChainFrame { chain, epoch: Epoch(0), index: 0, message }));
        match self {
            Self::Cut(keep) => entries.push(JournalEntry::Cut { chain, keep }),
            Self::NotWhole => entries.push(JournalEntry::NotWhole { chain }),
            Self::Watermark(watermark) => entries.push(JournalEntry::Watermark { chain, watermark }),
            Self::Part(part) => entries.push(sent(ChainMessage::Snapshot(*part))),
            Self::Update { update, after, watermark, taken } => {
                let watermark = late.unwrap_or(watermark);
                let taken = taken.map(|value| JournalEntry::Taken { chain, version: update.version, value });
                let is_first = taken.is_some();
                entries.extend(taken);
                if let Some(JournalEntry::Sent(frame)) = entries.last_mut().filter(|_| !is_first)
                    && let ChainMessage::Updates(updates) = &mut frame.message
                    && updates.updates.last().is_some_and(|last| last.version == after)
                    && updates.updates.len() < MAX_UPDATES
                {
                    updates.watermark = watermark;
                    updates.updates.push(update);
                    return;
                }
                entries.push(sent(ChainMessage::Updates(Updates { watermark, after, updates: vec![update] })));
            }
        }
    }
}
