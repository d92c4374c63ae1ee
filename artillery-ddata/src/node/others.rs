//! A node's knowledge of other clusters of its name, as it concerns the rest of the node.

use artillery_proto::control::encounter::Encountered;

/// Meetings that wait for their task. When there are more, some are dropped: each is repeated.
pub(super) const MEETING_QUEUE: usize = 16;

/// A node's knowledge of other clusters of its name.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct Others {
    /// Why this node isn't ready, if they are the reason.
    pub(super) unready: Option<Encountered>,
    /// Whether an operator may give this node's cluster up for another one.
    pub(super) may_be_given_up: bool,
}
