//! Times to live, as requests state them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The effect on the key's expiry of a write that sets a value. Lengths are milliseconds of chain time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Ttl {
    /// A put or compare-and-swap clears the expiry. Other writes keep it.
    #[default]
    Usual,
    /// The key keeps its expiry.
    Keep,
    /// The key expires after this length.
    Set(u64),
    /// If the key was absent, it expires after this length; otherwise it keeps its expiry.
    IfNew(u64),
}

impl Ttl {
    /// [`Set`](Self::Set) to a duration.
    pub fn set(ttl: Duration) -> Self {
        Self::Set(millis(ttl))
    }

    /// [`IfNew`](Self::IfNew) with a duration.
    pub fn if_new(ttl: Duration) -> Self {
        Self::IfNew(millis(ttl))
    }
}

/// A duration in milliseconds, rounded up so that a key never expires before it.
pub fn millis(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// A condition of [`Write::Expire`](super::Write::Expire) on the key's present expiry. A key without one expires later
/// than any other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ExpireIf {
    /// The key has no expiry.
    Unset,
    /// The key has an expiry.
    Set,
    /// The new expiry is later than the present one.
    Later,
    /// The new expiry is sooner than the present one.
    Sooner,
    /// The key has an expiry, and the new one is sooner.
    SetAndSooner,
}
