//! The order in which requests, commits, cuts and promotions act on the parts of a member.

use super::{
    Halt, JournalBatch, Replica,
    head::{IsAppended, WriteFailed},
    log::Committed,
    reads::{PendingRead, ReadFailed},
    upstream,
};
use crate::{
    MemberId, Sequence, Timestamp,
    api::Refusal,
    message::{Truncate, VersionAnswer},
    types::update::{Update, UpdateKind},
};

impl Replica {
    /// Runs after each input, and after each step of an assembly or of a joiner's buffered updates.
    pub(super) fn follow_up(&mut self, now: Timestamp) {
        if self.membership.place().is_head {
            if self.log.sessions().bytes() > self.membership.settings().sessions {
                self.evict_sessions(now);
            }
            self.remove_due(now);
            if self.peers.want_barriers() || self.reads.needs_own_barrier(&self.log) {
                self.order_barriers(now);
            }
        }
        let cx = self.membership.at(now);
        if self.head.is_closed() {
            self.head.report_closed(cx, &self.log, &mut self.outputs);
        }
        // Until our history is known to be a prefix, the successor's acknowledgements are deferred.
        let acknowledged = self.upstream.is_prefix().then(|| {
            let successor = self.peers.get(cx.place().successor);
            let acknowledged = successor.map_or(self.log.last().sequence, |link| link.stream().acknowledged());
            (acknowledged, upstream::ack_delay(cx))
        });
        self.pace.measure(cx, &self.log, acknowledged);
    }

    pub(super) fn continue_assembly(&mut self, now: Timestamp) {
        let cx = self.membership.at(now);
        let ordered = self.head.continue_assembly(cx, &mut self.log, &mut self.outputs);
        self.ordered(now, ordered);
    }

    pub(super) fn ordered(&mut self, now: Timestamp, ordered: Result<IsAppended, WriteFailed>) {
        match ordered {
            Ok(true) => self.appended(now),
            Ok(false) => {}
            Err(WriteFailed { token, why }) => {
                self.halt(why);
                self.outputs.refuse(token, Refusal::StoreFailed);
            }
        }
    }

    /// Runs after the head has appended an update.
    fn appended(&mut self, now: Timestamp) {
        if self.reads.snapshots() > 0 {
            self.reads.end_overtaken_snapshots(self.membership.at(now), &self.log);
        }
        if self.membership.place().is_alone() {
            self.commit_as_tail(now);
        }
    }

    /// Evicts sessions until the table is within its limit.
    pub(super) fn evict_sessions(&mut self, now: Timestamp) {
        loop {
            let evicted = self.head.evict_session(self.membership.at(now), &mut self.log);
            match self.halt_if_failed(evicted) {
                Some(true) => self.appended(now),
                Some(false) | None => return,
            }
        }
    }

    /// Removes keys that are due, at most as many as one update holds.
    fn remove_due(&mut self, now: Timestamp) {
        let removed = self.head.remove_due(self.membership.at(now), &mut self.log);
        if self.halt_if_failed(removed) == Some(true) {
            self.appended(now);
        }
    }

    /// Orders the barriers that other members and this head's own reads request.
    pub(super) fn order_barriers(&mut self, now: Timestamp) {
        for id in self.peers.wanting_barriers() {
            let Some(sequence) = self.order_barrier(now) else { return };
            self.peers.barrier_ordered(id, sequence);
        }
        if self.reads.needs_own_barrier(&self.log) {
            let Some(sequence) = self.order_barrier(now) else { return };
            let cx = self.membership.at(now);
            let served = self.reads.own_barrier_ordered(cx, &self.log, sequence, &mut self.outputs);
            self.served(served);
        }
    }

    /// Orders a barrier: an update that changes nothing. `None`: this member may not order now.
    fn order_barrier(&mut self, now: Timestamp) -> Option<Sequence> {
        let ordered = self.head.order_own(self.membership.at(now), &mut self.log, UpdateKind::BARRIER, None);
        let sequence = self.halt_if_failed(ordered)??;
        self.appended(now);
        Some(sequence)
    }

    pub(super) fn read(&mut self, now: Timestamp, asked: PendingRead) {
        if self.joiner.is_filling() {
            return self.outputs.refuse(asked.token, Refusal::NoChain);
        }
        let served = self.reads.read(self.membership.at(now), &mut self.log, asked, &mut self.outputs);
        self.served(served);
    }

    /// Runs after reads were served or parked. Makes the control frames due in which parked reads query the tail or
    /// request a barrier from the head.
    fn served(&mut self, served: Result<(), ReadFailed>) {
        if let Err(ReadFailed { token, why }) = served {
            self.halt(why.into());
            self.outputs.refuse(token, Refusal::StoreFailed);
        }
        let place = *self.membership.place();
        if self.reads.wants_query() {
            self.peers.due(place.tail);
        }
        if self.reads.wants_barrier() {
            self.peers.due(place.head);
        }
    }

    pub(super) fn answered(&mut self, now: Timestamp, answer: VersionAnswer) {
        let served = self.reads.answered(self.membership.at(now), &self.log, answer, &mut self.outputs);
        self.served(served);
    }

    pub(super) fn barrier_ordered(&mut self, now: Timestamp, answer: VersionAnswer) {
        let served = self.reads.barrier_ordered(self.membership.at(now), &self.log, answer, &mut self.outputs);
        self.served(served);
    }

    /// Handles again the reads that waited in another epoch, or for an update that was dropped.
    pub(super) fn restart_reads(&mut self, now: Timestamp) {
        for asked in self.reads.restart(self.membership.at(now)) {
            self.read(now, asked);
        }
    }

    pub(super) fn append(&mut self, now: Timestamp, update: Update) -> Result<(), Halt> {
        let cx = self.membership.at(now);
        if let Some(update) = self.joiner.keep(cx, update) {
            self.log.follow(cx, update)?;
            self.reads.end_overtaken_snapshots(cx, &self.log);
        }
        self.upstream.appended();
        Ok(())
    }

    pub(super) fn commit_as_tail(&mut self, now: Timestamp) {
        let cx = self.membership.at(now);
        if !cx.place().is_tail || !self.upstream.is_open() {
            return;
        }
        let committable = self.promotion.committable(cx, &self.log, &self.peers);
        if committable > self.log.watermark() {
            self.commit(now, committable);
            self.peers.iter_mut().for_each(|link| link.due());
        }
    }

    /// Receives a watermark of this epoch. While our history isn't known to be a prefix of the head's, the watermark is
    /// ignored: a returning member may hold other updates under the sequences that the watermark covers.
    pub(super) fn advance_commit(&mut self, now: Timestamp, watermark: Sequence) {
        if !self.upstream.is_prefix() {
            return;
        }
        let (serves, last) = (self.membership.place().serves(), self.log.last().sequence);
        if watermark > last && serves {
            // Every committed update has passed this member, so this is a bug, here or at another member. Halting is
            // better than serving wrong data (docs/DESIGN.md §4).
            self.halt(Halt::WatermarkAhead { watermark, last });
        } else if serves && self.log.durable().is_some_and(|durable| watermark > durable) {
            self.halt(Halt::NotDurable { watermark });
        } else if watermark.min(last) > self.log.watermark() {
            self.commit(now, watermark.min(last));
        }
    }

    /// Commits every update up to `watermark`: answers the writes, the reads and the watches that wait for it.
    fn commit(&mut self, now: Timestamp, watermark: Sequence) {
        let committed = self.log.commit(self.membership.at(now), watermark);
        let Some(Committed { before, updates, bytes }) = self.halt_if_failed(committed) else { return };
        let cx = self.membership.at(now);
        self.pace.committed(updates, bytes);
        self.peers.acknowledge_by_watermark(cx, watermark);
        self.head.answer_committed(cx, &self.log, &mut self.outputs);
        let served = self.reads.serve_committed(cx, &self.log, &mut self.outputs);
        self.served(served);
        let cx = self.membership.at(now);
        self.reads.answer_watchers(cx, &self.log, before, &mut self.outputs);
        self.log.trim(cx.settings().backlog);
        self.source.end_if_overtaken(&self.log);
        self.log.commit_unreplicated(now, &mut self.outputs);
    }

    /// Drops the updates that the predecessor doesn't have, if our history still ends where the predecessor expects.
    /// Halts if the predecessor had already confirmed our history, or if a committed update would be dropped.
    pub(super) fn cut(&mut self, now: Timestamp, cut: Truncate) {
        let (guards, watermark) = (self.membership.guards(), self.log.watermark());
        if self.log.last() != cut.said {
            return;
        }
        if self.upstream.is_prefix() && !allows!(guards, FollowTooSoon) && !allows!(guards, RollBackFirst) {
            return self.halt(Halt::CutPrefix { said: cut.said, keep: cut.keep });
        }
        let keep = cut.keep.sequence;
        if keep < watermark {
            return self.halt(Halt::DropCommitted { to: keep, watermark });
        }
        let dropped = self.log.cut(self.membership.at(now), cut.keep, &mut self.outputs);
        if self.halt_if_failed(dropped).is_none() {
            return;
        }
        if self.log.is_durable() && !allows!(guards, KeepHeardMarks) {
            self.peers.cut(keep);
        }
        self.upstream.drop_incoming();
        self.pace.cut(keep);
        self.head.cut(keep, &mut self.outputs);
        // Waiting reads may wait for a dropped update.
        self.restart_reads(now);
        let noted = self.log.note_pending();
        self.halt_if_failed(noted);
    }

    /// Begins a checkpoint, unless a checkpoint or a resync is in progress. During a resync there is no state to write.
    pub(crate) fn begin_checkpoint(&mut self) {
        if !self.joiner.is_filling() {
            let begun = self.log.begin_checkpoint(self.membership.guards());
            self.halt_if_failed(begun);
        }
    }

    /// The next batch for the journal: records, and parts of the checkpoint in progress. The batch accepts no further
    /// record once it has about `room` bytes.
    pub(crate) fn poll_journal(&mut self, room: usize) -> Option<JournalBatch> {
        let added = self.log.add_parts(&self.membership, room);
        self.halt_if_failed(added);
        self.log.next_batch(&self.membership, room)
    }

    /// All records of the journal up to number `upto` are durable.
    pub(super) fn durable(&mut self, now: Timestamp, upto: u64) {
        let most = self.membership.settings().joiner_buffer;
        let Some(journal) = self.log.journal_mut() else { return };
        journal.durable(upto);
        if self.membership.is_halted() {
            return;
        }
        // Updates that were refused while too many waited for the disk are requested again.
        if journal.unclogs(most)
            && let Some(predecessor) = self.membership.place().predecessor
        {
            self.request_missing(predecessor);
        }
        self.commit_as_tail(now);
        self.consider_promotion(now);
    }

    /// Updates are missing: requests a comparison of histories from the predecessor, now and with each heartbeat.
    pub(super) fn request_missing(&mut self, from: MemberId) {
        if !self.upstream.set_gap() {
            self.peers.due(Some(from));
        }
    }

    /// Checks for promotion after the joiner or this member has made progress.
    pub(super) fn consider_promotion(&mut self, now: Timestamp) {
        if self.promotion.joiner().is_none() {
            self.promotion.begin(self.close_behind());
        }
        if self.promotion.joiner().is_none() {
            return;
        }
        self.commit_as_tail(now);
        let cx = self.membership.at(now);
        let awaits_marks = self.upstream.awaits_marks(cx, &self.log);
        if self.promotion.request(cx, &self.log, &self.peers, awaits_marks) {
            self.request_promotion(now);
        }
    }

    pub(super) fn request_promotion(&mut self, now: Timestamp) {
        if let Some(output) = self.promotion.output(self.membership.at(now)) {
            self.outputs.push(output);
        }
    }

    /// Whether the joiner behind this tail may become promotable as time passes, without any other input.
    pub(super) fn may_promote(&self) -> bool {
        self.membership.place().joiner().is_some() && self.promotion.joiner().is_none() && self.upstream.is_open()
    }

    /// Whether the joiner behind this tail isn't known to follow: it has not reported its position yet, or receives a
    /// snapshot.
    pub(super) fn awaits_joiner(&self) -> bool {
        let joiner = self.membership.place().joiner();
        let follows = || self.peers.get(joiner).is_some_and(|link| link.stream().is_following());
        joiner.is_some() && (self.source.is_sending() || !follows())
    }

    /// The joiner, if it may be promoted: its history is known to be a prefix of ours, and not much is missing.
    fn close_behind(&self) -> Option<MemberId> {
        let (place, guards, settings) = (self.membership.place(), self.membership.guards(), self.membership.settings());
        let joiner = place.joiner().filter(|_| !self.membership.is_halted())?;
        let is_open = self.upstream.is_open();
        if allows!(guards, PromoteTooEarly) {
            return Some(joiner).filter(|_| is_open);
        }
        let may_request = is_open || allows!(guards, AskBeforeOpen);
        self.peers.get(Some(joiner)).filter(|link| may_request && link.stream().is_following())?;
        if self.may_promote() && self.pace.is_far(settings.heartbeat / 2) {
            // The hop to the joiner takes much longer than usual, and would delay every commit.
            return None;
        }
        // A joiner whose disk is still far behind would delay every commit.
        let held = self.peers.held_by(&self.log, joiner);
        let is_close = !self.source.is_sending() && self.log.history().is_close(held, settings.close_behind);
        is_close.then_some(joiner)
    }

    /// Applies the deferred batches to the store. A joiner also does one step of clearing the store.
    pub(super) fn catch_up_store(&mut self, now: Timestamp) {
        let settled = self.log.store().settle();
        if self.halt_if_failed(settled).is_some() {
            self.clear_some(now);
        }
    }

    pub(super) fn clear_some(&mut self, now: Timestamp) {
        let cleared = self.joiner.clear_some(self.membership.at(now), &self.log);
        if self.halt_if_failed(cleared) == Some(true) {
            self.peers.due(self.membership.place().predecessor);
        }
    }
}
