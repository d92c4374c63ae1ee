//! Conditions of writes.

use crate::Version;

/// The state that a key must have for a batch, a script or a group of a script to happen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub enum Expected {
    /// The key has no value.
    Absent,
    /// The key has a value.
    Present,
    /// The key has a value of this version.
    Version(Version),
}
