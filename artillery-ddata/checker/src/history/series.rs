//! Keys that only grow: lists of appended items, and counters.

use artillery_proto::Version;
use serde::{Deserialize, Serialize};

use super::Value;

/// The request of a client.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum SeriesCall {
    /// Append this item to a list. Each append of a history has a different item.
    Append(Value),
    /// Add one to a counter.
    Increment,
    /// Read, linearizably.
    Read,
}

/// The answer that a client received.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum SeriesAnswer {
    /// The write was applied.
    Counted {
        /// The version that the write created.
        version: Version,
        /// The length of the list, or the number, directly after the write. Missing in the answer to a batch.
        count: Option<u64>,
    },
    /// The list that was read; [`Version::NONE`]: the key was absent.
    List(Version, Vec<Value>),
    /// The number that was read; [`Version::NONE`]: the key was absent.
    Number(Version, u64),
    /// Not applied, and never will be.
    Refused,
    /// The outcome is unknown: the write may have been applied, may be applied later, or never.
    Unknown,
}

/// One operation on a list or a counter. A key holds one of the two, and has no other operations.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct SeriesOperation {
    /// The client that called.
    pub client: u32,
    /// Identifies the key; its bytes don't matter.
    pub key: u32,
    /// When the operation was called.
    pub called: u64,
    /// When the answer was received. Meaningless for [`SeriesAnswer::Unknown`].
    pub returned: u64,
    /// The requested operation.
    pub call: SeriesCall,
    /// Its result.
    pub answer: SeriesAnswer,
}

impl SeriesOperation {
    /// The version in the answer, if any: of the write or of the state that was read.
    pub fn version(&self) -> Option<Version> {
        match self.answer {
            SeriesAnswer::Counted { version, .. }
            | SeriesAnswer::List(version, _)
            | SeriesAnswer::Number(version, _) => Some(version),
            SeriesAnswer::Refused | SeriesAnswer::Unknown => None,
        }
    }
}
