//! When a member acknowledges updates of its predecessor (docs/adr/0038-implied-acknowledgements.md).
//!
//! The tail commits only updates that all serving members hold, and sends its watermark to each of them. So the
//! watermark acknowledges updates for every serving member. A member between head and tail sends its own
//! acknowledgement only occasionally, so that its predecessor learns how long the hop takes, even while another member
//! slows the chain down (docs/adr/0017-slow-members.md). The watermark doesn't cover a joiner, so a joiner acknowledges
//! at once. So does a tail, with its watermark.

use std::time::Duration;

use crate::{
    Sequence, Timestamp,
    replica::membership::{ChainPosition, Context},
};

/// The longest time for which a member between head and tail withholds an acknowledgement.
const ACK_DELAY: Duration = Duration::from_millis(2);

/// After this interval the member acknowledges at once, so that its predecessor learns how long the hop usually takes.
/// Measured by the watermark alone, a hop would seem to take as long as a commit, and a slow member would be detected
/// too late.
const PROBE_EVERY: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Hash, Debug, Default)]
pub(super) struct Acks {
    /// Since when and up to which sequence acknowledgements have been withheld.
    owed: Option<(Timestamp, Sequence)>,
    /// When the last acknowledgement was sent.
    sent: Timestamp,
}

impl Acks {
    /// Drops the withheld acknowledgement, and keeps the time of the last sent one.
    pub(super) fn cleared(self) -> Self {
        Self { owed: None, ..self }
    }

    pub(super) fn sent(&mut self, now: Timestamp) {
        *self = Self { owed: None, sent: now };
    }

    pub(super) fn next_tick(self) -> Option<Timestamp> {
        self.owed.map(|(since, _)| since + ACK_DELAY)
    }

    /// An update arrived in order, with the predecessor's `watermark`. Returns whether to acknowledge it now.
    ///
    /// `watermark` shows which watermark of the tail the predecessor has received. If the link between predecessor and
    /// tail is dead, this member's acknowledgements carry the watermark.
    pub(super) fn acknowledges(&mut self, now: Timestamp, last: Sequence, watermark: Sequence) -> bool {
        if now >= self.sent + PROBE_EVERY {
            return true;
        }
        if self.owed.is_none_or(|(_, upto)| upto <= watermark) {
            self.owed = Some((now, last));
        }
        false
    }

    pub(super) fn take_due(&mut self, now: Timestamp) -> bool {
        let is_due = self.next_tick().is_some_and(|at| at <= now);
        if is_due {
            self.owed = None;
        }
        is_due
    }
}

/// The time for which the successor may withhold an acknowledgement.
pub(in crate::replica) fn ack_delay(cx: Context<'_>) -> Duration {
    let ChainPosition { is_tail, successor, tail, .. } = *cx.place();
    let withholds = cx.place().serves() && !is_tail && successor != tail;
    if withholds { ACK_DELAY } else { Duration::ZERO }
}
