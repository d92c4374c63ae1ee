//! One entry of a chain's history.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::Version;

/// What an update is for. The list is open on the wire, but a member that meets a kind it doesn't know stops: to skip
/// an update would be to lose data.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct UpdateKind(pub u8);

impl UpdateKind {
    /// Changes nothing.
    pub const NOOP: Self = Self(0);
    /// Carries changes; none, if its condition failed.
    pub const WRITE: Self = Self(1);
    /// Changes nothing; whoever sees it committed knows that all before it is.
    pub const BARRIER: Self = Self(2);
    /// Reserved: opens a client session.
    pub const SESSION_OPEN: Self = Self(3);
    /// Reserved: evicts a client session.
    pub const SESSION_EVICT: Self = Self(4);
    /// Reserved: the expiry of keys.
    pub const EXPIRE: Self = Self(5);
    /// Reserved: prepares a transaction.
    pub const PREPARE: Self = Self(6);
    /// Reserved: commits a transaction.
    pub const COMMIT: Self = Self(7);
    /// Reserved: aborts a transaction.
    pub const ABORT: Self = Self(8);

    /// Whether this release knows how to apply it.
    pub const fn is_known(self) -> bool {
        self.0 <= Self::BARRIER.0
    }
}

/// Which request of which client an update answers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct RequestKey {
    /// The version of the update that opened the client's session.
    pub session: Version,
    /// The request's number in that session.
    pub number: u64,
    /// The lowest number still unanswered at the client.
    pub lowest: u64,
}

/// What came of the request, as recorded with its update.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Outcome {
    /// Its changes were made.
    #[default]
    Done,
    /// A condition failed, nothing was changed; the key's version then ([`Version::NONE`]: the key was absent).
    Conflict(Version),
}

/// A key's new value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// The key, at most [`MAX_KEY`] bytes.
    pub key: Bytes,
    /// Its value; `None` deletes.
    pub value: Option<Bytes>,
}

/// The longest key, in bytes.
pub const MAX_KEY: usize = 4096;

/// One entry of a chain's history, resolved to full values by the head that ordered it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Update {
    /// Its place in the history.
    pub version: Version,
    /// What it is for.
    pub kind: UpdateKind,
    /// Whose request it answers, when that carried an id.
    pub request: Option<RequestKey>,
    /// What came of the request.
    pub outcome: Outcome,
    /// The head's stamp: milliseconds since the Unix epoch, never below that of an earlier update.
    pub chain_time: u64,
    /// Takes effect as a whole.
    pub changes: SmallVec<[Change; 1]>,
}

impl Update {
    /// What it counts for in windows and backlogs, in bytes.
    pub fn cost(&self) -> usize {
        const FIXED: usize = 96;
        self.changes
            .iter()
            .fold(FIXED, |sum, change| sum + change.key.len() + change.value.as_ref().map_or(0, Bytes::len))
    }
}
