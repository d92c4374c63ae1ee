//! The control state of a node: it connects the configuration log, the lease, the coordinator and the node's chains. It
//! decides which orders each chain gets and when, which configuration the node reports as applied, and how the node
//! leaves. Sans-IO.
//!
//! The driver passes events to [`NodeMachine::handle`], executes the outputs ([`NodeMachine::poll_output`]), sends the
//! renewals ([`NodeMachine::poll_renewal`]), and returns at [`NodeMachine::next_tick`].

mod acting;
#[cfg(feature = "mutants")]
mod fork;
mod giving_way;
mod interface;
mod leaving;
mod ready;
mod standing;
mod succession;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::SocketAddr,
    sync::Arc,
};

pub use self::interface::{NodeEvent, NodeInput, NodeOutput, NodeState, Successor, Unready};
use self::{
    acting::{Acting, Kept},
    leaving::Leaving,
    succession::Company,
};
pub use crate::control::coordinator::{ChangeReason, CoordinatorSettings, LogWarning, ProposalFate, Why};
use crate::{
    ChainId, MemberId, NodeId, Timestamp,
    control::{
        Configs, HeardStores, NodeInfo, StorePosition, Term,
        coordinator::{self, Coordinator},
        lease_client::{LeaseClient, RenewalOutcome},
        log::LogIndex,
        message::{Close, Promotion, Renewal, Renewed, StoreHolding, Unsettled},
    },
    guards::Guards,
    replica::ChainProgress,
    runner::{ChainOrder, Lease, Word},
};

/// The maximum number of this node's renewals in flight.
const MAX_PENDING_RENEWALS: usize = 8;

/// A node's control state machine, excluding its chains.
#[derive(Debug)]
#[cfg_attr(feature = "mutants", derive(Clone))]
pub struct NodeMachine {
    me: MemberId,
    holder: LeaseClient,
    coordinator: Coordinator,
    voters: BTreeSet<MemberId>,
    leads: bool,
    /// The configurations that were sent to the chains, until all chains act by them.
    acting: Option<Acting>,
    /// The contents of this node's disk; `None`: it has no disk.
    kept: Option<Kept>,
    acted: Option<LogIndex>,
    met: BTreeMap<MemberId, Vec<SocketAddr>>,
    renewals: usize,
    /// The number of withdrawn resignations.
    stretch: u64,
    leaving: Leaving,
    /// When the coordinator's tick is due.
    tick: Option<Timestamp>,
    /// Chains that are stopped or not open, as of the newest renewal.
    closed: BTreeSet<ChainId>,
    was_ready: bool,
    company: Company,
    /// When this node ends because its cluster has given way to another one.
    ends_at: Option<Timestamp>,
    state: NodeState,
    outputs: VecDeque<NodeOutput>,
    guards: Guards,
}

impl NodeMachine {
    /// A node with a chain for each of `configs`, which the chains get as their first orders.
    pub fn new(me: NodeInfo, configs: Arc<Configs>, settings: CoordinatorSettings) -> Self {
        Self::begin(me, configs, settings, None)
    }

    /// A node with a disk, which already holds `configs`. `holds` is the disk's copy of each chain in which its store
    /// served; if it is `None`, the chains wait for [`NodeInput::Loaded`]. `heard` has the last known positions of
    /// other stores. Newer configurations must be on the disk ([`NodeOutput::Keep`]) before the chains get them.
    pub fn durable(
        me: NodeInfo,
        configs: Arc<Configs>,
        settings: CoordinatorSettings,
        holds: Option<Vec<StoreHolding>>,
        heard: HeardStores,
    ) -> Self {
        let kept = Kept {
            upto: configs.applied(),
            holds,
            keeping: None,
            position: None,
            heard,
            noted: Timestamp::ZERO,
            tell_at: Timestamp::ZERO,
        };
        Self::begin(me, configs, settings, Some(kept))
    }

    fn begin(me: NodeInfo, configs: Arc<Configs>, settings: CoordinatorSettings, kept: Option<Kept>) -> Self {
        let id = me.id;
        let mut node = Self {
            me: id,
            holder: LeaseClient::new(me, configs),
            coordinator: Coordinator::new(id, settings),
            voters: BTreeSet::new(),
            leads: false,
            acting: None,
            kept,
            acted: None,
            met: BTreeMap::new(),
            renewals: 0,
            stretch: 0,
            leaving: Leaving::default(),
            tick: None,
            closed: BTreeSet::new(),
            was_ready: false,
            company: Company::default(),
            ends_at: None,
            state: NodeState { unready: Some(Unready::default()), ..NodeState::default() },
            outputs: VecDeque::new(),
            guards: settings.guards,
        };
        node.see_whether_serves();
        node.act();
        node
    }

    /// Sets the position of this node's store, which renewals report.
    pub fn stands_at(&mut self, position: StorePosition) {
        if let Some(kept) = &mut self.kept {
            kept.position = Some(position);
        }
    }

    pub fn state(&self) -> &NodeState {
        &self.state
    }

    /// The newest configurations known to this node: its chains may not act by them yet.
    pub fn configs(&self) -> &Arc<Configs> {
        self.holder.configs()
    }

    /// The term in which this node is the leader, if it is.
    pub fn decides_in(&self) -> Option<Term> {
        self.coordinator.leads()
    }

    /// Whether a proposal of this node is in flight.
    pub fn proposes(&self) -> bool {
        self.coordinator.proposes()
    }

    /// Test-only: whether this leader has fenced a member, which will be removed.
    #[cfg(feature = "mutants")]
    pub fn fences(&self, id: MemberId) -> bool {
        self.coordinator.fences(id)
    }

    /// The nodes that this leader keeps in quarantine, except nodes that may join behind `tail`.
    pub fn kept_away(&self, now: Timestamp, tail: Option<MemberId>) -> BTreeSet<NodeId> {
        self.coordinator.kept_away(now, tail).collect()
    }

    /// Test-only: the highest watermark of the chain that nodes have reported to this leader. A store that ends below
    /// it can't reopen the chain.
    #[cfg(feature = "mutants")]
    pub fn highest_watermark(&self, chain: ChainId, now: Timestamp) -> Option<crate::Sequence> {
        self.coordinator.highest_watermark(chain, now)
    }

    /// Whether the membership knows `node`, in any incarnation.
    pub fn has_met(&self, node: NodeId) -> bool {
        self.met.keys().any(|id| id.node == node)
    }

    pub fn handle(&mut self, now: Timestamp, input: NodeInput) {
        match input {
            NodeInput::Log { leads, leader, configs, voters } => self.hear_of_log(now, leads, leader, configs, voters),
            NodeInput::Confirmed { round, leads, answered } => {
                let answered = answered.into_iter().map(|(id, sent)| (self.present(id), sent)).collect();
                self.decide(now, coordinator::CoordinatorInput::Confirmed { round, leads, answered });
            }
            NodeInput::Reached { by } => self.decide(now, coordinator::CoordinatorInput::Reached { by }),
            NodeInput::Appended { at, fate } => self.decide(now, coordinator::CoordinatorInput::Appended { at, fate }),
            NodeInput::VotersSet => self.decide(now, coordinator::CoordinatorInput::VotersSet),
            NodeInput::Renewal { from, renewal } => {
                if !self.is_of_a_true_store(now, from, renewal.position.as_deref()) {
                    self.outputs.push_back(NodeOutput::RolledBack { to: from, number: renewal.number });
                    return;
                }
                self.hear_company(now, from);
                // A node that gives way admits no new node, but other nodes of its own cluster may still learn that it
                // is alive.
                if !self.yields() || self.is_own(from) {
                    self.decide(now, coordinator::CoordinatorInput::Renewal { from, renewal });
                }
            }
            NodeInput::Renewed { from, renewed } => {
                if !self.was_asked(from) {
                    self.renewals = self.renewals.saturating_sub(1);
                }
                // A leader that has forgotten its promises can't grant a lease. It learns of this when it renews with
                // this node.
                if let Some(renewed) =
                    renewed.filter(|renewed| self.is_of_a_true_store(now, from, renewed.position.as_deref()))
                {
                    self.hear_company(now, from);
                    if let Some(sent) = self.holder.sent(renewed.number) {
                        self.hear_answer(from, sent, renewed.leader == Some(from));
                    }
                    self.answered(now, from, renewed);
                }
            }
            NodeInput::Word { chain, word } => self.word(now, chain, word),
            NodeInput::Met { id, addrs } => {
                self.met.retain(|met, _| met.node != id.node);
                self.met.insert(id, addrs);
                self.holder.meets(id);
            }
            NodeInput::Gone(id) => drop(self.met.remove(&id)),
            NodeInput::Moved(addrs) => self.holder.moves(addrs),
            NodeInput::Reorder { token, chain, order } => {
                self.decide(now, coordinator::CoordinatorInput::Reorder { token, chain, order });
            }
            NodeInput::AcceptLoss { token, chain } => {
                self.decide(now, coordinator::CoordinatorInput::AcceptLoss { token, chain });
            }
            NodeInput::GaveWay { by } => self.gave_way(now, by),
            NodeInput::Outranked { by } => self.decide(now, coordinator::CoordinatorInput::Outranked { by }),
            NodeInput::GiveUp { token } => self.decide(now, coordinator::CoordinatorInput::GiveUp { token }),
            NodeInput::Leave { until } => self.leave(now, until),
            NodeInput::Withdraw => self.withdraw(now),
            NodeInput::Succeeded { by } => self.succeeded(now, by),
            NodeInput::Parted { by } => self.parted(by),
            NodeInput::Kept => self.has_kept(),
            NodeInput::Loaded { holds } => self.loaded(holds),
            NodeInput::Tick => self.tick(now),
        }
        self.flush(now);
    }

    pub fn poll_output(&mut self) -> Option<NodeOutput> {
        self.outputs.pop_front()
    }

    /// When [`NodeInput::Tick`] is due; then [`poll_renewal`](Self::poll_renewal) may have a renewal.
    pub fn next_tick(&self) -> Option<Timestamp> {
        let renewal = self.may_renew().then(|| self.holder.next_tick());
        let asks = self.holder.ask_at().filter(|_| self.may_speak() && self.may_ask());
        [renewal, asks, self.tick, self.leaves_at(), self.company_at(), self.tells_at(), self.ends_at]
            .into_iter()
            .flatten()
            .min()
    }

    fn tick(&mut self, now: Timestamp) {
        if self.tick.take_if(|at| *at <= now).is_some() {
            self.decide(now, coordinator::CoordinatorInput::Tick);
        }
        self.look_at_leaving(now);
        self.look_for_company(now);
        self.tell_all(now);
        self.end_if_over(now);
    }

    /// Whether this node may send messages. It stays silent until its chains act by the first configurations, unless
    /// its directory is still being loaded: that may take long.
    fn may_speak(&self) -> bool {
        self.acted.is_some() || self.loads()
    }

    fn may_renew(&self) -> bool {
        self.may_speak() && self.renewals < MAX_PENDING_RENEWALS
    }

    /// The next due renewal: its receiver, the receiver's addresses, and the message. `progress` gives the progress of
    /// a chain of this node. The driver passes the answer, or that there is none ([`NodeInput::Renewed`]).
    pub fn poll_renewal(
        &mut self,
        now: Timestamp,
        progress: impl Fn(ChainId) -> Option<ChainProgress>,
    ) -> Option<(MemberId, Vec<SocketAddr>, Renewal)> {
        while self.may_renew()
            && let Some((to, mut renewal)) = self.holder.renew(now)
        {
            self.report(now, &mut renewal, &progress);
            if to == self.me {
                self.decide(now, coordinator::CoordinatorInput::Renewal { from: to, renewal });
                self.flush(now);
                continue;
            }
            self.renewals += 1;
            return Some((to, self.addrs(to), renewal));
        }
        if !self.may_speak() || !self.may_ask() {
            return None;
        }
        let (to, mut renewal) = self.holder.next_ask(now)?;
        self.report(now, &mut renewal, &progress);
        self.asks(to);
        Some((to, self.addrs(to), renewal))
    }

    fn report(&mut self, now: Timestamp, renewal: &mut Renewal, progress: impl Fn(ChainId) -> Option<ChainProgress>) {
        renewal.loads = self.loads();
        if !renewal.loads {
            let chains = self.holder.configs().iter().map(|config| config.chain);
            renewal.reports = chains.filter_map(|chain| progress(chain)?.report(chain, now)).collect();
            renewal.holds = self.holds(progress);
        }
        self.see_whether_holds_data(renewal);
        renewal.position = self.kept.as_ref().and_then(|kept| kept.position).map(Box::new);
        self.look_at_chains(&renewal.reports);
    }

    fn addrs(&self, of: MemberId) -> Vec<SocketAddr> {
        match (self.met.get(&of), self.holder.configs().node(of)) {
            (Some(addrs), _) => addrs.clone(),
            (None, Some(founder)) => founder.addrs.clone(),
            (None, None) => Vec::new(),
        }
    }

    fn decide(&mut self, now: Timestamp, input: coordinator::CoordinatorInput) {
        self.coordinator.handle(now, input);
    }

    fn hear_of_log(
        &mut self,
        now: Timestamp,
        leads: Option<Term>,
        leader: Option<MemberId>,
        configs: Arc<Configs>,
        voters: BTreeSet<MemberId>,
    ) {
        let voters: BTreeSet<_> = voters.into_iter().map(|voter| self.present(voter)).collect();
        if self.leads != leads.is_some() || self.voters != voters {
            self.follow_voters(now);
        }
        self.leads = leads.is_some();
        self.voters.clone_from(&voters);
        let leader = leader.map(|leader| self.present(leader));
        if let Some(leader) = leader {
            self.holder.leads(now, leader);
        }
        self.see_whether_left();
        let history = self.holder.configs().history();
        let news = self.holder.on_configs(&configs);
        if self.holder.configs().history() != history {
            self.begin_history();
        }
        self.see_whether_serves();
        self.decide(now, coordinator::CoordinatorInput::Log { leads, leader, configs, voters });
        if news {
            self.act();
        }
    }

    /// The newest known incarnation of the store of `id`: the log's group names stores, which outlive their
    /// incarnations.
    fn present(&self, id: MemberId) -> MemberId {
        let known = self.holder.configs().nodes().map(|node| node.id);
        let lives = self.met.keys().copied().chain(known).chain([self.me]);
        lives.filter(|life| life.shares_store(id)).max().unwrap_or(id)
    }

    fn word(&mut self, now: Timestamp, chain: ChainId, word: Word) {
        match word {
            Word::ActsBy(upto) => self.chain_acts(now, chain, upto),
            Word::Resigned => self.chain_resigned(now, chain),
            Word::Closed => self.holder.hurry(now),
            Word::Promote(wish) => self.promote(now, wish),
        }
    }

    fn promote(&mut self, now: Timestamp, wish: Promotion) {
        self.holder.promote(now, wish);
    }

    fn answered(&mut self, now: Timestamp, from: MemberId, renewed: Renewed) {
        let Renewed { leader, farewell, number, .. } = renewed;
        let lease = self.holder.configs().timing().lease;
        // An answer from before a pause of this node doesn't show the current state.
        let is_old = self.holder.sent(renewed.number).is_none_or(|sent| now - sent > lease);
        let settled = if is_old { Err(Unsettled::Unled) } else { renewed.settled };
        self.close(now, &renewed.close);
        let RenewalOutcome { lease, asked, configs, released, resigns, serves_again } =
            self.holder.answered(now, from, renewed);
        if let Some(until) = lease {
            self.state.lease = until;
            self.outputs.push_back(NodeOutput::Lease(Lease { until, asked, stretch: self.stretch }));
        }
        self.state.leader = leader.or(self.state.leader);
        self.state.answered |= leader.is_some();
        // Only the leader's own answers are evidence. Another node may still name a dead leader; a leader names itself
        // only after a quorum has confirmed it.
        if leader == Some(from) {
            self.state.heard = now;
        }
        if configs.is_some() {
            self.see_whether_serves();
            self.act();
        }
        // Only a confirmed leader's recent answer is valid: this node may have become a voter since.
        if leader == Some(from) && !is_old {
            self.hear_word(now, number, released, farewell);
        }
        if resigns {
            self.resign(now);
        }
        if serves_again {
            self.outputs.push_back(NodeOutput::Event(NodeEvent::ServesAgain));
            self.serve_again();
        }
        // Only the leader knows whether the cluster is settled. Its last answer expires after a lease.
        if leader == Some(from) {
            self.see_whether_ready(now, settled);
        } else if now - self.state.heard >= self.holder.configs().timing().lease {
            self.see_whether_ready(now, Err(Unsettled::Unled));
        }
    }

    /// Closes the heads of these chains for one lease. The leader repeats the order in each answer.
    fn close(&mut self, now: Timestamp, close: &[Close]) {
        if self.loads() {
            // No chain can execute an order yet.
            return;
        }
        let until = now + self.holder.configs().timing().lease;
        let orders =
            close.iter().map(|close| NodeOutput::Order(close.chain, ChainOrder::Close { epoch: close.epoch, until }));
        self.outputs.extend(orders);
    }

    /// Forwards the coordinator's outputs. Answers to this node itself are processed at once.
    fn flush(&mut self, now: Timestamp) {
        while let Some(output) = self.coordinator.poll_output() {
            let output = match output {
                coordinator::CoordinatorOutput::Answer { to, renewed } if to == self.me => {
                    // The answer of a confirmed leader to itself also shows that its cluster has not given way.
                    let confirmed = (renewed.leader == Some(to)).then(|| self.holder.sent(renewed.number)).flatten();
                    if let Some(sent) = confirmed {
                        self.hear_answer(to, sent, true);
                    }
                    self.answered(now, to, renewed);
                    continue;
                }
                coordinator::CoordinatorOutput::Answer { to, renewed } => {
                    let position = self.kept.as_ref().and_then(|kept| kept.position).map(Box::new);
                    NodeOutput::Answer { to, renewed: Renewed { position, ..renewed } }
                }
                coordinator::CoordinatorOutput::Confirm { round, term } => NodeOutput::Confirm { round, term },
                coordinator::CoordinatorOutput::Append { term, at, change, why } => {
                    NodeOutput::Append { term, at, change, why }
                }
                coordinator::CoordinatorOutput::SetVoters { term, voters } => NodeOutput::SetVoters { term, voters },
                coordinator::CoordinatorOutput::Resign { term } => NodeOutput::Resign { term },
                coordinator::CoordinatorOutput::Stand => NodeOutput::Stand,
                coordinator::CoordinatorOutput::Warn(warning) => NodeOutput::Warn(warning),
                coordinator::CoordinatorOutput::Reordered { token, result } => NodeOutput::Reordered { token, result },
                coordinator::CoordinatorOutput::Reopened { token, result } => NodeOutput::Reopened { token, result },
                coordinator::CoordinatorOutput::GivenUp { token, result } => NodeOutput::GivenUp { token, result },
            };
            self.outputs.push_back(output);
        }
        self.tick = self.tick.or_else(|| self.coordinator.next_tick(now));
        self.see_whether_over(now);
    }
}
