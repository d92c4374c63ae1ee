//! The events of a node and its cluster: public values, a stream of them, and a log line for each.

mod allowance;
mod stream;
#[cfg(test)]
mod tests;
mod text;
mod tracker;

use std::time::Duration;

use artillery_core::MemberId;

pub use self::stream::NodeEvents;
pub(crate) use self::{stream::EventHub, tracker::EventTracker};
use super::waiting::WaitingFor;
use crate::{ChainId, driver::control::MoveReason};

/// A node: its name, and its id with the incarnation.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventNode {
    /// The name.
    pub name: String,
    /// The id.
    pub id: MemberId,
}

/// A change of this node or its cluster, as this node knows it. `Display` gives one line in plain English.
///
/// Of changes that repeat quickly, not all are reported. Only the omitted changes of chains are counted: see
/// [`NodeEvent::Omitted`]. A node reports no changes of other nodes before it belongs to a cluster, and nothing once
/// [`Node::leave`](crate::Node::leave) or [`Node::shutdown`](crate::Node::shutdown) was called.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeEvent {
    /// Another node gives no answer. It may be alive but unreachable.
    MemberLost {
        /// The node.
        node: EventNode,
        /// How long this node has suspected it; `None`: it was reported as down before this node suspected it.
        silent: Option<Duration>,
    },
    /// A node that was lost answers again.
    MemberFound {
        /// The node.
        node: EventNode,
    },
    /// Another node has started again: a later incarnation has replaced the known one. Not reported for a node that had
    /// left in an orderly way.
    MemberReplaced {
        /// The node, in its present incarnation.
        node: EventNode,
    },
    /// Another node has left in an orderly way.
    MemberLeft {
        /// The node.
        node: EventNode,
    },
    /// A node no longer serves a chain.
    MovedOut {
        /// Which chain.
        chain: ChainId,
        /// The node.
        node: EventNode,
        /// Whether it is this node.
        is_this: bool,
        /// The reason, if this node knows it.
        why: Option<MoveReason>,
    },
    /// A node that joined a chain has copied its data, and serves.
    Promoted {
        /// Which chain.
        chain: ChainId,
        /// The node.
        node: EventNode,
        /// Whether it is this node.
        is_this: bool,
    },
    /// Too many voters of the configuration log give no answer, so the others are no majority: leases end, and no
    /// configuration changes.
    MajorityLost {
        /// The names of the voters that seem to be away.
        away: Vec<String>,
        /// The number of all voters.
        voters: usize,
    },
    /// This node's lease has ended, and no lost majority is known to be the cause: until it has a lease again, it needs
    /// other members to answer strong reads. Writes need no lease.
    LeaseLost,
    /// This node no longer serves, for another reason than a lost majority or lease.
    ServesNoLonger {
        /// The reasons.
        waiting_for: Vec<WaitingFor>,
    },
    /// This node serves again.
    ServesAgain,
    /// Events of a chain were not reported one by one, because too many followed each other.
    Omitted {
        /// The number of events.
        count: u64,
    },
    /// This reader was too slow and has missed events.
    Lagged {
        /// The number of missed events.
        missed: u64,
    },
}

/// How much an event concerns operators.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Weight {
    /// An orderly end, which is not logged at the default level.
    Orderly,
    /// A recovery, or a note on missing events.
    Good,
    /// A loss.
    Bad,
}

impl NodeEvent {
    pub(crate) fn weight(&self) -> Weight {
        match self {
            Self::MemberLeft { .. } | Self::MovedOut { why: Some(MoveReason::Left), .. } => Weight::Orderly,
            Self::MemberFound { .. }
            | Self::MemberReplaced { .. }
            | Self::Promoted { .. }
            | Self::ServesAgain
            | Self::Omitted { .. }
            | Self::Lagged { .. } => Weight::Good,
            Self::MemberLost { .. }
            | Self::MovedOut { .. }
            | Self::MajorityLost { .. }
            | Self::LeaseLost
            | Self::ServesNoLonger { .. } => Weight::Bad,
        }
    }
}
