//! Promotion of the joiner (docs/DESIGN.md §5.6).
//!
//! An open tail whose joiner is close behind counts the joiner as the tail until the epoch ends: it commits nothing
//! that the joiner doesn't hold. Once the joiner holds every committed update, the tail asks for its promotion, with
//! each heartbeat. Whether that is granted or lost, every member that the log names as serving holds what is committed.

use super::{Replica, ReplicaOutput};
use crate::{MemberId, Sequence, Timestamp};

/// The joiner that counts as the tail in the rest of this epoch.
#[derive(Clone, Copy, Debug)]
pub(super) struct PromotedTail {
    member: MemberId,
    /// Its promotion was asked for.
    asked: bool,
}

impl Replica {
    /// How far the tail may commit. No other place knows this rule. Updates pass all members in order, so every member has
    /// applied what the tail has. In a durable chain they also have to be on every member's disk.
    pub(super) fn committable(&self) -> Sequence {
        let last = self.history.last().sequence;
        let held = match self.promotion {
            Some(promotion) if !allows!(self.settings.guards, PromoteTooEarly) => {
                last.min(self.held_by(promotion.member))
            }
            _ => last,
        };
        let mark = self.durable_mark().filter(|_| !allows!(self.settings.guards, CommitUndurable));
        mark.map_or(held, |mark| held.min(mark))
    }

    /// Checks for promotion after the joiner or this member has made progress.
    pub(super) fn consider_promotion(&mut self, now: Timestamp) {
        if self.promotion.is_none() {
            self.promotion = self.close_behind().map(|member| PromotedTail { member, asked: false });
        }
        let Some(promotion) = self.promotion else { return };
        self.commit_as_tail(now);
        let holds_committed = !self.awaits_marks() && self.held_by(promotion.member) >= self.watermark;
        if !promotion.asked && (holds_committed || allows!(self.settings.guards, PromoteTooEarly)) {
            self.promotion = Some(PromotedTail { asked: true, ..promotion });
            self.ask_promotion();
        }
    }

    /// Asks for promotion. It is repeated with each heartbeat, since only a new configuration answers it.
    pub(super) fn ask_promotion(&mut self) {
        if let (Some(PromotedTail { member, asked: true }), Some(config)) = (self.promotion, &self.config) {
            self.outputs.push_back(ReplicaOutput::Promote { epoch: config.epoch, member });
        }
    }

    /// A joiner may become promotable as time passes, without any other input.
    pub(super) fn may_promote(&self) -> bool {
        self.place.is_tail && self.place.successor.is_some() && self.promotion.is_none() && self.is_open()
    }

    /// The joiner behind this tail isn't known to follow: it has not told its position yet, or a snapshot is on its
    /// way.
    pub(super) fn awaits_joiner(&self) -> bool {
        let joiner = self.place.successor.filter(|_| self.place.is_tail);
        let follows =
            |id: MemberId| self.outgoing.is_none() && self.peers.get(&id).is_some_and(|peer| peer.cursor.is_some());
        joiner.is_some_and(|id| !follows(id))
    }

    /// The hop to the joiner takes far longer than a hop to a successor does as a rule.
    fn joiner_is_far(&self) -> bool {
        self.may_promote() && self.pace.is_far(self.settings.heartbeat / 2)
    }

    /// The joiner, if it may be promoted: its history is known to be a prefix of ours, and not much is missing.
    fn close_behind(&self) -> Option<MemberId> {
        let joiner = self.place.successor.filter(|_| self.place.is_tail && self.halted.is_none())?;
        if allows!(self.settings.guards, PromoteTooEarly) {
            return Some(joiner).filter(|_| self.is_open());
        }
        let may_ask = self.is_open() || allows!(self.settings.guards, AskBeforeOpen);
        let peer = self.peers.get(&joiner).filter(|peer| may_ask && peer.cursor.is_some())?;
        if self.joiner_is_far() {
            // Each commit would have to wait for the distant joiner.
            return None;
        }
        // A joiner whose disk is still far behind would hold up each commit.
        let held = if self.is_durable() { peer.held } else { peer.acknowledged };
        let is_close = self.outgoing.is_none() && self.history.is_close(held, self.settings.close_behind);
        is_close.then_some(joiner)
    }
}
