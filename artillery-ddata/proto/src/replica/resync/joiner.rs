//! The joiner of a snapshot: it has no history, and no standing, until the snapshot is through.
//!
//! What has come when the last part is here is of many moments: each key as it was committed at some time between the
//! beginning and the highest watermark at which a part was made. It is the state at that watermark once all updates up to it
//! have been applied over it, older ones never over newer (docs/adr/0020-a-snapshot-of-what-is-there.md).

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

/// A store in resync, and what waits for its end.
#[derive(Clone, Debug)]
pub(in super::super) struct SnapshotReceiver {
    /// 0: no snapshot of this epoch has begun.
    pub(super) id: u64,
    beginning: SnapshotHeader,
    mark: SnapshotCursor,
    pub(super) again: bool,
    /// What is here from this key on was here before the snapshot; `None`: nothing was, or is any more.
    pub(super) clearing: Option<Bytes>,
    sessions: Sessions,
    /// The history from the beginning on, as far as it has been applied over the records.
    history: UpdateHistory,
    /// What has come of a value that comes in pieces, of which key and version.
    value: Vec<u8>,
    value_of: (Bytes, Version),
    /// The highest watermark at which a part was made that was taken in.
    shown: Sequence,
    /// The last part has come: it is whole with all updates up to here.
    until: Option<Sequence>,
    /// Updates behind that history, one behind the other, and their bytes.
    buffer: VecDeque<Update>,
    buffered: usize,
    hold: bool,
    come: ResyncProgress,
}

/// What comes of a part.
enum PartOutcome {
    /// It has come before, or something is missing before it.
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

    /// The newest update that has come, kept for afterwards or applied.
    pub(in super::super) fn reached(&self) -> Version {
        self.buffer.back().map_or(self.history.last(), |update| update.version)
    }

    pub(in super::super) fn upto(&self) -> Sequence {
        self.reached().sequence
    }

    /// Whether updates are of any use: some snapshot of this epoch has begun, and there is room.
    pub(in super::super) fn takes_updates(&self) -> bool {
        self.id != 0 && !self.hold
    }

    /// What comes behind an update that there was no room for is dropped too; the source's backlog holds the place. Behind
    /// the last part updates don't stay: they are applied as they come.
    pub(in super::super) fn has_room(&mut self, bytes: usize, limit: usize) -> bool {
        self.hold |= self.until.is_none() && self.buffered.saturating_add(bytes) > limit;
        !self.hold
    }

    pub(in super::super) fn keep(&mut self, update: Update, limit: usize) {
        if self.has_room(update.cost(), limit) {
            self.buffered += update.cost();
            self.buffer.push_back(update);
        }
    }

    /// The epoch is over, and the snapshot with it. What has come of it is of no use, and stays until the next begins; but
    /// for the updates, which are the caller's now.
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

    /// The next update up to there, if it has come.
    fn next(&mut self, until: Sequence) -> Option<Update> {
        if self.history.last().sequence < until { self.buffer.pop_front() } else { None }
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

    /// Of a large value some pieces have come. The source doesn't have it any more: here is what is there now.
    fn begins_value_anew(&self, part: &SnapshotPart) -> bool {
        let SnapshotCursor { sessions, ref behind, bytes } = self.mark;
        if bytes == 0 || part.at != (SnapshotCursor { sessions, behind: behind.clone(), bytes: 0 }) {
            return false;
        }
        match &part.content {
            // The first piece of it, said again, or of an older one.
            SnapshotContent::Piece(piece) => !self.is_of_value(piece) && !self.is_older(piece),
            _ => true,
        }
    }

    fn is_of_value(&self, piece: &RecordPiece) -> bool {
        (&piece.key, piece.version) == (&self.value_of.0, self.value_of.1)
    }

    /// Of a version of the same key that was there before: it came late.
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
                // What has come is of a version that isn't there any more.
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
            // One that was heard of is under way here, or through, or overtaken; and one that is meant for another place
            // than where we stand came late.
            let is_meant = self.filling.is_some() || self.history.last() == beginning.said;
            if part.id > self.snapshot_seen && is_meant {
                self.begin_filling(part.id, beginning);
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

    /// Nothing that is here counts any more. It is marked so before the first change.
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

    /// The last part has come. What the joiner has isn't the state of any moment yet.
    fn end_parts(&mut self, now: Timestamp) {
        let Some(filling) = &mut self.filling else { return };
        let too_soon = allows!(self.settings.guards, WholeTooSoon);
        let until = if too_soon { filling.shown.min(filling.upto()) } else { filling.shown };
        (filling.until, filling.hold) = (Some(until), false);
        self.catch_up(now);
    }

    /// Behind the last part: applies the updates that the records may show already, as far as they have come. With the last of
    /// them the joiner is whole.
    pub(in super::super) fn catch_up(&mut self, now: Timestamp) {
        let Some(until) = self.filling.as_ref().and_then(|filling| filling.until) else { return };
        while let Some(update) = self.filling.as_mut().and_then(|filling| filling.next(until)) {
            if let Err(halt) = self.apply_over_records(update) {
                return self.halt(halt);
            }
        }
        if self.filling.as_ref().is_some_and(|filling| filling.history.last().sequence >= until) {
            self.finish_filling(now);
        }
    }

    /// Takes in an update that the source had committed when it made the last part: what is newer here stays.
    fn apply_over_records(&mut self, update: Update) -> Result<(), Halt> {
        if !update.kind.is_known() {
            return Err(Halt::UnknownKind(update.kind.0));
        }
        // What it took away may never have been here. Then nobody remembers the value, rather than another one.
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

    /// Whether a key has this version here, or a newer one.
    pub(in super::super) fn has_newer(&self, key: &[u8], version: Version) -> Result<bool, StoreError> {
        let newest = self.store.read(self.chain, key, Sequence::MAX)?;
        Ok(newest.is_some_and(|held| held.version.sequence >= version.sequence))
    }

    /// All is here: history begins behind the first part, and the updates that are left are applied as ever.
    fn finish_filling(&mut self, now: Timestamp) {
        let Some(filling) = self.filling.take().filter(|_| self.halted.is_none()) else { return };
        let SnapshotReceiver { beginning, history, sessions, buffer, .. } = *filling;
        self.watermark = history.last().sequence;
        self.store.commit(self.watermark);
        (self.history, self.sessions) = (history, sessions);
        self.writes.follow_chain_time(beginning.chain_time);
        for update in buffer {
            if let Err(halt) = self.apply(update) {
                return self.halt(halt);
            }
        }
        self.follow_chain_time();
        self.resyncs.full += 1;
        self.event(ReplicaEvent::Resynced { upto: self.history.last() });
        // It is known to be a prefix of the source's history; the source will say that it follows.
        self.needs_resume = true;
        self.believe_prefix(now);
    }
}
