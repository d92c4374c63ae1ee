//! The leader's proposal in flight.

use super::{
    reason::ChangeReason,
    types::{CoordinatorOutput, ProposalFate},
};
use crate::{
    Timestamp,
    control::log::{ConfigChange, LogIndex, Term},
};

#[derive(Clone, Debug)]
struct PendingProposal {
    at: LogIndex,
    change: ConfigChange,
    why: Vec<ChangeReason>,
    /// When to append the proposal again, because it may be in the log or not.
    ask_again: Option<Timestamp>,
    /// An earlier append of the proposal has an unknown outcome, which the refusal of a later append doesn't settle. So
    /// the proposal stays unknown until its index is decided, or for the rest of the term (trap 66).
    unknown: bool,
}

/// At most one proposal at a time.
#[derive(Clone, Debug)]
pub(super) struct Proposal {
    pending: Option<PendingProposal>,
    /// The earliest time for a proposal, after a refusal.
    pause: Timestamp,
}

impl Proposal {
    pub(super) fn none() -> Self {
        Self { pending: None, pause: Timestamp::ZERO }
    }

    pub(super) fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    pub(super) fn may_begin(&self, now: Timestamp) -> bool {
        self.pending.is_none() && now >= self.pause
    }

    pub(super) fn begin(
        &mut self,
        term: Term,
        at: LogIndex,
        change: ConfigChange,
        why: Vec<ChangeReason>,
    ) -> CoordinatorOutput {
        let pending = PendingProposal { at, change: change.clone(), why: why.clone(), ask_again: None, unknown: false };
        self.pending = Some(pending);
        CoordinatorOutput::Append { term, at, change, why }
    }

    /// The proposal again, if its outcome is unknown and it is due.
    pub(super) fn again(&mut self, now: Timestamp, term: Term) -> Option<CoordinatorOutput> {
        let pending = self.pending.as_mut()?;
        pending.ask_again.take_if(|at| *at <= now)?;
        let (at, change, why) = (pending.at, pending.change.clone(), pending.why.clone());
        Some(CoordinatorOutput::Append { term, at, change, why })
    }

    /// The log has been applied here up to this entry.
    pub(super) fn applied(&mut self, upto: LogIndex) {
        self.pending.take_if(|pending| pending.at <= upto);
    }

    /// An append has ended. `pause`: the earliest time for another one. `forgets` (a mutant): a refusal settles the
    /// outcome in any case.
    pub(super) fn appended(
        &mut self,
        at: LogIndex,
        fate: ProposalFate,
        applied: LogIndex,
        pause: Timestamp,
        forgets: bool,
    ) {
        let Some(pending) = self.pending.as_mut().filter(|pending| pending.at == at) else { return };
        match fate {
            // The outcome is known once the entry at that index has been applied here.
            ProposalFate::Decided if at > applied => {}
            ProposalFate::Decided => self.pending = None,
            ProposalFate::Refused if pending.unknown && !forgets => pending.ask_again = Some(pause),
            ProposalFate::Refused => (self.pending, self.pause) = (None, pause),
            ProposalFate::Unknown => (pending.unknown, pending.ask_again) = (true, Some(pause)),
        }
    }
}
