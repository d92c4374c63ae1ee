//! The inputs and outputs of a formation.

use std::sync::Arc;

use super::message::{FormationMessage, ProposalId, RejectReason};
use crate::{
    ClusterId, MemberId,
    control::{Bootstrap, NodeInfo},
};

/// A node that seems to be there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FounderCandidate {
    /// The node, in its incarnation, and its addresses.
    pub founder: NodeInfo,
    /// The cluster that the node claims to belong to.
    pub cluster: Option<ClusterId>,
}

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FormationInput {
    /// A node is there. To be handed in for each node in its newest incarnation, and again when that changes.
    Seen(FounderCandidate),
    /// A node seems to be gone.
    Gone(MemberId),
    /// This incarnation is certainly over: a newer one of its node was met. Also to be handed in for incarnations that were
    /// never seen but that [`Formation::named`](super::Formation::named) names.
    Replaced(MemberId),
    /// A message came.
    Receive {
        /// The sender; the driver has checked that it is this one.
        from: MemberId,
        /// The message.
        message: FormationMessage,
    },
    /// Whether this node, which belongs to a cluster, gives way to the cluster that succeeds it. While it does, it tells no
    /// node to join.
    Yields(bool),
    /// Whether a seed of this node hasn't answered yet.
    SeedsMissing(bool),
    /// Time has passed.
    Tick,
}

/// What the driver is to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FormationOutput {
    /// Send a message to exactly this incarnation, at [`Formation::addrs`](super::Formation::addrs). It may be lost.
    Send {
        /// The receiver.
        to: MemberId,
        /// The message.
        message: FormationMessage,
    },
    /// The cluster is formed and this node is a founder. Comes once, and no `Joined` after it.
    Formed(Arc<Bootstrap>),
    /// A cluster was formed without this node, which is a spare of it. Comes once, and no `Formed` after it.
    Joined(Arc<Bootstrap>),
    /// A majority of the founders of the accepted proposal has been silent in several ballots, and this incarnation can't abandon the
    /// proposal by itself. The driver must end it; the node's next incarnation is free. No output follows.
    Stuck,
}

/// How far a node has come with the formation, for operators.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FormationPhase {
    /// The node has accepted no proposal.
    Free {
        /// Free nodes seen, this one included.
        seen: usize,
        /// How many founders are expected.
        expect: u16,
        /// The node that expects this number, if this one expects fewer.
        expected_by: Option<MemberId>,
        /// Enough nodes are seen, and this node continues its search for more.
        searches: bool,
        /// The node that refused the last failed proposal, and why.
        refused: Option<(MemberId, RejectReason)>,
    },
    /// The node has accepted a proposal.
    Accepted(ProposalId),
    /// The node belongs to a cluster.
    Settled(Arc<Bootstrap>),
    /// A newer incarnation of this node was met: this one is silent for good.
    Replaced,
}
