//! The errors of a call, grouped by the state that they leave behind.

use std::sync::Arc;

use artillery_core::error::{CloseReason, ConnectError};

use crate::{NodeId, RequestId, api::Refusal};

/// Why a call failed. The variant states whether the write was applied; its reason explains why. Where a retry was safe
/// and could help, the handle has already retried until the timeout.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A node, or this process, refused the request: nothing was applied, and nothing will be. The reason
    /// [`Refusal::OtherHistory`] concerns only the cluster's present history: a write under a given request id may have
    /// been applied in a former one.
    #[error("refused: {reason}")]
    #[non_exhaustive]
    Refused {
        /// The reason.
        reason: Refusal,
        /// The node that refused. `None`: this process did.
        node: Option<NodeId>,
    },
    /// No node accepted the request, no node answered the read in time, or this handle didn't send the request: nothing
    /// was applied, and nothing will be.
    #[error("nothing was applied: {reason}")]
    #[non_exhaustive]
    NotApplied {
        /// The reason.
        reason: NotApplied,
    },
    /// The write was sent, by this call or by an earlier one under the same request id, but no answer reported its
    /// result. It may have been applied, may still be applied, or may never be, unless the reason states more. Reads
    /// never end this way.
    #[error("the outcome of the write {request_id} is unknown: {reason}")]
    #[non_exhaustive]
    OutcomeUnknown {
        /// The reason.
        reason: Unknown,
        /// The id of the request. Repeat the call under it, or settle the outcome with
        /// [`Kv::resolve`](crate::Kv::resolve).
        request_id: RequestId,
    },
}

/// Why nothing was applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotApplied {
    /// The timeout expired before a node accepted the request, or before one answered the read. Or a read or query
    /// ended earlier without a usable answer, or an operator's request reached no node at the given addresses.
    #[error("timed out")]
    TimedOut,
    /// The cluster isn't formed yet, no node of a formed cluster was reached, or its routing names no member to ask.
    #[error("no formed cluster is known yet")]
    NotFormed,
    /// A node that the request depends on wasn't reached in time, or gave no usable answer.
    #[error("node {node} was not reached{}", because(.reason))]
    Unreachable {
        /// The node.
        node: NodeId,
        /// Why the last dial failed, if one was made.
        reason: Option<Arc<ConnectError>>,
    },
    /// The cluster has no known node with this id.
    #[error("node {0} is not known in this cluster")]
    UnknownNode(NodeId),
    /// This handle's node or client was stopped.
    #[error("this node or client was stopped")]
    Stopped,
    /// A [`BlockingKv`](crate::blocking::BlockingKv) was called within a runtime, whose thread it would block.
    #[error("a blocking call within a tokio runtime: await the asynchronous call instead")]
    WithinRuntime,
    /// The call was made outside of a tokio runtime. There, use a [`BlockingKv`](crate::blocking::BlockingKv).
    #[error("a call outside of a tokio runtime: enter one, or use the blocking handle")]
    OutsideRuntime,
}

fn because(reason: &Option<Arc<ConnectError>>) -> String {
    reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"))
}

/// Why the outcome of a write is unknown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unknown {
    /// The timeout expired after the write had been sent. Or the call was made under a given request id, so an earlier
    /// call may have sent the write, and this call ended without an outcome: by its timeout, or earlier by a refusal
    /// (for instance [`Refusal::DiskFull`]) or because this node or client was stopped.
    #[error("timed out before the commit was confirmed")]
    TimedOut,
    /// The connection was lost after the write had been sent, and no later attempt learned the outcome.
    #[error("the connection was lost: {0}")]
    Lost(Arc<CloseReason>),
    /// The node ended the request without an answer, or with one that doesn't fit the request. Or the chain changed its
    /// head, and no later attempt learned the outcome.
    #[error("the node gave no usable answer")]
    NoAnswer,
    /// The chain no longer keeps the record of the request: the client's session was evicted, or a later request
    /// confirmed that the client had received this answer.
    #[error("its record is no longer kept")]
    SessionExpired,
    /// A [script](crate::Kv::run) was applied as this version, and its answer was lost. Chains don't keep script
    /// results for retries.
    #[error("it was applied as version {0}, but its results are lost")]
    ResultsLost(crate::Version),
    /// This attempt was not made, for this reason. The call was made under a given request id, so an earlier attempt
    /// may have been applied.
    #[error("this attempt was not made: {0}; an earlier one may have been applied")]
    NotMade(NotApplied),
}

/// The next step that a caller can take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Advice {
    /// Call again, a little later: nothing was applied.
    Retry,
    /// Change the request, or use another handle: the same call would fail again.
    Change,
    /// Repeat the call under the same request id, or settle its outcome: either way it takes effect at most once.
    Resolve,
    /// Calling again doesn't help before the cluster has changed: it needs more members, free disk space or memory, or
    /// an operator's decision.
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

    /// The error of a call under a given request id: if this attempt applied nothing, an earlier one may have. A
    /// refusal stays as it is.
    pub(crate) fn of_retry(self, id: Option<RequestId>) -> Self {
        match (self, id) {
            (Self::NotApplied { reason: NotApplied::TimedOut }, Some(id)) => Self::unknown(Unknown::TimedOut, id),
            (Self::NotApplied { reason }, Some(id)) => Self::unknown(Unknown::NotMade(reason), id),
            (error, _) => error,
        }
    }

    /// Whether the request was refused, so that nothing was applied.
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Refused { .. })
    }

    /// Whether certainly nothing was applied: true unless the outcome is unknown.
    pub fn is_not_applied(&self) -> bool {
        !self.is_outcome_unknown()
    }

    /// Whether the write may or may not have been applied.
    pub fn is_outcome_unknown(&self) -> bool {
        matches!(self, Self::OutcomeUnknown { .. })
    }

    /// Whether the reason is [`NotApplied::TimedOut`] or [`Unknown::TimedOut`], which also cover a few calls that ended
    /// before their timeout. The variant states whether the outcome is unknown.
    pub fn is_timeout(&self) -> bool {
        matches!(
            self,
            Self::NotApplied { reason: NotApplied::TimedOut } | Self::OutcomeUnknown { reason: Unknown::TimedOut, .. }
        )
    }

    /// The next step that the caller can take.
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
                Refusal::StoreFailed
                | Refusal::TooFewMembers { .. }
                | Refusal::DiskFull { .. }
                | Refusal::MemoryFull { .. }
                | Refusal::Unsupported { .. }
                | Refusal::Parted { .. } => Advice::Repair,
                _ => Advice::Retry,
            },
            Self::NotApplied { reason } => match reason {
                NotApplied::UnknownNode(_)
                | NotApplied::Stopped
                | NotApplied::WithinRuntime
                | NotApplied::OutsideRuntime => Advice::Change,
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
    fn each_kind_says_what_it_leaves_behind() {
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
        // A retry that was not made doesn't undo a possible effect of the first attempt.
        let stopped = Error::not_applied(NotApplied::Stopped);
        assert_eq!(stopped.clone().of_retry(None), stopped);
        assert_eq!(stopped.of_retry(Some(id)), Error::unknown(Unknown::NotMade(NotApplied::Stopped), id));
        assert_eq!((timed_out.of_retry(Some(id)), refused.clone().of_retry(Some(id))), (unknown, refused));
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
