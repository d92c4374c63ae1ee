//! The stream of updates to the successor: the successor's position, and the next update to send.

use std::time::Duration;

use crate::{
    Sequence, Timestamp, Version,
    message::{Control, Partial, Truncate},
    replica::unhashed::Unhashed,
};

/// The successor's position in this member's history.
#[derive(Clone, Hash, Debug, Default)]
pub(in crate::replica) struct SuccessorStream {
    /// The next update to send; `None` until the successor has reported a position that this member can follow.
    cursor: Option<Cursor>,
    /// The successor holds our history up to this sequence.
    acknowledged: Sequence,
    /// The received part of the update after `acknowledged`, if that update is sent in pieces.
    partial: Option<Partial>,
    /// When `acknowledged` last rose, or sending began again. Only resends on lossy links depend on it.
    progress: Unhashed<Timestamp>,
    /// The cut that the successor must apply first.
    cut: Option<Truncate>,
    /// The last reported position, if it can't be followed yet.
    deferred: Option<Box<Control>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::replica) struct Cursor {
    pub(in crate::replica) next: Sequence,
    /// The pieces of that update that have been sent.
    pub(in crate::replica) begun: Option<Partial>,
}

impl Cursor {
    pub(in crate::replica) fn at(next: Sequence) -> Self {
        Self { next, begun: None }
    }

    /// The position after the updates that the successor holds.
    pub(in crate::replica) fn behind(held: Sequence, partial: Option<Partial>) -> Self {
        let next = held.next();
        Self { next, begun: partial.filter(|partial| partial.version.sequence == next) }
    }
}

impl SuccessorStream {
    pub(in crate::replica) fn cursor(&self) -> Option<Cursor> {
        self.cursor
    }

    /// Whether the successor's position is known, so that updates are sent.
    pub(in crate::replica) fn is_following(&self) -> bool {
        self.cursor.is_some()
    }

    pub(in crate::replica) fn set_cursor(&mut self, cursor: Option<Cursor>) {
        self.cursor = cursor;
    }

    pub(in crate::replica) fn acknowledged(&self) -> Sequence {
        self.acknowledged
    }

    pub(in crate::replica) fn cut(&self) -> Option<Truncate> {
        self.cut
    }

    /// Forgets the successor's position: the last frames on the old link may be lost.
    pub(super) fn link_changed(&mut self) {
        (self.cursor, self.deferred) = (None, None);
    }

    /// Keeps a position until it can be followed. Requesting it again would cost a round trip.
    pub(in crate::replica) fn defer(&mut self, position: Control) {
        self.deferred = Some(Box::new(position));
    }

    pub(in crate::replica) fn take_deferred(&mut self) -> Option<Box<Control>> {
        self.deferred.take()
    }

    pub(in crate::replica) fn acknowledge(&mut self, now: Timestamp, sequence: Sequence) {
        if sequence > self.acknowledged {
            (self.acknowledged, self.progress) = (sequence, Unhashed(now));
        }
    }

    pub(in crate::replica) fn set_partial(&mut self, partial: Option<Partial>) {
        self.partial = partial;
    }

    /// The successor's history is a prefix of ours: sending continues after `held`.
    pub(in crate::replica) fn follow(&mut self, now: Timestamp, held: Sequence, partial: Option<Partial>) {
        (self.progress, self.cut) = (Unhashed(now), None);
        self.cursor = Some(Cursor::behind(held, partial));
        self.acknowledged = self.acknowledged.max(held);
    }

    pub(in crate::replica) fn order_cut(&mut self, now: Timestamp, cut: Truncate) {
        (self.progress, self.cut, self.cursor) = (Unhashed(now), Some(cut), None);
    }

    /// A snapshot for the successor begins, and the successor drops its data.
    pub(in crate::replica) fn restart(&mut self) {
        (self.cursor, self.cut, self.acknowledged) = (None, None, Sequence::ZERO);
    }

    /// A frame was sent from `from`; the next one starts at `next`.
    pub(in crate::replica) fn sent(&mut self, now: Timestamp, from: Cursor, next: Cursor) {
        if self.acknowledged.next() == from.next {
            self.progress = Unhashed(now);
        }
        self.cursor = Some(next);
    }

    /// Whether a sent update or piece is unacknowledged.
    pub(in crate::replica) fn is_unacknowledged(&self) -> bool {
        self.cursor.is_some_and(|cursor| {
            cursor.next > self.acknowledged.next() || (cursor.begun.is_some() && cursor.begun != self.partial)
        })
    }

    /// On a lossy link: resends updates that weren't acknowledged within `after`.
    pub(in crate::replica) fn resend(&mut self, now: Timestamp, after: Duration) {
        if now - *self.progress < after {
            return;
        }
        let behind = Cursor::behind(self.acknowledged, self.partial);
        self.cursor = self.cursor.map(|cursor| if cursor.next < behind.next { cursor } else { behind });
        self.progress = Unhashed(now);
    }

    /// Test-only: the mutant `LoseInFlight` treats the successor as if it held every update.
    pub(in crate::replica) fn skip_to(&mut self, held: Version) {
        self.cursor = Some(Cursor::at(held.sequence.next()));
    }
}
