//! What calls return.

use bytes::Bytes;

use crate::{NodeId, Place, Version, replica::Way, store::Held};

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
    pub way: Way,
}

impl Served {
    /// A value: for tests of code that takes one.
    pub fn new(node: NodeId, place: Place, way: Way) -> Self {
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
    /// What it computed.
    pub result: T,
}

impl<T> Committed<T> {
    /// A value: for tests of code that takes one.
    pub fn new(version: Version, copies: u32, result: T) -> Self {
        Self { version, copies, result }
    }
}

/// The condition of a write didn't hold, and nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
#[non_exhaustive]
pub struct Conflict {
    /// What the key held at that moment; `None`: it was absent.
    pub current: Option<(Version, Bytes)>,
    /// The update that records the failure: what stands in `current` is committed as of it.
    pub at: Version,
}

impl Conflict {
    /// A value: for tests of code that takes one.
    pub fn new(current: Option<(Version, Bytes)>, at: Version) -> Self {
        Self { current, at }
    }

    /// The key's version then; [`Version::NONE`]: it was absent.
    pub fn version(&self) -> Version {
        self.current.as_ref().map_or(Version::NONE, |(version, _)| *version)
    }

    fn text(&self) -> String {
        match &self.current {
            Some((version, _)) => format!("the key has version {version}"),
            None => "the key is absent".to_owned(),
        }
    }
}
