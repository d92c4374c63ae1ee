//! The inputs and outputs of the coordinator.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::reason::ChangeReason;
use crate::{
    ChainId, ClusterId, Epoch, MemberId, Timestamp,
    control::{
        log::{ConfigChange, Configs, LogIndex, Term},
        message::{NotGivenUp, Renewal, Renewed, ReorderError},
        reopening::{NotReopened, Reopened},
    },
};

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum CoordinatorInput {
    Log {
        /// The term in which this node leads, if it does.
        leads: Option<Term>,
        leader: Option<MemberId>,
        /// The configurations after the last entry applied here.
        configs: Arc<Configs>,
        voters: BTreeSet<MemberId>,
    },
    Renewal {
        /// The sender, verified by the driver.
        from: MemberId,
        renewal: Renewal,
    },
    /// The round of [`CoordinatorOutput::Confirm`] has ended.
    Confirmed {
        round: u64,
        /// Whether a quorum has confirmed that this node still led after the round began.
        leads: bool,
        /// Per node of the log's group: when the latest message that it has answered was sent.
        answered: BTreeMap<MemberId, Timestamp>,
    },
    /// A node has sent a message of the log's group on a connection that it dialled.
    Reached {
        by: MemberId,
    },
    /// [`CoordinatorOutput::Append`] has ended.
    Appended {
        at: LogIndex,
        fate: ProposalFate,
    },
    /// An operator's order of a chain's serving members. Answered by [`CoordinatorOutput::Reordered`].
    Reorder {
        token: u64,
        chain: ChainId,
        /// All of its serving members, head first.
        order: Vec<MemberId>,
    },
    /// An operator accepts the loss of every update of a chain that is missing from all available stores. Answered by
    /// [`CoordinatorOutput::Reopened`].
    AcceptLoss {
        token: u64,
        chain: ChainId,
    },
    /// The cluster of this one's name and secret to which this one gives way if it is empty; `None`: no such cluster is
    /// met. The caller repeats the report, which expires after three leases, or three seconds if that is longer.
    Outranked {
        by: Option<ClusterId>,
    },
    /// An operator gives this cluster up in favour of another one, and its data are lost. Answered by
    /// [`CoordinatorOutput::GivenUp`].
    GiveUp {
        token: u64,
    },
    /// [`CoordinatorOutput::SetVoters`] has ended, successfully or not.
    VotersSet,
    Tick,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProposalFate {
    /// The index is taken, by the proposal or by another entry: read the log to find out.
    Decided,
    /// This append will never put the proposal into the log. An earlier append of unknown outcome still may.
    Refused,
    /// The proposal may be in the log or not.
    Unknown,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CoordinatorOutput {
    /// The answer to a renewal.
    Answer {
        to: MemberId,
        renewed: Renewed,
    },
    /// Begin a round: check whether this node still leads in this term. One round at a time.
    Confirm {
        round: u64,
        term: Term,
    },
    /// Propose a change to the log. One proposal at a time.
    Append {
        /// The proposal is valid only in this term.
        term: Term,
        /// The index that it must take.
        at: LogIndex,
        change: ConfigChange,
        /// For operators.
        why: Vec<ChangeReason>,
    },
    Reordered {
        token: u64,
        /// The epoch of the configuration with that order.
        result: Result<Epoch, ReorderError>,
    },
    Reopened {
        token: u64,
        result: Result<Reopened, NotReopened>,
    },
    GivenUp {
        token: u64,
        /// `Ok`: the cluster has given way.
        result: Result<(), NotGivenUp>,
    },
    /// Replace the voters of the log's group. One such change at a time.
    SetVoters {
        /// The change is valid only in this term.
        term: Term,
        voters: BTreeSet<MemberId>,
    },
    /// No other node can reach this one: resign the leadership of this term, so that another node is elected, and be no
    /// candidate until [`CoordinatorOutput::Stand`].
    Resign {
        term: Term,
    },
    /// This node may lead again, in a later term.
    Stand,
    Warn(LogWarning),
}

/// A report to operators about the voters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LogWarning {
    /// If one more voter is lost, no configuration can change.
    AtRisk { missing: BTreeSet<MemberId> },
    /// A majority of the voters is silent: no configuration can change.
    Lost { missing: BTreeSet<MemberId> },
    /// No voter is missing now, or the log survives the loss of another one.
    Safe,
}
