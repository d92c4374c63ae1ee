//! What clients saw: the checker's only input.

mod series;

pub use series::{SeriesAnswer, SeriesCall, SeriesOperation};

use artillery_proto::{Sequence, Version};
use serde::{Deserialize, Serialize};

/// The identity of a written value. Each write of a history writes a value of its own, so a read identifies its write.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Value(pub u64);

/// What a client asked for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Call {
    /// Write this value.
    Put(Value),
    /// Make the key absent.
    Delete,
    /// Write the value if the key's version is `expected` ([`Version::NONE`]: if it is absent).
    CompareAndSwap {
        /// The expected version, learnt from an earlier answer.
        expected: Version,
        /// The new value.
        value: Value,
    },
    /// Make the key absent, and return what it held.
    GetDelete,
    /// Read, linearizably.
    Read,
}

/// What a client received as its answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// The write was applied and made this version.
    Written(Version),
    /// The compare-and-swap was not applied: the key held this value (`None`: it was absent).
    Conflict(Option<(Version, Value)>),
    /// The compare-and-swap was not applied: the key had this version, and its value is no longer known.
    Failed(Version),
    /// The read found this value (`None`: the key was absent). Also the answer of a [`Call::GetDelete`] of an absent key.
    Found(Option<(Version, Value)>),
    /// The key was deleted, and its last value is returned.
    Took {
        /// The version that the deletion made.
        version: Version,
        /// The value that was deleted, and its version.
        found: (Version, Value),
    },
    /// Not applied, and never will be.
    Refused,
    /// The outcome is unknown: the write may be applied already, later or never.
    Unknown,
}

/// One operation on one key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Operation {
    /// The client that asked.
    pub client: u32,
    /// The key.
    pub key: u32,
    /// When the operation was called, on a clock common to all clients. No two times are equal.
    pub called: u64,
    /// When the answer came; meaningless for [`Answer::Unknown`], which may take effect at any time after the call.
    pub returned: u64,
    /// The call.
    pub call: Call,
    /// The answer.
    pub answer: Answer,
    /// The batch that the operation is part of; 0: none. Parts of one batch write the same value, each to a key of its own.
    pub batch: u64,
}

/// Keys that were read together, at one point of the history.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Cut {
    /// The client that asked.
    pub client: u32,
    /// When the read was called.
    pub called: u64,
    /// When the answer came.
    pub returned: u64,
    /// Keys, and the versions of their values (`None`: the key was absent).
    pub seen: Vec<(u32, Option<Version>)>,
}

/// A read in a session, in any mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Look {
    /// The client that asked.
    pub client: u32,
    /// The key.
    pub key: u32,
    /// When the read was called.
    pub called: u64,
    /// When the answer came.
    pub returned: u64,
    /// The sequence up to which the client had seen, or written, the history before it asked.
    pub floor: Sequence,
    /// The version of the value that was found (`None`: the key was absent).
    pub found: Option<Version>,
}

/// All operations of a run on one chain, in any order.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct History {
    /// Operations on registers.
    pub operations: Vec<Operation>,
    /// Operations on lists and counters.
    pub series: Vec<SeriesOperation>,
    /// Reads of several keys.
    pub cuts: Vec<Cut>,
    /// Reads in sessions.
    pub looks: Vec<Look>,
}

impl History {
    /// A history of registers alone.
    pub fn of(operations: Vec<Operation>) -> Self {
        Self { operations, ..Self::default() }
    }
}
