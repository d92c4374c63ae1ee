//! Epochs, sequences and versions: the coordinates of a chain's history.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use artillery_core::{error::ParseIdError, internal::text::parsed};

/// The number of one configuration of a chain. The first is 1; 0 means none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize)]
pub struct Epoch(pub u64);

/// A position in a chain's history. The first update has 1; 0 is before it. Sequences are contiguous across epochs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize)]
pub struct Sequence(pub u64);

impl Sequence {
    /// The position before the first update.
    pub const ZERO: Self = Self(0);
    /// Greater than the sequence of any update.
    pub const MAX: Self = Self(u64::MAX);

    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// As [`next`](Self::next), for an untrusted number: [`MAX`](Self::MAX), which no update has, stays `MAX`.
    pub const fn saturating_next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// Identifies an update by its sequence and the epoch in which the head ordered it. Its text form is `EPOCH.SEQUENCE`.
///
/// A new head orders in a new epoch, so a version never has two values. Equal versions imply equal histories up to
/// them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Version {
    /// The epoch in which the update was ordered.
    pub epoch: Epoch,
    /// The position in the chain's history.
    pub sequence: Sequence,
}

impl Version {
    /// The version of a key that is absent: never written, or deleted. As a position in a history: before the first
    /// update.
    pub const NONE: Self = Self::new(0, 0);

    /// The version `epoch.sequence`.
    pub const fn new(epoch: u64, sequence: u64) -> Self {
        Self { epoch: Epoch(epoch), sequence: Sequence(sequence) }
    }

    /// Whether this is [`Version::NONE`].
    pub fn is_none(self) -> bool {
        self == Self::NONE
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch, self.sequence)
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Version {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = |text: &str| -> Option<Self> {
            let (epoch, sequence) = text.split_once('.')?;
            Some(Self::new(epoch.parse().ok()?, sequence.parse().ok()?))
        };
        parsed(text, "version (EPOCH.SEQUENCE)", parse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        assert_eq!("3.17".parse(), Ok(Version::new(3, 17)));
        assert_eq!(Version::new(3, 17).to_string(), "3.17");
        for bad in ["", "3", "3.", ".3", "3.x", "3.4.5", "-1.2"] {
            assert!(bad.parse::<Version>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_epoch_weighs_more() {
        assert!(Version::new(1, 9) < Version::new(2, 1));
    }
}
