//! Leaving: a node resigns only after the leader has agreed, and takes that back when it can't be removed any more
//! (docs/adr/0028-leaving-and-voters.md).

use super::{Coordinator, plan::View};
use crate::{
    ChainConfig, MemberId, Role, Timestamp,
    control::{
        log::Configs,
        message::{Leave, Stage},
    },
    guards::Guards,
};

/// A resignation that has led to no change for so many times the suspicion is taken back.
const STUCK: u32 = 2;

/// What a node has said of leaving, as this term's leader knows it.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Leaver {
    pub(super) said: Leave,
    /// When it was first heard to ask, by this number.
    pub(super) asked: Timestamp,
    /// When it was first heard to have resigned, by this number.
    resigned: Timestamp,
    /// It resigned, or went on to have resigned, in this leader's term.
    vouched: bool,
    /// This leader has agreed: it may have resigned, though that wasn't heard yet.
    agreed: bool,
    /// Since when this leader says that its chains end with it.
    pub(super) ends: Option<Timestamp>,
}

impl Leaver {
    /// Takes in what a renewal says. `is_fresh`: it was sent after an answer of this term.
    ///
    /// An old message may say that a node has resigned that serves again, by a lease that runs: the removal would not wait for
    /// that lease (trap 62). So a value below the highest one counts for nothing; and a resignation of before this term, which
    /// another leader may have taken back, doesn't count until the node shows that it stands.
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

    /// After a pause of the leader: other members may have died in it, so what they had shown before is no proof.
    pub(super) fn wake(&mut self, now: Timestamp) {
        if self.is_asked() {
            self.asked = now;
        }
    }

    pub(super) fn is_asked(&self) -> bool {
        self.said.is_asked()
    }

    /// Whether it certainly acts by no lease.
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

    /// Whether a chain goes on without this member, which wants to leave: by another one that stays.
    pub(super) fn has_heir(&self, config: &ChainConfig, id: MemberId) -> bool {
        config.serving().any(|other| self.is_heir(config, id, other))
    }

    /// Whether a chain goes on by this serving member when `id` leaves. It must have shown an answer given since the leave was
    /// asked for: a node killed a moment before was heard of lately all the same, and the last copy would go (trap 61).
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

    /// Whether a node that has resigned is not removed: no other member of a chain is there, or it takes too long.
    fn is_stuck(&self, configs: &Configs, id: MemberId) -> bool {
        let Some(leaver) = self.nodes.get(&id).map(|seen| seen.leaver) else { return false };
        let alone = |config: &ChainConfig| config.serving().all(|other| other == id || self.is_gone(other));
        let mut chains = configs.iter().filter(|config| config.role(id) == Some(Role::Serving));
        let late = self.now - leaver.resigned >= self.settings.suspect * STUCK;
        chains.any(|config| late || alone(config)) && !allows!(self.settings.guards, KeepResigned)
    }
}

impl Coordinator {
    /// What a node that leaves is to go on to, if anything.
    pub(super) fn next_leave(&mut self, now: Timestamp, id: MemberId) -> Option<Leave> {
        let leading = self.leading.as_ref()?;
        let said = leading.nodes.get(&id)?.leaver.said;
        let view = leading.view(now, self.me, &self.settings, &self.outside);
        match said.stage {
            Stage::Asks if view.may_resign(&self.configs, id) => {
                let seen = self.leading.as_mut().and_then(|leading| leading.nodes.get_mut(&id));
                seen.into_iter().for_each(|seen| seen.leaver.agreed = true);
                Some(said.resigned())
            }
            // A proposal that is under way may be the removal.
            Stage::Resigned if leading.proposal.is_none() && view.is_stuck(&self.configs, id) => {
                Some(said.back(Stage::Asks))
            }
            _ => None,
        }
    }
}
