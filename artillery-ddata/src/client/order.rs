//! The errors of operators' orders.

use crate::{
    Error, NodeId,
    rpc::{NoAnswer, Unanswered},
};

/// Why an operator's order failed; `R` is the reason of the node that refused it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AdminError<R> {
    /// The node refused the order, for this reason. Nothing was changed, unless the documentation of the reason states
    /// otherwise.
    #[error("{0}")]
    Rejected(R),
    /// The order was not sent: nothing was changed, and nothing will be. The error is [`Error::NotApplied`] or
    /// [`Error::Refused`].
    #[error(transparent)]
    NotSent(Error),
    /// The order was sent, and no answer reported its outcome. It may have been carried out, may still be, or may never
    /// be: check the status of the cluster.
    #[error("the outcome of the order is unknown: it was sent to node {node}, and {reason}")]
    #[non_exhaustive]
    OutcomeUnknown {
        /// The node to which the order was sent.
        node: NodeId,
        /// Why no answer reported the outcome.
        reason: Unanswered,
    },
}

impl<R> AdminError<R> {
    pub(super) fn unusable(node: NodeId) -> Self {
        Self::OutcomeUnknown { node, reason: Unanswered::Unusable }
    }

    /// The reason of the node that refused the order.
    pub fn rejection(&self) -> Option<&R> {
        if let Self::Rejected(reason) = self { Some(reason) } else { None }
    }

    /// Whether the order may or may not have been carried out.
    pub fn is_outcome_unknown(&self) -> bool {
        matches!(self, Self::OutcomeUnknown { .. })
    }
}

impl<R> From<NoAnswer> for AdminError<R> {
    fn from(error: NoAnswer) -> Self {
        match error {
            NoAnswer::NotSent(error) => Self::NotSent(error),
            NoAnswer::Unanswered { node, reason } => Self::OutcomeUnknown { node, reason },
        }
    }
}
