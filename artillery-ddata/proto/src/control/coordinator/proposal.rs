//! The leader's proposal in flight.

use super::{
    types::{CoordinatorOutput, ProposalFate},
    view::View,
};
use crate::{Timestamp, control::log::LogIndex};

#[derive(Clone, Debug)]
struct PendingProposal {
    at: LogIndex,
    append: CoordinatorOutput,
    /// When to append the proposal again: its outcome is unknown.
    ask_again: Option<Timestamp>,
    /// An earlier append of the proposal has an unknown outcome, which the refusal of a later append doesn't settle. So
    /// the proposal stays unknown until its index is decided, or for the rest of the term (trap 66).
    unknown: bool,
}

/// At most one proposal at a time.
#[derive(Clone, Default, Debug)]
pub(super) struct Proposal {
    pending: Option<PendingProposal>,
    /// The earliest time for the next proposal, after a refusal.
    pause: Timestamp,
}

impl Proposal {
    pub(super) fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    pub(super) fn may_begin(&self, now: Timestamp) -> bool {
        self.pending.is_none() && now >= self.pause
    }

    /// `append` proposes a change at the index `at`.
    pub(super) fn begin(&mut self, at: LogIndex, append: CoordinatorOutput) -> CoordinatorOutput {
        self.pending = Some(PendingProposal { at, append: append.clone(), ask_again: None, unknown: false });
        append
    }

    /// The proposal again, if its outcome is unknown and it is due.
    pub(super) fn again(&mut self, now: Timestamp) -> Option<CoordinatorOutput> {
        let pending = self.pending.as_mut()?;
        pending.ask_again.take_if(|at| *at <= now)?;
        Some(pending.append.clone())
    }

    /// The log has been applied here up to this entry.
    pub(super) fn applied(&mut self, upto: LogIndex) {
        self.pending.take_if(|pending| pending.at <= upto);
    }

    /// An append has ended.
    pub(super) fn appended(&mut self, view: View<'_>, at: LogIndex, fate: ProposalFate) {
        let Some(pending) = self.pending.as_mut().filter(|pending| pending.at == at) else { return };
        let is_unknown = pending.unknown && !allows!(view.guards(), ForgetUnknown);
        let pause = view.now + view.settings().tick;
        match fate {
            // The outcome is known once the entry at that index has been applied here.
            ProposalFate::Decided if at > view.configs().applied() => {}
            ProposalFate::Decided => self.pending = None,
            ProposalFate::Refused if is_unknown => pending.ask_again = Some(pause),
            ProposalFate::Refused => (self.pending, self.pause) = (None, pause),
            ProposalFate::Unknown => (pending.unknown, pending.ask_again) = (true, Some(pause)),
        }
    }
}
