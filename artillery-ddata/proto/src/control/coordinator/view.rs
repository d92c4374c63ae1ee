//! Which nodes are alive, receive this leader's answers, and stay: the leader's knowledge at the time of a decision.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Deref,
    time::Duration,
};

use super::{
    cluster::Cluster,
    known_node::{KnownNode, LastReport},
};
use crate::{ChainConfig, ChainId, MemberId, Timestamp, control::message::Renewal, guards::Guards};

/// The nodes that have renewed in this term, and the members to be removed.
#[derive(Clone, Default, Debug)]
pub(super) struct Nodes {
    /// When the observation began: with the term, or after a pause of this node.
    since: Timestamp,
    nodes: BTreeMap<MemberId, KnownNode>,
    /// Per node: when the latest message of the log that it has answered was sent.
    answered: BTreeMap<MemberId, Timestamp>,
    /// Members to be removed, which get no lease, each with the last round that began before its fence.
    fenced: BTreeMap<MemberId, u64>,
    /// The newest round in which a quorum has confirmed that this node leads; 0: none in this term.
    confirmed: u64,
}

impl Nodes {
    pub(super) fn new(since: Timestamp) -> Self {
        Self { since, ..Self::default() }
    }

    /// During a pause this node received nothing, and messages that arrive after it may be as old as the pause. So the
    /// leader restarts its observation, as if its term had just begun (trap 42).
    pub(super) fn wake(&mut self, now: Timestamp) {
        self.since = now;
        self.nodes.values_mut().for_each(|seen| seen.wake(now));
    }

    pub(super) fn on_renewal(&mut self, now: Timestamp, renewal: Renewal, guards: Guards) {
        let seen = self.nodes.entry(renewal.me.id).or_insert_with(|| KnownNode::new(renewal.me.clone(), now));
        seen.on_renewal(now, renewal, guards);
    }

    pub(super) fn get_mut(&mut self, id: MemberId) -> Option<&mut KnownNode> {
        self.nodes.get_mut(&id)
    }

    /// A round has ended. `answered`: per node, when the latest message of the log that it has answered was sent.
    pub(super) fn on_round(&mut self, round: u64, leads: bool, answered: BTreeMap<MemberId, Timestamp>) {
        for (id, sent) in answered {
            let latest = self.answered.entry(id).or_insert(sent);
            *latest = sent.max(*latest);
        }
        if leads {
            self.confirmed = round;
        }
    }

    /// Fences the members that should be removed, and ends the fences of others unless `keeps_all`. `round`: the last
    /// round that has begun.
    pub(super) fn fence(&mut self, gone: BTreeSet<MemberId>, keeps_all: bool, round: u64) {
        self.fenced.retain(|id, _| keeps_all || gone.contains(id));
        for id in gone {
            self.fenced.entry(id).or_insert(round);
        }
    }

    pub(super) fn since(&self) -> Timestamp {
        self.since
    }

    pub(super) fn get(&self, id: MemberId) -> Option<&KnownNode> {
        self.nodes.get(&id)
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (MemberId, &KnownNode)> {
        self.nodes.iter().map(|(&id, seen)| (id, seen))
    }

    /// The last round that began before the member's fence; `None`: it isn't fenced.
    pub(super) fn fence_of(&self, id: MemberId) -> Option<u64> {
        self.fenced.get(&id).copied()
    }

    pub(super) fn confirmed(&self) -> u64 {
        self.confirmed
    }
}

/// The leader's knowledge at the time of a decision.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    pub(super) now: Timestamp,
    cluster: &'a Cluster,
    nodes: &'a Nodes,
}

impl Deref for View<'_> {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        self.cluster
    }
}

impl<'a> View<'a> {
    pub(super) fn new(now: Timestamp, cluster: &'a Cluster, nodes: &'a Nodes) -> Self {
        Self { now, cluster, nodes }
    }

    pub(super) fn nodes(&self) -> &'a Nodes {
        self.nodes
    }

    pub(super) fn node(&self, id: MemberId) -> Option<&'a KnownNode> {
        self.nodes.get(id)
    }

    /// How long this leader has observed the nodes.
    pub(super) fn age(&self) -> Duration {
        self.now - self.nodes.since
    }

    /// How long this leader has observed the nodes without a renewal of exactly this incarnation.
    pub(super) fn silence(&self, id: MemberId) -> Duration {
        self.now - self.node(id).map_or(Timestamp::ZERO, |seen| seen.heard).max(self.nodes.since)
    }

    /// Whether no renewal of the node was received for too long, or it has resigned. The leader itself is treated as
    /// gone only if it has resigned.
    pub(super) fn is_gone(&self, id: MemberId) -> bool {
        self.has_resigned(id) || (id != self.me() && self.silence(id) >= self.settings().suspect)
    }

    pub(super) fn is_there(&self, id: MemberId) -> bool {
        self.node(id).is_some() && self.stays(id)
    }

    pub(super) fn stays(&self, id: MemberId) -> bool {
        !self.is_gone(id) && !self.asks_to_leave(id)
    }

    pub(super) fn asks_to_leave(&self, id: MemberId) -> bool {
        self.node(id).is_some_and(|seen| seen.leaver.is_asked())
    }

    pub(super) fn has_resigned(&self, id: MemberId) -> bool {
        self.node(id).is_some_and(|seen| seen.leaver.has_resigned())
    }

    /// Whether the node leaves and will return.
    pub(super) fn returns(&self, id: MemberId) -> bool {
        self.node(id).is_some_and(|seen| seen.leaver.returns())
    }

    /// Whether the node isn't gone, and is this leader or proven to have been alive within the suspicion time.
    pub(super) fn lives(&self, id: MemberId) -> bool {
        self.lived_within(id, self.settings().suspect)
    }

    /// Like `lives`, within twice the suspicion time, for decisions in which silence alone removes no member: the
    /// answers of a distant member take longer.
    pub(super) fn lived(&self, id: MemberId) -> bool {
        self.lived_within(id, self.settings().suspect * 2)
    }

    fn lived_within(&self, id: MemberId, time: Duration) -> bool {
        let proven = |seen: &KnownNode| self.now - seen.proven < time || allows!(self.guards(), BelieveOldMessages);
        !self.is_gone(id) && (id == self.me() || self.node(id).is_some_and(proven))
    }

    /// Whether the node has recently shown an answer of this leader.
    pub(super) fn hears(&self, id: MemberId) -> bool {
        let shows = |seen: &KnownNode| seen.proven > Timestamp::ZERO && self.now - seen.proven < self.settings().slow;
        id == self.me() || self.node(id).is_some_and(shows) || allows!(self.guards(), TakeDeaf)
    }

    /// Whether the node is so new that it may still show its first answer.
    pub(super) fn is_new(&self, id: MemberId) -> bool {
        let new = |seen: &KnownNode| seen.proven == Timestamp::ZERO && self.now - seen.first < self.settings().slow;
        !self.hears(id) && self.node(id).is_some_and(new)
    }

    /// The last report of a member that isn't gone.
    pub(super) fn told(&self, config: &ChainConfig, id: MemberId) -> Option<&'a LastReport> {
        self.node(id).filter(|_| !self.is_gone(id)).and_then(|seen| seen.told.get(&config.chain))
    }

    pub(super) fn has_halted(&self, chain: ChainId, id: MemberId) -> bool {
        let told = self.node(id).and_then(|seen| seen.told.get(&chain));
        told.is_some_and(|told| told.report.halted) && !allows!(self.guards(), KeepHalted)
    }

    /// Whether the node is alive and stays, receives this leader's answers, has loaded its directory, and hasn't
    /// permanently stopped serving the chain.
    pub(super) fn may_take_part(&self, chain: ChainId, id: MemberId) -> bool {
        let loads = self.node(id).is_some_and(|seen| seen.loads);
        self.is_there(id) && self.hears(id) && !loads && !self.has_halted(chain, id)
    }

    /// Whether the node is alive and stays, is in the log, and hasn't permanently stopped serving the chain.
    pub(super) fn can_open(&self, chain: ChainId, id: MemberId) -> bool {
        self.is_there(id) && self.configs().node(id).is_some() && !self.has_halted(chain, id)
    }

    /// The later incarnations of the store of `id`.
    pub(super) fn later_lives(&self, id: MemberId) -> impl DoubleEndedIterator<Item = (MemberId, &'a KnownNode)> {
        self.nodes.iter().filter(move |(life, _)| life.shares_store(id) && *life > id)
    }

    /// Whether every lease that the member may hold has certainly expired (rule 5.2): those from this leader, and those
    /// from earlier leaders, which it requested before this term began. A member that has resigned uses none.
    pub(super) fn leases_expired(&self, id: MemberId) -> bool {
        if allows!(self.guards(), RemoveAtOnce) {
            return true;
        }
        let others_are_out =
            self.age() >= self.settings().lease_and_drift() || allows!(self.guards(), NewLeaderDoesNotWait);
        self.has_resigned(id) || (others_are_out && self.node(id).is_none_or(|seen| self.now >= seen.out))
    }

    /// Whether a quorum has confirmed this node in a round that began after the member's fence, and this leader isn't
    /// the one that can't be reached; or the member has resigned. Otherwise a leader that receives nothing, but whose
    /// proposals arrive, would remove all members (trap 51).
    pub(super) fn leadership_confirmed(&self, id: MemberId) -> bool {
        let heard = self.nodes.fence_of(id).is_some_and(|before| self.nodes.confirmed() > before);
        // With `GrantUnconfirmed` no round runs, so none ever confirms.
        let is_confirmed = heard || allows!(self.guards(), GrantUnconfirmed);
        let unheard = allows!(self.guards(), RemoveUnheard);
        (is_confirmed && self.is_silent_by_itself(id)) || unheard || self.has_resigned(id)
    }

    /// Whether the node has answered a message of the log that was sent within the suspicion time.
    fn answers(&self, id: MemberId) -> bool {
        self.nodes.answered.get(&id).is_some_and(|&sent| self.now - sent < self.settings().suspect)
    }

    /// Whether the node, in any incarnation of its store, has answered a message of the log that was sent within
    /// `patience`. A voter that this leader can't reach would delay each entry that needs it for a majority.
    pub(super) fn answers_lately(&self, id: MemberId, patience: Duration) -> bool {
        let mut sent = self.nodes.answered.iter().filter(|(other, _)| other.shares_store(id));
        sent.any(|(_, &sent)| self.now - sent < patience)
    }

    /// Whether the node has answered no message of the log for two suspicion times, while others answer.
    pub(super) fn is_unreached(&self, id: MemberId) -> bool {
        let (answers, since) = (&self.nodes.answered, self.nodes.since);
        let sent = answers.get(&id).map_or(since, |&sent| sent.max(since));
        let one_answers = || answers.keys().any(|&other| self.answers(other));
        let is_long = self.now - sent >= self.settings().suspect * 2;
        id != self.me() && is_long && one_answers() && !allows!(self.guards(), TrustOneWay)
    }

    /// Whether no renewal of the node was received for the suspicion time. A node that has resigned may still renew.
    fn is_quiet(&self, id: MemberId) -> bool {
        id != self.me() && self.now - self.last_heard(id) >= self.settings().suspect
    }

    /// When the last renewal of the node, in any incarnation of its store, was received, or when the observation began,
    /// if that is later.
    pub(super) fn last_heard(&self, id: MemberId) -> Timestamp {
        let lives = self.nodes.iter().filter(|(life, _)| life.shares_store(id));
        lives.map(|(_, node)| node.heard).max().unwrap_or_default().max(self.nodes.since)
    }

    /// Whether this leader receives renewals from a majority of the voters.
    pub(super) fn hears_majority(&self) -> bool {
        self.voters().is_empty() || self.is_majority(|id| !self.is_quiet(id))
    }

    /// Whether the silence of a member is its own fault. If the member answers the log, its path to this leader is
    /// broken: either at this leader, which then receives renewals from no other node at all, or on that path alone. In
    /// the second case, or if no other node could lead, the member gets no lease and must be removed, but only after it
    /// was silent for `slow`.
    fn is_silent_by_itself(&self, id: MemberId) -> bool {
        if allows!(self.guards(), TrustOneWay) {
            return true;
        }
        let hears_another = || self.nodes.iter().any(|(other, _)| other != self.me() && !self.is_quiet(other));
        // If there is only one voter, no other node could lead.
        let leads_alone = self.voters().len() < 2;
        let for_long = || self.now - self.last_heard(id) >= self.settings().slow && (leads_alone || hears_another());
        self.hears_majority() && (!self.is_quiet(id) || !self.answers(id) || for_long())
    }
}
