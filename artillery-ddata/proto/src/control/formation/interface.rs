//! What a driver hands in and gets back.

use std::sync::Arc;

use super::message::{FormationMessage, ProposalId, Reason};
use crate::{
    ClusterId, MemberId,
    control::{Founder, Founding},
};

/// A node that seems to be there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// Who, in which life, and how to reach it.
    pub founder: Founder,
    /// The cluster that it says it belongs to.
    pub cluster: Option<ClusterId>,
}

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Input {
    /// A node is there. To be said of each node in its newest life, and again when it changes.
    Seen(Candidate),
    /// A node seems not to be there any more.
    Gone(MemberId),
    /// This life of a node is certainly over: a newer life of that node was met. Also to be said of lives that were
    /// never seen but that [`Formation::named`](super::Formation::named) names.
    Replaced(MemberId),
    /// A node said something; the driver vouches for who it was.
    Receive {
        /// Who, in which life.
        from: MemberId,
        /// What.
        message: FormationMessage,
    },
    /// This node, which belongs to a cluster, gives way to the one that succeeds it, or goes on: while it gives way it tells
    /// no node to join.
    Yields(bool),
    /// Time has passed.
    Tick,
}

/// What the driver is to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Send this to exactly that life of a node; [`Formation::addrs`](super::Formation::addrs) says where it may be found. May be lost.
    Send {
        /// To whom.
        to: MemberId,
        /// What.
        message: FormationMessage,
    },
    /// The cluster is formed and this node is a founder. Said once, and nothing of the kind after it.
    Formed(Arc<Founding>),
    /// There is a cluster, formed without this node, which is a spare of it. Said once, and nothing of the kind after it.
    Joined(Arc<Founding>),
}

/// What a node is to the formation, for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Has part in no proposal.
    Free {
        /// Free nodes seen, this one included.
        seen: usize,
        /// How many are expected.
        expect: u16,
        /// Who refused the last proposal that failed, and why.
        refused: Option<(MemberId, Reason)>,
    },
    /// Has accepted a proposal.
    Accepted(ProposalId),
    /// Belongs to a cluster.
    Settled(Arc<Founding>),
    /// A newer life of this node was met: this one says nothing any more.
    Replaced,
}
