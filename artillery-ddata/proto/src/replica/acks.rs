//! When a member acknowledges what its predecessor sent (docs/adr/0038-implied-acknowledgements.md).
//!
//! The tail commits only what all serving members hold, and tells each of them. So its watermark acknowledges for every serving
//! member, and the members between head and tail acknowledge by themselves only from time to time: a predecessor still learns
//! how long the hop to its successor takes when it is another member that holds the chain up (docs/adr/0017-slow-members.md).
//! A joiner is not covered by the watermark, so it acknowledges at once, and so does a tail, with its watermark.

use std::time::Duration;

use super::{Mutant, Place, Replica};
use crate::{MemberId, Sequence, Timestamp};

/// A member between head and tail withholds an acknowledgement for so long at most.
const ACK_DELAY: Duration = Duration::from_millis(4);

/// What this member owes its predecessor: since when that may not know that this is here, or committed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Acks(Option<(Timestamp, Sequence)>);

impl Acks {
    pub(super) fn clear(&mut self) {
        self.0 = None;
    }

    /// When the acknowledgement that is owed has to be sent.
    pub(super) fn next_tick(self) -> Option<Timestamp> {
        self.0.map(|(since, _)| since + ACK_DELAY)
    }
}

impl Replica {
    /// An update came from the predecessor, in order, and with it the watermark that the predecessor had.
    ///
    /// Only that shows what it has heard of the tail: where their link is dead, this member's acknowledgements carry the watermark.
    pub(super) fn acknowledge(&mut self, now: Timestamp, predecessor: MemberId, watermark: Sequence) {
        if !self.place.serves() || self.place.is_tail || !self.is_open() {
            return self.due_for(Some(predecessor));
        }
        if self.acks.0.is_none_or(|(_, upto)| upto <= watermark) {
            self.acks.0 = Some((now, self.history.last().sequence));
        }
    }

    /// Sends the acknowledgement that was withheld for long enough.
    pub(super) fn send_owed_ack(&mut self, now: Timestamp) {
        if self.acks.next_tick().is_some_and(|at| at <= now) {
            self.acks.clear();
            self.due_for(self.place.predecessor);
        }
    }

    /// The watermark has risen: a successor that serves holds what it covers.
    ///
    /// A joiner may lack what is committed. If the watermark acknowledged for it, it would be promoted without that (trap 5).
    pub(super) fn acknowledged_by_watermark(&mut self, now: Timestamp) {
        let watermark = self.watermark;
        let serves = self.place.serves() && (!self.place.is_tail || self.is(Mutant::AcknowledgeForJoiner));
        let successor = self.place.successor.filter(|_| serves).and_then(|id| self.peers.get_mut(&id));
        if let Some(peer) = successor.filter(|peer| peer.acknowledged < watermark) {
            peer.acknowledged = watermark;
            peer.progress = now;
        }
    }

    /// How long the successor may have withheld an acknowledgement.
    pub(super) fn ack_delay(&self) -> Duration {
        let Place { is_tail, successor, tail, .. } = self.place;
        let withholds = self.place.serves() && !is_tail && successor != tail;
        if withholds { ACK_DELAY } else { Duration::ZERO }
    }
}
