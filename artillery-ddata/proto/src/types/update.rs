//! Updates: the entries of a chain's history.

use std::hash::{Hash, Hasher};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::{Expiry, Version};

/// The kind of an update. A later release may add kinds; a member that receives an unknown one stops, because skipping
/// an update would lose data.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct UpdateKind(pub u8);

impl UpdateKind {
    /// Changes nothing. With a request id it bars that request, which was never applied and never will be.
    pub const NOOP: Self = Self(0);
    /// Carries changes; or none, for example if its condition failed.
    pub const WRITE: Self = Self(1);
    /// Changes nothing. Its commit implies that all updates before it are committed, so a read after it is
    /// linearizable.
    pub const BARRIER: Self = Self(2);
    /// Opens a client session, whose id is the version of this update (docs/DESIGN.md §9).
    pub const SESSION_OPEN: Self = Self(3);
    /// Evicts the client session named by its request, since the table of records is bounded.
    pub const SESSION_EVICT: Self = Self(4);
    /// Removes keys that are due. Its changes are ordinary deletions (docs/adr/0031-chain-time.md).
    pub const EXPIRE: Self = Self(5);
    /// Reserved: prepares a transaction.
    pub const PREPARE: Self = Self(6);
    /// Reserved: commits a transaction.
    pub const COMMIT: Self = Self(7);
    /// Reserved: aborts a transaction.
    pub const ABORT: Self = Self(8);

    /// Whether this release can apply it.
    pub const fn is_known(self) -> bool {
        self.0 <= Self::EXPIRE.0
    }
}

/// The session and number of the request that an update answers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct RequestKey {
    /// The version of the update that opened the client's session.
    pub session: Version,
    /// The number of the request in that session.
    pub number: u64,
    /// The lowest number whose reply the client hasn't received: records below it are no longer needed. 0: unknown.
    pub lowest: u64,
}

/// The outcome of a request, as recorded with its update.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub enum RequestOutcome {
    /// The changes were applied.
    #[default]
    Done,
    /// A condition failed and nothing was changed; the key's version at that time ([`Version::NONE`]: the key was
    /// absent).
    Conflict(Version),
    /// A condition of a batch or script failed and nothing was changed.
    Unmet {
        /// The index of the step or condition, from 0.
        step: u32,
        /// The key's version at that time.
        version: Version,
    },
    /// An append: the length of the value afterwards, in bytes.
    Length(u64),
    /// An increment: the number afterwards.
    Number(i64),
    /// A get-and-delete: the version of the removed value ([`Version::NONE`]: the key was absent).
    Took(Version),
    /// The write couldn't be applied, and nothing was changed.
    Failed(RequestFailure),
    /// The request was never applied and never will be: it was resolved before it arrived.
    Barred,
    /// A script was applied. Its results aren't kept.
    Ran,
    /// An expiry was set or removed; `false`: the key was absent, or the condition didn't hold.
    Changed(bool),
}

/// Why a write couldn't be applied although its conditions held.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum RequestFailure {
    /// The value to increment isn't a signed decimal integer of 64 bits, or has leading zeros or a plus sign. Where a
    /// fraction is allowed: the value, or the number to add, isn't a decimal number.
    #[error("the value is not a decimal integer of 64 bits")]
    NotANumber,
    /// The result of an increment doesn't fit in 64 bits. Where a fraction is allowed: it isn't finite.
    #[error("the number would leave the range of 64 bits")]
    Overflow,
    /// A value would be larger than the node allows; its length in bytes.
    #[error("the value would be {0} bytes, which is too large")]
    TooLarge(u64),
    /// The results of a script are larger than the node allows; their length up to the point where it stopped, in
    /// bytes.
    #[error("the results would be {0} bytes, which is too large")]
    ResultsTooLarge(u64),
    /// The values of all keys are together larger than one update may be; their length in bytes.
    #[error("the values of the update would be {0} bytes together, which is too large")]
    UpdateTooLarge(u64),
}

/// The longest removed value, in bytes, that the record of a get-and-delete keeps for retries.
pub const MAX_TAKEN: usize = 4096;

/// A change of one key.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct KeyChange {
    /// At most [`MAX_KEY`] bytes.
    pub key: Bytes,
    /// The new value. `None`: the change deletes the key or renews it.
    pub value: Option<Bytes>,
    /// When the key expires; `None`: never.
    pub expires: Option<Expiry>,
    /// A renewal changes the expiry only, and has no value. An absent key stays absent (trap 103).
    pub renews: bool,
}

impl KeyChange {
    /// Sets a value that doesn't expire; `None` deletes the key.
    pub const fn new(key: Bytes, value: Option<Bytes>) -> Self {
        Self { key, value, expires: None, renews: false }
    }

    /// Sets the expiry of the key, and keeps its value.
    pub const fn renewal(key: Bytes, expires: Option<Expiry>) -> Self {
        Self { key, value: None, expires, renews: true }
    }

    #[must_use]
    pub fn expiring(self, expires: Option<Expiry>) -> Self {
        Self { expires, ..self }
    }

    pub const fn is_deletion(&self) -> bool {
        self.value.is_none() && !self.renews
    }
}

/// The longest key, in bytes.
pub const MAX_KEY: usize = 4096;

/// One entry of a chain's history, resolved to full values by the head that ordered it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Update {
    pub version: Version,
    pub kind: UpdateKind,
    /// The key of the request that it answers, if the request has an id.
    pub request: Option<RequestKey>,
    pub outcome: RequestOutcome,
    /// The stamp of the head that made it: milliseconds that heads have counted, never less than in an earlier update
    /// (docs/adr/0031-chain-time.md).
    pub chain_time: u64,
    /// Its changes, which take effect atomically.
    pub changes: SmallVec<[KeyChange; 1]>,
}

/// Without the stamp, on which no step depends while no key expires: the model checker counts worlds that differ only in
/// stamps as one (docs/adr/0019-model-checking.md).
impl Hash for Update {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { version, kind, request, outcome, chain_time: _, changes } = self;
        (version, kind, request, outcome, changes).hash(state);
    }
}

impl Update {
    /// The size of the update in windows and backlogs, in bytes: approximately its memory.
    pub fn cost(&self) -> usize {
        const FIXED: usize = 112;
        // The first change is stored inline in the update.
        const FURTHER: usize = 96;
        FIXED + FURTHER * self.changes.len().saturating_sub(1) + self.bytes()
    }

    /// The length of its keys and values, in bytes.
    pub fn bytes(&self) -> usize {
        self.changes.iter().map(|change| change.key.len() + change.value.as_ref().map_or(0, Bytes::len)).sum()
    }
}
