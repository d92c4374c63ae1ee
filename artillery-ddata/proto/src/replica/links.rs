//! Control frames between the members of a chain: how they are built, and how they are handled.

use super::{Replica, incoming::Incoming};
use smallvec::SmallVec;

use crate::{
    Epoch, MemberId, Role, Sequence, Timestamp, Version,
    message::{ChainFrame, ChainMessage, Control, Fullness, Partial, Truncate, VersionAnswer},
};

/// Another member of the configuration, as this one knows it.
#[derive(Clone, Debug)]
pub(super) struct PeerLink {
    pub(super) connected: bool,
    /// A control frame is to be sent to the peer.
    pub(super) due: bool,
    /// The highest watermark that the peer has announced.
    pub(super) watermark: Sequence,
    /// The highest watermark of ours that the peer has echoed.
    echo: Sequence,
    /// Ask the peer for an echo of our watermark.
    confirm: bool,
    /// Of the successor: what to send next; `None` until the successor has told where its history stands.
    pub(super) cursor: Option<Cursor>,
    /// Of the successor: up to where it holds our history.
    pub(super) acknowledged: Sequence,
    /// Of the successor: how much it has of the update behind `acknowledged`, if that comes in pieces.
    partial: Option<Partial>,
    /// Of the successor: when `acknowledged` last rose, or sending began anew.
    pub(super) progress: Timestamp,
    /// Of the successor: what it has to drop first.
    pub(super) cut: Option<Truncate>,
    /// Of the successor: the last position that it told and that can't be followed yet.
    pub(super) heard: Option<Box<Control>>,
    /// The highest version query that the peer asked us.
    asked: u64,
    /// That query waits for an answer.
    pub(super) owed: bool,
    /// The highest barrier that the peer asked us for.
    barrier_asked: u64,
    /// The last barrier ordered for the peer.
    ordered: Option<VersionAnswer>,
    /// Of the predecessor: up to here all members from the head to it are durable.
    pub(super) mark: Sequence,
    /// Of the successor: up to here it is durable.
    pub(super) held: Sequence,
    /// How far this member is, as the peer was told.
    pub(super) mark_said: Version,
    /// What the peer has no room in, and until when that counts.
    pub(super) full: (Fullness, Timestamp),
    /// What this member has no room in, as the peer was told last.
    pub(super) full_said: Fullness,
}

/// Where sending goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cursor {
    /// The update to send next.
    pub(super) next: Sequence,
    /// How much of it was sent in pieces already.
    pub(super) begun: Option<Partial>,
}

impl Cursor {
    pub(super) fn at(next: Sequence) -> Self {
        Self { next, begun: None }
    }

    /// Behind what the successor holds.
    pub(super) fn behind(held: Sequence, partial: Option<Partial>) -> Self {
        let next = held.next();
        Self { next, begun: partial.filter(|partial| partial.version.sequence == next) }
    }
}

/// What one peer may not know yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Unsure {
    Watermark,
    Acknowledged,
    Snapshot,
    Other,
}

impl PeerLink {
    pub(super) fn new(connected: bool) -> Self {
        Self {
            connected,
            due: true,
            watermark: Sequence::ZERO,
            echo: Sequence::ZERO,
            confirm: false,
            cursor: None,
            acknowledged: Sequence::ZERO,
            partial: None,
            progress: Timestamp::ZERO,
            cut: None,
            heard: None,
            asked: 0,
            owed: false,
            barrier_asked: 0,
            ordered: None,
            mark: Sequence::ZERO,
            held: Sequence::ZERO,
            mark_said: Version::NONE,
            full: (Fullness::Nothing, Timestamp::ZERO),
            full_said: Fullness::Nothing,
        }
    }

    pub(super) fn wants_barrier(&self) -> bool {
        self.barrier_asked > self.ordered.map_or(0, |ordered| ordered.number)
    }

    pub(super) fn barrier_ordered(&mut self, sequence: Sequence) {
        self.ordered = Some(VersionAnswer { number: self.barrier_asked, sequence });
        self.due = true;
    }
}

impl Replica {
    /// Whether this is no member, or a joiner whose history isn't known yet to be a prefix of the chain's.
    pub(crate) fn is_unproven(&self) -> bool {
        self.place.role != Some(Role::Serving) && !self.is_prefix
    }

    pub(super) fn due_for(&mut self, peer: Option<MemberId>) {
        if let Some(peer) = peer.and_then(|id| self.peers.get_mut(&id)) {
            peer.due = true;
        }
    }

    pub(super) fn connected(&mut self, id: MemberId) {
        self.connected.insert(id);
        if let Some(peer) = self.peers.get_mut(&id) {
            // The last frames on the old connection may be lost.
            peer.connected = true;
            peer.due = true;
            (peer.cursor, peer.heard) = (None, None);
            peer.echo = Sequence::ZERO;
            (peer.mark_said, peer.full_said) = (Version::NONE, Fullness::Nothing);
        }
        self.snapshot_link_changed(id);
    }

    pub(super) fn disconnected(&mut self, id: MemberId) {
        self.connected.remove(&id);
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.connected = false;
            (peer.cursor, peer.heard) = (None, None);
        }
        self.snapshot_link_changed(id);
        if allows!(self.settings.guards, ForgetAsked) {
            self.promotion = None;
        }
    }

    /// The control frame to send to `to` now, if one is due.
    pub(crate) fn poll_control(&mut self, now: Timestamp, to: MemberId) -> Option<ChainFrame> {
        let config = self.config.clone().filter(|_| self.halted.is_none())?;
        let (open_upto, place, watermark) = (self.open_upto, self.place, self.watermark);
        let answers = self.has_caught_up() || allows!(self.settings.guards, AnswerBeforeOpen);
        let peer = self.peers.get_mut(&to).filter(|peer| peer.connected && peer.due)?;
        peer.due = false;
        let mut control = Control {
            watermark,
            echo: peer.watermark,
            confirm: std::mem::take(&mut peer.confirm),
            is_open: open_upto.is_some(),
            ..Control::default()
        };
        if place.successor == Some(to) {
            // During a snapshot the successor has no history that could follow ours.
            let follows = peer.cursor.is_some() && self.outgoing.is_none();
            control.following = follows;
            control.cut = peer.cut;
            // Send `open` only to a known prefix of our history: in another history its sequence means other updates.
            control.open = open_upto.filter(|_| follows);
        }
        if place.predecessor == Some(to) {
            self.acks.sent(now);
            control.acknowledged = self.history.last();
            let resumes = self.filling.is_none() && (self.needs_resume || self.gap);
            control.resume = resumes.then(|| self.history.position());
            control.snapshot = self.filling.as_ref().map(|filling| Box::new(filling.progress(self.gap)));
            control.partial = self.incoming.as_ref().map(Incoming::partial);
        }
        // Only a leased tail at which the epoch is open speaks for the chain (trap 23).
        if place.is_tail && peer.owed && answers && (now < self.lease || allows!(self.settings.guards, AnswerUnleased))
        {
            peer.owed = false;
            control.answer = Some(VersionAnswer { number: peer.asked, sequence: watermark });
        }
        if place.is_head {
            control.ordered = peer.ordered;
        }
        if place.tail == Some(to) {
            control.query = self.reads.queries.ask(now);
        }
        if place.head == Some(to) {
            control.barrier = self.reads.barriers.ask(now);
        }
        Some(self.frame(&config, ChainMessage::Control(control)))
    }

    /// Handles a frame of a peer. A frame of another epoch, older or newer, is ignored (traps 2, 22, 36).
    pub(super) fn receive(&mut self, now: Timestamp, from: MemberId, frame: ChainFrame) {
        let epoch = self.config.as_ref().map_or(Epoch(0), |config| config.epoch);
        let known = self.peers.contains_key(&from);
        if frame.chain != self.chain || !known || self.halted.is_some() {
            return;
        }
        if allows!(self.settings.guards, TakeAnyAnswer) && frame.epoch != epoch {
            return self.take_any_answer(now, from, frame.message);
        }
        if (frame.epoch < epoch && !allows!(self.settings.guards, TakeOlderEpoch))
            || (frame.epoch > epoch && !allows!(self.settings.guards, TakeNewerEpoch))
        {
            return;
        }
        if self.place.successor == Some(from) {
            self.joiner_heard = now;
        }
        match frame.message {
            ChainMessage::Updates(updates) => self.receive_updates(now, from, updates),
            ChainMessage::Control(control) => self.receive_control(now, from, control),
            ChainMessage::Chunk(chunk) => self.receive_chunk(now, from, chunk),
            ChainMessage::Snapshot(part) => self.receive_snapshot(now, from, part),
            ChainMessage::Durable(version) => self.hear_mark(now, from, version),
            ChainMessage::Full(what) => self.hear_full(now, from, what),
        }
    }

    /// Mutant: of what was said in another epoch, takes in version queries and the answers to them.
    fn take_any_answer(&mut self, now: Timestamp, from: MemberId, message: ChainMessage) {
        let ChainMessage::Control(control) = message else { return };
        if self.place.is_tail {
            self.hear_query(from, control.query);
        }
        if let Some(answer) = control.answer.filter(|_| self.place.tail == Some(from)) {
            self.answered(now, answer);
        }
    }

    fn receive_control(&mut self, now: Timestamp, from: MemberId, control: Control) {
        self.learn_from(now, from, control.watermark);
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.echo = peer.echo.max(control.echo);
            peer.due |= control.confirm;
            if control.confirm {
                // The tail may have missed what this joiner said of its disk.
                peer.mark_said = Version::NONE;
            }
        }
        if self.place.successor == Some(from) {
            self.hear_successor(now, from, &control);
        }
        if self.place.predecessor == Some(from) {
            self.hear_predecessor(now, from, &control);
        }
        if self.place.is_tail {
            self.hear_query(from, control.query);
        }
        if self.place.is_head {
            self.hear_barrier(from, control.barrier);
        }
        if let Some(answer) = control.answer.filter(|_| self.place.tail == Some(from)) {
            self.answered(now, answer);
        }
        if let Some(ordered) = control.ordered.filter(|_| self.place.head == Some(from)) {
            self.barrier_ordered(now, ordered);
        }
    }

    /// A peer tells its watermark. That of a joiner counts for nothing: its store may have committed what an operator has given up
    /// (trap 87).
    pub(super) fn learn_from(&mut self, now: Timestamp, from: MemberId, watermark: Sequence) {
        let Some(peer) = self.peers.get_mut(&from) else { return };
        peer.watermark = peer.watermark.max(watermark);
        let role = self.config.as_ref().and_then(|config| config.role(from));
        if role == Some(Role::Serving) || allows!(self.settings.guards, LearnFromJoiners) {
            self.advance_commit(now, watermark);
        }
    }

    /// The successor tells where its history stands.
    ///
    /// Until our history is known to be a prefix of our predecessor's, it may still be cut. Updates that the successor
    /// got from us by then, or that we had wrongly found in both histories, would stay there and be committed in place
    /// of the chain's (trap 52). So the successor's position is kept, and followed once we know
    /// ([`follow_heard`](Self::follow_heard)).
    fn hear_successor(&mut self, now: Timestamp, from: MemberId, control: &Control) {
        if !self.is_prefix && !allows!(self.settings.guards, FollowTooSoon) {
            if let Some(peer) = self.peers.get_mut(&from) {
                peer.heard = Some(Box::new(control.clone()));
            }
            return;
        }
        if let Some(progress) = &control.snapshot {
            return self.hear_progress(now, from, progress, control.partial);
        }
        // Send no `open` during a snapshot: the successor's history is not yet a prefix of ours.
        let tells_open = self.is_open() && self.outgoing.is_none();
        let ours = self.history.version_at(control.acknowledged.sequence) == Some(control.acknowledged);
        let Some(peer) = self.peers.get_mut(&from) else { return };
        if ours && control.acknowledged.sequence > peer.acknowledged {
            peer.acknowledged = control.acknowledged.sequence;
            peer.progress = now;
        }
        peer.partial = control.partial;
        peer.due |= tells_open && peer.cursor.is_some() && !control.is_open;
        if let Some(position) = &control.resume {
            self.follow(now, from, position, control.partial);
        }
        self.consider_promotion(now);
    }

    /// Follows the successor's position that was kept. Asking the successor again would cost another round trip.
    pub(super) fn follow_heard(&mut self, now: Timestamp) {
        let Some(successor) = self.place.successor else { return };
        let heard = self.peers.get_mut(&successor).and_then(|peer| peer.heard.take());
        if let Some(control) = heard {
            self.hear_successor(now, successor, &control);
        }
    }

    fn hear_predecessor(&mut self, now: Timestamp, from: MemberId, control: &Control) {
        if self.filling.is_some() {
            // The predecessor speaks of the history that was here before the snapshot.
            return;
        }
        if let Some(cut) = control.cut {
            self.cut(now, cut);
        }
        self.needs_resume = !control.following;
        if control.following {
            self.found_prefix(now);
            self.open_awaits = self.open_awaits.or(control.open);
            self.open_if_caught_up(now);
        } else {
            self.due_for(Some(from));
        }
    }

    /// With each heartbeat: repeats what a peer may have lost, or ignored because it had not entered the epoch yet.
    pub(super) fn repeat(&mut self, now: Timestamp) {
        let resend = self.settings.resend;
        self.repeat_full();
        let unsure = self.unsure_peers();
        for (id, why) in unsure {
            let Some(peer) = self.peers.get_mut(&id) else { continue };
            peer.due = true;
            peer.confirm |= why == Unsure::Watermark;
            if peer.mark_said.sequence > peer.watermark {
                // The mark may be lost, or have come before what it speaks of.
                peer.mark_said = Version::NONE;
            }
            if let (Unsure::Snapshot, Some(after)) = (why, resend) {
                self.rewind_snapshot(now, after);
                continue;
            }
            if let (Unsure::Acknowledged, Some(after)) = (why, resend)
                && now - peer.progress >= after
            {
                let behind = Cursor::behind(peer.acknowledged, peer.partial);
                peer.cursor = peer.cursor.map(|cursor| if cursor.next < behind.next { cursor } else { behind });
                peer.progress = now;
            }
        }
        self.consider_promotion(now);
        self.ask_promotion();
    }

    /// Whether anything needs heartbeats.
    pub(super) fn is_unsettled(&self) -> bool {
        let waiting =
            !self.reads.is_empty() || !self.writes.is_empty() || !self.snapshots.is_empty() || self.watchers.len() > 0;
        self.halted.is_none()
            && (waiting
                || self.closing.is_some()
                || self.may_promote()
                || self.promotion.is_some()
                || self.has_unwritten_watermark()
                || self.fullness() != Fullness::Nothing
                || !self.unsure_peers().is_empty())
    }

    fn unsure_peers(&self) -> SmallVec<[(MemberId, Unsure); 4]> {
        let place = &self.place;
        let unsure = |(&id, peer): (&MemberId, &PeerLink)| {
            let (before, behind) = (place.predecessor == Some(id), place.successor == Some(id));
            let asks = (place.tail == Some(id) && self.reads.queries.is_waiting())
                || (place.head == Some(id) && self.reads.barriers.is_waiting());
            let lost = before && (self.needs_resume || self.gap || !self.is_open());
            let unacknowledged = peer.cursor.is_some_and(|cursor| {
                cursor.next > peer.acknowledged.next() || (cursor.begun.is_some() && cursor.begun != peer.partial)
            });
            if behind && self.outgoing.is_some() {
                Some((id, Unsure::Snapshot))
            } else if asks || lost || (behind && peer.cursor.is_none()) || peer.mark_said.sequence > peer.watermark {
                Some((id, Unsure::Other))
            } else if behind && unacknowledged && self.settings.resend.is_some() {
                Some((id, Unsure::Acknowledged))
            } else if ((place.is_tail || before) && peer.echo < self.watermark)
                || (place.is_tail && behind && self.is_durable() && self.held_by(id) < self.watermark)
            {
                Some((id, Unsure::Watermark))
            } else {
                None
            }
        };
        self.peers.iter().filter(|(_, peer)| peer.connected).filter_map(unsure).collect()
    }

    fn hear_query(&mut self, from: MemberId, query: u64) {
        let answers = self.has_caught_up() || allows!(self.settings.guards, AnswerBeforeOpen);
        let Some(peer) = self.peers.get_mut(&from) else { return };
        if query > 0 && query >= peer.asked {
            peer.asked = query;
            peer.owed = true;
            // A tail answers no query before the epoch is open here. Then it answers all of them.
            peer.due |= answers;
        }
    }

    fn hear_barrier(&mut self, from: MemberId, barrier: u64) {
        let Some(peer) = self.peers.get_mut(&from) else { return };
        if barrier > 0 && barrier >= peer.barrier_asked {
            peer.barrier_asked = barrier;
            peer.due = true;
        }
    }
}
