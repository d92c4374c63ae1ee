//! The index of slots by key.

use std::sync::Arc;

use scc::HashIndex;

use super::{
    key::{Key, KeyRef, Seeded},
    slot::Slot,
};

/// The number of parts. With a million keys a part holds about 4,000.
pub(super) const PARTS: usize = 256;

/// A hash index in parts.
///
/// `scc::HashIndex` drops removed entries, and those that it moved into a larger array, together with the old array. In
/// one index of a million keys that takes 0.4 s of the writer's time; in a part it takes milliseconds
/// (docs/adr/0029-bounded-steps-of-a-store.md).
pub(super) struct Slots {
    /// The number of parts is a power of two.
    parts: Box<[HashIndex<Key, Arc<Slot>, Seeded>]>,
}

impl Slots {
    pub(super) fn new(seed: u64, parts: usize) -> Self {
        let part = || HashIndex::with_hasher(Seeded::new(seed));
        Self { parts: std::iter::repeat_with(part).take(parts.next_power_of_two()).collect() }
    }

    /// Applies `look` to a key's slot.
    pub(super) fn peek<T>(&self, key: KeyRef<'_>, look: impl FnOnce(&Arc<Slot>) -> T) -> Option<T> {
        self.part(key).peek_with(&key, |_, slot| look(slot))
    }

    /// A key's slot. For the writer.
    pub(super) fn get(&self, key: KeyRef<'_>) -> Option<Arc<Slot>> {
        self.part(key).read_sync(&key, |_, slot| slot.clone())
    }

    /// Adds a slot. Returns whether the key had none.
    pub(super) fn insert(&self, key: Key, slot: Arc<Slot>) -> bool {
        self.part(key.borrow()).insert_sync(key, slot).is_ok()
    }

    /// Removes a slot. The index frees its entry later.
    pub(super) fn remove(&self, key: KeyRef<'_>) {
        self.part(key).remove_sync(&key);
    }

    /// The part of a key. The mix is not secret: a client can choose keys that are all in one part, which is then as
    /// slow as an undivided index.
    fn part(&self, key: KeyRef<'_>) -> &HashIndex<Key, Arc<Slot>, Seeded> {
        let (words, rest) = key.bytes.as_chunks::<8>();
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        let words = words.iter().chain([&last]).map(|word| u64::from_le_bytes(*word));
        let words = std::iter::once(u64::from(key.chain.0)).chain(words);
        let mix = words.fold(0_u64, |mix, word| (mix ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32));
        // High bits of the last product, which depend on every bit of the key.
        &self.parts[(mix >> 22) as usize & (self.parts.len() - 1)]
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.parts.iter().map(HashIndex::len).sum()
    }

    /// The largest number of keys in one part.
    #[cfg(test)]
    pub(super) fn largest(&self) -> usize {
        self.parts.iter().map(HashIndex::len).max().unwrap_or_default()
    }

    #[cfg(test)]
    pub(super) fn for_each(&self, mut look: impl FnMut(&Key, &Slot)) {
        let guard = scc::Guard::new();
        self.parts.iter().flat_map(|part| part.iter(&guard)).for_each(|(key, slot)| look(key, slot));
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{
        ChainId, Version,
        store::{Held, memory::versions::Versions},
    };

    #[test]
    fn keys_of_any_shape_spread_over_all_parts() {
        const KEYS: u64 = 64 * PARTS as u64;
        type Shape = fn(u64) -> (u32, Vec<u8>);
        let shapes: [Shape; 9] = [
            |n| (0, n.to_be_bytes().into()),
            |n| (0, format!("key/{n:08}").into()),
            |n| (0, format!("{n}").into()),
            |n| (0, format!("user:{n}:with-a-longer-name").into()),
            |n| (0, [&b"user:"[..], &(n as u16).to_be_bytes()].concat()),
            |n| (0, [&b"abc"[..], &(n as u32).to_be_bytes()].concat()),
            |n| (0, [&b"ab"[..], &(n as u32).to_be_bytes()].concat()),
            |n| ((n % 64) as u32, (n / 64).to_le_bytes().into()),
            |n| (n as u32, Vec::new()),
        ];
        for (at, shape) in shapes.iter().enumerate() {
            let slots = Slots::new(1, PARTS);
            for (chain, bytes) in (0..KEYS).map(shape) {
                let first = Held::new(Version::new(1, 1), Some(Bytes::new()));
                let slot = Arc::new(Slot::new(Versions::new(first)));
                assert!(slots.insert(KeyRef { chain: ChainId(chain), bytes: &bytes }.to_key(), slot));
            }
            assert_eq!(slots.len() as u64, KEYS);
            assert!(slots.largest() <= 2 * 64, "{} keys of shape {at} in one part", slots.largest());
        }
    }
}
