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
    /// Changes nothing. With a request it bars that for ever: it never was applied, and never will be.
    pub const NOOP: Self = Self(0);
    /// Carries changes; none, if its condition failed.
    pub const WRITE: Self = Self(1);
    /// Changes nothing; whoever sees it committed knows that all before it is.
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

/// Which request of which client an update answers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct RequestKey {
    /// The version of the update that opened the client's session.
    pub session: Version,
    /// The request's number in that session.
    pub number: u64,
    /// The lowest number still unanswered at the client: records below it are needed no more. 0 says nothing.
    pub lowest: u64,
}

/// What came of the request, as recorded with its update.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub enum RequestOutcome {
    /// Its changes were made.
    #[default]
    Done,
    /// A condition failed, nothing was changed; the key's version then ([`Version::NONE`]: the key was absent).
    Conflict(Version),
    /// This requirement of a batch, counted from 0, failed; the version of its key then.
    Unmet {
        /// Which step.
        step: u32,
        /// The key's version.
        version: Version,
    },
    /// An append; the length of the value now, in bytes.
    Length(u64),
    /// An increment; the number now.
    Number(i64),
    /// What was there was taken away: a value of this version ([`Version::NONE`]: there was none).
    Took(Version),
    /// It can't be done, and nothing was changed.
    Failed(RequestFailure),
    /// It never was applied and never will be: somebody asked for its outcome before it came.
    Barred,
    /// A script ran, and changed what it changed. What it told isn't kept.
    Ran,
}

/// Why a write can't be done, whatever its conditions.
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
    /// What a script would have told is too large; its length as far as the script got, in bytes.
    #[error("the results would have {0} bytes, which are too many")]
    ResultsTooLarge(u64),
    /// The values of all keys together would have become too large; their length in bytes.
    #[error("all values of the update would have {0} bytes, which are too many")]
    UpdateTooLarge(u64),
}

/// The longest value that is kept for retries once it was taken away, in bytes.
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
    /// What it is for.
    pub kind: UpdateKind,
    /// Whose request it answers, when that carried an id.
    pub request: Option<RequestKey>,
    /// What came of the request.
    pub outcome: RequestOutcome,
    /// The head's stamp: milliseconds since the Unix epoch, never below that of an earlier update.
    pub chain_time: u64,
    /// Takes effect as a whole.
    pub changes: SmallVec<[KeyChange; 1]>,
}

impl Update {
    /// What it counts for in windows and backlogs, in bytes: about what it takes in memory.
    pub fn cost(&self) -> usize {
        const FIXED: usize = 112;
        // The first one lies within the update itself.
        const FURTHER: usize = 96;
        FIXED + FURTHER * self.changes.len().saturating_sub(1) + self.bytes()
    }

    /// The bytes of its keys and values.
    pub fn bytes(&self) -> usize {
        self.changes.iter().map(|change| change.key.len() + change.value.as_ref().map_or(0, Bytes::len)).sum()
    }
}
