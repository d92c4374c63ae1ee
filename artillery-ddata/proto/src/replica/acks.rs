//! When a member acknowledges what its predecessor sent (docs/adr/0038-implied-acknowledgements.md).
//!
//! The tail commits only what all serving members hold, and tells each of them. So its watermark acknowledges for every
//! serving member. A member between head and tail acknowledges by itself only from time to time: so its predecessor
//! learns how long the hop takes, also while another member holds the chain up (docs/adr/0017-slow-members.md). The
//! watermark doesn't cover a joiner, so a joiner acknowledges at once. So does a tail, with its watermark.

use std::time::Duration;

use super::{ChainPosition, Replica};
use crate::{MemberId, Sequence, Timestamp};

/// The longest time for which a member between head and tail withholds an acknowledgement.
const ACK_DELAY: Duration = Duration::from_millis(2);

/// After this time the member acknowledges at once, so that its predecessor learns how long the hop takes as a rule.
/// Measured by the watermark alone, a hop would seem to take as long as a commit, and a slow member would be found too
/// late.
const PROBE_EVERY: Duration = Duration::from_millis(50);

/// The acknowledgements of this member to its predecessor.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Acks {
    /// The oldest withheld acknowledgement: since when, and up to which sequence.
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

    /// When the withheld acknowledgement has to be sent.
    pub(super) fn next_tick(self) -> Option<Timestamp> {
        self.owed.map(|(since, _)| since + ACK_DELAY)
    }
}

impl Replica {
    /// An update came from the predecessor, in order, and with it the predecessor's `watermark`.
    ///
    /// Only that watermark shows what the predecessor has heard from the tail. If the link between them is dead, this
    /// member's acknowledgements carry the watermark.
    pub(super) fn acknowledge(&mut self, now: Timestamp, predecessor: MemberId, watermark: Sequence) {
        let withholds = self.place.serves() && !self.place.is_tail && self.is_open();
        if !withholds || now >= self.acks.sent + PROBE_EVERY {
            return self.due_for(Some(predecessor));
        }
        if self.acks.owed.is_none_or(|(_, upto)| upto <= watermark) {
            self.acks.owed = Some((now, self.history.last().sequence));
        }
    }

    /// Sends the acknowledgement once it was withheld for [`ACK_DELAY`].
    pub(super) fn send_owed_ack(&mut self, now: Timestamp) {
        if self.acks.next_tick().is_some_and(|at| at <= now) {
            self.acks.clear();
            self.due_for(self.place.predecessor);
        }
    }

    /// The watermark has risen: a serving successor holds what it covers.
    ///
    /// A joiner may lack committed updates. If the watermark acknowledged for it, it would be promoted without them
    /// (trap 5).
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
