//! Promotion of the joiner (docs/DESIGN.md §5.6).
//!
//! An open tail whose joiner is close behind counts it as the tail from then on, to the end of its epoch: it commits
//! nothing that the joiner doesn't hold. Once the joiner holds all that had been committed before, the tail asks for its
//! promotion, again and again; whatever becomes of that, whoever stands in the log as serving holds what is committed.

use super::{Replica, ReplicaOutput};
use crate::{MemberId, Sequence, Timestamp};

/// Who counts as the tail in the rest of this epoch.
#[derive(Clone, Copy, Debug)]
pub(super) struct PromotedTail {
    member: MemberId,
    /// It was asked for.
    asked: bool,
}

impl Replica {
    /// How far the tail may commit. The one place that knows the rule: in memory, applied by the tail is applied by all.
    pub(super) fn committable(&self) -> Sequence {
        let last = self.history.last().sequence;
        match self.promotion {
            Some(promotion) if !allows!(self.settings.guards, PromoteTooEarly) => {
                last.min(self.acknowledged_by(promotion.member))
            }
            _ => last,
        }
    }

    fn acknowledged_by(&self, member: MemberId) -> Sequence {
        self.peers.get(&member).map_or(Sequence::ZERO, |peer| peer.acknowledged)
    }

    /// The joiner, or this member, has come on.
    pub(super) fn consider_promotion(&mut self, now: Timestamp) {
        if self.promotion.is_none() {
            self.promotion = self.close_behind().map(|member| PromotedTail { member, asked: false });
        }
        let Some(promotion) = self.promotion else { return };
        self.commit_as_tail(now);
        let holds_committed = self.acknowledged_by(promotion.member) >= self.watermark;
        if !promotion.asked && (holds_committed || allows!(self.settings.guards, PromoteTooEarly)) {
            self.promotion = Some(PromotedTail { asked: true, ..promotion });
            self.ask_promotion();
        }
    }

    /// Says that promotion is wanted, again with each heartbeat: nobody answers but by a new configuration.
    pub(super) fn ask_promotion(&mut self) {
        if let (Some(PromotedTail { member, asked: true }), Some(config)) = (self.promotion, &self.config) {
            self.outputs.push_back(ReplicaOutput::Promote { epoch: config.epoch, member });
        }
    }

    /// There is a joiner that may be promoted as time passes, whatever else happens.
    pub(super) fn may_promote(&self) -> bool {
        self.place.is_tail && self.place.successor.is_some() && self.promotion.is_none() && self.is_open()
    }

    /// A joiner stands behind this tail that isn't known to follow: it has said nothing yet of its history, or a snapshot is on
    /// its way to it.
    pub(super) fn awaits_joiner(&self) -> bool {
        let joiner = self.place.successor.filter(|_| self.place.is_tail);
        let follows =
            |id: MemberId| self.outgoing.is_none() && self.peers.get(&id).is_some_and(|peer| peer.cursor.is_some());
        joiner.is_some_and(|id| !follows(id))
    }

    /// The way to the joiner takes far longer than the way to a successor does as a rule.
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
            // What is committed would have to wait for it.
            return None;
        }
        let is_close = self.outgoing.is_none() && self.history.is_close(peer.acknowledged, self.settings.close_behind);
        is_close.then_some(joiner)
    }
}
