//! Leaving: a node resigns only after the leader has agreed, and takes its resignation back when its removal can't be made
//! any more (docs/adr/0028-leaving-and-voters.md).

use super::{Coordinator, plan::View};
use crate::{
    ChainConfig, MemberId, Role, Timestamp,
    control::{
        log::Configs,
        message::{Leave, LeaveStage},
    },
    guards::Guards,
};

/// A resignation that has led to no removal for so many times `suspect` is taken back.
const RESIGNATION_SUSPECTS: u32 = 2;

/// How far a node has come with leaving, as this term's leader knows it.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Leaver {
    pub(super) said: Leave,
    /// When the leader first heard the node ask, by this number.
    pub(super) asked: Timestamp,
    /// When the leader first heard that the node has resigned, by this number.
    resigned: Timestamp,
    /// The resignation was made, or shown to stand, in this leader's term.
    vouched: bool,
    /// This leader has agreed: the node may have resigned, though the leader hasn't heard it yet.
    agreed: bool,
    /// Since when this leader says that the node's chains end with it.
    pub(super) ends: Option<Timestamp>,
}

impl Leaver {
    /// Takes in a renewal. `is_fresh`: it was sent after an answer of this term.
    ///
    /// A late message may say that a node has resigned that serves again by a running lease. The removal would not wait for
    /// that lease (trap 62). So a value below the highest one is ignored. A resignation from before this term, which another
    /// leader may have taken back, counts only once the node shows that it stands.
    pub(super) fn on_renewal(&mut self, now: Timestamp, said: Leave, is_fresh: bool, guards: Guards) {
        if said < self.said && !allows!(guards, TakeOldResignation) {
            return;
        }
        if said.number != self.said.number {
            *self = Self::default();
        }
        if said.is_asked() && !self.said.is_asked() {
            self.asked = now;
        }
        if said.has_resigned() && !self.said.has_resigned() {
            self.resigned = now;
        }
        self.said = said;
        self.vouched |= said.has_resigned() && (is_fresh || allows!(guards, TakeUnvouchedResignation));
    }

    /// Counts the request as new after a pause of the leader: other members may have died in the pause, so what they had
    /// shown before proves nothing.
    pub(super) fn wake(&mut self, now: Timestamp) {
        if self.is_asked() {
            self.asked = now;
        }
    }

    pub(super) fn is_asked(&self) -> bool {
        self.said.is_asked()
    }

    /// Whether the node certainly acts by no lease.
    pub(super) fn has_resigned(&self) -> bool {
        self.said.has_resigned() && self.vouched
    }
}

impl View<'_> {
    pub(super) fn asks_to_leave(&self, id: MemberId) -> bool {
        self.nodes.get(&id).is_some_and(|seen| seen.leaver.is_asked())
    }

    pub(super) fn has_resigned(&self, id: MemberId) -> bool {
        self.nodes.get(&id).is_some_and(|seen| seen.leaver.has_resigned())
    }

    /// Whether a chain goes on without this leaving member: another one stays.
    pub(super) fn has_heir(&self, config: &ChainConfig, id: MemberId) -> bool {
        config.serving().any(|other| self.is_heir(config, id, other))
    }

    /// Whether the serving member `other` keeps the chain going when `id` leaves. It must have shown an answer given since the
    /// leave was asked for. A node killed a moment before was heard lately too, and the last copy would go (trap 61).
    pub(super) fn is_heir(&self, config: &ChainConfig, id: MemberId, other: MemberId) -> bool {
        let Some(leaver) = self.nodes.get(&id).map(|seen| seen.leaver) else { return false };
        let seen = self.nodes.get(&other);
        let stays = !self.is_gone(other)
            && !self.fenced.contains_key(&other)
            && !seen.is_some_and(|seen| seen.leaver.agreed)
            && !self.has_halted(config.chain, other);
        let is_proven = seen.is_some_and(|seen| seen.proven >= leaver.asked);
        let lived = other == self.me || is_proven || allows!(self.settings.guards, BelieveOldMessages);
        other != id && stays && lived
    }

    /// Whether the chains of a node that asks to leave go on without it.
    fn may_resign(&self, configs: &Configs, id: MemberId) -> bool {
        let mut chains = configs.iter().filter(|config| config.role(id) == Some(Role::Serving));
        chains.all(|config| self.has_heir(config, id)) || allows!(self.settings.guards, AgreeAtOnce)
    }

    /// Whether the removal of a resigned node fails: no other member of one of its chains is there, or it takes too long.
    fn is_stuck(&self, configs: &Configs, id: MemberId) -> bool {
        let Some(leaver) = self.nodes.get(&id).map(|seen| seen.leaver) else { return false };
        let alone = |config: &ChainConfig| config.serving().all(|other| other == id || self.is_gone(other));
        let mut chains = configs.iter().filter(|config| config.role(id) == Some(Role::Serving));
        let late = self.now - leaver.resigned >= self.settings.suspect * RESIGNATION_SUSPECTS;
        chains.any(|config| late || alone(config)) && !allows!(self.settings.guards, KeepResigned)
    }
}

impl Coordinator {
    /// The next step of a leaving node, if it is to take one now.
    pub(super) fn next_leave(&mut self, now: Timestamp, id: MemberId) -> Option<Leave> {
        let leading = self.leading.as_ref()?;
        let said = leading.nodes.get(&id)?.leaver.said;
        let view = leading.view(now, self.me, &self.settings, &self.outside);
        match said.stage {
            LeaveStage::Asks if view.may_resign(&self.configs, id) => {
                let seen = self.leading.as_mut().and_then(|leading| leading.nodes.get_mut(&id));
                seen.into_iter().for_each(|seen| seen.leaver.agreed = true);
                Some(said.resigned())
            }
            // A proposal under way may be the removal.
            LeaveStage::Resigned if leading.proposal.is_none() && view.is_stuck(&self.configs, id) => {
                Some(said.back(LeaveStage::Asks))
            }
            _ => None,
        }
    }
}
