//! Keys of all chains in one index. A lookup allocates nothing.

use std::{
    cmp::Ordering,
    fmt,
    hash::{BuildHasher, Hash, Hasher},
    ops::Deref,
};

use bytes::Bytes;
use scc::{Comparable, Equivalent};
use siphasher::sip::SipHasher13;

use super::sorted::Sorted;
use crate::ChainId;

/// The longest key, in bytes, that is stored inline. On 64-bit platforms an entry then has the size of [`Bytes`].
const SHORT: usize = 23;

/// The bytes of a key. Comparing a short one follows no pointer.
#[derive(Clone)]
pub(super) enum KeyBytes {
    Short(u8, [u8; SHORT]),
    /// Shared between the indexes.
    Long(Bytes),
}

impl KeyBytes {
    pub(super) const EMPTY: Self = Self::Short(0, [0; SHORT]);

    pub(super) fn to_bytes(&self) -> Bytes {
        match self {
            Self::Short(..) => Bytes::copy_from_slice(self),
            Self::Long(bytes) => bytes.clone(),
        }
    }
}

/// Copies the bytes, so that an index doesn't keep the frame alive in which the key was received.
impl From<&[u8]> for KeyBytes {
    fn from(bytes: &[u8]) -> Self {
        let mut short = [0; SHORT];
        match short.get_mut(..bytes.len()) {
            Some(place) => {
                place.copy_from_slice(bytes);
                Self::Short(bytes.len() as u8, short)
            }
            None => Self::Long(Bytes::copy_from_slice(bytes)),
        }
    }
}

impl Deref for KeyBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Short(len, bytes) => &bytes[..usize::from(*len)],
            Self::Long(bytes) => bytes,
        }
    }
}

impl PartialEq for KeyBytes {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for KeyBytes {}

impl PartialOrd for KeyBytes {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for KeyBytes {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl fmt::Debug for KeyBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.escape_ascii())
    }
}

/// A key of one chain.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Key {
    kind: KeyKind,
    pub(super) chain: ChainId,
    pub(super) bytes: KeyBytes,
}

/// The variants are in sort order. The field occupies what would otherwise be padding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum KeyKind {
    /// Below all keys.
    Lowest,
    Key,
}

/// A borrowed [`Key`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct KeyRef<'a> {
    pub(super) chain: ChainId,
    pub(super) bytes: &'a [u8],
}

impl KeyRef<'_> {
    pub(super) fn to_key(self) -> Key {
        Key { kind: KeyKind::Key, chain: self.chain, bytes: self.bytes.into() }
    }
}

impl Sorted for Key {
    const LOWEST: Self = Self { kind: KeyKind::Lowest, chain: ChainId(0), bytes: KeyBytes::EMPTY };
}

impl Key {
    pub(super) fn borrow(&self) -> KeyRef<'_> {
        KeyRef { chain: self.chain, bytes: &self.bytes }
    }
}

impl Hash for KeyRef<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // No separator is needed: the chain has a fixed length, and the bytes extend to the end.
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
        #[cfg(test)]
        super::work::count();
        key.kind == KeyKind::Key && *self == key.borrow()
    }
}

impl Comparable<Key> for KeyRef<'_> {
    fn compare(&self, key: &Key) -> Ordering {
        #[cfg(test)]
        super::work::count();
        KeyKind::Key.cmp(&key.kind).then_with(|| self.cmp(&key.borrow()))
    }
}

/// A keyed hash. Clients choose the keys but don't know the seed, so they can't produce collisions.
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
        let long = [7; SHORT + 1];
        for (chain, bytes) in [(0, &b""[..]), (0, b"a"), (1, b"a"), (u32::MAX, &long[..SHORT]), (2, &long)] {
            let borrowed = KeyRef { chain: ChainId(chain), bytes };
            let owned = borrowed.to_key();
            assert!(borrowed.equivalent(&owned));
            assert_eq!(borrowed.compare(&owned), Ordering::Equal);
            assert_eq!(seeded.hash_one(borrowed), seeded.hash_one(&owned));
            assert_eq!((&owned.bytes[..], &owned.bytes.to_bytes()[..]), (bytes, bytes));
        }
    }

    #[cfg(target_pointer_width = "64")]
    #[test]
    fn short_keys_take_no_more_room_than_long_ones() {
        assert_eq!(size_of::<KeyBytes>(), size_of::<Bytes>());
        assert_eq!(size_of::<Key>(), size_of::<(ChainId, KeyBytes)>());
    }

    #[test]
    fn keys_of_any_length_are_ordered_by_bytes() {
        let long = [b'a'; SHORT + 1];
        let keys = [&b""[..], b"a", &long[..SHORT], &long, b"ab", b"b"].map(KeyBytes::from);
        assert!(keys.is_sorted_by(|a, b| a < b));
        assert_eq!(format!("{:?}", KeyBytes::from(&b"a\n"[..])), r#""a\n""#);
    }

    #[test]
    fn the_lowest_entry_is_no_key_and_below_the_empty_one() {
        let empty = KeyRef { chain: ChainId(0), bytes: b"" };
        assert_eq!(empty.compare(&Key::LOWEST), Ordering::Greater);
        assert!(!empty.equivalent(&Key::LOWEST));
        assert!(Key::LOWEST < empty.to_key());
    }

    #[test]
    fn another_seed_makes_another_hash() {
        let key = KeyRef { chain: ChainId(1), bytes: b"key" };
        assert_ne!(Seeded::new(1).hash_one(key), Seeded::new(2).hash_one(key));
    }
}
