//! The observations of clients, which are the checker's only input.

mod series;

pub use series::{SeriesAnswer, SeriesCall, SeriesOperation};

use artillery_proto::{Sequence, Version};
use serde::{Deserialize, Serialize};

/// The identity of a written value. Each write of a history writes a different value, so a read identifies its write.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Value(pub u64);

/// The request of a client.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Call {
    /// Write this value.
    Put(Value),
    /// Make the key absent.
    Delete,
    /// Write the value if the key's version is `expected` ([`Version::NONE`]: if it is absent).
    CompareAndSwap {
        /// The expected version, known from an earlier answer.
        expected: Version,
        /// The new value.
        value: Value,
    },
    /// Make the key absent, and return its value.
    GetDelete,
    /// Read, linearizably.
    Read,
    /// Make the key absent if it holds the value of exactly this version. No client calls it: the key may go by itself,
    /// at any time after the call, or never. The answer is always [`Answer::Unknown`].
    Expire {
        /// The version of the value that may go.
        version: Version,
    },
}

/// The answer that a client received.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// The write was applied and created this version.
    Written(Version),
    /// The compare-and-swap wasn't applied: the key held this value (`None`: it was absent).
    Conflict(Option<(Version, Value)>),
    /// The compare-and-swap wasn't applied: the key had this version, whose value is no longer known.
    Failed(Version),
    /// The read found this value (`None`: the key was absent). Also the answer to a [`Call::GetDelete`] of an absent
    /// key.
    Found(Option<(Version, Value)>),
    /// The key was deleted, and its last value is returned.
    Took {
        /// The version that the deletion created.
        version: Version,
        /// The deleted value and its version.
        found: (Version, Value),
    },
    /// Not applied, and never will be.
    Refused,
    /// The outcome is unknown: the write may have been applied, may be applied later, or never.
    Unknown,
}

/// One operation on one key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Operation {
    /// The client that called.
    pub client: u32,
    /// Identifies the key; its bytes don't matter.
    pub key: u32,
    /// When the operation was called, on a clock shared by all clients. All times are different.
    pub called: u64,
    /// When the answer was received. Meaningless for [`Answer::Unknown`], where the write may take effect at any time
    /// after the call.
    pub returned: u64,
    /// The requested operation.
    pub call: Call,
    /// Its result.
    pub answer: Answer,
    /// The batch that the operation is part of; 0: none. All parts of a batch have different keys. The parts that write
    /// a value write the same one.
    pub batch: u64,
}

/// Keys that were read together, at one point of the history.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Cut {
    /// The client that called.
    pub client: u32,
    /// When the read was called.
    pub called: u64,
    /// When the answer was received.
    pub returned: u64,
    /// Keys with the versions of their values (`None`: the key was absent).
    pub seen: Vec<(u32, Option<Version>)>,
}

/// A read in a session, in any mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Look {
    /// The client that called.
    pub client: u32,
    /// Identifies the key, as in [`Operation::key`].
    pub key: u32,
    /// When the read was called.
    pub called: u64,
    /// When the answer was received.
    pub returned: u64,
    /// The sequence up to which the session had seen or written the history before the call.
    pub floor: Sequence,
    /// The version of the returned value (`None`: the key was absent).
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
    /// A history with operations on registers only.
    pub fn of(operations: Vec<Operation>) -> Self {
        Self { operations, ..Self::default() }
    }
}
