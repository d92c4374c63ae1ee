//! How the tail gets its joiner promoted to a serving member (docs/DESIGN.md §5.6).
//!
//! An open tail whose joiner is close behind treats the joiner as the tail until the epoch ends: it commits only
//! updates that the joiner holds. Once the joiner holds every committed update, the tail requests its promotion with
//! each heartbeat. Whether the request is granted or lost, every member that the log names as serving holds every
//! committed update.

use super::{Context, ReplicaOutput, log::Log, peers::Peers, unhashed::Unhashed};
use crate::{MemberId, Sequence, Timestamp};

#[derive(Clone, Copy, Hash, Debug, Default)]
pub(super) struct Promotion {
    /// The joiner that is treated as the tail in the rest of this epoch.
    joiner: Option<MemberId>,
    is_requested: bool,
    /// When a frame of the joiner behind this tail was last received in this epoch, or when the epoch was entered. Only
    /// reports use it.
    heard: Unhashed<Timestamp>,
}

impl Promotion {
    /// The epoch was entered, or the successor sent a frame.
    pub(super) fn hear(&mut self, now: Timestamp) {
        *self.heard = now;
    }

    pub(super) fn end(&mut self) {
        (self.joiner, self.is_requested) = (None, false);
    }

    pub(super) fn heard(&self) -> Timestamp {
        *self.heard
    }

    pub(super) fn joiner(&self) -> Option<MemberId> {
        self.joiner
    }

    pub(super) fn begin(&mut self, joiner: Option<MemberId>) {
        self.joiner = joiner;
    }

    /// The last sequence that the tail may commit. Updates pass all members in order, so every serving member has
    /// applied the tail's updates. In a durable chain they must also be on every serving member's disk. While a joiner
    /// is treated as the tail, it must hold them too.
    pub(super) fn committable(&self, cx: Context<'_>, log: &Log, peers: &Peers) -> Sequence {
        let last = log.last().sequence;
        let held = match self.joiner {
            Some(joiner) if !allows!(cx.guards(), PromoteTooEarly) => last.min(peers.held_by(log, joiner)),
            _ => last,
        };
        let mark = peers.durable_mark(cx, log).filter(|_| !allows!(cx.guards(), CommitUndurable));
        mark.map_or(held, |mark| held.min(mark))
    }

    /// Begins to request the promotion once the joiner holds every committed update. Returns whether this call did so.
    pub(super) fn request(&mut self, cx: Context<'_>, log: &Log, peers: &Peers, awaits_marks: bool) -> bool {
        let Some(joiner) = self.joiner.filter(|_| !self.is_requested) else { return false };
        let holds_committed = !awaits_marks && peers.held_by(log, joiner) >= log.watermark();
        self.is_requested = holds_committed || allows!(cx.guards(), PromoteTooEarly);
        self.is_requested
    }

    /// The request. It is repeated with each heartbeat, since only a new configuration answers it.
    pub(super) fn output(&self, cx: Context<'_>) -> Option<ReplicaOutput> {
        let member = self.joiner.filter(|_| self.is_requested)?;
        Some(ReplicaOutput::Promote { epoch: cx.epoch()?, member })
    }
}
