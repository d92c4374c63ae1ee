//! What joins the configuration log, the lease of this node, the coordinator and the node's chains: which chain is told
//! what and when, by which configuration the node says that it acts, and how it leaves. Sans-IO.
//!
//! Whoever drives it hands in what happened ([`Node::handle`]), does what it says ([`Node::poll_output`]), sends its
//! renewals ([`Node::poll_renewal`]), and comes back at [`Node::next_tick`].

mod acting;
#[cfg(feature = "mutants")]
mod fork;
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

use self::{acting::Acting, leaving::Leaving, succession::Company};
pub use self::{
    interface::{Event, Input, Output, State},
    ready::Unready,
    succession::Successor,
};
pub use crate::control::coordinator::{Fate, Reason, Settings, Why};
use crate::{
    ChainId, MemberId, NodeId, Timestamp,
    control::{
        Configs, Founder, Term,
        coordinator::{self, Coordinator},
        holder::{Holder, Learned},
        log::LogIndex,
        message::{Close, Promotion, Renewal, Renewed, Unsettled},
    },
    guards::Guards,
    replica::Progress,
    runner::{Lease, Order, Word},
};

/// Renewals of this node that may wait for their answers at once.
const RENEWALS: usize = 8;

/// The part of a node that decides, beside its chains.
#[derive(Debug)]
#[cfg_attr(feature = "mutants", derive(Clone))]
pub struct Node {
    me: MemberId,
    holder: Holder,
    coordinator: Coordinator,
    voters: BTreeSet<MemberId>,
    leads: bool,
    /// What chains were told, and haven't all said yet that they act by.
    acting: Option<Acting>,
    acted: Option<LogIndex>,
    /// The addresses of nodes that the membership tells of.
    met: BTreeMap<MemberId, SocketAddr>,
    /// Renewals that wait for their answers.
    renewals: usize,
    /// How often a resignation was taken back.
    stretch: u64,
    leaving: Leaving,
    /// When the coordinator wants to look at the clock.
    tick: Option<Timestamp>,
    /// Chains that stopped, or aren't open, by the newest renewal of this node.
    closed: BTreeSet<ChainId>,
    /// It has been ready.
    was_ready: bool,
    company: Company,
    state: State,
    outputs: VecDeque<Output>,
    guards: Guards,
}

impl Node {
    /// A node that knows this much of the log, with a chain for each configuration. The chains are told of it at once.
    pub fn new(me: Founder, configs: Arc<Configs>, settings: Settings) -> Self {
        let id = me.id;
        let mut node = Self {
            me: id,
            holder: Holder::new(me, configs),
            coordinator: Coordinator::new(id, settings),
            voters: BTreeSet::new(),
            leads: false,
            acting: None,
            acted: None,
            met: BTreeMap::new(),
            renewals: 0,
            stretch: 0,
            leaving: Leaving::default(),
            tick: None,
            closed: BTreeSet::new(),
            was_ready: false,
            company: Company::default(),
            state: State { unready: Some(Unready::default()), ..State::default() },
            outputs: VecDeque::new(),
            guards: settings.guards,
        };
        node.see_whether_serves();
        node.act();
        node
    }

    /// How it stands.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// What the log comes to, as far as this node knows: its chains may not act by it yet.
    pub fn configs(&self) -> &Arc<Configs> {
        self.holder.configs()
    }

    /// The term in which this node decides, if it does.
    pub fn decides_in(&self) -> Option<Term> {
        self.coordinator.leads()
    }

    /// Whether a proposal of this node is under way.
    pub fn proposes(&self) -> bool {
        self.coordinator.proposes()
    }

    /// Nodes that this one, as leader, lets no chain have for a while, but those that `tail` is to take.
    pub fn kept_away(&self, now: Timestamp, tail: Option<MemberId>) -> BTreeSet<NodeId> {
        self.coordinator.kept_away(now, tail).collect()
    }

    /// Whether the membership tells of this node, in any of its lives.
    pub fn has_met(&self, node: NodeId) -> bool {
        self.met.keys().any(|id| id.node == node)
    }

    /// Takes in what happened at `now`.
    pub fn handle(&mut self, now: Timestamp, input: Input) {
        match input {
            Input::Log { leads, leader, configs, voters } => self.hear_of_log(now, leads, leader, configs, voters),
            Input::Confirmed { round, leads } => self.decide(now, coordinator::Input::Confirmed { round, leads }),
            Input::Appended { at, fate } => self.decide(now, coordinator::Input::Appended { at, fate }),
            Input::VotersSet => self.decide(now, coordinator::Input::VotersSet),
            Input::Renewal { from, renewal } => {
                self.hear_company(now, from);
                // A node that gives way takes no other in, but the nodes of its cluster may find that it is there.
                if !self.yields() || self.is_own(from) {
                    self.decide(now, coordinator::Input::Renewal { from, renewal });
                }
            }
            Input::Renewed { from, renewed } => {
                if !self.was_asked(from) {
                    self.renewals = self.renewals.saturating_sub(1);
                }
                if let Some(renewed) = renewed {
                    self.hear_company(now, from);
                    if let Some(sent) = self.holder.sent(renewed.number) {
                        self.hear_answer(from, sent, renewed.leader == Some(from));
                    }
                    self.answered(now, from, renewed);
                }
            }
            Input::Word { chain, word } => self.word(now, chain, word),
            Input::Met { id, addr } => {
                self.met.retain(|met, _| met.node != id.node);
                self.met.insert(id, addr);
                self.holder.meets(id);
            }
            Input::Gone(id) => drop(self.met.remove(&id)),
            Input::Reorder { token, chain, order } => {
                self.decide(now, coordinator::Input::Reorder { token, chain, order });
            }
            Input::Leave { until } => self.leave(now, until),
            Input::Succeeded { by } => self.succeeded(now, by),
            Input::Tick => self.tick(now),
        }
        self.flush(now);
    }

    /// What the driver is to do next.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When [`Input::Tick`] is wanted, and then [`poll_renewal`](Self::poll_renewal) may have something to say.
    pub fn next_tick(&self) -> Option<Timestamp> {
        let renewal = self.may_renew().then(|| self.holder.next_tick());
        let asks = self.holder.ask_at().filter(|_| self.acted.is_some() && self.may_ask());
        [renewal, asks, self.tick, self.leaves_at(), self.company_at()].into_iter().flatten().min()
    }

    fn tick(&mut self, now: Timestamp) {
        if self.tick.take_if(|at| *at <= now).is_some() {
            self.decide(now, coordinator::Input::Tick);
        }
        self.look_at_leaving(now);
        self.look_for_company(now);
    }

    /// Until the chains act by what is known from the beginning, nothing is said.
    fn may_renew(&self) -> bool {
        self.acted.is_some() && self.renewals < RENEWALS
    }

    /// A renewal that is due, the node that it is for, and where that may listen. `progress` says how far a chain of this node
    /// has come. The driver hands in what came of it ([`Input::Renewed`]).
    pub fn poll_renewal(
        &mut self,
        now: Timestamp,
        progress: impl Fn(ChainId) -> Option<Progress>,
    ) -> Option<(MemberId, Vec<SocketAddr>, Renewal)> {
        while self.may_renew()
            && let Some((to, mut renewal)) = self.holder.renew(now)
        {
            self.report(now, &mut renewal, &progress);
            if to == self.me {
                self.decide(now, coordinator::Input::Renewal { from: to, renewal });
                self.flush(now);
                continue;
            }
            self.renewals += 1;
            return Some((to, self.addrs(to), renewal));
        }
        if self.acted.is_none() || !self.may_ask() {
            return None;
        }
        let (to, mut renewal) = self.holder.next_ask(now)?;
        self.report(now, &mut renewal, &progress);
        self.asks(to);
        Some((to, self.addrs(to), renewal))
    }

    /// Adds how the chains of this node stand.
    fn report(&mut self, now: Timestamp, renewal: &mut Renewal, progress: impl Fn(ChainId) -> Option<Progress>) {
        let chains = self.holder.configs().iter().map(|config| config.chain);
        renewal.reports = chains.filter_map(|chain| progress(chain)?.report(chain, now)).collect();
        self.look_at_chains(&renewal.reports);
    }

    fn addrs(&self, of: MemberId) -> Vec<SocketAddr> {
        match (self.met.get(&of), self.holder.configs().node(of)) {
            (Some(&addr), _) => vec![addr],
            (None, Some(founder)) => founder.addrs.clone(),
            (None, None) => Vec::new(),
        }
    }

    fn decide(&mut self, now: Timestamp, input: coordinator::Input) {
        self.coordinator.handle(now, input);
    }

    /// Takes in what is known of the log here.
    fn hear_of_log(
        &mut self,
        now: Timestamp,
        leads: Option<Term>,
        leader: Option<MemberId>,
        configs: Arc<Configs>,
        voters: BTreeSet<MemberId>,
    ) {
        if self.leads != leads.is_some() || self.voters != voters {
            self.follow_voters(now);
        }
        self.leads = leads.is_some();
        self.voters.clone_from(&voters);
        if let Some(leader) = leader {
            self.holder.leads(now, leader);
        }
        self.see_whether_left();
        let history = self.holder.configs().history();
        let news = self.holder.learn(&configs);
        if self.holder.configs().history() != history {
            self.begin_history();
        }
        self.see_whether_serves();
        self.decide(now, coordinator::Input::Log { leads, leader, configs, voters });
        if news {
            self.act();
        }
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
        // What was said before a pause of this node tells nothing of now.
        let is_old = self.holder.sent(renewed.number).is_none_or(|sent| now - sent > lease);
        let settled = if is_old { Err(Unsettled::Unled) } else { renewed.settled };
        self.close(now, &renewed.close);
        let Learned { lease, asked, configs, released, resigns, serves_again } =
            self.holder.answered(now, from, renewed);
        if let Some(until) = lease {
            self.state.lease = until;
            self.outputs.push_back(Output::Lease(Lease { until, asked, stretch: self.stretch }));
        }
        self.state.leader = leader.or(self.state.leader);
        self.state.answered |= leader.is_some();
        // Another node may take for leader one that is gone. A leader names itself after a quorum has confirmed it.
        if leader == Some(from) {
            self.state.heard = now;
        }
        if configs.is_some() {
            self.see_whether_serves();
            self.act();
        }
        // Only a confirmed leader's word counts: this node may have become a voter since.
        if leader == Some(from) && !is_old {
            self.hear_word(now, number, released, farewell);
        }
        if resigns {
            self.resign();
        }
        if serves_again {
            self.outputs.push_back(Output::Event(Event::ServesAgain));
            self.serve_again();
        }
        // Another node than the leader knows nothing of that; nor does the last answer say more after a while.
        if leader == Some(from) {
            self.see_whether_ready(now, settled);
        } else if now - self.state.heard >= self.holder.configs().timing().lease {
            self.see_whether_ready(now, Err(Unsettled::Unled));
        }
    }

    /// Has heads order nothing for a moment. The leader repeats the wish with each answer.
    fn close(&mut self, now: Timestamp, close: &[Close]) {
        let until = now + self.holder.configs().timing().lease;
        let orders = close.iter().map(|close| Output::Order(close.chain, Order::Close { epoch: close.epoch, until }));
        self.outputs.extend(orders);
    }

    /// Hands on what the coordinator wants done.
    fn flush(&mut self, now: Timestamp) {
        while let Some(output) = self.coordinator.poll_output() {
            let output = match output {
                coordinator::Output::Answer { to, renewed } if to == self.me => {
                    self.answered(now, to, renewed);
                    continue;
                }
                coordinator::Output::Answer { to, renewed } => Output::Answer { to, renewed },
                coordinator::Output::Confirm { round, term } => Output::Confirm { round, term },
                coordinator::Output::Append { term, at, change, why } => Output::Append { term, at, change, why },
                coordinator::Output::SetVoters { term, voters } => Output::SetVoters { term, voters },
                coordinator::Output::Reordered { token, result } => Output::Reordered { token, result },
            };
            self.outputs.push_back(output);
        }
        self.tick = self.tick.or_else(|| self.coordinator.next_tick(now));
    }
}
