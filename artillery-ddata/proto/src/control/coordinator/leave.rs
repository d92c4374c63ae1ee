//! Leaving: a node resigns only after the leader has agreed, and withdraws its resignation when it can no longer be
//! removed (docs/adr/0028-leaving-and-voters.md).

use super::{Coordinator, view::View};
use crate::{
    ChainConfig, MemberId, Role, Timestamp,
    control::{
        log::Configs,
        message::{Leave, LeaveStage},
    },
};

/// A resignation that has led to no removal for this many times `suspect` is withdrawn.
const RESIGNATION_SUSPECTS: u32 = 2;

impl View<'_> {
    pub(super) fn asks_to_leave(&self, id: MemberId) -> bool {
        self.nodes.get(&id).is_some_and(|seen| seen.leaver.is_asked())
    }

    pub(super) fn has_resigned(&self, id: MemberId) -> bool {
        self.nodes.get(&id).is_some_and(|seen| seen.leaver.has_resigned())
    }

    /// Whether a chain can continue without this leaving member: another one stays.
    pub(super) fn has_heir(&self, config: &ChainConfig, id: MemberId) -> bool {
        config.serving().any(|other| self.is_heir(config, id, other))
    }

    /// Whether the serving member `other` keeps the chain available when `id` leaves. It must have shown an answer that
    /// was given after the request to leave. A node that was killed shortly before has sent recent messages too, and
    /// the last copy would be lost (trap 61).
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

    pub(super) fn returns(&self, id: MemberId) -> bool {
        self.nodes.get(&id).is_some_and(|seen| seen.leaver.returns())
    }

    /// Whether a node is still leaving. A node that will return has left once it is gone and no longer has a place in a
    /// chain. This leader is never gone, although it may have nothing left to renew.
    pub(super) fn is_leaving(&self, configs: &Configs, id: MemberId) -> bool {
        let is_out = self.returns(id) && id != self.me && self.is_gone(id) && !configs.names(id);
        self.asks_to_leave(id) && !is_out
    }

    /// Whether the chains of a leaving node can continue without it.
    ///
    /// A node that will return keeps its place if all other members leave too. Otherwise, when all nodes are stopped,
    /// the members would be removed down to one, and only its store could open the chain again.
    fn may_resign(&self, configs: &Configs, id: MemberId) -> bool {
        let may_inherit = |other| !self.returns(id) || !self.asks_to_leave(other);
        let is_heir = |config: &ChainConfig, other| may_inherit(other) && self.is_heir(config, id, other);
        let mut chains = configs.iter().filter(|config| config.role(id) == Some(Role::Serving));
        chains.all(|config| config.serving().any(|other| is_heir(config, other)))
            || allows!(self.settings.guards, AgreeAtOnce)
    }

    /// Whether the removal of a resigned node fails: no other member of one of its chains is alive, or it takes too
    /// long.
    fn is_stuck(&self, configs: &Configs, id: MemberId) -> bool {
        let Some(leaver) = self.nodes.get(&id).map(|seen| seen.leaver) else { return false };
        let alone = |config: &ChainConfig| config.serving().all(|other| other == id || self.is_gone(other));
        let mut chains = configs.iter().filter(|config| config.role(id) == Some(Role::Serving));
        let late = self.now - leaver.resigned >= self.settings.suspect * RESIGNATION_SUSPECTS;
        chains.any(|config| late || alone(config)) && !allows!(self.settings.guards, KeepResigned)
    }
}

impl Coordinator {
    /// The next step of a leaving node, if one is due.
    pub(super) fn next_leave(&mut self, now: Timestamp, id: MemberId) -> Option<Leave> {
        let leading = self.leading.as_ref()?;
        let said = leading.nodes.get(&id)?.leaver.said;
        let view = leading.view(now, self.me, &self.voters, &self.settings, &self.outside);
        match said.stage {
            LeaveStage::Asks if view.may_resign(&self.configs, id) => {
                let seen = self.leading.as_mut().and_then(|leading| leading.nodes.get_mut(&id));
                seen.into_iter().for_each(|seen| seen.leaver.agreed = true);
                Some(said.resigned())
            }
            // The pending proposal may be the removal.
            LeaveStage::Resigned if leading.proposal.is_none() && view.is_stuck(&self.configs, id) => {
                Some(said.back(LeaveStage::Asks))
            }
            _ => None,
        }
    }
}
