//! What can go wrong with a call, by the state that it leaves behind.

use std::sync::Arc;

use artillery_core::error::{CloseReason, ConnectError};

use crate::{NodeId, RequestId, api::Refusal};

/// Why a call has no result. The kind says what became of the data, which is what a caller must know first; the reason
/// says why. The handle has already retried, until the timeout, whatever could be retried safely.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A node looked at the request and refused it: nothing was applied, and nothing will be.
    #[error("refused: {reason}")]
    #[non_exhaustive]
    Refused {
        /// Why.
        reason: Refusal,
        /// Who refused; `None`: this process did, before anybody was asked.
        node: Option<NodeId>,
    },
    /// Nobody took the request, or nobody answered a read in time: nothing was applied, and nothing will be.
    #[error("nothing was applied: {reason}")]
    #[non_exhaustive]
    NotApplied {
        /// Why.
        reason: NotApplied,
    },
    /// The write was sent and its answer didn't come: it may have been applied, may be applied yet, or never will be, unless
    /// the reason says more. Never said of a read.
    #[error("the outcome of the write {request_id} is unknown: {reason}")]
    #[non_exhaustive]
    OutcomeUnknown {
        /// Why.
        reason: Unknown,
        /// The request's id: repeat the call with it, or ask what became of it by
        /// [`Kv::resolve`](crate::Kv::resolve).
        request_id: RequestId,
    },
}

/// Why a request went nowhere.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotApplied {
    /// The time was up before a node took the request, or before one answered the read.
    #[error("the time was up")]
    TimedOut,
    /// The cluster isn't formed yet, or nobody who knows it was reached.
    #[error("no formed cluster is known yet")]
    NotFormed,
    /// A node that has to be asked wasn't reached in time.
    #[error("node {node} was not reached{}", because(.reason))]
    Unreachable {
        /// Which node.
        node: NodeId,
        /// Why the last try to connect failed, if one was made.
        reason: Option<Arc<ConnectError>>,
    },
    /// The node isn't known in this cluster.
    #[error("no node {0} is known here")]
    UnknownNode(NodeId),
    /// This handle's node or client was stopped.
    #[error("this node or client was stopped")]
    Stopped,
    /// A call of a [`BlockingKv`](crate::blocking::BlockingKv) was made within a runtime, which it would hold up.
    #[error("a blocking call within a runtime: await the asynchronous one")]
    WithinRuntime,
}

fn because(reason: &Option<Arc<ConnectError>>) -> String {
    reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"))
}

/// Why the outcome of a write is unknown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unknown {
    /// The time was up after the write had been taken in.
    #[error("the time was up before its commit was known")]
    TimedOut,
    /// The connection was lost after the write had been sent.
    #[error("the connection was lost: {0}")]
    Lost(Arc<CloseReason>),
    /// The node ended the request without an answer, or answered what makes no sense.
    #[error("the node gave no usable answer")]
    NoAnswer,
    /// The record of the request is gone: its client's session was evicted, or an answer had come and later requests said
    /// so.
    #[error("its record is no longer kept")]
    SessionExpired,
    /// A [script](crate::Kv::run) ran as this version, and its answer was lost: what it told isn't kept for a retry.
    #[error("it was applied as version {0}, what it told is lost")]
    ResultsLost(crate::Version),
}

/// What a caller can do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Advice {
    /// Call again, better a little later: nothing was applied.
    Retry,
    /// Change the request: it will always be refused.
    Change,
    /// Repeat the call under the same request id, or ask what became of it: either way it happens at most once.
    Resolve,
    /// See to the cluster: this needs an operator.
    Repair,
}

impl Error {
    pub(crate) fn refused(reason: Refusal, node: Option<NodeId>) -> Self {
        Self::Refused { reason, node }
    }

    pub(crate) fn not_applied(reason: NotApplied) -> Self {
        Self::NotApplied { reason }
    }

    pub(crate) fn unknown(reason: Unknown, request_id: RequestId) -> Self {
        Self::OutcomeUnknown { reason, request_id }
    }

    /// Whether a node refused, so that nothing was applied.
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Refused { .. })
    }

    /// Whether it is certain that nothing was applied: true of all but an unknown outcome.
    pub fn is_not_applied(&self) -> bool {
        !self.is_outcome_unknown()
    }

    /// Whether a write may or may not have been applied.
    pub fn is_outcome_unknown(&self) -> bool {
        matches!(self, Self::OutcomeUnknown { .. })
    }

    /// Whether the time was up, whatever that leaves behind.
    pub fn is_timeout(&self) -> bool {
        matches!(
            self,
            Self::NotApplied { reason: NotApplied::TimedOut } | Self::OutcomeUnknown { reason: Unknown::TimedOut, .. }
        )
    }

    /// What to do next.
    pub fn way_on(&self) -> Advice {
        match self {
            Self::Refused { reason, .. } => match reason {
                Refusal::KeyTooLong { .. }
                | Refusal::ValueTooLarge { .. }
                | Refusal::BatchSize { .. }
                | Refusal::ResultsTooLarge { .. }
                | Refusal::UpdateTooLarge { .. }
                | Refusal::ManyChains
                | Refusal::OtherRequest
                | Refusal::Compacted { .. }
                | Refusal::OtherHistory
                | Refusal::NotANumber
                | Refusal::Overflow
                | Refusal::Barred
                | Refusal::SnapshotGone => Advice::Change,
                Refusal::StoreFailed | Refusal::TooFewMembers { .. } => Advice::Repair,
                _ => Advice::Retry,
            },
            Self::NotApplied { reason } => match reason {
                NotApplied::UnknownNode(_) | NotApplied::Stopped | NotApplied::WithinRuntime => Advice::Change,
                _ => Advice::Retry,
            },
            Self::OutcomeUnknown { .. } => Advice::Resolve,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_says_what_is_left_behind() {
        let refused = Error::refused(Refusal::Busy, None);
        let timed_out = Error::not_applied(NotApplied::TimedOut);
        let id = RequestId {
            cluster: crate::ClusterId(1),
            chain: crate::ChainId(0),
            session: crate::Version::new(1, 2),
            number: 3,
        };
        let unknown = Error::unknown(Unknown::TimedOut, id);
        assert!(refused.is_refused() && refused.is_not_applied() && !refused.is_timeout());
        assert!(!timed_out.is_refused() && timed_out.is_not_applied() && timed_out.is_timeout());
        assert!(unknown.is_outcome_unknown() && !unknown.is_not_applied() && unknown.is_timeout());
        assert_eq!(unknown.way_on(), Advice::Resolve);
        assert_eq!(Error::refused(Refusal::KeyTooLong { len: 5000, limit: 4096 }, None).way_on(), Advice::Change);
    }

    #[test]
    fn texts_name_the_limit() {
        let text = Error::refused(Refusal::ValueTooLarge { len: 11, limit: 10 }, None).to_string();
        assert_eq!(text, "refused: a value of 11 bytes, at most 10 are allowed (max_value_bytes)");
        let node = NodeId::from_name("a");
        let reason = Some(Arc::new(ConnectError::NoAddress));
        let text = Error::not_applied(NotApplied::Unreachable { node, reason }).to_string();
        assert_eq!(text, format!("nothing was applied: node {node} was not reached: no address is known"));
    }
}
