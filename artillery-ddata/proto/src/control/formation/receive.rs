//! Handling the messages of other nodes: a proposal is accepted, or refused permanently.

use std::sync::Arc;

use super::{
    Bootstrap, Formation, FormationMessage, FormationState, MAX_FOUNDERS, MAX_NODES, Proposal, ProposalId,
    ProposalProgress, ProposalVerdict, RejectReason,
};
use crate::{MemberId, Timestamp};

impl Formation {
    pub(super) fn receive(&mut self, now: Timestamp, from: MemberId, message: FormationMessage) {
        self.seen.heard(from);
        match (&mut self.state, message) {
            (FormationState::Replaced, _) => {}
            (FormationState::Settled(_), FormationMessage::Propose { proposal, progress })
                if allows!(self.settings.guards, FormAgain) =>
            {
                self.consider(now, from, *proposal, &progress);
            }
            (FormationState::Settled(founding), message) => match message {
                FormationMessage::Formed(_) | FormationMessage::Refused { .. } => {}
                _ if self.yields => {}
                _ => {
                    let message = FormationMessage::Formed(Box::new(Bootstrap::clone(founding)));
                    self.send(from, message);
                }
            },
            (_, FormationMessage::Formed(founding)) => self.hear_of_cluster(from, *founding),
            (FormationState::Accepted(attempt), FormationMessage::Propose { proposal, progress })
                if proposal.id() == attempt.proposal().id() =>
            {
                attempt.receive(now, from, &progress);
            }
            (FormationState::Accepted(attempt), FormationMessage::Progress { id, progress })
                if id == attempt.proposal().id() =>
            {
                attempt.receive(now, from, &progress);
            }
            (FormationState::Accepted(attempt), FormationMessage::Refused { id, reason })
                if id == attempt.proposal().id() && attempt.founding().names(from) =>
            {
                self.give_up(Some((from, reason)));
            }
            (_, FormationMessage::Propose { proposal, progress }) => self.consider(now, from, *proposal, &progress),
            (_, FormationMessage::Progress { id, .. }) => self.answer_progress(from, id),
            (_, FormationMessage::Refused { .. } | FormationMessage::Ask) => {}
        }
    }

    /// Answers a sender that assumes that this node still takes part in `id`.
    fn answer_progress(&mut self, from: MemberId, id: ProposalId) {
        // Only this node can have informed the sender that it accepted `id`. So if it remembers an answer to this
        // attempt, it has accepted `id` and abandoned it. Otherwise it doesn't reply.
        if self.answered.get(&id.proposer).is_some_and(|&answered| id.attempt <= answered) {
            self.send(from, FormationMessage::Refused { id, reason: RejectReason::Over });
        }
    }

    /// Accepts a proposal, or refuses it permanently.
    fn consider(&mut self, now: Timestamp, from: MemberId, proposal: Proposal, progress: &ProposalProgress) {
        let id = proposal.id();
        let (founding, loose) = (&proposal.founding, allows!(self.settings.guards, AnyLife));
        let Some(me) = founding.find(self.me.id, loose) else { return };
        if !self.well_formed(&proposal) || founding.find(from, loose).is_none() {
            return;
        }
        let answered = self.answered.get(&id.proposer).copied();
        // A proposer that can't be remembered can't be refused permanently either: its proposals wait for a ballot.
        if answered.is_none() && self.answered.len() >= MAX_NODES {
            return;
        }
        let late =
            answered.is_some_and(|answered| id.attempt <= answered) && !allows!(self.settings.guards, RefuseForNow);
        let reason = if late { Some(RejectReason::Over) } else { self.objection(&proposal, progress) };
        if !late {
            self.answered.insert(id.proposer, id.attempt);
        }
        if let Some(reason) = reason {
            return self.send(from, FormationMessage::Refused { id, reason });
        }
        self.accept(now, proposal, me);
        if let FormationState::Accepted(attempt) = &mut self.state {
            attempt.receive(now, from, progress);
        }
    }

    /// Whether the proposal is valid: its size, each node once, the proposer among them, and valid times.
    fn well_formed(&self, proposal: &Proposal) -> bool {
        let members = &proposal.founding.members;
        let mut nodes: Vec<_> = members.iter().map(|founder| founder.id.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes.len() == members.len()
            && members.len() <= usize::from(MAX_FOUNDERS)
            && proposal.founding.names(proposal.proposer)
            && proposal.founding.timing.validate().is_ok()
            // A cluster that succeeds another one has one founder: it is never proposed to other nodes.
            && proposal.founding.succeeds.is_empty()
    }

    /// The reason against a proposal that was not answered before; `None`: it is accepted.
    fn objection(&self, proposal: &Proposal, progress: &ProposalProgress) -> Option<RejectReason> {
        let founding = &proposal.founding;
        let mine = &self.settings;
        if matches!(self.state, FormationState::Accepted(_)) && !allows!(self.settings.guards, AcceptTwo) {
            Some(RejectReason::Busy)
        } else if self.settings.after.is_some() || self.seen.members().next().is_some() {
            Some(RejectReason::Elsewhere)
        } else if mine.existing {
            Some(RejectReason::Joins)
        } else if (&founding.name, founding.settings) != (&mine.name, mine.chains) {
            Some(RejectReason::Settings)
        } else if founding.members.len() < usize::from(mine.expect) && !allows!(self.settings.guards, AcceptFewer) {
            // Only this node's own number: another node's may be out of date.
            Some(RejectReason::Expects(mine.expect))
        } else if progress.vote.is_some_and(|vote| vote.verdict == ProposalVerdict::Abandon)
            || founding.members.iter().any(|founder| self.seen.is_replaced(founder.id))
        {
            Some(RejectReason::Over)
        } else {
            None
        }
    }

    fn hear_of_cluster(&mut self, from: MemberId, founding: Bootstrap) {
        if founding.members.is_empty() || founding.validate().is_err() || self.is_given_up(founding.cluster) {
            return;
        }
        self.seen.belongs(from, founding.cluster);
        if let FormationState::Accepted(attempt) = &self.state {
            let same = attempt.founding().cluster == founding.cluster;
            // A founder that belongs to another cluster never takes part in this proposal.
            if !same && !attempt.founding().names(from) {
                return;
            }
            if !same {
                self.give_up(Some((from, RejectReason::Elsewhere)));
            }
        }
        self.settle(Arc::new(founding));
    }
}
