use std::{num::NonZeroU64, time::Duration};

use serde::{Deserialize, Serialize};

/// The chain time, in milliseconds, from which a key is due: the head then removes it (docs/adr/0031-chain-time.md).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Expiry(NonZeroU64);

impl Expiry {
    /// The expiry of a key that an update with this stamp gives a time to live of `ttl` milliseconds. Stamps are whole
    /// milliseconds, so the key is due one later: at the same stamp less than `ttl` may have passed.
    #[must_use]
    pub const fn after(stamp: u64, ttl: u64) -> Self {
        Self::at(stamp.saturating_add(ttl).saturating_add(1))
    }

    /// The expiry at this chain time.
    #[must_use]
    pub const fn at(chain_time: u64) -> Self {
        match NonZeroU64::new(chain_time) {
            Some(time) => Self(time),
            None => Self(NonZeroU64::MIN),
        }
    }

    pub const fn chain_time(self) -> u64 {
        self.0.get()
    }

    pub const fn is_due(self, chain_time: u64) -> bool {
        self.0.get() <= chain_time
    }

    /// The chain time left; zero if the key is due.
    pub const fn left(self, chain_time: u64) -> Duration {
        Duration::from_millis(self.0.get().saturating_sub(chain_time))
    }
}
