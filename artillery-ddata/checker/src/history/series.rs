//! Keys that only grow: lists of appended items, and counters.

use artillery_proto::Version;
use serde::{Deserialize, Serialize};

use super::Value;

/// What a client asked for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum SeriesCall {
    /// Append this item to a list. Each append of a history has an item of its own.
    Append(Value),
    /// Add one to a counter.
    Increment,
    /// Read, linearizably.
    Read,
}

/// What a client received as its answer.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum SeriesAnswer {
    /// The write was applied.
    Counted {
        /// The version that it made.
        version: Version,
        /// The length of the list, or the number, right after the write. The answer to a batch leaves it out.
        count: Option<u64>,
    },
    /// The list that was found; [`Version::NONE`]: the key was absent.
    List(Version, Vec<Value>),
    /// The number that was found; [`Version::NONE`]: the key was absent.
    Number(Version, u64),
    /// Not applied, and never will be.
    Refused,
    /// The outcome is unknown: the write may be applied already, later or never.
    Unknown,
}

/// One operation on a list or a counter. A key holds one of the two, and gets no other operations.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct SeriesOperation {
    /// The client that asked.
    pub client: u32,
    /// The key.
    pub key: u32,
    /// When the operation was called.
    pub called: u64,
    /// When the answer came; meaningless for [`SeriesAnswer::Unknown`].
    pub returned: u64,
    /// The call.
    pub call: SeriesCall,
    /// The answer.
    pub answer: SeriesAnswer,
}

impl SeriesOperation {
    /// The version that the answer reports, of what the operation wrote or saw.
    pub fn version(&self) -> Option<Version> {
        match self.answer {
            SeriesAnswer::Counted { version, .. }
            | SeriesAnswer::List(version, _)
            | SeriesAnswer::Number(version, _) => Some(version),
            SeriesAnswer::Refused | SeriesAnswer::Unknown => None,
        }
    }
}
