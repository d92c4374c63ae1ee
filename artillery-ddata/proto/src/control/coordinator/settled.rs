//! Whether any one node may be stopped (docs/DESIGN.md §5.3), which is the condition for *ready*.

use std::collections::BTreeSet;

use super::{Coordinator, KnownNode, view::View};
use crate::{
    ChainConfig, MemberId, Timestamp,
    control::{
        log::Configs,
        message::{Farewell, Unsettled},
    },
};

impl Coordinator {
    /// Whether any one node may be stopped now: each chain keeps a serving member, if any node could be one; no joiner
    /// loses its source; the log keeps a quorum.
    pub(super) fn settled(&self, now: Timestamp) -> Result<(), Unsettled> {
        let leading = self.leading.as_ref().ok_or(Unsettled::Unled)?;
        // A new leader has not yet received renewals from all living nodes (trap 67).
        if now - leading.since < self.settings.suspect && !allows!(self.settings.guards, SettleAtOnce) {
            return Err(Unsettled::Unled);
        }
        let view = leading.view(now, self.me, &self.voters, &self.settings, &self.outside);
        self.configs.iter().try_for_each(|config| view.chain_settled(&self.configs, config))?;
        if let Some(&member) = self.voters.iter().find(|&&id| view.is_leaving(&self.configs, id)) {
            return Err(Unsettled::Leaves { member });
        }
        if let Some(new) = self.configs.nodes().find(|founder| view.is_new(founder.id)) {
            return Err(Unsettled::New { member: new.id });
        }
        if leading.sets_voters || !self.has_voters(now) {
            return Err(Unsettled::Voters);
        }
        match leading.proposal.is_some() || view.change(&self.configs).is_some() {
            true => Err(Unsettled::Changes),
            false => Ok(()),
        }
    }

    /// The effect on its chains when node `id` leaves.
    pub(super) fn farewell(&self, now: Timestamp, id: MemberId) -> Option<Farewell> {
        let leading = self.leading.as_ref()?;
        let view = leading.view(now, self.me, &self.voters, &self.settings, &self.outside);
        let farewell = view.farewell(&self.configs, &self.voters, id).filter(|_| view.asks_to_leave(id));
        // A new voter that doesn't know yet that it is one would end at once. The log could never confirm anything
        // again.
        farewell.filter(|&farewell| farewell != Farewell::Ends || !leading.is_added(now, id))
    }
}

impl View<'_> {
    fn chain_settled(&self, configs: &Configs, config: &ChainConfig) -> Result<(), Unsettled> {
        let chain = config.chain;
        if let Some(member) = config.syncing() {
            return Err(Unsettled::Joins { chain, member });
        }
        for member in config.serving() {
            if self.is_gone(member) || self.is_blamed(config, member).is_some() {
                return Err(Unsettled::Missing { chain, member });
            }
            if self.asks_to_leave(member) {
                return Err(Unsettled::Leaves { member });
            }
        }
        match self.successors(configs, config).next() {
            Some(member) if config.serving().count() < self.settings.replicas => {
                Err(Unsettled::Short { chain, member })
            }
            _ => Ok(()),
        }
    }

    /// Living nodes that may serve a chain eventually.
    fn successors<'a>(&'a self, configs: &'a Configs, config: &'a ChainConfig) -> impl Iterator<Item = MemberId> + 'a {
        let nodes = configs.nodes().map(|founder| founder.id);
        let is_named = |id: MemberId| config.members.iter().any(|member| member.id.node == id.node);
        // This node is alive, even if it has not renewed because its chains haven't applied the log yet.
        let is_me = move |id| id == self.me && !self.is_gone(id) && !self.asks_to_leave(id);
        let is_there = move |id| self.is_there(id) || is_me(id);
        nodes.filter(move |&id| !is_named(id) && is_there(id) && !self.has_halted(config.chain, id))
    }

    /// The effect on its chains when node `id` leaves. `None`: other members seem to be alive, but none has proved it
    /// since the request to leave (trap 61).
    fn farewell(&self, configs: &Configs, voters: &BTreeSet<MemberId>, id: MemberId) -> Option<Farewell> {
        let stays = |id: MemberId| !self.is_gone(id) && !self.asks_to_leave(id);
        let is_serving = |config: &&ChainConfig| config.serving().any(|serving| serving == id);
        let is_last = |config: &&ChainConfig| {
            let keeps = |other| other != id && stays(other) && !self.has_halted(config.chain, other);
            !config.serving().any(keeps)
        };
        let goes_on =
            |config: &ChainConfig| config.serving().any(|other| stays(other) && self.is_heir(config, id, other));
        let goes_on = || configs.iter().filter(is_serving).all(goes_on).then_some(Farewell::GoesOn);
        let is_taken_over = |config: &ChainConfig| {
            config.syncing().is_some_and(stays) || self.successors(configs, config).next().is_some()
        };
        let is_last_voter = voters.iter().eq([&id]);
        let last: Vec<_> = configs.iter().filter(is_serving).filter(is_last).collect();
        if last.is_empty() && !is_last_voter {
            return goes_on();
        }
        let is_taken_over = !last.is_empty() && last.iter().all(|config| is_taken_over(config));
        // The disk of a node that will return keeps its chains: the node need not wait for a possible successor.
        let is_awaited = || !self.returns(id) && self.may_come_back(configs, voters, id);
        match (is_taken_over || is_awaited(), last.is_empty()) {
            (true, _) => Some(Farewell::HandsOver),
            (false, true) => goes_on(),
            (false, false) => Some(Farewell::Ends),
        }
    }

    /// Whether a node other than `id` may be available soon: it renewed in this term and stays or will return; or it
    /// still has a place. At the start of a term the answer is yes.
    pub(super) fn may_come_back(&self, configs: &Configs, voters: &BTreeSet<MemberId>, id: MemberId) -> bool {
        let has_newer = |id: MemberId| self.nodes.keys().any(|other| other.node == id.node && *other > id);
        let may_come =
            |seen: &KnownNode| !seen.leaver.said.is_for_good() && self.now - seen.heard < self.settings.forget;
        let known = configs.nodes().map(|founder| founder.id).chain(self.nodes.keys().copied());
        let mut others = known.filter(|&other| other.node != id.node && !has_newer(other));
        let has_place = |other| configs.names(other) || voters.contains(&other);
        let may = |other| self.nodes.get(&other).map_or_else(|| has_place(other), may_come);
        self.now - self.since < self.settings.suspect || others.any(may)
    }
}
