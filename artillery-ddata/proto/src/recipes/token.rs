//! Fencing tokens: numbers by which a resource recognises the later of two holders of a lock.

use std::fmt;

use crate::{ClusterId, Version};

/// A number that increases with each holder of a lock, and of an election, in one cluster: the version of the write by
/// which the holder queued.
///
/// A resource that remembers the highest token that it has seen, and refuses lower ones, is safe from a holder that was
/// paused and doesn't know yet that it lost the lock. Tokens keep increasing over failovers, restarts, and the recovery
/// and reopening of a cluster. A cluster that was created from scratch begins with low tokens, and has another
/// [`cluster`](Self::cluster) id: tokens of two clusters can't be compared.
///
/// As text, a token has 32 hexadecimal digits, so tokens of one cluster are ordered as text too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FencingToken {
    version: Version,
    cluster: ClusterId,
}

impl FencingToken {
    /// The token of a holder that queued by this write.
    pub const fn new(cluster: ClusterId, version: Version) -> Self {
        Self { version, cluster }
    }

    /// The token of this number, for instance one that a resource stored.
    pub const fn from_u128(cluster: ClusterId, number: u128) -> Self {
        Self { version: Version::new((number >> 64) as u64, number as u64), cluster }
    }

    /// The token as a number.
    pub const fn as_u128(self) -> u128 {
        (self.version.epoch.0 as u128) << 64 | self.version.sequence.0 as u128
    }

    /// The version of the write by which the holder queued.
    pub const fn version(self) -> Version {
        self.version
    }

    /// The cluster that gave the token.
    pub const fn cluster(self) -> ClusterId {
        self.cluster
    }
}

impl From<FencingToken> for u128 {
    fn from(token: FencingToken) -> Self {
        token.as_u128()
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.as_u128())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_ordered_alike_as_numbers_and_as_text() {
        let token = |epoch, sequence| FencingToken::new(ClusterId(7), Version::new(epoch, sequence));
        let rising = [token(1, 9), token(1, 10), token(2, 1), token(16, 0), token(u64::MAX, u64::MAX)];
        for pair in rising.windows(2) {
            assert!(pair[0] < pair[1]);
            assert!(pair[0].as_u128() < pair[1].as_u128());
            assert!(pair[0].to_string() < pair[1].to_string());
        }
        for token in rising {
            assert_eq!(FencingToken::from_u128(ClusterId(7), token.as_u128()), token);
            assert_eq!(u128::from_str_radix(&token.to_string(), 16), Ok(token.as_u128()));
        }
    }
}
