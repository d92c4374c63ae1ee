//! The messages between nodes while a cluster forms.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::super::Bootstrap;
use crate::{ClusterId, MemberId};

/// A message of the formation. New variants are only ever added at the end; a message with an unknown one is malformed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum FormationMessage {
    /// To a founder that isn't known to have accepted: asks it to accept.
    Propose {
        /// The proposal.
        proposal: Box<Proposal>,
        /// The sender's cumulative state.
        progress: ProposalProgress,
    },
    /// To a founder that has accepted: how far the proposal has come.
    Progress {
        /// Which proposal.
        id: ProposalId,
        /// The sender's cumulative state.
        progress: ProposalProgress,
    },
    /// The sender has no part in this proposal and never will have: it never accepted the proposal, or has given it up.
    Refused {
        /// Which proposal.
        id: ProposalId,
        /// Why.
        reason: RejectReason,
    },
    /// Asks which cluster the receiver belongs to.
    Ask,
    /// The sender belongs to this cluster.
    Formed(Box<Bootstrap>),
}

/// A proposed founding.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Proposal {
    /// The proposer.
    pub proposer: MemberId,
    /// Counts the proposals of that incarnation, from 1 on.
    pub attempt: u64,
    /// The founding: cluster id, founders and settings.
    pub founding: Bootstrap,
}

impl Proposal {
    /// The proposal's name.
    pub fn id(&self) -> ProposalId {
        ProposalId { cluster: self.founding.cluster, proposer: self.proposer, attempt: self.attempt }
    }
}

/// Names a proposal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProposalId {
    /// The cluster that it would form.
    pub cluster: ClusterId,
    /// The proposer.
    pub proposer: MemberId,
    /// Counts the proposals of that incarnation.
    pub attempt: u64,
}

/// Why a node refuses a proposal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum RejectReason {
    /// The node had accepted another proposal.
    #[error("it had accepted another proposal")]
    Busy,
    /// The node belongs to a cluster or knows of one.
    #[error("it belongs to a cluster or knows of one")]
    Elsewhere,
    /// The proposal was given up, or came too late.
    #[error("the proposal was given up before")]
    Over,
    /// The node was started with other settings than the proposer.
    #[error("it was started with other settings")]
    Settings,
    /// The node expects this number of founders or more.
    #[error("it expects {0} founders or more")]
    Expects(u16),
    /// The node only joins a cluster that exists.
    #[error("it only joins a cluster that exists")]
    Joins,
}

/// How far a proposal has come, by the knowledge of one founder that has accepted it. Cumulative: a later one repeats all of
/// an earlier one.
///
/// Founders are named by their position in the founding.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ProposalProgress {
    /// The founders that are known to have accepted.
    pub accepted: BTreeSet<u16>,
    /// The sender takes part in no ballot below this one any more.
    pub promised: Ballot,
    /// The sender's vote in the highest ballot in which it voted.
    pub vote: Option<Vote>,
}

/// A ballot on what becomes of a proposal. The default is the lowest: it belongs to all founders, and its only verdict is
/// [`ProposalVerdict::Form`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct Ballot {
    /// Counts the ballots on one proposal.
    pub round: u64,
    /// The founder that asks in this ballot.
    pub owner: u16,
}

/// A vote. All votes of one ballot are equal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Vote {
    /// The ballot of the vote.
    pub ballot: Ballot,
    /// What the vote is for.
    pub verdict: ProposalVerdict,
}

/// What becomes of a proposal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ProposalVerdict {
    /// The cluster is formed. A founder casts this vote only when all founders are known to have accepted.
    Form,
    /// The proposal is refused for ever.
    Abandon,
}
