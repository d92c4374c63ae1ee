//! Keys that only grow: lists of appended items, and counters.

use artillery_proto::Version;
use serde::{Deserialize, Serialize};

use super::Value;

/// What a client asked for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum SeriesCall {
    /// Append this item to a list. Each append of a history has another one.
    Append(Value),
    /// Count one more.
    Increment,
    /// Read, linearizably.
    Read,
}

/// What a client was told.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum SeriesAnswer {
    /// The write was applied.
    Counted {
        /// The version that it made.
        version: Version,
        /// The items in the list, or the number, right after it; a batch doesn't tell.
        count: Option<u64>,
    },
    /// The list was found so; [`Version::NONE`]: the key was absent.
    List(Version, Vec<Value>),
    /// The counter was found so; [`Version::NONE`]: the key was absent.
    Number(Version, u64),
    /// Certainly not applied, now and for ever.
    Refused,
    /// Nobody knows: perhaps applied, perhaps not, perhaps later.
    Unknown,
}

/// One operation on a list or a counter. A key is one of them, and nothing else is done to it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct SeriesOperation {
    /// Who asked.
    pub client: u32,
    /// Which key.
    pub key: u32,
    /// When it was asked.
    pub called: u64,
    /// When the answer came; meaningless for [`SeriesAnswer::Unknown`].
    pub returned: u64,
    /// What was asked.
    pub call: SeriesCall,
    /// What was answered.
    pub answer: SeriesAnswer,
}

impl SeriesOperation {
    /// The version that its answer tells, of what it wrote or saw.
    pub fn version(&self) -> Option<Version> {
        match self.answer {
            SeriesAnswer::Counted { version, .. }
            | SeriesAnswer::List(version, _)
            | SeriesAnswer::Number(version, _) => Some(version),
            SeriesAnswer::Refused | SeriesAnswer::Unknown => None,
        }
    }
}
