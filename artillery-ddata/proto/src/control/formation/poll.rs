//! The verdict on one accepted proposal: single-decree Paxos among its founders (Lamport 1998; used to commit as in
//! Gray & Lamport, "Consensus on transaction commit", 2006).
//!
//! The lowest ballot belongs to all founders: a founder votes [`ProposalVerdict::Form`] in it once it knows that all
//! have accepted, unless it has promised a higher one. A higher ballot has one owner, which asks a majority first, and
//! must adopt the verdict of the highest ballot that it finds. So once a majority has cast the same vote in one ballot,
//! every later ballot agrees.

use std::collections::BTreeMap;

use super::message::{Ballot, ProposalProgress, ProposalVerdict, Vote};
use crate::guards::Guards;

/// One founder's view of the ballots on one proposal.
#[derive(Debug)]
pub(super) struct Poll {
    me: u16,
    founders: u16,
    mine: ProposalProgress,
    /// The highest promise and the vote of each other founder, both from one message.
    peers: BTreeMap<u16, (Ballot, Option<Vote>)>,
    guards: Guards,
}

impl Poll {
    /// The view of founder `me` of `founders`, which has just accepted.
    pub(super) fn new(me: u16, founders: u16, guards: Guards) -> Self {
        let mine = ProposalProgress { accepted: [me].into(), ..ProposalProgress::default() };
        let mut poll = Self { me, founders, mine, peers: BTreeMap::new(), guards };
        poll.vote();
        poll
    }

    pub(super) fn progress(&self) -> &ProposalProgress {
        &self.mine
    }

    pub(super) fn has_accepted(&self, at: u16) -> bool {
        self.mine.accepted.contains(&at)
    }

    /// Merges the progress of founder `from`. Returns whether this founder's own progress has changed.
    pub(super) fn receive(&mut self, from: u16, theirs: &ProposalProgress) -> bool {
        if from >= self.founders || from == self.me {
            return false;
        }
        let before = self.mine.clone();
        self.mine.accepted.extend(theirs.accepted.iter().filter(|&&at| at < self.founders));
        self.mine.accepted.insert(from);
        if theirs.vote.is_some_and(|vote| vote.verdict == ProposalVerdict::Form) {
            self.mine.accepted = (0..self.founders).collect();
        }
        let shown = (theirs.promised, theirs.vote);
        let rank = |(promised, vote): (Ballot, Option<Vote>)| (promised, vote.map(|vote| vote.ballot));
        if self.peers.get(&from).is_none_or(|&known| rank(known) < rank(shown)) {
            self.peers.insert(from, shown);
        }
        self.mine.promised = self.mine.promised.max(theirs.promised);
        self.join(theirs.vote);
        self.vote();
        self.mine != before
    }

    /// Begins a ballot owned by this founder, because the current ones produce no verdict.
    pub(super) fn challenge(&mut self) {
        self.mine.promised = Ballot { round: self.mine.promised.round.saturating_add(1), owner: self.me };
        self.vote();
    }

    /// The vote of a majority in one ballot. A verdict is final: all founders that find one find the same.
    pub(super) fn verdict(&self) -> Option<ProposalVerdict> {
        let votes = || self.peers.values().filter_map(|(_, vote)| *vote).chain(self.mine.vote);
        let chosen =
            votes().find(|vote| votes().filter(|other| other.ballot == vote.ballot).count() >= self.majority());
        chosen.map(|vote| vote.verdict)
    }

    fn majority(&self) -> usize {
        usize::from(self.founders) / 2 + 1
    }

    /// Casts the same vote as another founder, if the vote is in the ballot that was promised last.
    fn join(&mut self, theirs: Option<Vote>) {
        let Some(theirs) = theirs else { return };
        let voted_below = self.mine.vote.is_none_or(|mine| mine.ballot < theirs.ballot);
        if (theirs.ballot == self.mine.promised || allows!(self.guards, BrokenPromise)) && voted_below {
            self.mine.vote = Some(theirs);
        }
    }

    /// Votes in the lowest ballot, or in this founder's own, once the rules permit it.
    fn vote(&mut self) {
        let ballot = self.mine.promised;
        if self.mine.vote.is_some_and(|vote| vote.ballot == ballot) {
            return;
        }
        let ballot =
            if allows!(self.guards, BrokenPromise) && self.all_accepted() { Ballot::default() } else { ballot };
        let verdict = if ballot == Ballot::default() {
            self.all_accepted().then_some(ProposalVerdict::Form)
        } else {
            (ballot.owner == self.me).then(|| self.answered(ballot)).flatten()
        };
        self.mine.vote = verdict.map(|verdict| Vote { ballot, verdict }).or(self.mine.vote);
    }

    /// The verdict for which the owner of `ballot` must vote, once a majority has promised it.
    fn answered(&self, ballot: Ballot) -> Option<ProposalVerdict> {
        let promised = || self.peers.values().filter(|(promised, _)| *promised == ballot);
        if promised().count() + 1 < self.majority() {
            return None;
        }
        let earlier = promised().filter_map(|(_, vote)| *vote).chain(self.mine.vote).max_by_key(|vote| vote.ballot);
        let free = if self.all_accepted() { ProposalVerdict::Form } else { ProposalVerdict::Abandon };
        let earlier = earlier.filter(|_| !allows!(self.guards, FreshVerdict));
        Some(earlier.map_or(free, |vote| vote.verdict))
    }

    pub(super) fn all_accepted(&self) -> bool {
        if allows!(self.guards, MajorityAccepts) {
            return self.mine.accepted.len() >= self.majority();
        }
        self.mine.accepted.len() == usize::from(self.founders)
    }
}

#[cfg(test)]
mod tests;
