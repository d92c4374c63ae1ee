//! The leader's next change of the configuration, if any.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    known_node::KnownNode,
    reason::{ChangeReason, Why},
    view::View,
};
use crate::{
    ChainConfig, ChainId, ChainMember, MemberId, NodeId, Role,
    control::{
        NodeInfo,
        log::{ChainChange, ConfigChange, Configs},
        message::Promotion,
        placement::rank,
    },
};

impl View<'_> {
    /// Changes of chains have priority, since writes may wait for them.
    pub(super) fn change(&self, configs: &Configs) -> Option<(ConfigChange, Vec<ChangeReason>)> {
        if configs.is_over() {
            return None;
        }
        if let Some(giving_way) = self.giving_way(configs) {
            return Some(giving_way);
        }
        if let Some(ordered) = self.accepted_loss(configs) {
            return Some(ordered);
        }
        let chains: Vec<_> = configs.iter().filter_map(|config| self.of_chain(configs, config)).collect();
        if !chains.is_empty() {
            let why = chains.iter().flat_map(|change| self.reasons(configs, &change.config)).collect();
            return Some((ConfigChange::Chains(chains), why));
        }
        let (add, remove) = (self.incarnations_to_add(configs), self.incarnations_to_remove(configs));
        (!add.is_empty() || !remove.is_empty()).then(|| (ConfigChange::Nodes { add, remove }, Vec::new()))
    }

    /// Whether no renewal of the node was received for too long, or it has resigned.
    pub(super) fn is_gone(&self, id: MemberId) -> bool {
        if id == self.me {
            // This node is alive: it decides.
            return self.has_resigned(id);
        }
        match self.nodes.get(&id) {
            Some(seen) => seen.is_gone(self.now, self.since, self.settings),
            None => self.now - self.since >= self.settings.suspect,
        }
    }

    pub(super) fn is_there(&self, id: MemberId) -> bool {
        self.nodes.contains_key(&id) && !self.is_gone(id) && !self.asks_to_leave(id)
    }

    /// Whether the node is proven to have been alive within the suspicion time.
    fn lives(&self, id: MemberId) -> bool {
        self.lived_within(id, self.settings.suspect)
    }

    /// Like `lives`, within twice the suspicion time, for decisions in which silence alone removes no member: the
    /// answers of a distant member take longer.
    pub(super) fn lived(&self, id: MemberId) -> bool {
        self.lived_within(id, self.settings.suspect * 2)
    }

    fn lived_within(&self, id: MemberId, time: Duration) -> bool {
        let proven =
            |seen: &KnownNode| self.now - seen.proven < time || allows!(self.settings.guards, BelieveOldMessages);
        !self.is_gone(id) && (id == self.me || self.nodes.get(&id).is_some_and(proven))
    }

    /// Whether every lease that the member may hold has certainly expired (rule 5.2): those from this leader, and those
    /// from earlier leaders, which it requested before this term began.
    pub(super) fn leases_expired(&self, id: MemberId) -> bool {
        if allows!(self.settings.guards, RemoveAtOnce) {
            return true;
        }
        let seen = self.nodes.get(&id);
        let others = self.since + self.settings.lease_and_drift();
        let others_are_out = self.now >= others || allows!(self.settings.guards, NewLeaderDoesNotWait);
        self.has_resigned(id) || (others_are_out && seen.is_none_or(|seen| self.now >= seen.out))
    }

    /// Whether a quorum has confirmed this node in a round that began after the member's fence, and this leader isn't
    /// the one that can't be reached; or the member has resigned. Otherwise a leader that receives nothing, but whose
    /// proposals arrive, would remove all members (trap 51).
    pub(super) fn leadership_confirmed(&self, id: MemberId) -> bool {
        let heard = self.fenced.get(&id).is_some_and(|&before| self.confirmed > before);
        // With `GrantUnconfirmed` no round runs, so none ever confirms.
        let is_confirmed = heard || allows!(self.settings.guards, GrantUnconfirmed);
        let unheard = allows!(self.settings.guards, RemoveUnheard);
        (is_confirmed && self.is_silent_by_itself(id)) || unheard || self.has_resigned(id)
    }

    fn of_chain(&self, configs: &Configs, config: &ChainConfig) -> Option<ChainChange> {
        if let Some(members) = self.reopened(configs, config) {
            return Some(ChainChange { replaces: config.epoch, config: ChainConfig { members, ..config.clone() } });
        }
        let mut members = self.that_stay(config);
        let stays = |id| !self.is_gone(id) && !self.asks_to_leave(id);
        let syncing = config.syncing().filter(|&id| stays(id) && self.is_blamed(config, id).is_none());
        match syncing {
            Some(id) => {
                let promoted = self.asks_for(config, id) && members.len() == config.serving().count();
                let role = if promoted { Role::Serving } else { Role::Syncing };
                members.push(ChainMember { id, role });
            }
            None if self.wants_joiner(&members) => {
                let tail = members.last().map(|member| member.id);
                members.extend(self.spare(configs, config, tail).map(|id| ChainMember { id, role: Role::Syncing }));
            }
            None => {}
        }
        if let Some(wish) = self.reorder.filter(|wish| wish.is_for(config) && wish.closed && members == config.members)
        {
            members = wish.members(config);
        }
        (members != config.members)
            .then(|| ChainChange { replaces: config.epoch, config: ChainConfig { members, ..config.clone() } })
    }

    /// Whether a chain with these members needs a joiner: they are too few, or all of them leave and must hand over
    /// first.
    fn wants_joiner(&self, members: &[ChainMember]) -> bool {
        let hands_over =
            || members.iter().all(|member| self.asks_to_leave(member.id)) && !allows!(self.settings.guards, KeepLast);
        members.len() < self.settings.replicas || hands_over()
    }

    /// The serving members that can't be removed now. At least one stays.
    fn that_stay(&self, config: &ChainConfig) -> Vec<ChainMember> {
        let serving = || config.members.iter().filter(|member| member.role == Role::Serving).copied();
        let goes = |id| self.is_gone(id) || self.is_blamed(config, id).is_some();
        let lives = |id| self.lives(id) || (self.lived(id) && !serving().any(|member| self.is_gone(member.id)));
        let serves = |id| !self.has_halted(config.chain, id);
        if !serving().any(|member| lives(member.id) && !goes(member.id) && serves(member.id)) {
            return serving().collect();
        }
        let has_heir = |id| !self.has_resigned(id) || self.has_heir(config, id);
        let may_go = |id| self.leases_expired(id) && self.leadership_confirmed(id) && has_heir(id);
        serving().filter(|member| !(goes(member.id) && may_go(member.id))).collect()
    }

    /// Whether the tail requests, in the current epoch, the promotion of the joiner `member` (rule 5.6).
    fn asks_for(&self, config: &ChainConfig, member: MemberId) -> bool {
        let Some(seen) = config.tail().and_then(|tail| self.nodes.get(&tail)) else { return false };
        let counts = |wish: &Promotion| {
            let is_of_now = wish.epoch == config.epoch || allows!(self.settings.guards, PromoteInAnyEpoch);
            wish.chain == config.chain && wish.member == member && is_of_now
        };
        seen.promotions.iter().any(counts)
    }

    fn reasons(&self, configs: &Configs, config: &ChainConfig) -> Vec<ChangeReason> {
        let Some(before) = configs.get(config.chain) else { return Vec::new() };
        let chain = config.chain;
        let went = |id| match self.is_blamed(before, id) {
            Some(why) => why,
            None if self.has_resigned(id) => Why::Left,
            None => Why::Silent,
        };
        let gone = before.members.iter().filter(|member| config.role(member.id).is_none());
        let gone = gone.map(|member| ChangeReason { chain, member: member.id, why: went(member.id) });
        let came = config.members.iter().filter_map(|member| {
            let why = match (before.role(member.id), member.role) {
                (None, Role::Serving) => Why::Reopened,
                (None, _) => Why::Joins,
                (Some(Role::Syncing), Role::Serving) => Why::Promoted,
                _ => return None,
            };
            Some(ChangeReason { chain, member: member.id, why })
        });
        let mut reasons: Vec<_> = gone.chain(came).collect();
        if reasons.is_empty() {
            reasons.extend(config.head().map(|member| ChangeReason { chain, member, why: Why::Reordered }));
        }
        reasons
    }

    /// The node that should join next: by placement, the first living node that receives this leader's answers. A node
    /// that stalled a chain recently is last, and doesn't join while its quarantine forbids that it follows `tail`.
    pub(super) fn spare(&self, configs: &Configs, config: &ChainConfig, tail: Option<MemberId>) -> Option<MemberId> {
        let named: BTreeSet<NodeId> = config.members.iter().map(|member| member.id.node).collect();
        let free = configs.nodes().map(|founder| founder.id);
        let free = free.filter(|&id| !named.contains(&id.node) && self.may_take_part(config.chain, id));
        let free = free.filter(|id| self.outside.get(&id.node).is_none_or(|known| known.may_return(self.now, tail)));
        let mut ranked = rank(self.settings.cluster, config.chain, free);
        ranked.sort_by_key(|id| self.outside.contains_key(&id.node));
        ranked.into_iter().next()
    }

    /// Whether the node is alive, receives this leader's answers, and has a working store of the chain.
    pub(super) fn may_take_part(&self, chain: ChainId, id: MemberId) -> bool {
        let loads = self.nodes.get(&id).is_some_and(|node| node.loads);
        self.is_there(id) && self.hears(id) && !loads && !self.has_halted(chain, id)
    }

    /// Incarnations that are not in the log yet, or that have another address there. While the known incarnation of a
    /// node renews, another one must wait: two processes may claim to be the same node.
    fn incarnations_to_add(&self, configs: &Configs) -> Vec<NodeInfo> {
        let mut known: BTreeMap<NodeId, &NodeInfo> =
            configs.nodes().map(|founder| (founder.id.node, founder)).collect();
        let mut add = Vec::new();
        for (&id, seen) in self.nodes.iter().filter(|(id, _)| self.is_there(**id)) {
            let free = known.get(&id.node).is_none_or(|other| match other.id == id {
                true => **other != seen.founder,
                false => self.is_gone(other.id),
            });
            if free {
                known.insert(id.node, &seen.founder);
                add.push(seen.founder.clone());
            }
        }
        add
    }

    fn incarnations_to_remove(&self, configs: &Configs) -> Vec<MemberId> {
        let heard = |id| self.nodes.get(&id).map_or(self.since, |seen: &KnownNode| seen.heard.max(self.since));
        let all = configs.nodes().map(|founder| founder.id).filter(|&id| !configs.names(id));
        all.filter(|&id| self.now - heard(id) >= self.settings.forget).collect()
    }
}
