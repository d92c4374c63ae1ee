//! A node's knowledge of other clusters of its name, as it concerns the rest of the node.

use artillery_proto::control::encounter::Encountered;

/// Meetings that wait for their task. When there are more, some are dropped: each is repeated.
pub(super) const MEETING_QUEUE: usize = 16;

/// A node's knowledge of other clusters of its name.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct Others {
    /// Why this node isn't ready, if they are the reason.
    pub(super) unready: Option<Encountered>,
    /// Whether any was met lately.
    pub(super) are_met: bool,
}
