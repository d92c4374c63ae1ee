//! Who founds a cluster: settled once, by all of its founders, without anybody to ask.
//!
//! [`Formation`] is the state machine of one node, sans-IO: hand in what happened with [`Formation::handle`], take the
//! outputs with [`Formation::poll_output`] until there are none, hand in [`Input::Tick`] at [`Formation::next_tick`].
//!
//! # How
//!
//! A free node that sees [`Settings::expect`] free nodes, itself among them, proposes a [`Founding`]: a fresh random
//! cluster id and the exact lives of that many nodes. Whoever is named and free accepts; a node accepts one proposal at
//! a time and refuses the others for ever. Each founder tells the others, again and again, all that it knows: who has
//! accepted, and its vote. Who knows that all accepted votes *form*; a majority of such votes forms the cluster. When
//! that takes too long, or a founder is found to be replaced, any founder asks for votes in a ballot of its own, and
//! *abandon* can win (module `poll`: single-decree Paxos, with the founders as acceptors). So whatever a dead proposer
//! began is finished by the others, one way or the other, as long as a majority of them lives and can talk.
//!
//! A node gives an accepted proposal up only when it knows one of these:
//!
//! 1. A majority of its founders has voted to abandon it: they refuse it for ever.
//! 2. A founder says that it has no part in it and never will ([`FormationMessage::Refused`], or that it belongs to
//!    another cluster). A life of a node says so only of proposals that it never accepted, which then can never be
//!    accepted by all, and of those that it gave up for one of these reasons.
//! 3. So many founders' lives are over (replaced by newer lives) that no majority of them is left.
//!
//! # Why two groups can't form
//!
//! Call a proposal *formed* when a majority of its founders has voted so in one ballot.
//!
//! - **All accepted.** A vote to form is first cast by somebody who knows that all accepted; later ballots take it over.
//! - **One verdict.** By Paxos, a formed proposal is never abandoned by vote. A life of a node votes at most once in a
//!   ballot and never below what it promised; a new life never speaks for an old one.
//! - **A formed proposal `p` is given up by nobody, as long as a majority of its founders' lives goes on.** Not by 1 (one
//!   verdict). Not by 2: the first who did would have met a founder that never accepted `p` (all accepted) or gave it up
//!   before. Not by 3.
//! - **So two proposals that are both formed share no life**, unless one of them had lost the majority of its founders,
//!   for good, before the other was accepted by all: a life that stands in both accepted one of them after it had given
//!   the other up. Each names `expect` lives; hence fewer than 2 × `expect` lives never form two groups that can act.
//!
//! Why not simply stop at the first sign of failure, or at a majority that accepted no longer? Of three founders A, B, C,
//! A may know that all accepted, and be cut off before it says so. If forming needed no votes, A would have formed the
//! cluster while B and C, a majority, give up: a member of a group that never is. If B, alone with C's replacement, gave up on
//! the ground that C is gone, the same could happen with A and B of five: hence votes, and 3 only when no majority is
//! left. Even numbers of founders need no rule of their own: of two, each is needed for any verdict, and if one is
//! replaced no majority is left; of four, three.
//!
//! What no protocol can do is remember for a node that forgot: a memory node that restarted counts as another life. And
//! [`Input::Replaced`] must be certain: a process that was merely paused must not act again once its node has begun
//! another life (the driver stops a process that meets a newer life of its own node).
//!
//! # Why it ends
//!
//! Proposals are staggered by rank and delayed at random after each failure, nodes that didn't answer are asked last, and
//! ballots begin at random times that grow with each round: once messages arrive, a proposer or a ballot is soon alone.

mod attempt;
mod interface;
mod message;
mod poll;
mod propose;
mod random;
mod receive;
mod seen;
mod settings;

use std::{
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
    sync::Arc,
};

use self::{attempt::Attempt, random::Random, seen::Seen};
pub use self::{
    interface::{Candidate, Input, Output, Phase},
    message::{Ballot, FormationMessage, Progress, Proposal, ProposalId, Reason, Verdict, Vote},
    settings::{After, InvalidSettings, Settings},
};
use super::{Founder, Founding};
use crate::{ClusterId, MemberId, Timestamp};

/// Nodes, and lives of nodes, that are remembered while no cluster is formed.
const MAX_NODES: usize = 4096;
/// The most founders of a cluster.
pub const MAX_FOUNDERS: u16 = 256;
/// Members of formed clusters that are asked at a time.
const ASKED: usize = 3;

/// The part that one life of one node has in forming a cluster.
#[derive(Debug)]
pub struct Formation {
    me: Founder,
    settings: Settings,
    random: Random,
    state: State,
    seen: Seen,
    /// The highest attempt of each proposer's life that was accepted or refused here: none at or below it will be
    /// accepted any more.
    answered: BTreeMap<MemberId, u64>,
    attempts: u64,
    failures: u32,
    refused: Option<(MemberId, Reason)>,
    propose_at: Option<Timestamp>,
    ask_at: Timestamp,
    /// This node gives way to another cluster: it tells no other node which one it belongs to.
    yields: bool,
    outputs: VecDeque<Output>,
}

#[derive(Debug)]
enum State {
    Free,
    Accepted(Box<Attempt>),
    Settled(Arc<Founding>),
    Replaced,
}

impl Formation {
    /// A node that belongs to no cluster. `seed` must be random: cluster ids are made from it.
    ///
    /// # Errors
    /// [`InvalidSettings`].
    pub fn new(me: Founder, settings: Settings, seed: u128) -> Result<Self, InvalidSettings> {
        settings.validate()?;
        Ok(Self {
            random: Random::new(seed, me.id),
            me,
            settings,
            state: State::Free,
            seen: Seen::default(),
            answered: BTreeMap::new(),
            attempts: 0,
            failures: 0,
            refused: None,
            propose_at: None,
            ask_at: Timestamp::ZERO,
            yields: false,
            outputs: VecDeque::new(),
        })
    }

    /// A node that belongs to a cluster from an earlier life: it never forms another, and tells whoever asks.
    ///
    /// # Errors
    /// [`InvalidSettings`].
    pub fn member(me: Founder, settings: Settings, founding: Arc<Founding>) -> Result<Self, InvalidSettings> {
        let mut formation = Self::new(me, settings, 0)?;
        formation.state = State::Settled(founding);
        Ok(formation)
    }

    /// Takes in what happened at `now`.
    pub fn handle(&mut self, now: Timestamp, input: Input) {
        match input {
            Input::Seen(candidate) => self.see(now, candidate),
            Input::Gone(id) => self.seen.remove(id),
            Input::Replaced(id) => self.replace(now, id),
            Input::Receive { from, message } if from.node != self.me.id.node => self.receive(now, from, message),
            Input::Yields(yields) => self.yields = yields,
            Input::Receive { .. } | Input::Tick => {}
        }
        self.advance(now);
    }

    /// What is to be done, oldest first; to be emptied after each [`handle`](Self::handle).
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When [`Input::Tick`] is due, if ever.
    pub fn next_tick(&self) -> Option<Timestamp> {
        match &self.state {
            State::Free if self.seen.members().next().is_some() => Some(self.ask_at),
            State::Free if self.sees_enough() => Some(self.propose_at.unwrap_or(Timestamp::ZERO)),
            State::Free => None,
            State::Accepted(attempt) => Some(attempt.next_tick()),
            State::Settled(_) | State::Replaced => None,
        }
    }

    /// The cluster that this node belongs to.
    pub fn founding(&self) -> Option<&Arc<Founding>> {
        match &self.state {
            State::Settled(founding) => Some(founding),
            _ => None,
        }
    }

    /// How far this node is.
    pub fn phase(&self) -> Phase {
        match &self.state {
            State::Free => {
                Phase::Free { seen: self.seen.free() + 1, expect: self.settings.expect, refused: self.refused }
            }
            State::Accepted(attempt) => Phase::Accepted(attempt.proposal().id()),
            State::Settled(founding) => Phase::Settled(founding.clone()),
            State::Replaced => Phase::Replaced,
        }
    }

    /// The lives that the accepted proposal names: of each, the driver says when it is [`Input::Replaced`].
    pub fn named(&self) -> impl Iterator<Item = MemberId> + '_ {
        let attempt = match &self.state {
            State::Accepted(attempt) => Some(attempt),
            _ => None,
        };
        attempt.into_iter().flat_map(|attempt| &attempt.founding().members).map(|founder| founder.id)
    }

    /// Where a life of a node may be found: as seen, or as the proposal or the founding says.
    pub fn addrs(&self, id: MemberId) -> Option<&[SocketAddr]> {
        let founding = match &self.state {
            State::Accepted(attempt) => Some(attempt.founding()),
            State::Settled(founding) => Some(&**founding),
            State::Free | State::Replaced => None,
        };
        let named = || founding?.members.iter().find(|founder| founder.id == id).map(|founder| &founder.addrs[..]);
        self.seen.addrs(id).or_else(named)
    }

    fn see(&mut self, now: Timestamp, candidate: Candidate) {
        let cluster = candidate.cluster;
        if cluster.is_some_and(|cluster| self.is_given_up(cluster)) {
            // It may be free again soon, in another life.
            return self.seen.remove(candidate.founder.id);
        }
        if candidate.founder.id.node != self.me.id.node && self.seen.insert(candidate) && cluster.is_some() {
            self.ask_at = now;
        }
    }

    fn is_given_up(&self, cluster: ClusterId) -> bool {
        self.settings.after.as_ref().is_some_and(|after| after.lineage.contains(&cluster))
    }

    /// Whether this node has no part in founding a cluster, but joins the one that succeeds its former one.
    fn only_joins(&self) -> bool {
        self.settings.after.as_ref().is_some_and(|after| !after.founds)
    }

    /// How many nodes found a cluster that this node proposes.
    fn founders(&self) -> u16 {
        if self.settings.after.is_some() { 1 } else { self.settings.expect }
    }

    fn sees_enough(&self) -> bool {
        !self.only_joins() && self.seen.free() + 1 >= usize::from(self.founders())
    }

    fn replace(&mut self, now: Timestamp, id: MemberId) {
        if id == self.me.id {
            self.state = State::Replaced;
            return;
        }
        self.seen.replace(id);
        if let State::Accepted(attempt) = &mut self.state {
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
        self.state = State::Accepted(attempt);
        self.propose_at = None;
    }

    fn settle(&mut self, founding: Arc<Founding>) {
        let founder = founding.names(self.me.id);
        self.state = State::Settled(founding.clone());
        self.outputs.push_back(if founder { Output::Formed(founding) } else { Output::Joined(founding) });
    }

    /// Leaves the accepted proposal, for one of the three reasons, and says so.
    fn give_up(&mut self, refused: Option<(MemberId, Reason)>) {
        let State::Accepted(attempt) = std::mem::replace(&mut self.state, State::Free) else { return };
        self.failures = self.failures.saturating_add(1);
        self.refused = refused;
        let id = attempt.proposal().id();
        for to in attempt.others() {
            self.send(to, FormationMessage::Refused { id, reason: Reason::Over });
        }
        match refused {
            Some((from, Reason::Settings)) => self.seen.miss(from),
            Some(_) => {}
            None => attempt.silent().for_each(|id| self.seen.miss(id)),
        }
    }

    /// Does what is due.
    fn advance(&mut self, now: Timestamp) {
        if let State::Accepted(attempt) = &mut self.state {
            attempt.advance(now, &mut self.random, &mut self.outputs);
            match attempt.verdict() {
                Some(Verdict::Form) => self.form(),
                Some(Verdict::Abandon) => self.give_up(None),
                None => {}
            }
        }
        if matches!(self.state, State::Free) {
            self.look_around(now);
        }
    }

    fn form(&mut self) {
        let State::Accepted(attempt) = &self.state else { return };
        let (founding, others) = (Arc::new(attempt.founding().clone()), attempt.others());
        for to in others {
            self.send(to, FormationMessage::Formed(Box::new(Founding::clone(&founding))));
        }
        self.settle(founding);
    }

    fn send(&mut self, to: MemberId, message: FormationMessage) {
        self.outputs.push_back(Output::Send { to, message });
    }
}

#[cfg(test)]
mod tests;
