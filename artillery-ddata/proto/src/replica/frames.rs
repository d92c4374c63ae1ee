//! Frames from and to the other members of the chain.

use smallvec::SmallVec;

use super::{
    Halt, Replica, ReplicaEvent, peers::PeerLink, resync::CatchUp, sending::next_message, upstream::Misplaced,
};
use crate::{
    MemberId, Role, Sequence, Timestamp, Version,
    message::{
        ChainFrame, ChainMessage, Chunk, Control, Partial, Position, SnapshotContent, SnapshotHeader, SnapshotPart,
        Truncate, Updates, VersionAnswer,
    },
    types::update::Update,
};

/// State that a peer may not know yet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Unsure {
    Watermark,
    Acknowledged,
    Snapshot,
    Other,
}

impl Replica {
    /// Handles a frame of a peer. A frame of another epoch, older or newer, is ignored (traps 2, 22, 36).
    pub(super) fn receive(&mut self, now: Timestamp, from: MemberId, frame: ChainFrame) {
        let (member, guards) = (&self.membership, self.membership.guards());
        let epoch = member.epoch().unwrap_or_default();
        if frame.chain != member.chain() || !self.peers.contains(from) || member.is_halted() {
            return;
        }
        if allows!(guards, TakeAnyAnswer) && frame.epoch != epoch {
            return self.take_any_answer(now, from, frame.message);
        }
        if (frame.epoch < epoch && !allows!(guards, TakeOlderEpoch))
            || (frame.epoch > epoch && !allows!(guards, TakeNewerEpoch))
        {
            return;
        }
        if member.place().successor == Some(from) {
            self.promotion.hear(now);
        }
        match frame.message {
            ChainMessage::Updates(updates) => self.receive_updates(now, from, updates),
            ChainMessage::Control(control) => self.receive_control(now, from, control),
            ChainMessage::Chunk(chunk) => self.receive_chunk(now, from, chunk),
            ChainMessage::Snapshot(part) => self.receive_snapshot(now, from, part),
            ChainMessage::Durable(version) => self.receive_mark(now, from, version),
            ChainMessage::Full(fullness) => self.peers.receive_full(self.membership.at(now), from, fullness),
        }
    }

    /// Mutant: accepts the version queries of another epoch, and the answers to them.
    fn take_any_answer(&mut self, now: Timestamp, from: MemberId, message: ChainMessage) {
        let ChainMessage::Control(control) = message else { return };
        self.receive_query(now, from, control.query);
        self.receive_answer(now, from, control.answer);
    }

    fn receive_control(&mut self, now: Timestamp, from: MemberId, control: Control) {
        self.receive_watermark(now, from, control.watermark);
        if let Some(link) = self.peers.get_mut(Some(from)) {
            link.receive_echo(&control);
        }
        if self.membership.place().successor == Some(from) {
            self.hear_successor(now, from, &control);
        }
        if self.membership.place().predecessor == Some(from) {
            self.hear_predecessor(now, from, &control);
        }
        self.receive_query(now, from, control.query);
        if let Some(link) = self.peers.get_mut(Some(from)).filter(|_| self.membership.place().is_head) {
            link.receive_barrier(control.barrier);
        }
        self.receive_answer(now, from, control.answer);
        if let Some(ordered) = control.ordered.filter(|_| self.membership.place().head == Some(from)) {
            self.barrier_ordered(now, ordered);
        }
    }

    /// A peer announces its watermark. A joiner's watermark commits nothing here: its store may have committed updates
    /// that an operator has abandoned (trap 87).
    fn receive_watermark(&mut self, now: Timestamp, from: MemberId, watermark: Sequence) {
        let Some(link) = self.peers.get_mut(Some(from)) else { return };
        link.raise_watermark(watermark);
        let role = self.membership.role_of(from);
        if role == Some(Role::Serving) || allows!(self.membership.guards(), LearnFromJoiners) {
            self.advance_commit(now, watermark);
        }
    }

    fn receive_query(&mut self, now: Timestamp, from: MemberId, query: u64) {
        let cx = self.membership.at(now);
        if let Some(link) = self.peers.get_mut(Some(from)).filter(|_| cx.place().is_tail) {
            link.receive_query(query, self.upstream.answers_queries(cx, &self.log));
        }
    }

    fn receive_answer(&mut self, now: Timestamp, from: MemberId, answer: Option<VersionAnswer>) {
        if let Some(answer) = answer.filter(|_| self.membership.place().tail == Some(from)) {
            self.answered(now, answer);
        }
    }

    /// Another member reported its durable mark. The mark is used only if this member's history has the same version:
    /// otherwise the mark refers to other updates under these sequences (trap 77).
    fn receive_mark(&mut self, now: Timestamp, from: MemberId, version: Version) {
        let cx = self.membership.at(now);
        let is_ours = || self.log.history().version_at(version.sequence) == Some(version);
        if !self.log.is_durable() || !(allows!(cx.guards(), TakeAnyMark) || is_ours()) {
            return;
        }
        self.peers.receive_mark(cx, from, version);
        self.commit_as_tail(now);
        self.consider_promotion(now);
    }

    /// The successor reports the position of its history.
    ///
    /// Until our history is known to be a prefix of our predecessor's, it may still be cut. Updates that the successor
    /// received from us before the cut, or that we wrongly matched in both histories, would stay at the successor and
    /// be committed in place of the chain's (trap 52). So the successor's position is deferred until our history is
    /// known to be a prefix ([`follow_deferred`](Self::follow_deferred)).
    fn hear_successor(&mut self, now: Timestamp, from: MemberId, control: &Control) {
        if !self.upstream.is_prefix() && !allows!(self.membership.guards(), FollowTooSoon) {
            if let Some(link) = self.peers.get_mut(Some(from)) {
                link.stream_mut().defer(control.clone());
            }
            return;
        }
        let Some(link) = self.peers.get_mut(Some(from)) else { return };
        if let Some(progress) = &control.snapshot {
            if self.source.receive_progress(now, link.stream_mut(), progress, control.partial) {
                self.offer_snapshot(now, from, Version::NONE);
            }
            return;
        }
        // Send no `open` during a snapshot: the successor's history is not yet a prefix of ours.
        let sends_open = self.upstream.is_open() && !self.source.is_sending();
        if self.log.history().version_at(control.acknowledged.sequence) == Some(control.acknowledged) {
            link.stream_mut().acknowledge(now, control.acknowledged.sequence);
        }
        link.stream_mut().set_partial(control.partial);
        if sends_open && link.stream().is_following() && !control.is_open {
            link.due();
        }
        if let Some(position) = &control.resume {
            self.follow(now, from, position, control.partial);
        }
        self.consider_promotion(now);
    }

    fn follow_deferred(&mut self, now: Timestamp) {
        let Some(successor) = self.membership.place().successor else { return };
        let deferred = self.peers.get_mut(Some(successor)).and_then(|link| link.stream_mut().take_deferred());
        if let Some(control) = deferred {
            self.hear_successor(now, successor, &control);
        }
    }

    /// The successor reported its position. Continues sending after it, orders a cut of updates that we don't have
    /// (rule 5.4), or offers a snapshot.
    pub(super) fn follow(&mut self, now: Timestamp, from: MemberId, position: &Position, partial: Option<Partial>) {
        let Some(link) = self.peers.get_mut(Some(from)) else { return };
        let serves = self.membership.serves(from);
        if (serves && position.last.sequence < self.log.watermark())
            || position.last.sequence < link.stream().acknowledged()
        {
            // This position is old: a serving member holds every committed update, and only a snapshot drops
            // acknowledged updates.
            return;
        }
        let keep = self.log.history().common(position);
        if keep != position.last && !self.upstream.is_open() {
            // Don't cut yet: our predecessor may still send us the updates that this cut would drop. A cut can't be
            // withdrawn, so the position is compared again once the epoch is open here.
            let resume = Some(position.clone());
            link.stream_mut().defer(Control { acknowledged: position.last, resume, partial, ..Control::default() });
            return;
        }
        let first = self.log.history().first();
        if keep.sequence.next() < first {
            // A serving successor holds every committed update, so the backlog must have the updates that it needs. A
            // syncing one gets a snapshot.
            return if serves {
                self.halt(Halt::BacklogTooShort { needed: keep.sequence.next(), first });
            } else {
                self.offer_snapshot(now, from, position.last);
            };
        }
        self.source.end();
        link.due();
        if keep == position.last {
            link.stream_mut().follow(now, keep.sequence, partial);
        } else {
            link.stream_mut().order_cut(now, Truncate { said: position.last, keep });
        }
    }

    /// Offers a snapshot, if the epoch is open here: before that, committed updates may be above our watermark. A
    /// joiner that is treated as the tail needs none: it holds every committed update, so the history has the updates
    /// that it needs.
    fn offer_snapshot(&mut self, now: Timestamp, to: MemberId, said: Version) {
        if self.upstream.is_open() && self.promotion.joiner().is_none() {
            let cx = self.membership.at(now);
            self.source.offer(cx, &self.log, &mut self.peers, (to, said), &mut self.outputs);
        }
    }

    fn hear_predecessor(&mut self, now: Timestamp, from: MemberId, control: &Control) {
        if self.joiner.is_filling() {
            // The frame is about the history that was here before the snapshot.
            return;
        }
        if let Some(cut) = control.cut {
            self.cut(now, cut);
        }
        self.upstream.set_needs_resume(!control.following);
        if control.following {
            self.found_prefix(now);
            self.upstream.await_open(control.open);
            self.open_if_caught_up(now);
        } else {
            self.peers.due(Some(from));
        }
    }

    /// The predecessor has confirmed that our history is a prefix of its own. So the watermarks received earlier are
    /// valid for our history too.
    fn found_prefix(&mut self, now: Timestamp) {
        if !self.upstream.is_prefix() && self.membership.place().is_syncing() {
            self.joiner.count_partial();
        }
        self.set_prefix(now);
    }

    fn set_prefix(&mut self, now: Timestamp) {
        if self.upstream.set_prefix() {
            return;
        }
        if let Some(watermark) = self.peers.highest_watermark(self.membership.at(now)) {
            self.advance_commit(now, watermark);
        }
        self.follow_deferred(now);
    }

    fn open_if_caught_up(&mut self, now: Timestamp) {
        if self.upstream.may_open(&self.log) {
            self.open(now);
        }
    }

    /// Opens the epoch here (rule 5.5): every earlier update may be committed, once all members hold it.
    pub(super) fn open(&mut self, now: Timestamp) {
        let Some(epoch) = self.membership.epoch() else { return };
        let place = *self.membership.place();
        self.upstream.open(self.log.last().sequence);
        self.outputs.event(ReplicaEvent::Opened(epoch));
        self.peers.due(place.successor);
        self.peers.due(place.predecessor);
        self.follow_deferred(now);
        self.commit_as_tail(now);
        self.peers.iter_mut().for_each(PeerLink::due_if_query_waits);
        self.consider_promotion(now);
    }

    fn receive_updates(&mut self, now: Timestamp, from: MemberId, message: Updates) {
        if self.membership.place().predecessor != Some(from) {
            return;
        }
        let mut in_order = false;
        let held = self.reached().sequence;
        let mut after = message.after;
        for update in message.updates {
            let version = update.version;
            if version.sequence > held {
                if allows!(self.membership.guards(), LoseInFlight) && self.membership.place().serves() {
                    self.pass_over(now, &update);
                }
                if !self.is_next(now, from, after, version.sequence) {
                    break;
                }
                if let Err(halt) = self.append(now, update) {
                    return self.halt(halt);
                }
                in_order = true;
            }
            after = version;
        }
        self.received(now, from, in_order, message.watermark);
    }

    /// Mutant: treats missing updates before an update as empty ones.
    fn pass_over(&mut self, now: Timestamp, update: &Update) {
        while self.reached().sequence.next() < update.version.sequence {
            let version = Version { sequence: self.reached().sequence.next(), ..update.version };
            let nothing = Update { version, request: None, changes: Default::default(), ..update.clone() };
            if let Err(halt) = self.append(now, nothing) {
                return self.halt(halt);
            }
        }
    }

    /// Whether the update at `sequence`, which follows `after`, continues our history and can be accepted now. If
    /// updates are missing before it, or `after` isn't our last version, the predecessor must compare histories.
    fn is_next(&mut self, now: Timestamp, from: MemberId, after: Version, sequence: Sequence) -> bool {
        let guards = self.membership.guards();
        if self.is_clogged() && !allows!(guards, QueueAll) || !self.joiner.accepts_updates(self.membership.at(now)) {
            return false;
        }
        let reached = self.reached();
        // Diverged histories may have equal sequences. Appending to another history than the predecessor's would commit
        // one update in place of another (trap 54).
        let continues = after == reached
            || allows!(guards, CompareSequences)
            || allows!(guards, FollowTooSoon)
            || allows!(guards, LoseInFlight);
        let next = reached.sequence.next();
        if sequence > next || (sequence == next && !continues) {
            self.request_missing(from);
        }
        sequence == next && continues
    }

    /// Whether this joiner accepts no update for now, because its disk is too far behind. Nothing else bounds the
    /// records that wait for the disk, since the chain continues without this member. The refused updates are requested
    /// again later.
    fn is_clogged(&mut self) -> bool {
        let most = 2 * self.membership.settings().joiner_buffer;
        let is_syncing = self.membership.place().is_syncing();
        self.log.journal_mut().is_some_and(|journal| is_syncing && journal.is_clogged(most))
    }

    /// The last received version: during a snapshot, that of the last update buffered or applied.
    fn reached(&self) -> Version {
        self.joiner.reached().unwrap_or_else(|| self.log.last())
    }

    fn receive_chunk(&mut self, now: Timestamp, from: MemberId, chunk: Chunk) {
        if self.membership.place().predecessor != Some(from) {
            return;
        }
        let Chunk { watermark, after, version, part, bytes } = chunk;
        let mut in_order = false;
        self.joiner.reserve(self.membership.at(now), &part);
        if self.is_next(now, from, after, version.sequence) {
            match self.upstream.add_piece(self.membership.at(now), version, part, &bytes) {
                Ok(None) => {}
                Ok(Some(update)) => {
                    if let Err(halt) = self.append(now, update) {
                        return self.halt(halt);
                    }
                    in_order = true;
                }
                Err(Misplaced) => self.request_missing(from),
            }
        }
        self.received(now, from, in_order, watermark);
    }

    fn received(&mut self, now: Timestamp, from: MemberId, in_order: bool, watermark: Sequence) {
        if self.joiner.is_filling() {
            self.peers.due(Some(from));
            self.receive_watermark(now, from, watermark);
            return self.catch_up(now);
        }
        if in_order {
            self.found_prefix(now);
            self.upstream.in_order();
        }
        // Repeated updates: the acknowledgement may have been lost, so it is sent again.
        let repeats = !in_order && !self.upstream.has_gap();
        let cx = self.membership.at(now);
        if repeats || in_order && self.upstream.acknowledges(cx, &self.log, watermark) {
            self.peers.due(Some(from));
        }
        self.open_if_caught_up(now);
        self.commit_as_tail(now);
        self.receive_watermark(now, from, watermark);
    }

    fn receive_snapshot(&mut self, now: Timestamp, from: MemberId, part: SnapshotPart) {
        let place = self.membership.place();
        if place.predecessor != Some(from) || !place.is_syncing() {
            return;
        }
        if let SnapshotContent::Begin(beginning) = part.content {
            if self.joiner.may_begin(&self.log, part.id, &beginning) {
                self.begin_filling(now, part.id, beginning);
            }
        } else {
            let received = self.joiner.receive(self.membership.at(now), &self.log, part);
            if self.halt_if_failed(received) == Some(true) {
                self.catch_up(now);
            }
        }
        self.peers.due(Some(from));
    }

    /// Begins a snapshot, which invalidates the previous data. The journal records this before the first change.
    fn begin_filling(&mut self, now: Timestamp, id: u64, beginning: SnapshotHeader) {
        self.reads.close_gate();
        self.catch_up_store(now);
        let past = self.log.begin_resync();
        self.joiner.begin(self.membership.at(now), id, beginning, past);
        self.outputs.event(ReplicaEvent::Resyncing);
        self.upstream.reset(self.membership.at(now));
        self.reads.refuse_all(&mut self.outputs);
        self.reads.end_snapshots(&self.log);
        self.head.cut(Sequence::ZERO, &mut self.outputs);
        self.clear_some(now);
        self.log.drop_unreplicated(now, Sequence::ZERO, &mut self.outputs);
    }

    /// Applies one step of a joiner's buffered updates, and ends the resync after the last step.
    pub(super) fn catch_up(&mut self, now: Timestamp) {
        let cx = self.membership.at(now);
        let source = cx.place().predecessor;
        let watermark = self.peers.get(source).map_or(Sequence::ZERO, PeerLink::watermark);
        let caught_up = self.joiner.catch_up(cx, &mut self.log, watermark);
        match self.halt_if_failed(caught_up) {
            Some(CatchUp::Whole) => self.finish_filling(now),
            Some(CatchUp::Accepts) => {
                self.upstream.set_gap();
                self.peers.due(source);
            }
            Some(CatchUp::Continues) | None => {}
        }
    }

    fn finish_filling(&mut self, now: Timestamp) {
        let finished = self.joiner.finish(self.membership.at(now), &mut self.log);
        if self.halt_if_failed(finished).is_none() {
            return;
        }
        self.outputs.event(ReplicaEvent::Resynced { upto: self.log.last() });
        // Our history is a prefix of the source's, which the source confirms when it receives our position.
        self.upstream.set_needs_resume(true);
        self.peers.due(self.membership.place().predecessor);
        self.set_prefix(now);
    }

    pub(crate) fn poll_control(&mut self, now: Timestamp, to: MemberId) -> Option<ChainFrame> {
        let cx = self.membership.at(now);
        cx.config().filter(|_| !cx.is_halted())?;
        let link = self.peers.get_mut(Some(to))?;
        if !link.take_due() {
            return None;
        }
        let (place, watermark) = (cx.place(), self.log.watermark());
        let mut control = link.control(watermark, self.upstream.is_open());
        if place.successor == Some(to) {
            // During a snapshot the successor has no history that could follow ours.
            control.following = link.stream().is_following() && !self.source.is_sending();
            control.cut = link.stream().cut();
            // Send `open` only to a known prefix of our history: in another history the sequence means other updates.
            control.open = self.upstream.open_upto().filter(|_| control.following);
        }
        if place.predecessor == Some(to) {
            self.upstream.acknowledged(now);
            control.acknowledged = self.log.last();
            let resumes = !self.joiner.is_filling() && (self.upstream.needs_resume() || self.upstream.has_gap());
            control.resume = resumes.then(|| self.log.history().position());
            control.snapshot = self.joiner.progress(self.upstream.has_gap()).map(Box::new);
            control.partial = self.upstream.partial();
        }
        // Only a leased tail at which the epoch is open answers for the chain (trap 23).
        if place.is_tail
            && self.upstream.answers_queries(cx, &self.log)
            && (self.reads.is_leased(now) || allows!(cx.guards(), AnswerUnleased))
        {
            control.answer = link.take_answer(watermark);
        }
        if place.is_head {
            control.ordered = link.ordered();
        }
        if place.tail == Some(to) {
            control.query = self.reads.query(now);
        }
        if place.head == Some(to) {
            control.barrier = self.reads.barrier(now);
        }
        cx.frame(ChainMessage::Control(control))
    }

    /// The next updates for `to`: as many as fit into `room` bytes, but at least one and at most 4,096, or the next
    /// piece of a large one. Changes of this member's durable mark and fullness are sent first: otherwise they would
    /// wait for as long as updates arrive.
    pub(crate) fn poll_updates(&mut self, now: Timestamp, to: MemberId, room: usize) -> Option<ChainFrame> {
        let cx = self.membership.at(now);
        cx.config().filter(|_| !cx.is_halted())?;
        let report = if self.log.is_durable() || cx.settings().max_memory.is_some() {
            let mark = self.peers.poll_mark(cx, &self.log, to, self.source.is_sending());
            mark.or_else(|| self.peers.poll_full(cx, &self.log, to))
        } else {
            None
        };
        report.or_else(|| self.next_updates(now, to, room)).and_then(|message| self.membership.frame(message))
    }

    fn next_updates(&mut self, now: Timestamp, to: MemberId, room: usize) -> Option<ChainMessage> {
        let cx = self.membership.at(now);
        let successor = Some(to).filter(|_| cx.place().successor == Some(to));
        let link = self.peers.get_mut(successor).filter(|link| link.is_connected())?;
        let cursor = link.stream().cursor()?;
        let (message, next) = next_message(cx, &self.log, self.upstream.incoming(), cursor, room)?;
        link.stream_mut().sent(now, cursor, next);
        Some(message)
    }

    /// The next part of a snapshot for `to`: as many entries as fit into `room` bytes, but at least one, or the next
    /// piece of a large value. Call it after controls and updates, when the link has capacity.
    pub(crate) fn poll_snapshot(&mut self, now: Timestamp, to: MemberId, room: usize) -> Option<ChainFrame> {
        let cx = self.membership.at(now);
        cx.config().filter(|_| !cx.is_halted())?;
        self.peers.get(Some(to)).filter(|link| link.is_connected())?;
        let part = self.source.poll_part(cx, &self.log, to, room);
        let part = self.halt_if_failed(part)??;
        self.membership.frame(ChainMessage::Snapshot(part))
    }

    /// With each heartbeat: repeats state that a peer may have lost, or ignored because it had not entered the epoch
    /// yet.
    pub(super) fn repeat(&mut self, now: Timestamp) {
        let cx = self.membership.at(now);
        let resend = cx.settings().resend;
        self.peers.repeat_full(cx, &self.log);
        let unsure = self.peers.iter().filter_map(|(id, link)| Some((id, self.unsure(id, link)?)));
        for (id, why) in unsure.collect::<SmallVec<[_; 4]>>() {
            let Some(link) = self.peers.get_mut(Some(id)) else { continue };
            link.repeat(why == Unsure::Watermark);
            match (why, resend) {
                (Unsure::Snapshot, Some(after)) => self.source.resend(now, after, &mut self.peers),
                (Unsure::Acknowledged, Some(after)) => link.stream_mut().resend(now, after),
                _ => {}
            }
        }
        self.consider_promotion(now);
        self.request_promotion(now);
    }

    /// The state that a connected peer may not know yet, if any.
    pub(super) fn unsure(&self, id: MemberId, link: &PeerLink) -> Option<Unsure> {
        let (place, upstream, watermark) = (self.membership.place(), &self.upstream, self.log.watermark());
        let (before, behind) = (place.predecessor == Some(id), place.successor == Some(id));
        let asks = (place.tail == Some(id) && self.reads.awaits_answer())
            || (place.head == Some(id) && self.reads.awaits_barrier());
        let lost = before && (upstream.needs_resume() || upstream.has_gap() || !upstream.is_open());
        let resends = self.membership.settings().resend.is_some();
        if !link.is_connected() {
            None
        } else if behind && self.source.is_sending() {
            Some(Unsure::Snapshot)
        } else if asks || lost || (behind && !link.stream().is_following()) || link.is_mark_unconfirmed() {
            Some(Unsure::Other)
        } else if behind && resends && link.stream().is_unacknowledged() {
            Some(Unsure::Acknowledged)
        } else if ((place.is_tail || before) && link.echo() < watermark)
            || (place.is_tail && behind && self.log.is_durable() && link.held() < watermark)
        {
            Some(Unsure::Watermark)
        } else {
            None
        }
    }
}
