//! What calls return.

use bytes::Bytes;

use crate::{
    NodeId, Place, RequestId, Version,
    api::{Computed, ReadPath},
    store::Held,
};

/// A value and the update that made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versioned<T> {
    /// Which update made it.
    pub version: Version,
    /// The value.
    pub value: T,
}

impl Versioned<Bytes> {
    /// Tombstones are nobody's business outside.
    pub(crate) fn visible(held: Held) -> Option<Self> {
        held.value.map(|value| Self { version: held.version, value })
    }
}

/// What a read found, and how it was served. An absence is an answer too: clean or dirty, and seen somewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Read<T = Bytes> {
    found: Option<Versioned<T>>,
    /// Whether what was found was known to be committed.
    pub state: ReadState,
    /// Who served it, and how.
    pub served: Served,
}

impl<T> Read<T> {
    /// A result: for tests of code that takes one.
    pub fn new(found: Option<Versioned<T>>, state: ReadState, served: Served) -> Self {
        Self { found, state, served }
    }

    /// The value; `None`: the key is absent.
    pub fn value(&self) -> Option<&T> {
        self.found.as_ref().map(|found| &found.value)
    }

    /// The value; `None`: the key is absent.
    pub fn into_value(self) -> Option<T> {
        self.found.map(|found| found.value)
    }

    /// The version of the value; [`Version::NONE`]: the key is absent. A compare-and-swap takes it as it is.
    pub fn version(&self) -> Version {
        self.found.as_ref().map_or(Version::NONE, |found| found.version)
    }

    /// Value and version together.
    pub fn into_versioned(self) -> Option<Versioned<T>> {
        self.found
    }
}

/// Whether a read's version was known, where it was served, to be committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReadState {
    /// It was committed.
    Clean,
    /// It may not be committed yet, and may vanish: only in mode [`Eventual`](crate::ReadMode::Eventual).
    Dirty,
}

/// Who served a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Served {
    /// The node.
    pub node: NodeId,
    /// Where it stands in the chain, as far as is known here.
    pub place: Place,
    /// By which way.
    pub way: ReadPath,
}

impl Served {
    /// A value: for tests of code that takes one.
    pub fn new(node: NodeId, place: Place, way: ReadPath) -> Self {
        Self { node, place, way }
    }
}

/// A write that is on all serving members of its chain.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Committed<T = ()> {
    /// The version that it made.
    pub version: Version,
    /// On how many members it is.
    pub copies: u32,
    /// Under which id it was made.
    pub request_id: RequestId,
    /// Whether an earlier attempt under the same id did it, so that this one did nothing more.
    pub replayed: bool,
    /// What it computed.
    pub result: T,
}

impl<T> Committed<T> {
    /// A value: for tests of code that takes one.
    pub fn new(version: Version, copies: u32, request_id: RequestId, replayed: bool, result: T) -> Self {
        Self { version, copies, request_id, replayed, result }
    }
}

/// What a [get-and-delete](crate::Kv::get_delete) took away.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Taken {
    /// Nothing: the key was absent.
    Nothing,
    /// This value.
    Value(Versioned<Bytes>),
    /// A value of this version. An earlier attempt took it, and it was too large to be kept for a retry
    /// ([`MAX_TAKEN`](crate::types::update::MAX_TAKEN)), or the head of now was joining the chain at that moment and never had it.
    Forgotten(Version),
}

impl Taken {
    /// The value, if it is known.
    pub fn into_value(self) -> Option<Bytes> {
        match self {
            Self::Value(taken) => Some(taken.value),
            Self::Nothing | Self::Forgotten(_) => None,
        }
    }
}

/// What became of a request, for ever.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Resolution {
    /// It was applied, once.
    Applied(Record),
    /// Its condition didn't hold, so it changed nothing; nor will it.
    Conflict(Conflict),
    /// It never was applied, and now it never can be.
    NeverApplied,
    /// Nobody knows any more: the record was evicted, or the client had said that it knew.
    Forgotten,
}

/// The record of an applied request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Record {
    /// The version that it made.
    pub version: Version,
    /// What it computed.
    pub result: Computed,
}

impl Record {
    /// A value: for tests of code that takes one.
    pub fn new(version: Version, result: Computed) -> Self {
        Self { version, result }
    }
}

/// The condition of a write didn't hold, and nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
#[non_exhaustive]
pub struct Conflict {
    /// What the key held at that moment; `None`: it was absent, or [`version`](Self::version) says which version it had
    /// and this answers a retry, when that value is gone.
    pub current: Option<(Version, Bytes)>,
    /// The version that the key had.
    version: Version,
    /// Which step of a batch, or requirement of a script, it was, counted from 0.
    pub step: usize,
    request_id: Option<RequestId>,
    /// The update that records the failure: what stands in `current` is committed as of it.
    pub at: Version,
}

impl Conflict {
    /// A value: for tests of code that takes one.
    pub fn new(current: Option<(Version, Bytes)>, at: Version) -> Self {
        let version = current.as_ref().map_or(Version::NONE, |(version, _)| *version);
        Self { current, version, step: 0, request_id: None, at }
    }

    pub(crate) fn of(version: Version, value: Option<Bytes>, step: u32, at: Version, id: RequestId) -> Self {
        let current = value.map(|value| (version, value));
        Self { current, version, step: step as usize, request_id: Some(id), at }
    }

    /// Under which id the write was made; `None`: this is no answer of a chain.
    pub fn request_id(&self) -> Option<RequestId> {
        self.request_id
    }

    /// The key's version then; [`Version::NONE`]: it was absent.
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
