//! Conditions of writes.

use crate::Version;

/// A condition on a key: the batch, the script or the group of a script takes effect only if it holds.
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
