//! One entry of a chain's history.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::Version;

/// The kind of an update. The list is open on the wire. But a member that receives an unknown kind stops: to skip an
/// update would lose data.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct UpdateKind(pub u8);

impl UpdateKind {
    /// Changes nothing. With a request id it bars that request: the request was never applied, and never will be.
    pub const NOOP: Self = Self(0);
    /// Carries changes; none, if its condition failed.
    pub const WRITE: Self = Self(1);
    /// Changes nothing. Once it is committed, all updates before it are, so a read behind it is linearizable.
    pub const BARRIER: Self = Self(2);
    /// Opens a client session, whose id is the version of this update (docs/DESIGN.md §9).
    pub const SESSION_OPEN: Self = Self(3);
    /// Evicts the client session that its request names: the table of records is bounded.
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
        self.0 <= Self::SESSION_EVICT.0
    }
}

/// Names the request that an update answers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct RequestKey {
    /// The version of the update that opened the client's session.
    pub session: Version,
    /// The request's number in that session.
    pub number: u64,
    /// The lowest number still unanswered at the client: records below it are needed no more. 0: unknown.
    pub lowest: u64,
}

/// The outcome of a request, as recorded with its update.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub enum RequestOutcome {
    /// Its changes were made.
    #[default]
    Done,
    /// A condition failed and nothing was changed. The key's version then ([`Version::NONE`]: the key was absent).
    Conflict(Version),
    /// A requirement of a batch failed and nothing was changed.
    Unmet {
        /// The step, counted from 0.
        step: u32,
        /// The key's version.
        version: Version,
    },
    /// An append was made: the length of the value afterwards, in bytes.
    Length(u64),
    /// An increment was made: the number afterwards.
    Number(i64),
    /// A value of this version was taken away ([`Version::NONE`]: the key was absent).
    Took(Version),
    /// The write can't be done, and nothing was changed.
    Failed(RequestFailure),
    /// The request never was applied and never will be: its outcome was asked for before it came.
    Barred,
    /// A script ran. Its results aren't kept.
    Ran,
}

/// Why a write can't be done, independently of its conditions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum RequestFailure {
    /// An increment of a value that is no decimal number of 64 bits.
    #[error("the value is no decimal number of 64 bits")]
    NotANumber,
    /// An increment past the largest or smallest number of 64 bits.
    #[error("the number would leave the range of 64 bits")]
    Overflow,
    /// The value would have become too large; its length in bytes.
    #[error("the value would have {0} bytes, which are too many")]
    TooLarge(u64),
    /// The results of a script are too large; their length as far as the script ran, in bytes.
    #[error("the results would have {0} bytes, which are too many")]
    ResultsTooLarge(u64),
    /// The values of all keys together would have become too large; their length in bytes.
    #[error("all values of the update would have {0} bytes, which are too many")]
    UpdateTooLarge(u64),
}

/// The longest value, in bytes, that the record of a get-and-delete keeps, so that a retry gets the value.
pub const MAX_TAKEN: usize = 4096;

/// A key's new value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyChange {
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
    /// Its kind.
    pub kind: UpdateKind,
    /// The request that it answers, if that has an id.
    pub request: Option<RequestKey>,
    /// The outcome of the request.
    pub outcome: RequestOutcome,
    /// The head's stamp: milliseconds since the Unix epoch, never below that of an earlier update.
    pub chain_time: u64,
    /// Its changes, which take effect as a whole.
    pub changes: SmallVec<[KeyChange; 1]>,
}

impl Update {
    /// What the update counts in windows and backlogs, in bytes: about its memory.
    pub fn cost(&self) -> usize {
        const FIXED: usize = 112;
        // The first change is inline in the update.
        const FURTHER: usize = 96;
        FIXED + FURTHER * self.changes.len().saturating_sub(1) + self.bytes()
    }

    /// The bytes of its keys and values.
    pub fn bytes(&self) -> usize {
        self.changes.iter().map(|change| change.key.len() + change.value.as_ref().map_or(0, Bytes::len)).sum()
    }
}
