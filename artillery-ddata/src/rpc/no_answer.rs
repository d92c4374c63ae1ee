//! The end of a question to one node that wasn't answered.

use std::sync::Arc;

use artillery_core::error::CloseReason;

use crate::{
    Error, NodeId,
    error::{NotApplied, Unknown},
};

#[derive(Debug)]
pub(crate) enum NoAnswer {
    /// The node certainly didn't receive the question.
    NotSent(Error),
    /// The question was sent, at least in part: the node may act on it.
    Unanswered { node: NodeId, reason: Unanswered },
}

/// Why a node's answer to an order is missing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unanswered {
    /// The timeout expired.
    #[error("no answer arrived in time")]
    TimedOut,
    /// The connection was lost.
    #[error("the connection was lost: {0}")]
    Lost(Arc<CloseReason>),
    /// The node ended the request without an answer, or with one that doesn't fit the order.
    #[error("the node gave no usable answer")]
    Unusable,
}

impl From<Error> for NoAnswer {
    fn from(error: Error) -> Self {
        Self::NotSent(error)
    }
}

impl NoAnswer {
    /// The error of a query. A query changes nothing, so its outcome is never unknown.
    pub(crate) fn of_query(self) -> Error {
        match self {
            Self::NotSent(error) => error,
            Self::Unanswered { .. } => Error::not_applied(NotApplied::TimedOut),
        }
    }
}

impl From<Unknown> for Unanswered {
    fn from(reason: Unknown) -> Self {
        match reason {
            Unknown::TimedOut => Self::TimedOut,
            Unknown::Lost(reason) => Self::Lost(reason),
            _ => Self::Unusable,
        }
    }
}
