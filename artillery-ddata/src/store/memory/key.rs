//! Keys of all chains in one index, looked up without building one.

use std::{
    cmp::Ordering,
    hash::{BuildHasher, Hash, Hasher},
};

use bytes::Bytes;
use scc::{Comparable, Equivalent};
use siphasher::sip::SipHasher13;

use crate::ChainId;

/// A key of one chain, in memory of its own.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Key {
    pub(super) chain: ChainId,
    pub(super) bytes: Bytes,
}

/// The same, borrowed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct KeyRef<'a> {
    pub(super) chain: ChainId,
    pub(super) bytes: &'a [u8],
}

impl KeyRef<'_> {
    /// Copied, so that an index never holds on to the frame or the value that a key came with.
    pub(super) fn to_key(self) -> Key {
        Key { chain: self.chain, bytes: Bytes::copy_from_slice(self.bytes) }
    }
}

impl Key {
    pub(super) fn borrow(&self) -> KeyRef<'_> {
        KeyRef { chain: self.chain, bytes: &self.bytes }
    }
}

impl Hash for KeyRef<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // The chain has a fixed length and the bytes run to the end: no separator is needed.
        state.write_u32(self.chain.0);
        state.write(self.bytes);
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.borrow().hash(state);
    }
}

impl Equivalent<Key> for KeyRef<'_> {
    fn equivalent(&self, key: &Key) -> bool {
        *self == key.borrow()
    }
}

impl Comparable<Key> for KeyRef<'_> {
    fn compare(&self, key: &Key) -> Ordering {
        self.cmp(&key.borrow())
    }
}

/// Keys come from clients, who must not be able to make them collide: a keyed hash, under a seed they don't know.
#[derive(Clone, Copy)]
pub(super) struct Seeded {
    keys: (u64, u64),
}

impl Seeded {
    pub(super) fn new(seed: u64) -> Self {
        let mut spread = SipHasher13::new_with_keys(seed, !seed);
        spread.write_u64(seed);
        Self { keys: (seed, spread.finish()) }
    }
}

impl BuildHasher for Seeded {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.keys.0, self.keys.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn borrowed_and_owned_are_one_key() {
        let seeded = Seeded::new(7);
        for (chain, bytes) in [(0, &b""[..]), (0, b"a"), (1, b"a"), (u32::MAX, b"abcdefghijk")] {
            let borrowed = KeyRef { chain: ChainId(chain), bytes };
            let owned = borrowed.to_key();
            assert!(borrowed.equivalent(&owned));
            assert_eq!(borrowed.compare(&owned), Ordering::Equal);
            assert_eq!(seeded.hash_one(borrowed), seeded.hash_one(&owned));
        }
    }

    #[test]
    fn the_seed_counts() {
        let key = KeyRef { chain: ChainId(1), bytes: b"key" };
        assert_ne!(Seeded::new(1).hash_one(key), Seeded::new(2).hash_one(key));
    }
}
