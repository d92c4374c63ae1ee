//! The messages between nodes during the formation of a cluster.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::super::Bootstrap;
use crate::{ClusterId, MemberId};

/// New variants are only ever added at the end; a message with an unknown one is malformed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum FormationMessage {
    /// Sent to a founder that isn't known to have accepted: asks it to accept.
    Propose {
        proposal: Box<Proposal>,
        progress: ProposalProgress,
    },
    /// Sent to a founder that has accepted: the state of the proposal.
    Progress {
        id: ProposalId,
        progress: ProposalProgress,
    },
    /// The sender never takes part in this proposal: it never accepted it, or has abandoned it.
    Refused {
        id: ProposalId,
        reason: RejectReason,
    },
    /// Asks which cluster the receiver belongs to.
    Ask,
    Formed(Box<Bootstrap>),
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Proposal {
    pub proposer: MemberId,
    /// Counts the proposals of the proposer's incarnation, from 1.
    pub attempt: u64,
    pub founding: Bootstrap,
}

impl Proposal {
    pub fn id(&self) -> ProposalId {
        ProposalId { cluster: self.founding.cluster, proposer: self.proposer, attempt: self.attempt }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProposalId {
    pub cluster: ClusterId,
    pub proposer: MemberId,
    /// See [`Proposal::attempt`].
    pub attempt: u64,
}

/// Why a node refuses a proposal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum RejectReason {
    #[error("it had accepted another proposal")]
    Busy,
    #[error("it belongs to a cluster or knows of one")]
    Elsewhere,
    /// The proposal was abandoned, or arrived too late.
    #[error("the proposal was abandoned earlier")]
    Over,
    /// The node has another cluster name or other chain settings than the proposer.
    #[error("it was started with other settings")]
    Settings,
    #[error("it expects {0} founders or more")]
    Expects(u16),
    #[error("it only joins a cluster that exists")]
    Joins,
}

/// The state of a proposal at one founder that has accepted it. Cumulative: a later one includes all of an earlier one.
///
/// Founders are named by their position in [`Bootstrap::members`].
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ProposalProgress {
    pub accepted: BTreeSet<u16>,
    /// The sender takes part in no ballot below this one.
    pub promised: Ballot,
    /// The sender's vote in the highest ballot in which it voted.
    pub vote: Option<Vote>,
}

/// A ballot on the verdict of a proposal. The default is the lowest: it belongs to all founders, and its only verdict
/// is [`ProposalVerdict::Form`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct Ballot {
    pub round: u64,
    /// The founder that collects promises and votes.
    pub owner: u16,
}

/// A founder's vote. All votes in one ballot have the same verdict.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Vote {
    pub ballot: Ballot,
    pub verdict: ProposalVerdict,
}

/// The outcome of a proposal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ProposalVerdict {
    /// The cluster is formed. A founder votes for this only when all founders are known to have accepted.
    Form,
    Abandon,
}
