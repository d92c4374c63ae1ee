//! The lease client of a node: it chooses when to ask which nodes for a lease, and processes the answers. Sans-IO.
//!
//! A lease starts when its renewal is *sent*, by this node's own clock (docs/DESIGN.md §6): network delays only shorten
//! it.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use super::{
    NodeInfo,
    log::{Configs, LogIndex},
    message::{Leave, LeaveStage, Promotion, Renewal, Renewed},
};
use crate::{MemberId, NodeId, Timestamp};

/// Once this many renewals are unanswered, the next one goes to another node too: the leader may be dead or slow.
const UNANSWERED_RENEWALS: u32 = 2;

/// The number of most recent renewals whose answers are accepted.
const MAX_REMEMBERED_RENEWALS: usize = 64;

/// The effect of an answer to a renewal on this node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct RenewalOutcome {
    /// The new end of this node's lease, if it is later than before.
    pub lease: Option<Timestamp>,
    /// When the renewal for the lease was sent.
    pub asked: Timestamp,
    /// The configurations, if newer than the known ones.
    pub configs: Option<Arc<Configs>>,
    /// The leaving node is no longer needed by the log.
    pub released: bool,
    /// The leader agrees that this node leaves: first its chains must stop using leases, then call
    /// [`LeaseClient::resign`].
    pub resigns: bool,
    /// This node can no longer be removed: it serves again once it gets a lease, and its request to leave stays
    /// pending.
    pub serves_again: bool,
}

#[derive(Debug)]
#[cfg_attr(feature = "mutants", derive(Clone))]
pub(crate) struct LeaseClient {
    me: NodeInfo,
    configs: Arc<Configs>,
    /// The last log entry that is in force at all chains of this node.
    acted: LogIndex,
    leader: Option<MemberId>,
    /// The incarnations that were met, each node's latest: candidates to ask.
    met: BTreeMap<NodeId, MemberId>,
    /// Renewals since the leader's last answer.
    silent: u32,
    /// The last node that was asked in addition to the leader.
    probed: Option<MemberId>,
    due: VecDeque<MemberId>,
    /// Nodes to be asked once, in addition, from `asks_at` on.
    asks: VecDeque<MemberId>,
    asks_at: Timestamp,
    sent_at: Timestamp,
    number: u64,
    /// The node that answered last, and the highest number that it answered; numbers are meaningless to other nodes.
    answered: Option<(MemberId, u64)>,
    sent: BTreeMap<u64, Timestamp>,
    next_at: Timestamp,
    until: Timestamp,
    leave: Leave,
    promotions: BTreeSet<Promotion>,
}

impl LeaseClient {
    pub(crate) fn new(me: NodeInfo, configs: Arc<Configs>) -> Self {
        Self {
            me,
            acted: configs.applied(),
            configs,
            leader: None,
            met: BTreeMap::new(),
            silent: 0,
            probed: None,
            due: VecDeque::new(),
            asks: VecDeque::new(),
            asks_at: Timestamp::ZERO,
            sent_at: Timestamp::ZERO,
            number: 0,
            answered: None,
            sent: BTreeMap::new(),
            next_at: Timestamp::ZERO,
            until: Timestamp::ZERO,
            leave: Leave::default(),
            promotions: BTreeSet::new(),
        }
    }

    pub(crate) fn configs(&self) -> &Arc<Configs> {
        &self.configs
    }

    pub(crate) fn next_tick(&self) -> Timestamp {
        if self.due.is_empty() { self.next_at } else { self.sent_at }
    }

    pub(crate) fn ask_at(&self) -> Option<Timestamp> {
        (!self.asks.is_empty()).then_some(self.asks_at)
    }

    /// Accepts configurations from any node, since an entry that is applied anywhere is decided. Returns whether they
    /// are newer.
    pub(crate) fn on_configs(&mut self, configs: &Arc<Configs>) -> bool {
        let news = configs.applied() > self.configs.applied();
        if news {
            self.configs = configs.clone();
            let present = |wish: &Promotion| configs.get(wish.chain).is_some_and(|config| config.epoch == wish.epoch);
            self.promotions.retain(present);
        }
        news
    }

    /// The log up to `applied` is in force at all chains of this node: they refuse every member that it removes.
    pub(crate) fn acts_by(&mut self, now: Timestamp, applied: LogIndex) {
        if applied > self.acted {
            self.acted = applied;
            self.next_at = now;
        }
    }

    pub(crate) fn moves(&mut self, addrs: Vec<SocketAddr>) {
        self.me.addrs = addrs;
    }

    pub(crate) fn meets(&mut self, id: MemberId) {
        self.met.insert(id.node, id);
    }

    /// The log's group names `leader`. A new leader is asked soon: the lease from the old one has been running through
    /// an election.
    pub(crate) fn leads(&mut self, now: Timestamp, leader: MemberId) {
        if self.leader != Some(leader) {
            self.leader = Some(leader);
            self.silent = 0;
            self.next_at = self.next_at.min(self.soon(now));
        }
    }

    /// The interval of renewals, from the cluster's lease; this node's own start options are ignored (trap 63).
    fn renew_every(&self) -> Duration {
        self.configs.timing().renew()
    }

    /// The earliest time for an unscheduled renewal.
    fn soon(&self, now: Timestamp) -> Timestamp {
        now.max(self.sent_at + self.renew_every() / 4)
    }

    /// A chain's tail on this node requests a promotion.
    pub(crate) fn promote(&mut self, now: Timestamp, wish: Promotion) {
        if self.promotions.insert(wish) {
            self.next_at = now;
        }
    }

    /// Queues one renewal to each of these nodes, in addition to the periodic ones.
    pub(crate) fn ask(&mut self, now: Timestamp, nodes: impl IntoIterator<Item = MemberId>) {
        for id in nodes {
            if id != self.me.id && !self.asks.contains(&id) {
                self.asks.push_back(id);
            }
        }
        self.asks_at = now;
    }

    /// The next of the nodes to be asked once.
    pub(crate) fn next_ask(&mut self, now: Timestamp) -> Option<(MemberId, Renewal)> {
        let to = self.asks.pop_front()?;
        Some((to, self.renewal(now, to)))
    }

    /// When renewal `number` was sent; `None`: its answer is no longer accepted.
    pub(crate) fn sent(&self, number: u64) -> Option<Timestamp> {
        self.sent.get(&number).copied()
    }

    /// Makes the next renewal due now, because another node is waiting for it.
    pub(crate) fn hurry(&mut self, now: Timestamp) {
        self.next_at = now;
    }

    pub(crate) fn leaves(&self) -> Leave {
        self.leave
    }

    /// Requests to leave, with a renewal that is due now. The node keeps serving until a leader agrees. `returns`: the
    /// node will return, and stays a node and a voter; an earlier request isn't changed.
    pub(crate) fn leave(&mut self, now: Timestamp, returns: bool) {
        if !self.leave.is_asked() {
            (self.leave.stage, self.leave.returns) = (LeaveStage::Asks, returns);
            self.next_at = now;
        }
    }

    /// Resigns, with a renewal that is due now. The leader has agreed, and this node's chains no longer use leases.
    pub(crate) fn resign(&mut self, now: Timestamp) {
        if self.leave.is_asked() {
            self.leave = self.leave.resigned();
            self.until = Timestamp::ZERO;
            self.next_at = now;
        }
    }

    /// Withdraws the request to leave, and a resignation.
    pub(crate) fn stay(&mut self, now: Timestamp) {
        if self.leave.is_asked() {
            self.take_back(now, self.leave.back(LeaveStage::Stays));
        }
    }

    /// Records `leave`, ends the lease, and makes the answers to all earlier renewals invalid. The leader no longer
    /// waits for a lease that was requested before now: it may remove this node because of the withdrawn resignation
    /// (trap 62).
    fn take_back(&mut self, now: Timestamp, leave: Leave) {
        self.leave = leave;
        self.sent.clear();
        self.until = Timestamp::ZERO;
        self.next_at = now;
    }

    /// The next due renewal and its receiver. Call it until it returns `None`.
    pub(crate) fn renew(&mut self, now: Timestamp) -> Option<(MemberId, Renewal)> {
        if self.due.is_empty() && now >= self.next_at {
            self.next_at = now + self.renew_every();
            self.sent_at = now;
            self.choose();
        }
        let to = self.due.pop_front()?;
        Some((to, self.renewal(now, to)))
    }

    fn renewal(&mut self, now: Timestamp, to: MemberId) -> Renewal {
        self.number += 1;
        self.sent.insert(self.number, now);
        while self.sent.len() > MAX_REMEMBERED_RENEWALS {
            self.sent.pop_first();
        }
        let answered = self.answered.filter(|&(by, _)| by == to).map_or(0, |(_, number)| number);
        Renewal {
            number: self.number,
            answered,
            me: self.me.clone(),
            applied: self.acted,
            leave: self.leave,
            promotions: self.promotions.iter().copied().collect(),
            reports: Vec::new(),
            holds: Vec::new(),
            position: None,
            loads: false,
        }
    }

    /// Chooses the receivers of the next renewal: the leader and, if the leader is slow or unknown, one other node,
    /// each in turn.
    ///
    /// A silent leader is asked indefinitely. If it is alive, only these renewals show it that this node is too;
    /// without them it would remove this node.
    fn choose(&mut self) {
        self.silent = self.silent.saturating_add(1);
        self.due.extend(self.leader);
        if self.leader.is_none() || self.silent > UNANSWERED_RENEWALS {
            self.probed = self.next_probe();
            self.due.extend(self.probed.filter(|&id| Some(id) != self.leader));
        }
    }

    fn next_probe(&self) -> Option<MemberId> {
        let known = self.configs.nodes().map(|founder| founder.id);
        let known = known.filter(|id| !self.met.contains_key(&id.node));
        let all: BTreeSet<_> = known.chain(self.met.values().copied()).chain([self.me.id]).collect();
        let next = all.iter().find(|&&id| self.probed.is_none_or(|last| id > last));
        next.or_else(|| all.first()).copied()
    }

    pub(crate) fn answered(&mut self, now: Timestamp, from: MemberId, renewed: Renewed) -> RenewalOutcome {
        let Some(&sent) = self.sent.get(&renewed.number) else { return RenewalOutcome::default() };
        self.follow_leader(now, from, renewed.leader);
        let is_newer = self
            .answered
            .is_none_or(|(by, number)| if by == from { number < renewed.number } else { self.leader != Some(by) });
        if is_newer {
            self.answered = Some((from, renewed.number));
        }
        let mut learned =
            RenewalOutcome { released: renewed.released && self.leave.is_asked(), ..RenewalOutcome::default() };
        if let Some(configs) = renewed.configs {
            let configs = Arc::<Configs>::from(configs);
            if self.on_configs(&configs) {
                learned.configs = Some(configs);
            }
        }
        match renewed.leave {
            Some(next) if self.leave.stage == LeaveStage::Asks && next == self.leave.resigned() => {
                learned.resigns = true
            }
            Some(next) if self.leave.has_resigned() && next == self.leave.back(LeaveStage::Asks) => {
                self.take_back(now, next);
                learned.serves_again = true;
            }
            _ => {}
        }
        if let Some(lease) = renewed.lease
            && !self.leave.has_resigned()
            && !learned.resigns
            && !learned.serves_again
            && sent + lease > self.until
        {
            self.until = sent + lease;
            learned.lease = Some(self.until);
            learned.asked = sent;
        }
        learned
    }

    /// Follows the leader that an answer names.
    fn follow_leader(&mut self, now: Timestamp, from: MemberId, leader: Option<MemberId>) {
        let is_led = self.leader.is_some_and(|leader| leader != from) && self.silent <= 1;
        match leader {
            Some(leader) if leader == from => (self.leader, self.silent) = (Some(from), 0),
            // While the leader answers, another node's redirect may be older than the leader's term.
            Some(_) if is_led => {}
            // Wait before following a redirect: two nodes may redirect to each other.
            Some(leader) if self.leader != Some(leader) => {
                (self.leader, self.silent) = (Some(leader), 0);
                self.next_at = self.next_at.min(self.soon(now));
            }
            None if self.leader == Some(from) => {
                self.leader = None;
                self.next_at = self.next_at.min(self.soon(now));
            }
            _ => {}
        }
    }
}

#[cfg(feature = "mutants")]
impl LeaseClient {
    /// Test-only: writes every field that affects behaviour, without the content of the log's entries. Two lease
    /// clients with equal output and the same log behave identically.
    pub(crate) fn describe(&self, out: &mut dyn std::fmt::Write) -> std::fmt::Result {
        // Destructured, so that a new field doesn't compile until it is handled here.
        let Self {
            me,
            configs,
            acted,
            leader,
            met,
            silent,
            probed,
            due,
            asks,
            asks_at: _,
            sent_at,
            number,
            answered,
            sent,
            next_at,
            until,
            leave,
            promotions,
        } = self;
        write!(out, "{:?}", (me.id, configs.applied(), acted, leader, met, silent, probed, due, sent_at))?;
        write!(out, "{:?}", (number, answered, sent, next_at, until, leave, promotions, asks))
    }
}

#[cfg(test)]
mod tests;
