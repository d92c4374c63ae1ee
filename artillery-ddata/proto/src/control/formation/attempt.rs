//! One proposal that this node has accepted: the messages to the other founders, and their times.

use std::{
    collections::{BTreeSet, VecDeque},
    time::Duration,
};

use super::{
    FormationMessage, FormationOutput, FormationSettings, Proposal, ProposalProgress, ProposalVerdict, SeededRandom,
    poll::Poll,
};
use crate::{MemberId, Timestamp, control::Bootstrap, guards::Guards};

/// After this number of consecutive ballots without messages from a majority of the founders, the attempt is stuck.
const MAX_SILENT_BALLOTS: u32 = 5;

#[derive(Debug)]
pub(super) struct Attempt {
    proposal: Proposal,
    me: u16,
    poll: Poll,
    replaced: BTreeSet<u16>,
    gather: Duration,
    repeat: Duration,
    patience: Duration,
    ballots: u32,
    /// The senders of the messages received since the last ballot began.
    heard: BTreeSet<u16>,
    /// The number of consecutive ballots without messages from a majority, up to the last one.
    silent_ballots: u32,
    tell_at: Timestamp,
    challenge_at: Timestamp,
    guards: Guards,
}

impl Attempt {
    /// The part of founder `me` in `proposal`, accepted at `now`. The other founders are informed at once.
    pub(super) fn new(
        now: Timestamp,
        proposal: Proposal,
        me: u16,
        settings: &FormationSettings,
        random: &mut SeededRandom,
    ) -> Self {
        // A proposal names at most MAX_FOUNDERS.
        let founders = proposal.founding.members.len() as u16;
        Self {
            me,
            poll: Poll::new(me, founders, settings.guards),
            replaced: BTreeSet::new(),
            gather: settings.gather,
            repeat: settings.repeat,
            patience: settings.patience,
            ballots: 0,
            heard: BTreeSet::new(),
            silent_ballots: 0,
            tell_at: now,
            challenge_at: now + settings.patience + random.up_to(settings.patience),
            proposal,
            guards: settings.guards,
        }
    }

    pub(super) fn proposal(&self) -> &Proposal {
        &self.proposal
    }

    pub(super) fn founding(&self) -> &Bootstrap {
        &self.proposal.founding
    }

    pub(super) fn next_tick(&self) -> Timestamp {
        self.tell_at.min(self.challenge_at)
    }

    pub(super) fn others(&self) -> Vec<MemberId> {
        self.peers().map(|(_, id)| id).collect()
    }

    pub(super) fn silent(&self) -> impl Iterator<Item = MemberId> + '_ {
        self.peers().filter(|&(at, _)| !self.poll.has_accepted(at)).map(|(_, id)| id)
    }

    fn peers(&self) -> impl Iterator<Item = (u16, MemberId)> + '_ {
        (0..).zip(self.founding().members.iter().map(|founder| founder.id)).filter(|&(at, _)| at != self.me)
    }

    /// Merges another founder's progress. Nodes that the proposal doesn't name are ignored.
    pub(super) fn receive(&mut self, now: Timestamp, from: MemberId, progress: &ProposalProgress) {
        let Some(from) = self.founding().find(from, allows!(self.guards, AnyLife)) else { return };
        self.heard.insert(from as u16);
        if self.poll.receive(from as u16, progress) {
            self.tell_at = self.tell_at.min(now + self.gather);
        }
    }

    /// A founder's incarnation has ended. If it isn't known to have accepted, it probably never will: a ballot follows
    /// soon.
    pub(super) fn replaced(&mut self, now: Timestamp, id: MemberId, random: &mut SeededRandom) {
        let Some(at) = self.founding().position(id) else { return };
        if self.replaced.insert(at as u16) && !self.poll.has_accepted(at as u16) {
            self.challenge_at = self.challenge_at.min(now + random.up_to(self.patience / 4));
        }
    }

    pub(super) fn advance(
        &mut self,
        now: Timestamp,
        random: &mut SeededRandom,
        outputs: &mut VecDeque<FormationOutput>,
    ) {
        if now >= self.challenge_at {
            let is_majority_heard = self.heard.len() + 1 >= self.founding().majority();
            self.silent_ballots = if is_majority_heard { 0 } else { self.silent_ballots.saturating_add(1) };
            self.heard.clear();
            self.poll.challenge();
            self.ballots = self.ballots.saturating_add(1);
            let pause = self.patience * self.ballots.min(8);
            self.challenge_at = now + pause + random.up_to(pause);
            self.tell_at = now;
        }
        if now >= self.tell_at {
            self.tell_at = now + self.repeat;
            outputs.extend(self.peers().map(|(at, to)| FormationOutput::Send { to, message: self.message(at) }));
        }
    }

    pub(super) fn is_stuck(&self) -> bool {
        self.silent_ballots >= MAX_SILENT_BALLOTS
    }

    fn message(&self, to: u16) -> FormationMessage {
        let progress = self.poll.progress().clone();
        if self.poll.has_accepted(to) {
            FormationMessage::Progress { id: self.proposal.id(), progress }
        } else {
            FormationMessage::Propose { proposal: Box::new(self.proposal.clone()), progress }
        }
    }

    /// The verdict on the proposal, if this node knows it: also *abandon* if no majority of the founders remains.
    pub(super) fn verdict(&self) -> Option<ProposalVerdict> {
        if allows!(self.guards, FormWithoutVote) && self.poll.all_accepted() {
            return Some(ProposalVerdict::Form);
        }
        let left = self.founding().members.len() - self.replaced.len();
        let is_over = left < self.founding().majority()
            || (allows!(self.guards, GiveUpWhenSlow) && self.ballots > 0)
            || (allows!(self.guards, GiveUpWhenOneIsReplaced) && !self.replaced.is_empty());
        self.poll.verdict().or_else(|| is_over.then_some(ProposalVerdict::Abandon))
    }
}
