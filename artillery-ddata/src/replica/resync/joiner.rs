//! The joiner of a snapshot: it has no history, and no standing, until the snapshot is through.

use std::collections::VecDeque;

use smallvec::{SmallVec, smallvec};

use super::{
    super::{History, Mutant, Refusal, Replica, Reply, sessions::Sessions},
    ResyncProgress,
};
use crate::{
    MemberId, Role, Sequence, Timestamp, Version,
    replica::Event,
    store::{Held, Record, StoreBatch, StoreOp},
    update::Update,
    wire::message::{Beginning, Mark, Progress, RecordPiece, SnapshotContent, SnapshotPart},
};

/// A store in resync, and what waits for its end.
#[derive(Clone, Debug)]
pub(in super::super) struct Filling {
    /// 0: no snapshot of this epoch has begun.
    id: u64,
    beginning: Beginning,
    mark: Mark,
    again: bool,
    sessions: Sessions,
    /// What has come of a value that comes in pieces.
    value: Vec<u8>,
    /// Updates behind the snapshot, one behind the other, and their bytes.
    buffer: VecDeque<Update>,
    buffered: usize,
    hold: bool,
    come: ResyncProgress,
}

/// What comes of a part.
enum Taken {
    /// It has come before, or something is missing before it.
    Nothing,
    Records(Vec<Record>),
    End,
}

impl Filling {
    fn new(id: u64, beginning: Beginning) -> Self {
        Self {
            id,
            beginning,
            mark: Mark::default(),
            again: false,
            sessions: Sessions::default(),
            value: Vec::new(),
            buffer: VecDeque::new(),
            buffered: 0,
            hold: false,
            come: ResyncProgress::default(),
        }
    }

    pub(in super::super) fn come(&self) -> ResyncProgress {
        self.come
    }

    pub(in super::super) fn progress(&self, missed: bool) -> Progress {
        let Self { id, ref mark, again, hold, .. } = *self;
        Progress { id, mark: mark.clone(), again, upto: self.upto(), missed: missed && !hold, hold }
    }

    /// The newest update that is kept for afterwards.
    pub(in super::super) fn upto(&self) -> Sequence {
        self.buffer.back().map_or(self.beginning.version, |update| update.version).sequence
    }

    /// Whether updates are of any use: some snapshot of this epoch has begun, and there is room.
    pub(in super::super) fn takes_updates(&self) -> bool {
        self.id != 0 && !self.hold
    }

    /// What comes behind an update that there was no room for is dropped too; the source's backlog holds the place.
    pub(in super::super) fn has_room(&mut self, bytes: usize, limit: usize) -> bool {
        self.hold |= self.buffered.saturating_add(bytes) > limit;
        !self.hold
    }

    pub(in super::super) fn keep(&mut self, update: Update, limit: usize) {
        if self.has_room(update.cost(), limit) {
            self.buffered += update.cost();
            self.buffer.push_back(update);
        }
    }

    /// The epoch is over, and the snapshot with it. What has come of it is of no use, and stays until the next begins.
    pub(in super::super) fn abandon(&mut self) {
        (self.id, self.again, self.hold, self.buffered) = (0, false, false, 0);
        self.buffer.clear();
    }

    fn take(&mut self, part: SnapshotPart) -> Taken {
        if part.at != self.mark {
            self.again |= part.at > self.mark;
            return Taken::Nothing;
        }
        let has_sessions = self.mark.sessions == self.beginning.sessions;
        match part.content {
            SnapshotContent::Sessions(entries) if !has_sessions => {
                self.mark.sessions += entries.len() as u64;
                entries.into_iter().for_each(|entry| self.sessions.add(entry));
            }
            SnapshotContent::Records(records) if has_sessions => return self.take_records(records),
            SnapshotContent::Piece(piece) if has_sessions => return self.take_piece(piece),
            SnapshotContent::End if has_sessions => return Taken::End,
            _ => return Taken::Nothing,
        }
        self.again = false;
        Taken::Nothing
    }

    fn take_records(&mut self, records: Vec<Record>) -> Taken {
        self.again = false;
        self.mark.bytes = 0;
        for record in &records {
            self.mark.behind = Some(record.key.clone());
            self.come.records += 1;
            self.come.bytes += (record.key.len() + record.held.value.as_ref().map_or(0, |value| value.len())) as u64;
        }
        Taken::Records(records)
    }

    fn take_piece(&mut self, piece: RecordPiece) -> Taken {
        if self.mark.bytes == 0 {
            self.value.clear();
        }
        self.again = false;
        self.value.extend_from_slice(&piece.bytes);
        self.mark.bytes = self.value.len() as u64;
        if self.mark.bytes < u64::from(piece.len) {
            return Taken::Nothing;
        }
        let value = std::mem::take(&mut self.value).into();
        self.take_records(vec![Record { key: piece.key, held: Held { version: piece.version, value: Some(value) } }])
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
            match filling.take(part) {
                Taken::Nothing => {}
                Taken::Records(records) => self.put_records(records),
                Taken::End => self.finish_filling(now),
            }
        }
        self.due_for(Some(from));
    }

    /// Nothing that is here counts any more. It is marked so before the first change.
    fn begin_filling(&mut self, id: u64, beginning: Beginning) {
        self.gate.serve(None);
        self.snapshot_seen = id;
        let before = self.filling.replace(Box::new(Filling::new(id, beginning)));
        self.event(Event::Resyncing);
        self.forget_standing();
        self.reply_all_reads(&Reply::Refused(Refusal::NoChain));
        self.refuse_watchers();
        self.end_snapshots();
        self.cut_writes(Version::NONE);
        self.history = History::default();
        self.sessions = Sessions::default();
        self.watermark = Sequence::ZERO;
        self.gate.commit(Sequence::ZERO);
        if let (true, Some(filling), Some(before)) = (self.is(Mutant::SkipFinished), &mut self.filling, before) {
            filling.go_on_from(*before);
            return;
        }
        if !self.is(Mutant::NoWipe) {
            self.apply_to_store(smallvec![StoreOp::DropAbove { last: Sequence::ZERO }]);
        }
    }

    fn put_records(&mut self, records: Vec<Record>) {
        let known = |record: &Record| {
            let held = self.store.read(self.chain, &record.key, Sequence::MAX);
            held.is_ok_and(|held| held.is_some_and(|held| held.version.sequence >= record.held.version.sequence))
        };
        // With the wipe left out only what is still there may be passed over: everything else would be refused.
        let records = records.into_iter().filter(|record| !self.is(Mutant::NoWipe) || !known(record));
        let ops: SmallVec<_> = records.map(|Record { key, held }| StoreOp::Put { key, held }).collect();
        self.apply_to_store(ops);
    }

    fn apply_to_store(&mut self, ops: SmallVec<[StoreOp; 2]>) {
        if let Err(error) = self.store.apply(&StoreBatch { chain: self.chain, keep_from: self.watermark, ops }) {
            self.halt(error.into());
        }
    }

    /// The snapshot is whole: history begins behind it, and the updates that wait are applied.
    fn finish_filling(&mut self, now: Timestamp) {
        let Some(filling) = self.filling.take().filter(|_| self.halted.is_none()) else { return };
        let Filling { beginning, sessions, buffer, .. } = *filling;
        self.watermark = beginning.version.sequence;
        self.gate.commit(self.watermark);
        self.history = History::behind(beginning.version, beginning.epochs);
        self.sessions = sessions;
        self.writes.follow_chain_time(beginning.chain_time);
        for update in buffer {
            if let Err(halt) = self.apply(update) {
                return self.halt(halt);
            }
        }
        self.follow_chain_time();
        self.resyncs.full += 1;
        self.event(Event::Resynced { upto: self.history.last() });
        // It is known to be a prefix of the source's history; the source will say that it follows.
        self.needs_resume = true;
        self.believe_prefix(now);
    }
}

impl Filling {
    /// Mutant: what had come of an older snapshot counts as if it were of this one.
    fn go_on_from(&mut self, before: Self) {
        self.mark = Mark { sessions: self.beginning.sessions, behind: before.mark.behind, bytes: 0 };
        (self.sessions, self.again) = (before.sessions, true);
    }
}
