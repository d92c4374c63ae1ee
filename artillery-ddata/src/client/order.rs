//! The errors of operators' orders.

use crate::{
    Error, NodeId,
    control::{
        message::{ArrangeError, NotGivenUp, ReorderError},
        recovery::NotRecovered,
        reopening::NotReopened,
        succession::NotReplaced,
    },
    rpc::{NoAnswer, Unanswered},
};

/// Why an operator's order failed; `R` is the reason of the node that refused it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AdminError<R> {
    /// The node refused the order, for this reason. Nothing was changed.
    #[error("{0}")]
    Rejected(R),
    /// The node may have begun to carry out the order, and reports why it doesn't know the outcome. The order may have
    /// been carried out, may still be, or may never be: check the status of the cluster.
    #[error("{0}")]
    Undecided(R),
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

    /// The reason of the node that refused the order: nothing was changed. `None`: the error has another cause, and the
    /// order may have been carried out unless it was [not sent](Self::NotSent).
    pub fn rejection(&self) -> Option<&R> {
        if let Self::Rejected(reason) = self { Some(reason) } else { None }
    }

    /// Whether the order may or may not have been carried out.
    pub fn is_outcome_unknown(&self) -> bool {
        matches!(self, Self::Undecided(_) | Self::OutcomeUnknown { .. })
    }
}

impl<R: Reason> From<R> for AdminError<R> {
    fn from(reason: R) -> Self {
        if reason.is_undecided() { Self::Undecided(reason) } else { Self::Rejected(reason) }
    }
}

/// A node's reason for not confirming an order.
pub(super) trait Reason {
    /// Whether the order may have been carried out all the same.
    fn is_undecided(&self) -> bool;
}

impl Reason for ArrangeError {
    fn is_undecided(&self) -> bool {
        matches!(self, Self::Stopped | Self::Reorder(ReorderError::Undecided) | Self::GiveUp(NotGivenUp::Undecided))
    }
}

impl Reason for NotReopened {
    fn is_undecided(&self) -> bool {
        matches!(self, Self::Stopped | Self::Undecided)
    }
}

impl Reason for NotRecovered {
    fn is_undecided(&self) -> bool {
        matches!(self, Self::Failed(_))
    }
}

impl Reason for NotReplaced {
    fn is_undecided(&self) -> bool {
        false
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_that_may_have_been_carried_out_is_not_rejected() {
        let failed = NotRecovered::Failed("the storage failed".to_owned());
        assert!(AdminError::from(failed.clone()).is_outcome_unknown());
        assert_eq!(AdminError::from(failed).rejection(), None);
        assert!(AdminError::from(ArrangeError::Stopped).is_outcome_unknown());
        assert!(AdminError::from(ArrangeError::Reorder(ReorderError::Undecided)).is_outcome_unknown());
        assert!(AdminError::from(ArrangeError::GiveUp(NotGivenUp::Undecided)).is_outcome_unknown());
        assert!(AdminError::from(NotReopened::Undecided).is_outcome_unknown());
        assert!(!AdminError::from(NotReopened::NotLeading { leader: None }).is_outcome_unknown());
        assert_eq!(AdminError::from(NotReplaced::Static).rejection(), Some(&NotReplaced::Static));
    }
}
