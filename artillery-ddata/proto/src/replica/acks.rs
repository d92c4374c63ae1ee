//! When a member acknowledges what its predecessor sent (docs/adr/0038-implied-acknowledgements.md).
//!
//! The tail commits only what all serving members hold, and tells each of them. So its watermark acknowledges for every serving
//! member, and the members between head and tail acknowledge by themselves only from time to time: a predecessor still learns
//! how long the hop to its successor takes when it is another member that holds the chain up (docs/adr/0017-slow-members.md).
//! A joiner is not covered by the watermark, so it acknowledges at once, and so does a tail, with its watermark.

use std::time::Duration;

use super::{ChainPosition, Replica};
use crate::{MemberId, Sequence, Timestamp};

/// A member between head and tail withholds an acknowledgement for so long at most.
const ACK_DELAY: Duration = Duration::from_millis(2);

/// But so often it acknowledges at once: by that its predecessor knows how long the hop takes as a rule. Measured by the watermark
/// alone it would seem to take as long as a commit, and a member that is slow would be told from that too late.
const PROBE_EVERY: Duration = Duration::from_millis(50);

/// What this member owes its predecessor.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Acks {
    /// Since when the predecessor may not know that this is here, or committed.
    owed: Option<(Timestamp, Sequence)>,
    /// When it acknowledged last.
    sent: Timestamp,
}

impl Acks {
    pub(super) fn clear(&mut self) {
        self.owed = None;
    }

    pub(super) fn sent(&mut self, now: Timestamp) {
        *self = Self { owed: None, sent: now };
    }

    /// When the acknowledgement that is owed has to be sent.
    pub(super) fn next_tick(self) -> Option<Timestamp> {
        self.owed.map(|(since, _)| since + ACK_DELAY)
    }
}

impl Replica {
    /// An update came from the predecessor, in order, and with it the watermark that the predecessor had.
    ///
    /// Only that shows what it has heard of the tail: where their link is dead, this member's acknowledgements carry the watermark.
    pub(super) fn acknowledge(&mut self, now: Timestamp, predecessor: MemberId, watermark: Sequence) {
        let withholds = self.place.serves() && !self.place.is_tail && self.is_open();
        if !withholds || now >= self.acks.sent + PROBE_EVERY {
            return self.due_for(Some(predecessor));
        }
        if self.acks.owed.is_none_or(|(_, upto)| upto <= watermark) {
            self.acks.owed = Some((now, self.history.last().sequence));
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
        let serves =
            self.place.serves() && (!self.place.is_tail || allows!(self.settings.guards, AcknowledgeForJoiner));
        let successor = self.place.successor.filter(|_| serves).and_then(|id| self.peers.get_mut(&id));
        if let Some(peer) = successor.filter(|peer| peer.acknowledged < watermark) {
            peer.acknowledged = watermark;
            peer.progress = now;
        }
    }

    /// How long the successor may have withheld an acknowledgement.
    pub(super) fn ack_delay(&self) -> Duration {
        let ChainPosition { is_tail, successor, tail, .. } = self.place;
        let withholds = self.place.serves() && !is_tail && successor != tail;
        if withholds { ACK_DELAY } else { Duration::ZERO }
    }
}
