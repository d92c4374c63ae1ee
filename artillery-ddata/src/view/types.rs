//! Errors, changes and the status of views.

use std::time::Duration;

use bytes::Bytes;

use crate::{Error, kv::Versioned};

/// Why a view couldn't be opened, or why it ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ViewError {
    /// The copy needs more memory than allowed ([`max_bytes`](super::OpenView::max_bytes)).
    #[error("the copy needs more than {limit} bytes (max_bytes)")]
    #[non_exhaustive]
    TooLarge {
        /// The limit, in bytes.
        limit: u64,
    },
    /// The copy wasn't complete in time. Only opening fails with this.
    #[error("the copy was not complete in time{}", because(.last))]
    #[non_exhaustive]
    TimedOut {
        /// The last error of a read, if one failed.
        last: Option<Error>,
    },
    /// A call failed, and no further attempt can succeed. For instance the node or client was stopped.
    #[error(transparent)]
    Call(#[from] Error),
}

fn because(last: &Option<Error>) -> String {
    last.as_ref().map_or_else(String::new, |error| format!(": {error}"))
}

/// The difference of a key between two successive states of a view.
///
/// The first changes that a callback receives show the keys that exist.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ViewChange {
    /// The key.
    pub key: Bytes,
    /// The value in the earlier state. `None`: the key was absent, or the callback sees it for the first time.
    pub previous: Option<Versioned<Bytes>>,
    /// The value in the later state. `None`: the key is absent.
    pub value: Option<Versioned<Bytes>>,
    /// Whether the key is known to be absent because it was due.
    pub expired: bool,
}

impl ViewChange {
    /// Creates a change, for tests of code that takes one.
    pub fn new(key: Bytes, previous: Option<Versioned<Bytes>>, value: Option<Versioned<Bytes>>) -> Self {
        Self { key, previous, value, expired: false }
    }
}

/// The condition of a view.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ViewStatus {
    /// Whether the view follows the changes.
    pub state: ViewState,
    /// The time since the last answer of a member; with several chains, the longest such time. While no key changes, a
    /// member answers about every 10 seconds.
    pub checked: Duration,
    /// The number of entries.
    pub entries: u64,
    /// The approximate memory of the copy in bytes, including one that is being read again.
    pub bytes: u64,
    /// How often all keys of a chain were read again.
    pub resyncs: u64,
    /// The last error, even if later attempts succeeded.
    pub last_error: Option<Error>,
}

/// Whether a view follows the changes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ViewState {
    /// At its last answer, each chain's member had no change that the view doesn't show, or sends it next.
    Level,
    /// Reads fail, or all keys are being read again. The view shows an older state.
    #[non_exhaustive]
    Behind {
        /// For how long.
        since: Duration,
    },
    /// The view shows its last state, and follows no further changes.
    Ended(ViewError),
}
