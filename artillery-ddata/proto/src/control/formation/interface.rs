use std::sync::Arc;

use super::message::{FormationMessage, ProposalId, RejectReason};
use crate::{
    ClusterId, MemberId,
    control::{Bootstrap, NodeInfo},
};

/// A node that could be a founder, or belongs to a cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FounderCandidate {
    pub founder: NodeInfo,
    /// The cluster that the node claims to belong to.
    pub cluster: Option<ClusterId>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FormationInput {
    /// A node seems to be alive. Required for each node in its newest incarnation, and again when its incarnation,
    /// cluster or addresses change.
    Seen(FounderCandidate),
    /// A node seems to be gone.
    Gone(MemberId),
    /// This incarnation has certainly ended: a newer one of its node was met. Also required for incarnations that were
    /// never seen but are in [`Formation::named`](super::Formation::named).
    Replaced(MemberId),
    Receive {
        /// The sender, verified by the driver.
        from: MemberId,
        message: FormationMessage,
    },
    /// Whether this node, which belongs to a cluster, gives way to the cluster that succeeds it. While it does, it
    /// invites no node to join.
    Yields(bool),
    SeedsMissing(bool),
    Tick,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FormationOutput {
    /// Send a message to exactly this incarnation, at [`Formation::addrs`](super::Formation::addrs). It may be lost.
    Send { to: MemberId, message: FormationMessage },
    /// The cluster is formed and this node is a founder. Emitted at most once, and never followed by `Joined`.
    Formed(Arc<Bootstrap>),
    /// This node belongs to a formed cluster, and its incarnation isn't among the founders. Emitted at most once, and
    /// never followed by `Formed`.
    Joined(Arc<Bootstrap>),
    /// A majority of the founders of the accepted proposal has been silent in several ballots, and this incarnation
    /// can't abandon the proposal by itself. The driver must end it; the node's next incarnation is free. No output
    /// follows.
    Stuck,
}

/// A node's progress in the formation, for operators.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FormationPhase {
    Free {
        /// Free nodes seen, including this one.
        seen: usize,
        /// The minimum number of founders for a proposal of this node.
        expect: u16,
        /// The node that expects this number, if this one expects fewer.
        expected_by: Option<MemberId>,
        /// Enough nodes are seen, and this node keeps searching for more.
        searches: bool,
        /// The node that refused the last failed proposal, and why.
        refused: Option<(MemberId, RejectReason)>,
    },
    Accepted(ProposalId),
    Settled(Arc<Bootstrap>),
    /// A newer incarnation of this node was met, or this one is stuck ([`FormationOutput::Stuck`]): it is permanently
    /// silent.
    Replaced,
}
