//! This node, its settings, and the content of the log.

use std::{collections::BTreeSet, sync::Arc};

use super::CoordinatorSettings;
use crate::{MemberId, control::log::Configs, guards::Guards};

/// The data that every part of a coordinator may read and none changes.
#[derive(Debug)]
#[cfg_attr(feature = "mutants", derive(Clone))]
pub(super) struct Cluster {
    me: MemberId,
    settings: CoordinatorSettings,
    configs: Arc<Configs>,
    leader: Option<MemberId>,
    voters: BTreeSet<MemberId>,
    /// The voters, and the known nodes that were voters before.
    voted: BTreeSet<MemberId>,
}

impl Cluster {
    pub(super) fn new(me: MemberId, settings: CoordinatorSettings) -> Self {
        Self { me, settings, configs: Arc::default(), leader: None, voters: BTreeSet::new(), voted: BTreeSet::new() }
    }

    pub(super) fn follow(&mut self, leader: Option<MemberId>, configs: Arc<Configs>, voters: BTreeSet<MemberId>) {
        (self.leader, self.configs, self.voters) = (leader, configs, voters);
        self.voted.extend(self.voters.iter().copied());
        self.voted.retain(|&id| self.voters.contains(&id) || self.configs.node(id).is_some());
        // A leader with a shorter lease than others would remove a member whose lease still runs (trap 63).
        if !allows!(self.settings.guards, KeepOwnTimes) {
            self.settings.adopt(self.configs.timing());
        }
    }

    /// Every field that affects behaviour, without the settings and the content of the log's entries.
    #[cfg(feature = "mutants")]
    pub(super) fn described(&self) -> impl std::fmt::Debug + '_ {
        let Self { me, settings: _, configs, leader, voters, voted } = self;
        (me, configs.applied(), leader, voters, voted)
    }

    #[cfg(test)]
    pub(super) fn settings_mut(&mut self) -> &mut CoordinatorSettings {
        &mut self.settings
    }

    pub(super) fn me(&self) -> MemberId {
        self.me
    }

    pub(super) fn settings(&self) -> &CoordinatorSettings {
        &self.settings
    }

    pub(super) fn guards(&self) -> Guards {
        self.settings.guards
    }

    pub(super) fn configs(&self) -> &Configs {
        &self.configs
    }

    pub(super) fn leader(&self) -> Option<MemberId> {
        self.leader
    }

    pub(super) fn voters(&self) -> &BTreeSet<MemberId> {
        &self.voters
    }

    pub(super) fn votes(&self, id: MemberId) -> bool {
        self.voters.contains(&id)
    }

    pub(super) fn has_voted(&self, id: MemberId) -> bool {
        self.voted.contains(&id)
    }

    /// Whether more than half of the voters satisfy `counts`.
    pub(super) fn is_majority(&self, counts: impl Fn(MemberId) -> bool) -> bool {
        is_majority(&self.voters, counts)
    }
}

pub(super) fn is_majority(of: &BTreeSet<MemberId>, counts: impl Fn(MemberId) -> bool) -> bool {
    of.iter().filter(|&&id| counts(id)).count() * 2 > of.len()
}
