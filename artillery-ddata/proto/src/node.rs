//! The control state of a node: it connects the configuration log, the lease, the coordinator and the node's chains. It
//! decides which orders each chain gets and when, which configuration the node reports as applied, and how the node
//! leaves. Sans-IO.
//!
//! The driver passes events to [`NodeMachine::handle`], executes the outputs ([`NodeMachine::poll_output`]), sends the
//! renewals ([`NodeMachine::poll_renewal`]), and returns at [`NodeMachine::next_tick`].
//!
//! A node consists of parts, each of which owns its state. A part receives its inputs as arguments, and calls only
//! parts below it:
//!
//! ```text
//! node → ready, giving_way, acting, leaving → succession → base → disk
//! ```
//!
//! [`NodeMachine`] alone passes effects from part to part. This file has the inputs, and the order in which they act on
//! the parts; `answers` has the order for the answers to this node's renewals.

mod acting;
mod answers;
mod base;
mod disk;
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

use std::{collections::BTreeSet, net::SocketAddr, sync::Arc};

pub use self::interface::{NodeEvent, NodeInput, NodeOutput, NodeState, Successor, Unready};
use self::{
    acting::Acting, base::Base, disk::Disk, giving_way::GivingWay, leaving::Leaving, ready::Readiness,
    succession::Company,
};
pub use crate::control::coordinator::{
    ChangeReason, CoordinatorOutput, CoordinatorSettings, LogWarning, ProposalFate, Why,
};
use crate::{
    ChainId, ClusterId, MemberId, NodeId, Timestamp,
    control::{
        Configs, HeardStores, NodeInfo, StorePosition, Term,
        coordinator::{Coordinator, CoordinatorInput},
        message::{Renewal, Renewed, StoreHolding},
    },
    replica::ChainProgress,
    runner::Word,
};

/// The maximum number of this node's renewals in flight. Renewals to nodes that are asked once are not included.
const MAX_PENDING_RENEWALS: usize = 8;

/// A node's control state machine, excluding its chains.
#[derive(Debug)]
#[cfg_attr(feature = "mutants", derive(Clone))]
pub struct NodeMachine {
    base: Base,
    coordinator: Coordinator,
    acting: Acting,
    company: Company,
    leaving: Leaving,
    giving_way: GivingWay,
    readiness: Readiness,
    /// The number of this node's renewals in flight.
    renewals: usize,
    /// When the coordinator's tick is due.
    tick: Option<Timestamp>,
}

impl NodeMachine {
    /// A node with a chain for each of `configs`, which the chains get as their first orders.
    pub fn new(me: NodeInfo, configs: Arc<Configs>, settings: CoordinatorSettings) -> Self {
        Self::begin(me, configs, settings, None)
    }

    /// A node with a disk, which already holds `configs`. `holds` is the disk's copy of every chain, as it was at the
    /// start; if `holds` is `None`, the chains wait for [`NodeInput::Loaded`]. `heard` has the last known positions of
    /// other stores. Newer configurations must be on the disk ([`NodeOutput::Keep`]) before the chains get them.
    pub fn durable(
        me: NodeInfo,
        configs: Arc<Configs>,
        settings: CoordinatorSettings,
        holds: Option<Vec<StoreHolding>>,
        heard: HeardStores,
    ) -> Self {
        let disk = Disk::new(configs.applied(), holds, heard);
        Self::begin(me, configs, settings, Some(disk))
    }

    fn begin(me: NodeInfo, configs: Arc<Configs>, settings: CoordinatorSettings, disk: Option<Disk>) -> Self {
        let mut node = Self {
            coordinator: Coordinator::new(me.id, settings),
            base: Base::new(me, configs, settings.guards, disk),
            acting: Acting::default(),
            company: Company::default(),
            leaving: Leaving::default(),
            giving_way: GivingWay::default(),
            readiness: Readiness::default(),
            renewals: 0,
            tick: None,
        };
        succession::see_whether_serves(&mut node.base);
        node.acting.act(&mut node.base);
        node
    }

    /// Sets the position of this node's store, which renewals report.
    pub fn stands_at(&mut self, position: StorePosition) {
        if let Some(disk) = self.base.disk_mut() {
            disk.stands_at(position);
        }
    }

    /// Whether the directory is still being loaded. Until it is loaded, the node renews and keeps the log, but its
    /// chains do nothing.
    pub fn loads(&self) -> bool {
        self.base.loads()
    }

    pub fn state(&self) -> &NodeState {
        self.base.state()
    }

    /// The newest configurations known to this node: its chains may still act by older ones.
    pub fn configs(&self) -> &Arc<Configs> {
        self.base.configs()
    }

    /// The term in which this node is the leader, if it is.
    pub fn decides_in(&self) -> Option<Term> {
        self.coordinator.leads()
    }

    /// Whether a proposal of this node is in flight.
    pub fn proposes(&self) -> bool {
        self.coordinator.proposes()
    }

    /// Test-only: whether this leader has fenced a member, which should be removed.
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
        self.base.has_met(node)
    }

    pub fn handle(&mut self, now: Timestamp, input: NodeInput) {
        match input {
            NodeInput::Log { leads, leader, configs, voters } => self.hear_of_log(now, leads, leader, configs, voters),
            NodeInput::Confirmed { round, leads, answered } => {
                let answered = answered.into_iter().map(|(id, sent)| (self.base.present(id), sent)).collect();
                self.decide(now, CoordinatorInput::Confirmed { round, leads, answered });
            }
            NodeInput::Reached { by } => self.decide(now, CoordinatorInput::Reached { by }),
            NodeInput::Appended { at, fate } => self.decide(now, CoordinatorInput::Appended { at, fate }),
            NodeInput::VotersSet => self.decide(now, CoordinatorInput::VotersSet),
            NodeInput::Renewal { from, renewal } => {
                if !self.base.is_true_store(now, from, renewal.position.as_deref()) {
                    return self.base.push(NodeOutput::RolledBack { to: from, number: renewal.number });
                }
                self.receive(now, from, renewal);
            }
            NodeInput::Renewed { from, renewed } => self.renewed(now, from, renewed),
            NodeInput::Word { chain, word } => self.word(now, chain, word),
            NodeInput::Met { id, addrs } => self.base.meets(id, addrs),
            NodeInput::Gone(id) => self.base.loses(id),
            NodeInput::Moved(addrs) => self.base.holder_mut().moves(addrs),
            NodeInput::Reorder { token, chain, order } => {
                self.decide(now, CoordinatorInput::Reorder { token, chain, order });
            }
            NodeInput::AcceptLoss { token, chain } => self.decide(now, CoordinatorInput::AcceptLoss { token, chain }),
            NodeInput::GaveWay { by } => self.succeeded(now, by, true),
            NodeInput::Outranked { by } => self.decide(now, CoordinatorInput::Outranked { by }),
            NodeInput::GiveUp { token } => self.decide(now, CoordinatorInput::GiveUp { token }),
            NodeInput::Leave { until } => self.leaving.leave(now, until, false, &mut self.base),
            NodeInput::Withdraw => self.leaving.leave(now, None, true, &mut self.base),
            NodeInput::Succeeded { by } => self.succeeded(now, by, false),
            NodeInput::Parted { by } => {
                if succession::parted(by, &mut self.base) {
                    self.leaving.take_back_word();
                }
            }
            NodeInput::Kept => self.acting.has_kept(&mut self.base),
            NodeInput::Loaded { holds } => self.loaded(holds),
            NodeInput::Tick => self.tick(now),
        }
        self.flush(now);
    }

    pub fn poll_output(&mut self) -> Option<NodeOutput> {
        self.base.pop()
    }

    /// When [`NodeInput::Tick`] is due; then [`poll_renewal`](Self::poll_renewal) may have a renewal.
    pub fn next_tick(&self) -> Option<Timestamp> {
        let tells = self.base.disk().filter(|_| self.acting.has_acted()).map(Disk::tells_at);
        let company = self.company.company_at(&self.base);
        let holder = self.base.holder();
        let renewal = self.may_renew().then(|| holder.next_tick());
        let asks = holder.ask_at().filter(|_| self.may_ask());
        let ends = [self.leaving.leaves_at(), self.giving_way.ends_at()];
        [renewal, asks, self.tick, company, tells].into_iter().chain(ends).flatten().min()
    }

    fn tick(&mut self, now: Timestamp) {
        if self.tick.take_if(|at| *at <= now).is_some() {
            self.decide(now, CoordinatorInput::Tick);
        }
        self.leaving.look_at_leaving(now, &mut self.base, &mut self.company);
        if self.company.look_for_company(now, &mut self.base) {
            self.leaving.take_back_word();
        }
        if self.acting.has_acted() {
            self.base.tell_all(now);
        }
        self.giving_way.end_if_over(now, &mut self.base);
    }

    /// Whether this node may send renewals. It sends none until its chains act by the first configurations, unless its
    /// directory is still being loaded: that may take a long time.
    fn may_speak(&self) -> bool {
        self.acting.has_acted() || self.loads()
    }

    fn may_renew(&self) -> bool {
        self.may_speak() && self.renewals < MAX_PENDING_RENEWALS
    }

    fn may_ask(&self) -> bool {
        self.may_speak() && self.company.may_ask()
    }

    /// The next due renewal: its receiver, the receiver's addresses, and the message. `progress` gives the progress of
    /// a chain of this node. The driver passes the answer, or that there is none ([`NodeInput::Renewed`]).
    pub fn poll_renewal(
        &mut self,
        now: Timestamp,
        progress: impl Fn(ChainId) -> Option<ChainProgress>,
    ) -> Option<(MemberId, Vec<SocketAddr>, Renewal)> {
        while self.may_renew()
            && let Some((to, mut renewal)) = self.base.holder_mut().renew(now)
        {
            self.report(now, &mut renewal, &progress);
            if to == self.base.me() {
                self.decide(now, CoordinatorInput::Renewal { from: to, renewal });
                self.flush(now);
                continue;
            }
            self.renewals += 1;
            return Some((to, self.base.addrs(to), renewal));
        }
        if !self.may_ask() {
            return None;
        }
        let (to, mut renewal) = self.base.holder_mut().next_ask(now)?;
        self.report(now, &mut renewal, &progress);
        self.company.asks(to);
        Some((to, self.base.addrs(to), renewal))
    }

    fn report(&mut self, now: Timestamp, renewal: &mut Renewal, progress: impl Fn(ChainId) -> Option<ChainProgress>) {
        renewal.loads = self.loads();
        if !renewal.loads {
            let chains = self.configs().iter().map(|config| config.chain);
            renewal.reports = chains.filter_map(|chain| progress(chain)?.report(chain, now)).collect();
            renewal.holds = self.base.holds(progress);
        }
        giving_way::see_whether_holds_data(renewal, &mut self.base);
        renewal.position = self.base.position();
        self.readiness.look_at_chains(&renewal.reports, &self.base);
    }

    fn decide(&mut self, now: Timestamp, input: CoordinatorInput) {
        self.coordinator.handle(now, input);
    }

    /// Another node renews with this one.
    fn receive(&mut self, now: Timestamp, from: MemberId, renewal: Renewal) {
        self.company.hear_company(now, from, &mut self.base);
        // A node that gives way admits no new node, but other nodes of its own cluster may still learn that it is
        // alive.
        if !self.base.yields() || self.base.is_own(from) {
            self.decide(now, CoordinatorInput::Renewal { from, renewal });
        }
    }

    fn hear_of_log(
        &mut self,
        now: Timestamp,
        leads: Option<Term>,
        leader: Option<MemberId>,
        configs: Arc<Configs>,
        voters: BTreeSet<MemberId>,
    ) {
        let voters: BTreeSet<_> = voters.into_iter().map(|voter| self.base.present(voter)).collect();
        if self.base.follow(leads.is_some(), voters.clone()) {
            self.leaving.follow_voters(now, &self.base);
        }
        let leader = leader.map(|leader| self.base.present(leader));
        if let Some(leader) = leader {
            self.base.holder_mut().leads(now, leader);
        }
        self.leaving.see_whether_left(&mut self.base);
        let history = self.base.configs().history();
        let news = self.base.holder_mut().on_configs(&configs);
        if self.base.configs().history() != history {
            self.leaving.goes_on_alone();
            self.company.begin_history(&mut self.base);
        }
        succession::see_whether_serves(&mut self.base);
        self.decide(now, CoordinatorInput::Log { leads, leader, configs, voters });
        if news {
            self.acting.act(&mut self.base);
        }
    }

    fn word(&mut self, now: Timestamp, chain: ChainId, word: Word) {
        let base = &mut self.base;
        match word {
            Word::ActsBy(upto) => {
                if self.acting.chain_acts(now, (chain, upto), base) {
                    // The node first looks for other members one lease after its chains act by the first
                    // configurations.
                    self.company.begin_to_look(now, base);
                    self.leaving.see_whether_left(base);
                    self.acting.act(base);
                }
            }
            Word::Resigned => self.leaving.chain_resigned(now, chain, base),
            Word::Closed => base.holder_mut().hurry(now),
            Word::Promote(wish) => base.holder_mut().promote(now, wish),
        }
    }

    fn succeeded(&mut self, now: Timestamp, by: ClusterId, gave_way: bool) {
        if self.company.succeeded(now, (by, gave_way), &mut self.base) {
            self.leaving.take_back_word();
        }
    }

    /// The directory is loaded: the chains get their first orders.
    fn loaded(&mut self, holds: Vec<StoreHolding>) {
        if self.base.disk_mut().is_some_and(|disk| disk.loaded(holds)) {
            succession::see_whether_serves(&mut self.base);
            self.leaving.catch_up(&mut self.base);
            self.base.order_to_yield();
            self.acting.act(&mut self.base);
        }
    }

    /// Forwards the coordinator's outputs. Answers to this node itself are processed at once.
    fn flush(&mut self, now: Timestamp) {
        while let Some(output) = self.coordinator.poll_output() {
            let output = match output {
                CoordinatorOutput::Answer { to, renewed } if to == self.base.me() => {
                    self.answered_itself(now, renewed);
                    continue;
                }
                CoordinatorOutput::Answer { to, renewed } => {
                    CoordinatorOutput::Answer { to, renewed: Renewed { position: self.base.position(), ..renewed } }
                }
                other => other,
            };
            self.base.push(NodeOutput::Coordinator(output));
        }
        self.tick = self.tick.or_else(|| self.coordinator.next_tick(now));
        self.giving_way.see_whether_over(now, &mut self.base);
    }
}
