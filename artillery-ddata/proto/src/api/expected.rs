//! Conditions of writes.

use bytes::Bytes;

use crate::Version;

/// A condition on a key: the batch, the script or the group of a script takes effect only if it holds.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Expected {
    /// The key has no value.
    Absent,
    /// The key has a value.
    Present,
    /// The key has a value of this version.
    Version(Version),
    /// The key has this value.
    Value(Bytes),
    /// The key has another value, or none.
    NotValue(Bytes),
}

impl Expected {
    pub(crate) fn value(&self) -> Option<&Bytes> {
        match self {
            Self::Value(value) | Self::NotValue(value) => Some(value),
            Self::Absent | Self::Present | Self::Version(_) => None,
        }
    }
}
