//! Announces this node to members that are down, so that partitions heal.

use super::Swim;
use crate::{
    Timestamp,
    membership::{MemberState, identity::SwimIdentity},
};

impl Swim {
    fn lost(&self) -> impl Iterator<Item = SwimIdentity> {
        self.views.iter().filter(|view| view.state == MemberState::Down).map(|view| view.identity)
    }

    pub(super) fn plan_healing(&mut self, now: Timestamp) {
        if self.lost().next().is_none() {
            self.heal_at = None;
            self.effects.rejoined = false;
            return;
        }
        let soon = std::mem::take(&mut self.effects.rejoined);
        let at = now + if soon { self.settings.probe_rtt } else { self.settings.heal_period };
        self.heal_at = Some(self.heal_at.map_or(at, |planned| planned.min(at)));
    }

    /// Announces this node to some of the members that are down, each in turn.
    pub(super) fn heal(&mut self, now: Timestamp) {
        self.heal_at = None;
        let lost: Vec<_> = self.lost().collect();
        let next = lost.iter().position(|lost| self.healed < Some(lost.member.node)).unwrap_or(0);
        for to in lost.iter().cycle().skip(next).take(self.settings.heal_fan_out.min(lost.len())) {
            self.healed = Some(to.member.node);
            self.announce(*to);
        }
        self.apply_effects(now);
    }
}
