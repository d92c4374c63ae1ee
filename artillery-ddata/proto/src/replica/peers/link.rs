//! The link to one peer: answers and reports for the peer, and the peer's own reports.

use std::mem::{replace, take};

use super::SuccessorStream;
use crate::{
    Sequence, Timestamp, Version,
    message::{Control, Fullness, VersionAnswer},
};

#[derive(Clone, Hash, Debug)]
pub(in crate::replica) struct PeerLink {
    is_connected: bool,
    due: bool,
    /// The highest watermark that the peer has announced.
    watermark: Sequence,
    /// The highest watermark of ours that the peer has echoed.
    echo: Sequence,
    /// The next control frame requests an echo of our watermark.
    confirm: bool,
    /// Used if the peer is the successor.
    stream: SuccessorStream,
    /// The highest version query of the peer, and whether it waits for an answer.
    query: u64,
    owes_answer: bool,
    barrier: u64,
    ordered: Option<VersionAnswer>,
    /// Predecessor only: the last sequence that is durable at every member from the head to the predecessor.
    mark: Sequence,
    /// Successor only: its last durable sequence.
    held: Sequence,
    /// The last durable mark reported to the peer.
    reported_mark: Version,
    /// Whether the peer is full, and until when that report is valid.
    full: (Fullness, Timestamp),
    /// The last fullness of this member reported to the peer.
    reported_fullness: Fullness,
}

impl PeerLink {
    pub(super) fn new(is_connected: bool) -> Self {
        Self {
            is_connected,
            due: true,
            watermark: Sequence::ZERO,
            echo: Sequence::ZERO,
            confirm: false,
            stream: SuccessorStream::default(),
            query: 0,
            owes_answer: false,
            barrier: 0,
            ordered: None,
            mark: Sequence::ZERO,
            held: Sequence::ZERO,
            reported_mark: Version::NONE,
            full: (Fullness::Nothing, Timestamp::ZERO),
            reported_fullness: Fullness::Nothing,
        }
    }

    pub(super) fn connected(&mut self) {
        (self.is_connected, self.due) = (true, true);
        self.stream.link_changed();
        self.echo = Sequence::ZERO;
        (self.reported_mark, self.reported_fullness) = (Version::NONE, Fullness::Nothing);
    }

    pub(super) fn disconnected(&mut self) {
        self.is_connected = false;
        self.stream.link_changed();
    }

    pub(in crate::replica) fn is_connected(&self) -> bool {
        self.is_connected
    }

    pub(in crate::replica) fn due(&mut self) {
        self.due = true;
    }

    /// Whether a control frame can be sent and is due. It is no longer due afterwards.
    pub(in crate::replica) fn take_due(&mut self) -> bool {
        self.is_connected && take(&mut self.due)
    }

    /// The part of a control frame that every peer receives.
    pub(in crate::replica) fn control(&mut self, watermark: Sequence, is_open: bool) -> Control {
        Control { watermark, echo: self.watermark, confirm: take(&mut self.confirm), is_open, ..Control::default() }
    }

    pub(in crate::replica) fn stream(&self) -> &SuccessorStream {
        &self.stream
    }

    pub(in crate::replica) fn stream_mut(&mut self) -> &mut SuccessorStream {
        &mut self.stream
    }

    pub(in crate::replica) fn watermark(&self) -> Sequence {
        self.watermark
    }

    pub(in crate::replica) fn raise_watermark(&mut self, watermark: Sequence) {
        self.watermark = self.watermark.max(watermark);
    }

    pub(in crate::replica) fn echo(&self) -> Sequence {
        self.echo
    }

    /// The peer echoed a watermark of ours, and may request an echo of its watermark.
    pub(in crate::replica) fn receive_echo(&mut self, control: &Control) {
        self.echo = self.echo.max(control.echo);
        if control.confirm {
            self.due = true;
            // The tail may have missed this joiner's report about its disk.
            self.reported_mark = Version::NONE;
        }
    }

    /// Makes a control frame due, with each heartbeat. With `confirm`, the frame requests an echo.
    pub(in crate::replica) fn repeat(&mut self, confirm: bool) {
        self.due = true;
        self.confirm |= confirm;
        if self.is_mark_unconfirmed() {
            // The report may be lost, or have arrived before the updates that it covers.
            self.reported_mark = Version::NONE;
        }
    }

    pub(in crate::replica) fn receive_query(&mut self, query: u64, answers: bool) {
        if query > 0 && query >= self.query {
            self.query = query;
            self.owes_answer = true;
            // Before the epoch is open here, a tail answers no query. When the epoch opens, the tail answers all
            // waiting queries.
            self.due |= answers;
        }
    }

    pub(in crate::replica) fn receive_barrier(&mut self, barrier: u64) {
        if barrier > 0 && barrier >= self.barrier {
            self.barrier = barrier;
            self.due = true;
        }
    }

    /// The answer to the waiting query.
    pub(in crate::replica) fn take_answer(&mut self, watermark: Sequence) -> Option<VersionAnswer> {
        let is_owed = take(&mut self.owes_answer);
        is_owed.then_some(VersionAnswer { number: self.query, sequence: watermark })
    }

    /// Makes a control frame due if a query waits.
    pub(in crate::replica) fn due_if_query_waits(&mut self) {
        self.due |= self.owes_answer;
    }

    pub(super) fn wants_barrier(&self) -> bool {
        self.barrier > self.ordered.map_or(0, |ordered| ordered.number)
    }

    pub(super) fn barrier_ordered(&mut self, sequence: Sequence) {
        self.ordered = Some(VersionAnswer { number: self.barrier, sequence });
        self.due = true;
    }

    pub(in crate::replica) fn ordered(&self) -> Option<VersionAnswer> {
        self.ordered
    }

    pub(super) fn cut(&mut self, keep: Sequence) {
        (self.mark, self.held) = (self.mark.min(keep), self.held.min(keep));
    }

    pub(super) fn mark(&self) -> Sequence {
        self.mark
    }

    pub(super) fn raise_mark(&mut self, mark: Sequence) {
        self.mark = self.mark.max(mark);
    }

    pub(in crate::replica) fn held(&self) -> Sequence {
        self.held
    }

    pub(super) fn raise_held(&mut self, held: Sequence) {
        self.held = self.held.max(held);
    }

    pub(in crate::replica) fn restart(&mut self) {
        self.stream.restart();
        self.held = Sequence::ZERO;
    }

    /// Notes a durable mark for the peer. Returns whether it can be sent and is new.
    pub(super) fn report_mark(&mut self, version: Version) -> bool {
        self.is_connected && replace(&mut self.reported_mark, version) != version
    }

    /// Whether the peer may not have received the last durable mark.
    pub(in crate::replica) fn is_mark_unconfirmed(&self) -> bool {
        self.reported_mark.sequence > self.watermark
    }

    /// Notes this member's fullness for the peer. Returns whether it can be sent and is new.
    pub(super) fn report_fullness(&mut self, fullness: Fullness) -> bool {
        self.is_connected && replace(&mut self.reported_fullness, fullness) != fullness
    }

    pub(super) fn forget_reported_fullness(&mut self) {
        self.reported_fullness = Fullness::Nothing;
    }

    pub(super) fn set_fullness(&mut self, fullness: Fullness, until: Timestamp) {
        self.full = (fullness, until);
    }

    pub(super) fn fullness(&self, now: Timestamp) -> Option<Fullness> {
        let (fullness, until) = self.full;
        (fullness != Fullness::Nothing && now < until).then_some(fullness)
    }
}
