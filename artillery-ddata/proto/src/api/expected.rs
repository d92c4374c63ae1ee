//! Conditions of writes.

use crate::Version;

/// How a key must be for a batch, a script or a group of one to happen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub enum Expected {
    /// It has no value.
    Absent,
    /// It has one.
    Present,
    /// It has a value of this version.
    Version(Version),
}
