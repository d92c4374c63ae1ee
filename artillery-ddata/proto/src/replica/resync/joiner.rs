//! The joiner of a snapshot: it has no history, and no standing, until the snapshot is complete.
//!
//! When the last part has come, the records are of many moments: each key as it was committed at some time between the
//! beginning and the highest watermark at which a part was made. All updates up to that watermark are then applied over
//! the records, but never an older version over a newer one. The result is the state at that watermark
//! (docs/adr/0020-a-snapshot-of-what-is-there.md).

use std::collections::VecDeque;

use bytes::Bytes;
use smallvec::SmallVec;

use super::{
    super::{Halt, Replica, UpdateHistory, client_sessions::Sessions},
    ResyncProgress,
};
use crate::{
    MemberId, Role, Sequence, Timestamp, Version,
    api::{Refusal, Reply},
    message::{RecordPiece, SnapshotContent, SnapshotCursor, SnapshotHeader, SnapshotPart, SnapshotProgress},
    replica::ReplicaEvent,
    store::{Held, ScanRecord, StoreBatch, StoreError, StoreOp},
    types::update::Update,
};

/// A resync under way: the state of the snapshot, and the updates that wait for its end.
#[derive(Clone, Debug)]
pub(in super::super) struct SnapshotReceiver {
    /// 0: no snapshot of this epoch has begun.
    pub(super) id: u64,
    pub(super) beginning: SnapshotHeader,
    mark: SnapshotCursor,
    pub(super) again: bool,
    /// Keys from this one on are from before the snapshot and are still to be cleared; `None`: the store is cleared.
    pub(super) clearing: Option<Bytes>,
    pub(super) sessions: Sessions,
    /// The history from the beginning on, as far as it has been applied over the records.
    pub(super) history: UpdateHistory,
    /// The bytes received of a value that comes in pieces.
    value: Vec<u8>,
    /// The key and the version of that value.
    value_of: (Bytes, Version),
    /// The highest watermark at which a received part was made.
    shown: Sequence,
    /// The last part has come. The joiner is whole once all updates up to here are applied.
    pub(super) until: Option<Sequence>,
    /// Contiguous updates behind that history.
    pub(super) buffer: VecDeque<Update>,
    /// Bytes of the updates in the buffer.
    pub(super) buffered: usize,
    pub(super) hold: bool,
    come: ResyncProgress,
}

/// What a received part leads to.
enum PartOutcome {
    /// Nothing is to be done: the part is known, incomplete, or not the next one.
    Nothing,
    Records(Vec<ScanRecord>),
    End,
}

impl SnapshotReceiver {
    fn new(id: u64, beginning: SnapshotHeader) -> Self {
        Self {
            id,
            history: UpdateHistory::behind(beginning.version, beginning.epochs.clone()),
            shown: beginning.version.sequence,
            beginning,
            mark: SnapshotCursor::default(),
            again: false,
            clearing: None,
            sessions: Sessions::default(),
            value: Vec::new(),
            value_of: (Bytes::new(), Version::NONE),
            until: None,
            buffer: VecDeque::new(),
            buffered: 0,
            hold: false,
            come: ResyncProgress::default(),
        }
    }

    pub(in super::super) fn come(&self) -> ResyncProgress {
        self.come
    }

    pub(in super::super) fn progress(&self, missed: bool) -> SnapshotProgress {
        let Self { id, ref mark, again, hold, .. } = *self;
        let (upto, ended) = (self.upto(), self.until.is_some());
        SnapshotProgress { id, mark: mark.clone(), again, upto, missed: missed && !hold, hold, ended }
    }

    /// The newest update received, buffered or applied.
    pub(in super::super) fn reached(&self) -> Version {
        self.buffer.back().map_or(self.history.last(), |update| update.version)
    }

    pub(in super::super) fn upto(&self) -> Sequence {
        self.reached().sequence
    }

    /// Whether updates can be taken in: a snapshot of this epoch has begun, and there is room.
    pub(in super::super) fn takes_updates(&self) -> bool {
        self.id != 0 && !self.hold
    }

    /// Behind an update that exceeds the limit all further ones are dropped too; the source's backlog keeps them. After the
    /// last part an empty buffer takes any update: it may be one that the records contain.
    pub(in super::super) fn has_room(&mut self, bytes: usize, limit: usize) -> bool {
        let may_be_alone = self.until.is_some() && self.buffer.is_empty();
        self.hold |= !may_be_alone && self.buffered.saturating_add(bytes) > limit;
        !self.hold
    }

    pub(in super::super) fn keep(&mut self, update: Update, limit: usize) {
        if self.has_room(update.cost(), limit) {
            self.buffered += update.cost();
            self.buffer.push_back(update);
        }
    }

    /// The epoch is over, and the snapshot with it. Its records stay until the next snapshot begins. Its updates are
    /// returned to the caller, which frees them.
    pub(in super::super) fn abandon(&mut self) -> [VecDeque<Update>; 2] {
        (self.id, self.again, self.hold, self.until) = (0, false, false, None);
        self.take_updates()
    }

    fn take_updates(&mut self) -> [VecDeque<Update>; 2] {
        self.buffered = 0;
        [std::mem::take(&mut self.history).into_updates(), std::mem::take(&mut self.buffer)]
    }

    /// Whether the last part has come.
    pub(in super::super) fn has_ended(&self) -> bool {
        self.until.is_some()
    }

    fn committed(&mut self, update: Update, taken: Option<Bytes>, backlog: usize) {
        let sequence = update.version.sequence;
        self.sessions.note(&update, taken);
        self.sessions.commit(&update);
        self.history.push(update);
        self.history.commit(sequence, backlog);
    }

    fn take(&mut self, part: SnapshotPart) -> PartOutcome {
        if self.until.is_some() {
            return PartOutcome::Nothing;
        }
        if part.at != self.mark && !self.begins_value_anew(&part) {
            self.again |= part.at > self.mark;
            return PartOutcome::Nothing;
        }
        let has_sessions = self.mark.sessions == self.beginning.sessions;
        match part.content {
            SnapshotContent::Sessions(entries) if !has_sessions => {
                self.mark.sessions += entries.len() as u64;
                entries.into_iter().for_each(|entry| self.sessions.add(entry));
                self.again = false;
                PartOutcome::Nothing
            }
            SnapshotContent::Begin(_) | SnapshotContent::Sessions(_) => PartOutcome::Nothing,
            content if has_sessions => {
                self.shown = self.shown.max(part.watermark);
                self.take_content(&part.at, content)
            }
            _ => PartOutcome::Nothing,
        }
    }

    fn take_content(&mut self, at: &SnapshotCursor, content: SnapshotContent) -> PartOutcome {
        match content {
            SnapshotContent::Records(records) => self.take_records(records),
            SnapshotContent::Piece(piece) => self.take_piece(at, piece),
            _ => PartOutcome::End,
        }
    }

    /// Whether the part replaces a large value of which some pieces have come: the source has another version now.
    fn begins_value_anew(&self, part: &SnapshotPart) -> bool {
        let SnapshotCursor { sessions, ref behind, bytes } = self.mark;
        if bytes == 0 || part.at != (SnapshotCursor { sessions, behind: behind.clone(), bytes: 0 }) {
            return false;
        }
        match &part.content {
            // Not if it repeats the first piece of the same version, or brings one of an older version.
            SnapshotContent::Piece(piece) => !self.is_of_value(piece) && !self.is_older(piece),
            _ => true,
        }
    }

    fn is_of_value(&self, piece: &RecordPiece) -> bool {
        (&piece.key, piece.version) == (&self.value_of.0, self.value_of.1)
    }

    /// Whether the piece is of an older version of the same key, and so came late.
    fn is_older(&self, piece: &RecordPiece) -> bool {
        piece.key == self.value_of.0 && piece.version < self.value_of.1
    }

    fn take_records(&mut self, records: Vec<ScanRecord>) -> PartOutcome {
        self.again = false;
        self.mark.bytes = 0;
        for record in &records {
            self.mark.behind = Some(record.key.clone());
            self.come.records += 1;
            self.come.bytes += (record.key.len() + record.held.value.as_ref().map_or(0, |value| value.len())) as u64;
        }
        PartOutcome::Records(records)
    }

    fn take_piece(&mut self, at: &SnapshotCursor, piece: RecordPiece) -> PartOutcome {
        if at.bytes == 0 {
            self.value.clear();
            self.value_of = (piece.key.clone(), piece.version);
        } else if !self.is_of_value(&piece) {
            if !self.is_older(&piece) {
                // The pieces received are of a version that the source has no more.
                (self.mark.bytes, self.again) = (0, true);
            }
            return PartOutcome::Nothing;
        }
        self.again = false;
        self.value.extend_from_slice(&piece.bytes);
        self.mark.bytes = self.value.len() as u64;
        if self.mark.bytes < u64::from(piece.len) {
            return PartOutcome::Nothing;
        }
        let value = std::mem::take(&mut self.value).into();
        self.take_records(vec![ScanRecord {
            key: piece.key,
            held: Held { version: piece.version, value: Some(value) },
        }])
    }
}

impl Replica {
    pub(in super::super) fn receive_snapshot(&mut self, now: Timestamp, from: MemberId, part: SnapshotPart) {
        if self.place.predecessor != Some(from) || self.place.role != Some(Role::Syncing) {
            return;
        }
        if let SnapshotContent::Begin(beginning) = part.content {
            // A snapshot with a known number is under way, complete or overtaken. One for another position than ours
            // came late.
            let is_meant = self.filling.is_some() || self.history.last() == beginning.said;
            if part.id > self.snapshot_seen && is_meant {
                self.begin_filling(part.id, beginning);
                self.drop_unreplicated(now, Sequence::ZERO);
            }
        } else if let Some(filling) = self.filling.as_mut().filter(|filling| filling.id == part.id) {
            // A record put now would be cleared too, or find a deleted key's newer version in its place (traps 11, 64).
            let may_take = filling.clearing.is_none() || allows!(self.settings.guards, TakeWhileClearing);
            match if may_take { filling.take(part) } else { PartOutcome::Nothing } {
                PartOutcome::Nothing => {}
                PartOutcome::Records(records) => self.put_records(records),
                PartOutcome::End => self.end_parts(now),
            }
        }
        self.due_for(Some(from));
    }

    /// Begins a snapshot: the data held before doesn't count any more. The member is marked so before the first change.
    fn begin_filling(&mut self, id: u64, beginning: SnapshotHeader) {
        self.gate.serve(None);
        self.make_up();
        self.snapshot_seen = id;
        let history = std::mem::take(&mut self.history).into_updates();
        self.free_later(history);
        let mut before = self.filling.replace(Box::new(SnapshotReceiver::new(id, beginning)));
        let updates = before.as_mut().map(|before| before.take_updates()).unwrap_or_default();
        updates.into_iter().for_each(|updates| self.free_later(updates));
        self.event(ReplicaEvent::Resyncing);
        self.journal_not_whole();
        self.forget_standing();
        self.reply_all_reads(&Reply::Refused(Refusal::NoChain));
        self.refuse_watchers();
        self.end_snapshots();
        self.cut_writes(Version::NONE);
        self.sessions = Sessions::default();
        self.watermark = Sequence::ZERO;
        self.gate.commit(Sequence::ZERO);
        if let (true, Some(filling), Some(before)) =
            (allows!(self.settings.guards, SkipFinished), &mut self.filling, before)
        {
            // What had come of the older snapshot counts as if it were of this one.
            filling.mark =
                SnapshotCursor { sessions: filling.beginning.sessions, behind: before.mark.behind, bytes: 0 };
            (filling.sessions, filling.again) = (before.sessions, true);
            return;
        }
        if let Some(filling) = &mut self.filling {
            let keeps = allows!(self.settings.guards, NoWipe);
            (filling.again, filling.clearing) = (keeps, (!keeps).then(Bytes::new));
        }
        self.clear_some();
    }

    fn put_records(&mut self, records: Vec<ScanRecord>) {
        // With such a guard left out only what is still there may be passed over: everything else would be refused.
        let may_be_there = allows!(self.settings.guards, NoWipe) || allows!(self.settings.guards, SkipFinished);
        let known =
            |record: &ScanRecord| may_be_there && self.has_newer(&record.key, record.held.version).unwrap_or(false);
        let records = records.into_iter().filter(|record| !known(record));
        let ops: SmallVec<_> = records.map(|ScanRecord { key, held }| StoreOp::Put { key, held }).collect();
        self.apply_to_store(ops);
    }

    fn apply_to_store(&mut self, ops: SmallVec<[StoreOp; 2]>) {
        if let Err(error) = self.store.apply(&StoreBatch { chain: self.chain, keep_from: self.watermark, ops }) {
            self.halt(error.into());
        }
    }

    /// The last part has come. The records are not yet the state of one moment.
    fn end_parts(&mut self, now: Timestamp) {
        let Some(filling) = &mut self.filling else { return };
        let too_soon = allows!(self.settings.guards, WholeTooSoon);
        let until = if too_soon { filling.shown.min(filling.upto()) } else { filling.shown };
        filling.until = Some(until);
        self.catch_up(now);
    }

    /// Applies an update that the source had committed when it made the last part. Newer versions here stay.
    pub(super) fn apply_over_records(&mut self, update: Update) -> Result<(), Halt> {
        if !update.kind.is_known() {
            return Err(Halt::UnknownKind(update.kind.0));
        }
        // The value that the update took away may never have been here. Then no value is recorded, rather than a wrong
        // one.
        let taken = self.taken_by(&update)?;
        let mut ops = SmallVec::new();
        for change in &update.changes {
            if !self.has_newer(&change.key, update.version)? {
                let (key, value) = (change.key.clone(), change.value.clone());
                ops.push(StoreOp::Put { key: key.clone(), held: Held { version: update.version, value } });
                ops.push(StoreOp::Prune { key });
            }
        }
        if !ops.is_empty() {
            self.store.apply(&StoreBatch { chain: self.chain, keep_from: update.version.sequence, ops })?;
        }
        self.writes.follow_chain_time(update.chain_time);
        let backlog = self.settings.backlog;
        if let Some(filling) = &mut self.filling {
            filling.committed(update, taken, backlog);
        }
        Ok(())
    }

    /// Whether the store has this version of the key, or a newer one.
    pub(in super::super) fn has_newer(&self, key: &[u8], version: Version) -> Result<bool, StoreError> {
        let newest = self.store.read(self.chain, key, Sequence::MAX)?;
        Ok(newest.is_some_and(|held| held.version.sequence >= version.sequence))
    }
}
