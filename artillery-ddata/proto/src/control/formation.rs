//! Forming a cluster: a one-time decision by all of its founders, without a coordinator.
//!
//! [`Formation`] is the state machine of one node, sans-IO: pass events to [`Formation::handle`], take outputs from
//! [`Formation::poll_output`] until it returns `None`, and pass [`FormationInput::Tick`] at [`Formation::next_tick`].
//!
//! # How
//!
//! A free node first looks for others ([`FormationSettings::search`], longer while a seed hasn't answered). When it
//! sees at least [`FormationSettings::expect`] free nodes, including itself, it proposes a [`Bootstrap`]: a fresh
//! random cluster id and the exact incarnations of all of them, the founders (of more than 16, itself and those with
//! the lowest ids, unless more are expected). It omits only nodes that were silent in earlier proposals or refuse all
//! proposals of this node, if enough others remain. A free node that is named accepts, or refuses with a reason. If it
//! expects more founders, it refuses with their number, and the proposer waits for as many. A node accepts one proposal
//! at a time and refuses the others permanently. Each founder repeatedly sends the others its state: which founders
//! have accepted, and its vote. A founder votes *form* once it knows that all have accepted; a majority of such votes
//! forms the cluster. When that takes too long, or a founder turns out to be replaced, any founder asks for votes in a
//! ballot of its own, and *abandon* can win (module `poll`: single-decree Paxos, with the founders as acceptors). So
//! the others finish a dead proposer's proposal, with either verdict, as long as a majority of them is up and
//! connected.
//!
//! A node abandons an accepted proposal only when it knows one of these:
//!
//! 1. A majority of its founders has voted to abandon it: they refuse it permanently.
//! 2. A founder reports that it will never take part in it ([`FormationMessage::Refused`], or membership of another
//!    cluster). An incarnation reports this only of proposals that it never accepted, which therefore can never be
//!    accepted by all, and of those that it abandoned for one of these reasons.
//! 3. Enough founders have been replaced by newer incarnations that no majority remains.
//!
//! # Why two groups can't form
//!
//! Call a proposal *formed* when a majority of its founders has voted *form* in one ballot.
//!
//! - **All accepted.** The first vote to form is cast by a founder that knows that all accepted; later ballots adopt
//!   it.
//! - **One verdict.** By Paxos, a formed proposal is never abandoned by vote. An incarnation votes at most once in a
//!   ballot and never below its promise; a new incarnation never votes for an old one.
//! - **No founder abandons a formed proposal `p`, as long as a majority of its founders' incarnations survives.** Not
//!   by 1 (one verdict). Not by 2: the first to do so would have met a founder that never accepted `p` (all accepted)
//!   or had abandoned it before. Not by 3.
//! - **So two proposals that are both formed share no incarnation**, unless one of them had permanently lost the
//!   majority of its founders before the other was accepted by all: an incarnation named in both accepted one of them
//!   after it had abandoned the other. Each names at least as many incarnations as any of its founders expects. Hence
//!   fewer than 2 × the smallest `expect` incarnations never form two groups that can act, whatever the network does.
//! - **More nodes form two groups only if the network hides both proposers from each other.** Let `p` and `q` be both
//!   formed. They share no incarnation. So `p` doesn't name the proposer of `q`, and `q` doesn't name that of `p`. A
//!   proposal names all free nodes that its proposer sees, except silent ones, and a node that sees a member of a
//!   cluster proposes nothing. So, of two proposers that proposed at different times, the later one has not seen the
//!   earlier one at all, free or as a member, although it has searched for [`FormationSettings::search`], twice as long
//!   if it forms a cluster alone; or it has seen it and asked in vain, in several proposals. If discovery takes less
//!   time than the search, and messages arrive, this doesn't happen. (Of more than 16 nodes not all are named, but
//!   nodes that see the same others name the same lowest ones.) No rule covers a network that was partitioned until
//!   both were formed: the ids differ, and the two groups never mix.
//!
//! Why not simply stop at the first sign of failure, or when a majority no longer accepts? Of three founders A, B, C, A
//! may know that all accepted, and be cut off before it reports this. If forming needed no votes, A would have formed
//! the cluster while B and C, a majority, abandon it: A would be a member of a group that never exists. If one replaced
//! founder were enough to abandon a proposal, the same could happen. Hence the votes, and reason 3 only when no
//! majority remains. Even numbers of founders need no separate rule: of two, each is needed for any verdict, and if one
//! is replaced no majority remains; of four, three are needed.
//!
//! No protocol can bind a node that has forgotten its state: a memory node that restarted is another incarnation.
//! [`FormationInput::Replaced`] must be certain: a process that was merely paused must not act again once its node has
//! begun another incarnation (the driver stops a process that meets a newer incarnation of its own node).
//!
//! # Why it ends
//!
//! If a majority of the founders is gone permanently, no verdict is possible. A node that receives nothing from a
//! majority in several ballots ends its incarnation ([`FormationOutput::Stuck`]); the next one is free, and is reason 3
//! for the others.
//!
//! Proposals are staggered by rank and delayed at random after each failure. Nodes that didn't answer are asked last.
//! Ballots begin at random times that grow with each round. So, once messages arrive, a proposer or a ballot is soon
//! alone.

mod attempt;
mod interface;
mod known_founders;
mod message;
mod poll;
mod propose;
mod random;
mod receive;
mod search;
mod settings;

use std::{
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
    sync::Arc,
};

use self::{attempt::Attempt, known_founders::KnownFounders, random::SeededRandom, search::Search};
pub use self::{
    interface::{FormationInput, FormationOutput, FormationPhase, FounderCandidate},
    message::{Ballot, FormationMessage, Proposal, ProposalId, ProposalProgress, ProposalVerdict, RejectReason, Vote},
    settings::{After, FormationSettings, InvalidFormation},
};
use super::{Bootstrap, NodeInfo};
use crate::{ClusterId, MemberId, Timestamp};

/// The maximum number of nodes, of replaced incarnations and of proposers that are remembered until a cluster is
/// formed.
const MAX_NODES: usize = 4096;
/// The maximum number of founders of a cluster, and of [`FormationSettings::expect`].
pub const MAX_FOUNDERS: u16 = 256;
/// The maximum number of members of formed clusters that are asked at a time.
const MAX_ASKED_MEMBERS: usize = 3;

#[derive(Debug)]
pub struct Formation {
    me: NodeInfo,
    settings: FormationSettings,
    random: SeededRandom,
    state: FormationState,
    seen: KnownFounders,
    /// The highest attempt of each proposing incarnation that was accepted or refused here: attempts up to it are no
    /// longer accepted.
    answered: BTreeMap<MemberId, u64>,
    attempts: u64,
    failures: u32,
    refused: Option<(MemberId, RejectReason)>,
    search: Search,
    seeds_missing: bool,
    /// The search since all seeds have answered: only then does this node see the nodes that they know.
    answered_search: Search,
    sighted_at: Timestamp,
    propose_at: Option<Timestamp>,
    postpone_until: Timestamp,
    ask_at: Timestamp,
    /// This node gives way to another cluster, so it doesn't reveal its own.
    yields: bool,
    outputs: VecDeque<FormationOutput>,
}

#[derive(Debug)]
enum FormationState {
    Free,
    Accepted(Box<Attempt>),
    Settled(Arc<Bootstrap>),
    Replaced,
}

impl Formation {
    /// A node that belongs to no cluster. `seed` must be random: cluster ids are derived from it.
    pub fn new(me: NodeInfo, settings: FormationSettings, seed: u128) -> Result<Self, InvalidFormation> {
        settings.validate()?;
        Ok(Self {
            random: SeededRandom::new(seed, me.id),
            me,
            settings,
            state: FormationState::Free,
            seen: KnownFounders::default(),
            answered: BTreeMap::new(),
            attempts: 0,
            failures: 0,
            refused: None,
            search: Search::default(),
            seeds_missing: false,
            answered_search: Search::default(),
            sighted_at: Timestamp::ZERO,
            propose_at: None,
            postpone_until: Timestamp::ZERO,
            ask_at: Timestamp::ZERO,
            yields: false,
            outputs: VecDeque::new(),
        })
    }

    /// A node whose earlier incarnation joined a cluster: it never forms another one, and names its own when asked,
    /// except while it gives way ([`FormationInput::Yields`]).
    pub fn member(
        me: NodeInfo,
        settings: FormationSettings,
        founding: Arc<Bootstrap>,
    ) -> Result<Self, InvalidFormation> {
        let mut formation = Self::new(me, settings, 0)?;
        formation.state = FormationState::Settled(founding);
        Ok(formation)
    }

    pub fn handle(&mut self, now: Timestamp, input: FormationInput) {
        if matches!(self.state, FormationState::Free) {
            if self.search.count(now) && self.must_search() {
                self.propose_at = None;
            }
            if self.seeds_missing {
                self.answered_search = Search::default();
            }
            self.answered_search.count(now);
        }
        match input {
            FormationInput::Seen(candidate) => self.see(now, candidate),
            FormationInput::Gone(id) => {
                self.seen.remove(id);
                self.refused.take_if(|(by, _)| *by == id);
            }
            FormationInput::Replaced(id) => self.replace(now, id),
            FormationInput::Receive { from, message } if from.node != self.me.id.node => {
                self.receive(now, from, message)
            }
            FormationInput::Yields(yields) => self.yields = yields,
            FormationInput::SeedsMissing(missing) => self.seeds_missing = missing,
            FormationInput::Receive { .. } | FormationInput::Tick => {}
        }
        self.advance(now);
    }

    /// The next order to the driver, oldest first. Call it until it returns `None` after each [`handle`](Self::handle).
    pub fn poll_output(&mut self) -> Option<FormationOutput> {
        self.outputs.pop_front()
    }

    pub fn next_tick(&self) -> Option<Timestamp> {
        match &self.state {
            FormationState::Free if self.seen.members().next().is_some() => Some(self.ask_at),
            FormationState::Free if self.only_joins() => None,
            FormationState::Free if self.is_searching() => Some(self.search.next_tick()),
            FormationState::Free if self.sees_enough() => {
                let at = self.propose_at.unwrap_or(Timestamp::ZERO);
                // Without a tick in between, a long wait would look like a pause of this process.
                Some(if self.must_search() { at.min(self.search.next_tick()) } else { at })
            }
            FormationState::Accepted(attempt) => Some(attempt.next_tick()),
            FormationState::Free | FormationState::Settled(_) | FormationState::Replaced => None,
        }
    }

    /// The cluster that this node belongs to, if any.
    pub fn founding(&self) -> Option<&Arc<Bootstrap>> {
        match &self.state {
            FormationState::Settled(founding) => Some(founding),
            _ => None,
        }
    }

    pub fn phase(&self) -> FormationPhase {
        match &self.state {
            FormationState::Free => {
                let expect = self.needed();
                let larger = self.seen.most_expected().filter(|_| expect > self.settings.expect);
                FormationPhase::Free {
                    seen: self.seen.free() + 1,
                    expect,
                    expected_by: larger.map(|(_, node)| node),
                    searches: self.sees_enough() && self.is_searching(),
                    refused: self.refused,
                }
            }
            FormationState::Accepted(attempt) => FormationPhase::Accepted(attempt.proposal().id()),
            FormationState::Settled(founding) => FormationPhase::Settled(founding.clone()),
            FormationState::Replaced => FormationPhase::Replaced,
        }
    }

    /// The incarnations that the accepted proposal names. The driver must pass [`FormationInput::Replaced`] for each
    /// that ends.
    pub fn named(&self) -> impl Iterator<Item = MemberId> + '_ {
        let attempt = if let FormationState::Accepted(attempt) = &self.state { Some(attempt) } else { None };
        attempt.into_iter().flat_map(|attempt| &attempt.founding().members).map(|founder| founder.id)
    }

    /// The addresses of an incarnation: as last seen, otherwise as in the proposal or in the founding.
    pub fn addrs(&self, id: MemberId) -> Option<&[SocketAddr]> {
        let founding = match &self.state {
            FormationState::Accepted(attempt) => Some(attempt.founding()),
            FormationState::Settled(founding) => Some(&**founding),
            FormationState::Free | FormationState::Replaced => None,
        };
        let named = || founding?.members.iter().find(|founder| founder.id == id).map(|founder| &founder.addrs[..]);
        self.seen.addrs(id).or_else(named)
    }

    fn see(&mut self, now: Timestamp, candidate: FounderCandidate) {
        let cluster = candidate.cluster;
        if cluster.is_some_and(|cluster| self.is_given_up(cluster)) {
            // The node may be free again soon, in another incarnation.
            return self.seen.remove(candidate.founder.id);
        }
        if candidate.founder.id.node == self.me.id.node || !self.seen.insert(candidate) {
            return;
        }
        if cluster.is_some() {
            self.ask_at = now;
        } else {
            self.sighted_at = now;
            self.postpone(now);
        }
    }

    fn is_given_up(&self, cluster: ClusterId) -> bool {
        self.settings.after.as_ref().is_some_and(|after| after.lineage.contains(&cluster))
    }

    /// The node's former cluster, if an operator replaced it.
    pub fn given_up(&self) -> Option<ClusterId> {
        self.settings.after.as_ref().and_then(|after| after.lineage.last().copied())
    }

    /// Whether this node creates no cluster, but joins an existing one or the successor of its former one.
    pub fn only_joins(&self) -> bool {
        self.settings.after.as_ref().map_or(self.settings.existing, |after| !after.founds)
    }

    /// The minimum number of founders in a proposal of this node.
    fn needed(&self) -> u16 {
        if self.settings.after.is_some() {
            return 1;
        }
        let others = self.seen.most_expected().map_or(0, |(most, _)| most);
        self.settings.expect.max(others)
    }

    fn sees_enough(&self) -> bool {
        !self.only_joins() && self.seen.free() + 1 >= usize::from(self.needed())
    }

    fn replace(&mut self, now: Timestamp, id: MemberId) {
        if id == self.me.id {
            self.state = FormationState::Replaced;
            return;
        }
        self.seen.replace(id);
        self.refused.take_if(|(by, _)| *by == id);
        if let FormationState::Accepted(attempt) = &mut self.state {
            attempt.replaced(now, id, &mut self.random);
        }
    }

    fn accept(&mut self, now: Timestamp, proposal: Proposal, me: usize) {
        let mut attempt = Box::new(Attempt::new(now, proposal, me as u16, &self.settings, &mut self.random));
        for founder in attempt.founding().members.clone() {
            if self.seen.is_replaced(founder.id) {
                attempt.replaced(now, founder.id, &mut self.random);
            }
        }
        self.state = FormationState::Accepted(attempt);
        self.propose_at = None;
    }

    fn settle(&mut self, founding: Arc<Bootstrap>) {
        let output = if founding.names(self.me.id) { FormationOutput::Formed } else { FormationOutput::Joined };
        self.state = FormationState::Settled(founding.clone());
        self.outputs.push_back(output(founding));
    }

    /// Abandons the accepted proposal, for one of the three reasons, and notifies the other founders.
    fn give_up(&mut self, refused: Option<(MemberId, RejectReason)>) {
        let FormationState::Accepted(attempt) = std::mem::replace(&mut self.state, FormationState::Free) else {
            return;
        };
        self.failures = self.failures.saturating_add(1);
        self.refused = refused;
        let id = attempt.proposal().id();
        for to in attempt.others() {
            self.send(to, FormationMessage::Refused { id, reason: RejectReason::Over });
        }
        match refused {
            // Of two nodes with different settings, only the one with the lower id leaves the other out of its later
            // proposals.
            Some((from, RejectReason::Settings)) if from.node < self.me.id.node => {}
            Some((from, RejectReason::Settings | RejectReason::Joins)) => self.seen.exclude(from),
            Some((from, RejectReason::Expects(most))) if (1..=MAX_FOUNDERS).contains(&most) => {
                self.seen.expects(from, most);
            }
            Some(_) => {}
            None => attempt.silent().for_each(|id| self.seen.miss(id)),
        }
    }

    fn advance(&mut self, now: Timestamp) {
        if let FormationState::Accepted(attempt) = &mut self.state {
            attempt.advance(now, &mut self.random, &mut self.outputs);
            match attempt.verdict() {
                Some(ProposalVerdict::Form) => self.form(),
                Some(ProposalVerdict::Abandon) => self.give_up(None),
                None if attempt.is_stuck() => {
                    self.state = FormationState::Replaced;
                    self.outputs.push_back(FormationOutput::Stuck);
                }
                None => {}
            }
        }
        if matches!(self.state, FormationState::Free) {
            self.look_around(now);
        }
    }

    fn form(&mut self) {
        let FormationState::Accepted(attempt) = &self.state else { return };
        let (founding, others) = (Arc::new(attempt.founding().clone()), attempt.others());
        for to in others {
            self.send(to, FormationMessage::Formed(Box::new(Bootstrap::clone(&founding))));
        }
        self.settle(founding);
    }

    fn send(&mut self, to: MemberId, message: FormationMessage) {
        self.outputs.push_back(FormationOutput::Send { to, message });
    }
}

#[cfg(test)]
mod tests;
