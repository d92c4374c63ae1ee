//! The results of calls.

use std::time::Duration;

use bytes::Bytes;

use crate::{
    NodeId, Place, RequestId, Version,
    api::{Computed, ReadPath},
    store::Held,
};

/// A value and its version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versioned<T> {
    /// The version of the update that wrote the value.
    pub version: Version,
    /// The value.
    pub value: T,
}

impl Versioned<Bytes> {
    /// `None` for a tombstone: callers see an absent key.
    pub(crate) fn visible(held: Held) -> Option<Self> {
        held.value.map(|value| Self { version: held.version, value })
    }
}

/// The result of a read, and how it was served. A read of an absent key has these too.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Read<T = Bytes> {
    found: Option<Versioned<T>>,
    expires_in: Option<Duration>,
    /// Whether the result was known to be committed.
    pub state: ReadState,
    /// Where the read was served, and by which path.
    pub served: Served,
}

impl<T> Read<T> {
    /// Creates a result, for tests of code that takes one.
    pub fn new(found: Option<Versioned<T>>, state: ReadState, served: Served) -> Self {
        Self { found, expires_in: None, state, served }
    }

    /// The same result, of a key that expires after this time.
    #[must_use]
    pub fn expiring_in(self, expires_in: Option<Duration>) -> Self {
        Self { expires_in, ..self }
    }

    /// How long the key will stay, as the member that served the read knew; zero if it is due and not removed yet.
    /// `None`: the key is absent or doesn't expire.
    pub fn expires_in(&self) -> Option<Duration> {
        self.expires_in
    }

    /// The value. `None`: the key is absent.
    pub fn value(&self) -> Option<&T> {
        self.found.as_ref().map(|found| &found.value)
    }

    /// The value. `None`: the key is absent.
    pub fn into_value(self) -> Option<T> {
        self.found.map(|found| found.value)
    }

    /// The value's version, or [`Version::NONE`] if the key is absent. A compare-and-swap accepts either as `expected`.
    pub fn version(&self) -> Version {
        self.found.as_ref().map_or(Version::NONE, |found| found.version)
    }

    /// The value with its version. `None`: the key is absent.
    pub fn into_versioned(self) -> Option<Versioned<T>> {
        self.found
    }
}

/// Whether the member that served a read knew its result to be committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReadState {
    /// The result is committed.
    Clean,
    /// The result may not be committed yet, and may be lost. Only a read of one key outside of sessions returns such a
    /// result, in mode [`Eventual`](crate::ReadMode::Eventual) or [`Bounded`](crate::ReadMode::Bounded).
    Dirty,
}

/// Where a read was served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Served {
    /// The node that served it.
    pub node: NodeId,
    /// The node's place in the chain, as known to the caller's handle.
    pub place: Place,
    /// The path by which the read was served.
    pub way: ReadPath,
}

impl Served {
    /// Creates a value, for tests of code that takes one.
    pub fn new(node: NodeId, place: Place, way: ReadPath) -> Self {
        Self { node, place, way }
    }
}

/// A write that all serving members of its chain hold.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Committed<T = ()> {
    /// The version of the update.
    pub version: Version,
    /// The number of serving members of the chain when the answer was made. All of them held the update.
    pub copies: u32,
    /// The id under which the write was made: the given one, or one that the handle created.
    pub request_id: RequestId,
    /// Whether an earlier attempt under the same id was applied, so that this one changed nothing further.
    pub replayed: bool,
    /// The result of the call: for instance the new length after an append, or the new number after an increment.
    pub result: T,
}

impl<T> Committed<T> {
    /// Creates a value, for tests of code that takes one.
    pub fn new(version: Version, copies: u32, request_id: RequestId, replayed: bool, result: T) -> Self {
        Self { version, copies, request_id, replayed, result }
    }
}

/// The value that a [get-and-delete](crate::Kv::get_delete) removed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Taken {
    /// Nothing: the key was absent.
    Nothing,
    /// This value.
    Value(Versioned<Bytes>),
    /// A value of this version was removed by an earlier attempt, and can't be returned to this one. It was longer than
    /// the 4,096 bytes that are kept for retries, or the present head was joining the chain at that time and never had
    /// the value.
    Forgotten(Version),
}

impl Taken {
    /// The removed value, if it is known.
    pub fn into_value(self) -> Option<Bytes> {
        match self {
            Self::Value(taken) => Some(taken.value),
            Self::Nothing | Self::Forgotten(_) => None,
        }
    }
}

/// The final outcome of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Resolution {
    /// The request was applied, once.
    Applied(Record),
    /// The request's condition didn't hold: it changed nothing, and never will.
    Conflict(Conflict),
    /// The request changed nothing, and never will: it had not been applied and is barred now, or its record shows that
    /// it failed, for instance an increment of a value that isn't a number.
    NeverApplied,
    /// The chain no longer has the record: it was evicted, or the client had confirmed that it received the answer.
    Forgotten,
}

/// The record of an applied request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Record {
    /// The version of its update.
    pub version: Version,
    /// The recorded result. Results of scripts, and long values that a get-and-delete removed, are not recorded.
    pub result: Computed,
}

impl Record {
    /// Creates a value, for tests of code that takes one.
    pub fn new(version: Version, result: Computed) -> Self {
        Self { version, result }
    }
}

/// The condition of a write didn't hold, and nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
#[non_exhaustive]
pub struct Conflict {
    /// The key's version and value when the condition was checked. `None`: the key was absent, or this answers a retry,
    /// for which the value is no longer kept. [`version`](Self::version) distinguishes the two.
    pub current: Option<(Version, Bytes)>,
    version: Version,
    /// The index, from 0, of the failed step of a batch, or of the failed requirement of a script.
    pub step: usize,
    request_id: Option<RequestId>,
    /// The version of the update that records the failure. `current` is committed as of this update.
    pub at: Version,
}

impl Conflict {
    /// Creates a value, for tests of code that takes one.
    pub fn new(current: Option<(Version, Bytes)>, at: Version) -> Self {
        let version = current.as_ref().map_or(Version::NONE, |(version, _)| *version);
        Self { current, version, step: 0, request_id: None, at }
    }

    pub(crate) fn of(version: Version, value: Option<Bytes>, step: u32, at: Version, id: RequestId) -> Self {
        let current = value.map(|value| (version, value));
        Self { current, version, step: step as usize, request_id: Some(id), at }
    }

    /// The id of the request. `None`: this value was created by [`new`](Self::new).
    pub fn request_id(&self) -> Option<RequestId> {
        self.request_id
    }

    /// The key's version when the condition was checked. [`Version::NONE`]: the key was absent.
    pub fn version(&self) -> Version {
        self.version
    }

    fn text(&self) -> String {
        if self.version.is_none() {
            return "the key is absent".to_owned();
        }
        format!("the key has version {}", self.version)
    }
}
