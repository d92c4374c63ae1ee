//! A snapshot as its joiner receives it.

use std::collections::VecDeque;

use bytes::Bytes;

use super::ResyncProgress;
use crate::{
    Sequence, Version,
    message::{RecordPiece, SnapshotContent, SnapshotCursor, SnapshotHeader, SnapshotPart, SnapshotProgress},
    replica::{
        ends::Ends as _,
        log::{Sessions, UpdateHistory},
    },
    store::{Held, ScanRecord},
    types::update::Update,
};

/// The received part of a snapshot, and the updates buffered until it is complete.
#[derive(Clone, Hash, Debug)]
pub(super) struct SnapshotReceiver {
    /// 0: no snapshot of this epoch has begun.
    id: u64,
    beginning: SnapshotHeader,
    mark: SnapshotCursor,
    /// The source must send again from `mark` on.
    again: bool,
    /// Keys from this one on are from before the snapshot and must be cleared; `None`: the store is cleared.
    clearing: Option<Bytes>,
    sessions: Sessions,
    /// The part of the history after the beginning that has been applied over the records.
    history: UpdateHistory,
    /// The stamp of its newest update, or that of the beginning.
    stamp: u64,
    /// The received pieces of an incomplete value.
    value: Vec<u8>,
    /// The key and the version of that value.
    value_of: (Bytes, Version),
    /// The highest watermark at which a received part was made.
    shown: Sequence,
    /// Set by the last part: the records may reflect updates up to this sequence, so all of them must be applied before
    /// the resync can end.
    until: Option<Sequence>,
    /// Contiguous updates after `history`.
    buffer: VecDeque<Update>,
    buffered: usize,
    /// The buffer is full, so further updates are dropped.
    hold: bool,
    received: ResyncProgress,
}

pub(super) enum PartOutcome {
    /// There is nothing to store yet: the part held sessions or a piece of an incomplete value, or it was ignored as a
    /// duplicate or out of order.
    Nothing,
    Records(Vec<ScanRecord>),
    End,
}

impl SnapshotReceiver {
    pub(super) fn new(id: u64, beginning: SnapshotHeader) -> Self {
        Self {
            id,
            history: UpdateHistory::behind(beginning.version, beginning.epochs.clone()),
            shown: beginning.version.sequence,
            stamp: beginning.chain_time,
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
            received: ResyncProgress::default(),
        }
    }

    pub(super) fn received(&self) -> ResyncProgress {
        self.received
    }

    pub(super) fn progress(&self, missed: bool) -> SnapshotProgress {
        let Self { id, ref mark, again, hold, .. } = *self;
        let (upto, ended) = (self.upto(), self.until.is_some());
        SnapshotProgress { id, mark: mark.clone(), again, upto, missed: missed && !hold, hold, ended }
    }

    /// The newest update received, buffered or applied.
    pub(super) fn reached(&self) -> Version {
        self.buffer.back().map_or(self.history.last(), |update| update.version)
    }

    pub(super) fn upto(&self) -> Sequence {
        self.reached().sequence
    }

    /// Whether the buffer accepts updates: a snapshot of this epoch has begun, and the buffer isn't full.
    pub(super) fn takes_updates(&self) -> bool {
        self.id != 0 && !self.hold
    }

    /// Whether the buffer has capacity for an update. If not, this update and all further ones are refused until
    /// [`lift_hold`](Self::lift_hold). After the last part, an empty buffer accepts an update of any size, since the
    /// records may contain it.
    pub(super) fn accepts(&mut self, bytes: usize, limit: usize) -> bool {
        let may_be_alone = self.until.is_some() && self.buffer.is_empty();
        self.hold |= !may_be_alone && self.buffered.saturating_add(bytes) > limit;
        !self.hold
    }

    pub(super) fn keep(&mut self, update: Update, limit: usize) {
        if self.accepts(update.cost(), limit) {
            self.buffered += update.cost();
            self.buffer.push_back(update);
        }
    }

    /// Abandons the snapshot because its epoch has ended. The records stay in the store until the next snapshot begins.
    /// Returns the snapshot's updates, applied and buffered.
    pub(super) fn abandon(&mut self) -> [VecDeque<Update>; 2] {
        (self.id, self.again, self.hold, self.until) = (0, false, false, None);
        self.take_updates()
    }

    pub(super) fn take_updates(&mut self) -> [VecDeque<Update>; 2] {
        self.buffered = 0;
        [std::mem::take(&mut self.history).into_updates(), std::mem::take(&mut self.buffer)]
    }

    pub(super) fn has_ended(&self) -> bool {
        self.until.is_some()
    }

    /// Records an update that was applied on top of the records.
    pub(super) fn committed(&mut self, update: Update, taken: Option<Bytes>, backlog: usize) {
        let sequence = update.version.sequence;
        self.sessions.note(&update, taken);
        self.sessions.commit(&update);
        self.stamp = update.chain_time;
        self.history.push(update);
        self.history.commit(sequence, backlog);
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn take(&mut self, part: SnapshotPart) -> PartOutcome {
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

    /// Whether the part replaces a large value whose first pieces were received: the source has another version now.
    fn begins_value_anew(&self, part: &SnapshotPart) -> bool {
        let SnapshotCursor { sessions, ref behind, bytes } = self.mark;
        if bytes == 0 || part.at != (SnapshotCursor { sessions, behind: behind.clone(), bytes: 0 }) {
            return false;
        }
        match &part.content {
            // Not if it repeats the first piece of the same version, or belongs to an older version.
            SnapshotContent::Piece(piece) => !self.is_of_value(piece) && !self.is_older(piece),
            _ => true,
        }
    }

    fn is_of_value(&self, piece: &RecordPiece) -> bool {
        (&piece.key, piece.version) == (&self.value_of.0, self.value_of.1)
    }

    /// Whether the piece is late: it belongs to an older version of the same key.
    fn is_older(&self, piece: &RecordPiece) -> bool {
        piece.key == self.value_of.0 && piece.version < self.value_of.1
    }

    fn take_records(&mut self, records: Vec<ScanRecord>) -> PartOutcome {
        self.again = false;
        self.mark.bytes = 0;
        for record in &records {
            self.mark.behind = Some(record.key.clone());
            self.received.records += 1;
            self.received.bytes +=
                (record.key.len() + record.held.value.as_ref().map_or(0, |value| value.len())) as u64;
        }
        PartOutcome::Records(records)
    }

    fn take_piece(&mut self, at: &SnapshotCursor, piece: RecordPiece) -> PartOutcome {
        if at.bytes == 0 {
            self.value.clear();
            self.value_of = (piece.key.clone(), piece.version);
        } else if !self.is_of_value(&piece) {
            if !self.is_older(&piece) {
                // The received pieces are of a version that the source no longer has.
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
            held: Held { version: piece.version, value: Some(value), expires: piece.expires },
        }])
    }

    /// Lifts the hold once half of the buffer is free, if the joiner still needs more updates. Returns whether it was
    /// lifted.
    pub(super) fn lift_hold(&mut self, limit: usize) -> bool {
        let needs_more = self.until.is_some_and(|until| self.upto() < until);
        let lifts = self.hold && needs_more && self.buffered <= limit / 2;
        self.hold &= !lifts;
        lifts
    }

    /// Whether the last part is received, and a step can apply an update or end the resync.
    pub(super) fn has_step(&self) -> bool {
        self.until.is_some_and(|until| self.history.last().sequence >= until || !self.buffer.is_empty())
    }

    /// Takes the next update from the buffer, if it is at or below `until`.
    pub(super) fn next(&mut self, until: Sequence) -> Option<Update> {
        let update = self.buffer.take_front_if(|update| update.version.sequence <= until)?;
        self.buffered = self.buffered.saturating_sub(update.cost());
        Some(update)
    }

    /// The first key that must still be cleared from the store. `None`: the store is cleared.
    pub(super) fn clearing(&self) -> Option<&Bytes> {
        self.clearing.as_ref()
    }

    /// Sets the first key that must still be cleared from the store. `None`: the store is cleared, so the joiner
    /// requests the parts of its snapshot, if one has begun. Returns whether it requests them.
    pub(super) fn clear_from(&mut self, rest: Option<Bytes>) -> bool {
        self.again = rest.is_none() && self.id != 0;
        self.clearing = rest;
        self.again
    }

    /// Ends the receipt of parts. The records are still from different times.
    pub(super) fn end_parts(&mut self, too_soon: bool) {
        self.until = Some(if too_soon { self.shown.min(self.upto()) } else { self.shown });
    }

    pub(super) fn until(&self) -> Option<Sequence> {
        self.until
    }

    /// Whether every update that the records may contain is applied.
    pub(super) fn is_whole(&self) -> bool {
        self.until.is_some_and(|until| self.history.last().sequence >= until)
    }

    /// Returns the history, the sessions, the stamp of the history's newest update, and the buffered updates that follow
    /// the history.
    pub(super) fn finish(self) -> (UpdateHistory, Sessions, u64, VecDeque<Update>) {
        (self.history, self.sessions, self.stamp, self.buffer)
    }

    /// Mutant: treats the received part of the snapshot `before` as a part of this one.
    pub(super) fn skip(&mut self, before: Self) {
        self.mark = SnapshotCursor { sessions: self.beginning.sessions, behind: before.mark.behind, bytes: 0 };
        (self.sessions, self.again) = (before.sessions, true);
    }
}
