//! What nodes say to each other while a cluster forms.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::super::Founding;
use crate::{ClusterId, MemberId};

/// A message of the formation. Variants are only ever added at the end; one that isn't known is no message.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum FormationMessage {
    /// To a founder that isn't known to have accepted: please do, and this is how far it is.
    Propose {
        /// What is proposed.
        proposal: Box<Proposal>,
        /// The sender's cumulative state.
        progress: Progress,
    },
    /// To a founder that has accepted: how far it is.
    Progress {
        /// Which proposal.
        id: ProposalId,
        /// The sender's cumulative state.
        progress: Progress,
    },
    /// The sender has no part in this proposal and never will have: it never accepted it, or has given it up.
    Refused {
        /// Which proposal.
        id: ProposalId,
        /// Why.
        reason: Reason,
    },
    /// Please say which cluster you belong to.
    Ask,
    /// The sender belongs to this cluster.
    Formed(Box<Founding>),
}

/// A founding that somebody proposes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Proposal {
    /// Who proposes it.
    pub proposer: MemberId,
    /// Counts the proposals of that life of the proposer, from 1 on.
    pub attempt: u64,
    /// What is proposed.
    pub founding: Founding,
}

impl Proposal {
    /// What names it.
    pub fn id(&self) -> ProposalId {
        ProposalId { cluster: self.founding.cluster, proposer: self.proposer, attempt: self.attempt }
    }
}

/// Names a proposal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProposalId {
    /// The cluster that it would make.
    pub cluster: ClusterId,
    /// Who proposes it.
    pub proposer: MemberId,
    /// Counts the proposals of that life of the proposer.
    pub attempt: u64,
}

/// Why a node refuses a proposal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Reason {
    /// It had accepted another one.
    #[error("it had accepted another proposal")]
    Busy,
    /// It belongs to a cluster or knows of one.
    #[error("it belongs to a cluster or knows of one")]
    Elsewhere,
    /// It was given up, or came too late.
    #[error("the proposal was given up before")]
    Over,
    /// The node was started with other settings than the proposer.
    #[error("it was started with other settings")]
    Settings,
}

/// How far a proposal is, as one founder that has accepted it knows: cumulative, a later one says all of an earlier.
///
/// Founders are named by their place in the founding.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Progress {
    /// Who is known to have accepted it.
    pub accepted: BTreeSet<u16>,
    /// The sender takes part in no ballot below this one any more.
    pub promised: Ballot,
    /// The sender's vote in the highest ballot in which it voted.
    pub vote: Option<Vote>,
}

/// A ballot on what becomes of a proposal. The default one is the lowest: it belongs to all, and knows only one verdict.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct Ballot {
    /// Counts the ballots that came one after the other.
    pub round: u64,
    /// The founder that asks in this ballot.
    pub owner: u16,
}

/// A vote. All votes of one ballot are equal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Vote {
    /// In which ballot.
    pub ballot: Ballot,
    /// For what.
    pub verdict: Verdict,
}

/// What becomes of a proposal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Verdict {
    /// The cluster is formed. Voted for only by those who know that all founders accepted.
    Form,
    /// It is refused for ever.
    Abandon,
}
