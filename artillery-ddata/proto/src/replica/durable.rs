//! What a durable member writes into its journal, and how far the chain is durable (docs/DESIGN.md §8).
//!
//! The replica hands out entries for the journal, in order, and is told which of them are durable. Members hand on updates
//! before those are durable, and say afterwards how far they are. To its successor a member says the *durable mark*: all
//! members from the head to this one hold everything up to there on their disks. A joiner says to its predecessor up to
//! where it is durable itself. The tail commits no more than the mark that it got, and than its own disk holds.

use std::collections::VecDeque;

use bytes::Bytes;

use super::ends::Ends as _;
use super::{Replica, checkpoint::Checkpoint, stream::MAX_UPDATES};
use crate::{
    ChainId, Epoch, MemberId, Role, Sequence, Timestamp, Version,
    journal::JournalEntry,
    message::{ChainFrame, ChainMessage, SnapshotPart, Updates},
    store::Size,
    types::update::Update,
};

/// Entries that are written together, and the number by which [`Turn::durable`](crate::runner::Turn::durable) tells that they
/// are durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalBatch {
    /// The number of the batch's last record. Numbers rise.
    pub upto: u64,
    /// The entries, in order.
    pub entries: Vec<JournalEntry>,
    /// Their bytes, about.
    pub bytes: usize,
    /// About the bytes of the records behind them.
    pub queued: usize,
    /// The most bytes that a checkpoint of the chain's whole store would have, without the padding of groups.
    pub data: u64,
    /// The chain has ended a resync, and waits for the request to begin the checkpoint behind it.
    pub awaits: bool,
}

/// The most bytes that a record has in a checkpoint in addition to its key and its value.
pub(crate) const RECORD_BYTES: u64 = 32;
/// While the disk is full, each batch has about `FULL_UPDATES` bytes of updates, and adds up to `FULL_PARTS` parts of a
/// checkpoint if they fit in a batch.
const FULL_UPDATES: usize = 64 << 10;
const FULL_PARTS: usize = 8;
/// Otherwise it adds at most this number of parts.
const MOST_PARTS: usize = 2;

/// The most bytes that a checkpoint of records of `size`, and of a table of sessions with `sessions` bytes in memory, would have.
pub(crate) fn checkpoint_bytes(size: Size, sessions: usize) -> u64 {
    size.bytes + (size.keys + 1) * RECORD_BYTES + sessions as u64
}

/// Something that the journal has to keep.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "most records are updates")]
enum JournalRecord {
    /// An update, what stood before it and was committed when it came, and the value that it took away.
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

/// How a durable member stands with its journal.
#[derive(Clone, Debug, Default)]
pub(super) struct JournalState {
    /// Records that weren't handed out yet.
    records: VecDeque<JournalRecord>,
    /// Their bytes, about.
    queued: usize,
    /// Updates were refused, since too many wait for the disk already.
    refuses: bool,
    /// The number of the last record.
    last: u64,
    /// The newest update among the records.
    newest: Version,
    /// The highest watermark among the records.
    watermark: Sequence,
    /// Updates that aren't durable yet, with the numbers of their records.
    waiting: VecDeque<(u64, Version)>,
    /// The newest version up to which everything is durable here, once the store is whole on the disk.
    held: Version,
    wholeness: Wholeness,
    /// Parts of a checkpoint among the records, and their bytes.
    parts: usize,
    part_bytes: usize,
    pub(super) checkpoint: Option<Checkpoint>,
    /// How many checkpoints were begun.
    pub(super) checkpoints: u64,
    /// The disk counts as full.
    pub(super) is_full: bool,
    /// A resync has ended, and the checkpoint behind it begins once the disk has space for it.
    pub(super) awaits: bool,
}

/// Whether the journal holds the whole store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Wholeness {
    /// It lacks a checkpoint.
    #[default]
    Lacking,
    /// It does once the record with this number is durable, which ends a checkpoint.
    Until(u64),
    Whole,
}

impl JournalState {
    fn push(&mut self, record: JournalRecord) {
        self.last += 1;
        self.queued += record.cost();
        self.records.push_back(record);
    }

    /// What this member itself holds on its disk.
    fn held(&self) -> Version {
        if self.wholeness == Wholeness::Whole { self.held } else { Version::NONE }
    }

    #[cfg(test)]
    pub(super) const fn newest(&self) -> Version {
        self.newest
    }

    /// Bytes that weren't handed out yet, about.
    #[cfg(test)]
    pub(super) const fn queued(&self) -> usize {
        self.queued
    }

    pub(super) fn part(&mut self, part: SnapshotPart) {
        self.parts += 1;
        self.part_bytes += part.content.bytes();
        self.push(JournalRecord::Part(part.into()));
    }

    /// The last part of a checkpoint was written.
    pub(super) fn ended(&mut self) {
        self.checkpoint = None;
        if self.wholeness == Wholeness::Lacking {
            self.wholeness = Wholeness::Until(self.last);
        }
    }

    /// Behind the beginning of a checkpoint of the history up to `version`.
    pub(super) fn begun(&mut self, version: Version) {
        (self.newest, self.awaits) = (version, false);
        if self.wholeness == Wholeness::Lacking {
            (self.held, self.waiting) = (version, VecDeque::new());
        }
    }

    /// An update is to be written. It carries the watermark of this moment: a later one may speak of updates that take the
    /// place of those which are cut off until then.
    pub(super) fn update(&mut self, update: &Update, taken: Option<Bytes>, watermark: Sequence) {
        let after = std::mem::replace(&mut self.newest, update.version);
        self.push(JournalRecord::Update { update: update.clone(), after, watermark, taken });
        self.watermark = self.watermark.max(watermark);
    }

    /// Writes an update behind the beginning of a checkpoint. Its record before that beginning counts only if the store was
    /// whole.
    pub(super) fn update_again(&mut self, update: &Update, taken: Option<Bytes>, watermark: Sequence) {
        self.update(update, taken, watermark);
        if self.wholeness == Wholeness::Lacking {
            self.waiting.push_back((self.last, update.version));
        }
    }
}

impl Replica {
    /// The journal holds the store up to `last`, all of it durable, and `checkpoint` up to its last part.
    pub(super) fn resume_journal(&mut self, last: Version, watermark: Sequence, checkpoint: Option<Checkpoint>) {
        let state = JournalState {
            checkpoints: checkpoint.is_some().into(),
            checkpoint,
            newest: last,
            held: last,
            watermark,
            wholeness: Wholeness::Whole,
            ..JournalState::default()
        };
        if let Some(journal) = &mut self.journal {
            **journal = state;
        }
    }

    /// Whether the members of this chain keep journals.
    pub(super) fn is_durable(&self) -> bool {
        self.journal.is_some()
    }

    /// An update was appended to the history.
    pub(super) fn journal_update(&mut self, update: &Update, taken: Option<&Bytes>) {
        let watermark = self.watermark;
        let Some(journal) = &mut self.journal else { return };
        journal.update(update, taken.cloned(), watermark);
        journal.waiting.push_back((journal.last, update.version));
    }

    /// Everything behind `keep` was cut off. What was on its way to the disk doesn't count any more, though it will be there, nor
    /// does what others have said of it.
    pub(super) fn journal_cut(&mut self, keep: Version) {
        let guards = self.settings.guards;
        let Some(journal) = &mut self.journal else { return };
        if !allows!(guards, KeepHeardMarks) {
            for peer in self.peers.values_mut() {
                (peer.mark, peer.held) = (peer.mark.min(keep.sequence), peer.held.min(keep.sequence));
            }
        }
        journal.push(JournalRecord::Cut(keep));
        journal.newest = keep;
        if allows!(guards, KeepCutMarks) {
            return;
        }
        journal.waiting.retain(|(_, version)| version.sequence <= keep.sequence);
        if journal.held.sequence > keep.sequence {
            journal.held = keep;
        }
    }

    /// A resync begins: what the journal holds doesn't count any more, until a checkpoint of what has come is durable.
    pub(super) fn journal_not_whole(&mut self) {
        let Some(journal) = &mut self.journal else { return };
        journal.push(JournalRecord::NotWhole);
        (journal.wholeness, journal.checkpoint, journal.awaits) = (Wholeness::Lacking, None, false);
        (journal.newest, journal.held, journal.watermark) = (Version::NONE, Version::NONE, Sequence::ZERO);
        journal.waiting.clear();
    }

    /// A resync has ended. The journal receives the size of a checkpoint, and requests it from the chain once the disk has space:
    /// half of it would use the space of other chains, and free nothing.
    pub(super) fn await_checkpoint(&mut self) {
        let (watermark, last) = (self.watermark, self.history.last());
        if let Some(journal) = &mut self.journal {
            // Updates may be written before the checkpoint begins.
            (journal.awaits, journal.newest, journal.watermark) = (true, last, watermark);
            journal.push(JournalRecord::Watermark(watermark));
        }
    }

    /// Nothing was committed for a while: a watermark that no update has carried is written too.
    pub(super) fn journal_watermark(&mut self) {
        let watermark = self.watermark;
        if self.has_unwritten_watermark()
            && let Some(journal) = &mut self.journal
        {
            journal.push(JournalRecord::Watermark(watermark));
            journal.watermark = watermark;
        }
    }

    pub(super) fn has_unwritten_watermark(&self) -> bool {
        self.journal.as_ref().is_some_and(|journal| journal.watermark < self.watermark)
    }

    /// The next batch for the journal: records of about `room` bytes, and parts of the checkpoint in progress. So a checkpoint
    /// ends however many updates are written. On a full disk it has most of the batch, since updates use the space that it needs
    /// to end.
    pub(crate) fn poll_journal(&mut self, room: usize) -> Option<JournalBatch> {
        self.add_parts(room);
        let (chain, now, late) = (self.chain, self.watermark, allows!(self.settings.guards, StampLate));
        let journal = self.journal.as_mut()?;
        let before = journal.last - journal.records.len() as u64;
        let queued = journal.queued;
        let (mut entries, mut left, mut taken) = (Vec::new(), room, 0);
        let mut updates = if journal.is_full && journal.parts > 0 { FULL_UPDATES.min(room) } else { room };
        while let Some(record) = journal.records.pop_front() {
            taken += 1;
            let cost = record.cost();
            if matches!(record, JournalRecord::Part(_)) {
                (journal.parts, journal.part_bytes) = (journal.parts - 1, journal.part_bytes.saturating_sub(cost));
            } else {
                updates = updates.saturating_sub(cost);
            }
            left = left.saturating_sub(cost);
            journal.queued = journal.queued.saturating_sub(cost);
            record.put(chain, late.then_some(now), &mut entries);
            if left == 0 || updates == 0 {
                break;
            }
        }
        let (bytes, queued) = (queued - journal.queued, journal.queued);
        let data = checkpoint_bytes(self.store.size(chain), self.sessions.bytes());
        let awaits = journal.awaits;
        (taken > 0).then_some(JournalBatch { upto: before + taken, entries, bytes, queued, data, awaits })
    }

    /// Adds parts of the checkpoint in progress behind the records: one for each batch of them.
    fn add_parts(&mut self, room: usize) {
        let Some(journal) = &self.journal else { return };
        let batches = 1 + journal.queued.saturating_sub(journal.part_bytes) / room.max(1);
        let full = (room / self.chunk()).clamp(1, FULL_PARTS);
        let (wanted, most) = if journal.is_full { (2 * full - 1, full) } else { (batches, MOST_PARTS) };
        for _ in 0..wanted.saturating_sub(journal.parts).min(most) {
            self.continue_checkpoint(room);
        }
    }

    /// Whether this joiner's disk is so far behind that it takes no update for now. Nothing else bounds what waits for it: the
    /// chain goes on without it. The predecessor's history has what is refused.
    pub(super) fn is_clogged(&mut self) -> bool {
        // A resync that ends passes one step of its kept updates to the journal at once.
        let most = 2 * self.settings.joiner_buffer;
        let Some(journal) = self.journal.as_mut().filter(|_| self.place.role == Some(Role::Syncing)) else {
            return false;
        };
        journal.refuses |= journal.queued > most;
        journal.refuses
    }

    /// Updates that were refused are asked for again, once the disk has caught up.
    fn ask_for_refused(&mut self) {
        let most = self.settings.joiner_buffer;
        let Some(journal) = self.journal.as_mut().filter(|journal| journal.refuses && journal.queued <= most) else {
            return;
        };
        journal.refuses = false;
        if let Some(predecessor) = self.place.predecessor {
            self.miss(predecessor);
        }
    }

    /// All records up to number `upto` are durable.
    pub(super) fn durable(&mut self, now: Timestamp, upto: u64) {
        let Some(journal) = &mut self.journal else { return };
        while let Some((_, version)) = journal.waiting.take_front_if(|(number, _)| *number <= upto) {
            journal.held = version;
        }
        if matches!(journal.wholeness, Wholeness::Until(end) if end <= upto) {
            journal.wholeness = Wholeness::Whole;
        }
        if self.halted.is_some() {
            return;
        }
        self.ask_for_refused();
        self.commit_as_tail(now);
        self.consider_promotion(now);
    }

    /// Up to where all members from the head to this one are durable; `None`: they keep no journals.
    pub(super) fn durable_mark(&self) -> Option<Sequence> {
        let held = self.held_here()?;
        let before = self.place.predecessor.filter(|_| !allows!(self.settings.guards, IgnoreMarks));
        let mark = before.map(|id| self.peers.get(&id).map_or(Sequence::ZERO, |peer| peer.mark));
        Some(mark.map_or(held, |mark| mark.min(held)))
    }

    /// Up to where this member is durable; `None`: it keeps no journal.
    pub(super) fn held_here(&self) -> Option<Sequence> {
        Some(self.journal.as_ref()?.held().sequence)
    }

    /// The newest update that is on the disk of this member, whether or not the rest of the store is there too; `None`: it keeps
    /// no journal.
    pub(super) fn written_here(&self) -> Option<Sequence> {
        Some(self.journal.as_ref()?.held.sequence)
    }

    /// Up to where the joiner holds everything, as the tail counts it.
    pub(super) fn held_by(&self, member: MemberId) -> Sequence {
        let by_disk = self.is_durable();
        self.peers.get(&member).map_or(Sequence::ZERO, |peer| if by_disk { peer.held } else { peer.acknowledged })
    }

    /// How far this member is, for `to`, if that is news.
    pub(super) fn poll_mark(&mut self, to: MemberId) -> Option<ChainFrame> {
        self.journal.as_ref()?;
        let config = self.config.clone()?;
        let version = if self.place.successor == Some(to) {
            if self.outgoing.is_some() {
                // A joiner in the middle of a snapshot has no history to which a mark could belong. On a narrow link, marks beside
                // each update would leave the snapshot no room.
                return None;
            }
            // No further than was sent: a mark that comes before its updates counts for nothing.
            let sent = self.peers.get(&to)?.cursor?.next;
            let mark = self.durable_mark()?.min(Sequence(sent.0.saturating_sub(1)));
            self.history.version_at(mark)?
        } else if self.place.predecessor == Some(to) && self.place.role == Some(Role::Syncing) {
            self.journal.as_ref()?.held()
        } else {
            return None;
        };
        let peer = self.peers.get_mut(&to).filter(|peer| peer.connected && peer.mark_said != version)?;
        peer.mark_said = version;
        (version != Version::NONE).then(|| self.frame(&config, ChainMessage::Durable(version)))
    }

    /// Another member said how far it is. It counts only if this member has the same history up to there: a mark of other
    /// updates under these sequences says nothing (trap 77).
    pub(super) fn hear_mark(&mut self, now: Timestamp, from: MemberId, version: Version) {
        let is_ours = || self.history.version_at(version.sequence) == Some(version);
        if !self.is_durable() || !(allows!(self.settings.guards, TakeAnyMark) || is_ours()) {
            return;
        }
        let (predecessor, successor) = (self.place.predecessor, self.place.successor);
        let Some(peer) = self.peers.get_mut(&from) else { return };
        if predecessor == Some(from) {
            peer.mark = peer.mark.max(version.sequence);
        } else if successor == Some(from) {
            peer.held = peer.held.max(version.sequence);
        }
        self.commit_as_tail(now);
        self.consider_promotion(now);
    }

    /// Whether the epoch is open here, and this member's watermark covers all that was committed in earlier epochs. Before, a
    /// tail doesn't speak for the chain.
    pub(super) fn has_caught_up(&self) -> bool {
        self.is_open() && !self.awaits_marks()
    }

    /// Whether marks hold the watermark below what may have been committed in earlier epochs (trap 78).
    pub(super) fn awaits_marks(&self) -> bool {
        let waits = self.is_durable() && !allows!(self.settings.guards, SpeakTooSoon);
        waits && self.open_upto.is_none_or(|upto| self.watermark < upto)
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

    /// Writes the record behind `entries`. Updates that follow each other share an entry. The mutant `StampLate` has a `late`
    /// watermark.
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
