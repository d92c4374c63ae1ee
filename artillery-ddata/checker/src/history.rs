//! What clients saw: the only thing that the checker believes.

mod series;

pub use series::{SeriesAnswer, SeriesCall, SeriesOperation};

use artillery_proto::{Sequence, Version};
use serde::{Deserialize, Serialize};

/// The identity of a written value: each write of a history writes another one, so a read names its write.
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
    /// Make the key absent, and tell what it held.
    GetDelete,
    /// Read, linearizably.
    Read,
}

/// What a client was told.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// The write was applied and made this version.
    Written(Version),
    /// The compare-and-swap was not applied: the key held this then (`None`: it was absent).
    Conflict(Option<(Version, Value)>),
    /// The compare-and-swap was not applied: the key had this version then, and nobody knows its value any more.
    Failed(Version),
    /// The read found this (`None`: the key was absent, also where it was to be taken away).
    Found(Option<(Version, Value)>),
    /// The key was deleted, and held this.
    Took {
        /// The version that the deletion made.
        version: Version,
        /// What it took away.
        found: (Version, Value),
    },
    /// Certainly not applied, now and for ever.
    Refused,
    /// Nobody knows: perhaps applied, perhaps not, perhaps later.
    Unknown,
}

/// One operation on one key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Operation {
    /// Who asked.
    pub client: u32,
    /// Which key.
    pub key: u32,
    /// When it was asked: a moment on a clock common to all clients, no two equal.
    pub called: u64,
    /// When the answer came; meaningless for [`Answer::Unknown`], which may take effect at any time after the call.
    pub returned: u64,
    /// What was asked.
    pub call: Call,
    /// What was answered.
    pub answer: Answer,
    /// The batch that it was a part of; 0: none. Parts of one batch write one value, each to another key.
    pub batch: u64,
}

/// Keys that were read together, at one point of the history.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Cut {
    /// Who asked.
    pub client: u32,
    /// When it was asked.
    pub called: u64,
    /// When the answer came.
    pub returned: u64,
    /// Keys, and the versions of their values (`None`: the key was absent).
    pub seen: Vec<(u32, Option<Version>)>,
}

/// A read in a session, whatever its mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Look {
    /// Who asked.
    pub client: u32,
    /// Which key.
    pub key: u32,
    /// When it was asked.
    pub called: u64,
    /// When the answer came.
    pub returned: u64,
    /// The sequence up to which the client had seen, or written, the history before it asked.
    pub floor: Sequence,
    /// The version of the value that it found (`None`: the key was absent).
    pub found: Option<Version>,
}

/// All operations of a run on one chain, in any order.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct History {
    /// Those on registers.
    pub operations: Vec<Operation>,
    /// Those on lists and counters.
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
