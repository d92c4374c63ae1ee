//! What clients saw: the only thing that the checker believes.

use artillery_ddata::Version;
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
    /// The read found this (`None`: the key was absent).
    Found(Option<(Version, Value)>),
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
}

/// All operations of a run, in any order.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct History {
    /// The operations.
    pub operations: Vec<Operation>,
}
