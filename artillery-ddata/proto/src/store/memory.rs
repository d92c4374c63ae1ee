//! A store in memory, whose data is lost at exit.
//!
//! Every key has one slot with all its versions, committed and pending. A change builds new versions and exchanges them
//! for the old ones, so a reader sees either set as a whole. The slots are in a hash index that is read without locks.
//! Slots are only added to the index and removed from it, never replaced: `scc::HashIndex` replaces an entry by adding
//! the new one and then marking the old one removed. A reader that looks for the new entry before it is added, and for
//! the old one after it is removed, would find neither (`conformance::readers_meet_whole_entries` detects it).

mod chains;
mod expiring;
mod hashed;
mod key;
mod scan;
mod slot;
mod slots;
mod sorted;
mod sync;
mod versions;
#[cfg(test)]
pub(crate) mod work;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;

use self::{
    chains::{Chain, Chains, lock},
    hashed::{FILL, HashedKey, HashedScan},
    key::{Key, KeyRef},
    scan::MemoryScan,
    slot::Slot,
    slots::{PARTS, Slots},
    sorted::SortedIndex,
    versions::Versions,
};
use crate::{
    ChainId, Expiry, Sequence, Version,
    guards::Guards,
    store::{
        Applied, HashedIter, Held, Persisted, RecordIter, RecoveredChain, Size, Store, StoreBatch, StoreError, StoreOp,
        position,
    },
};

pub struct MemoryStore {
    slots: Slots,
    ordered: SortedIndex<Key>,
    hashed: SortedIndex<HashedKey>,
    position: fn(&[u8]) -> u64,
    /// The most keys that one call adds to hash order.
    fill: usize,
    guards: Guards,
    chains: Chains,
    applied: AtomicU64,
    bytes: AtomicU64,
}

impl MemoryStore {
    /// An empty store whose index hashes keys with `seed`.
    ///
    /// No result depends on the seed, but a client that knows it can choose keys that make the store slow. Use a random
    /// seed wherever keys come from outside.
    pub fn with_seed(seed: u64) -> Self {
        Self::in_parts(seed, PARTS)
    }

    fn in_parts(seed: u64, parts: usize) -> Self {
        Self {
            slots: Slots::new(seed, parts),
            ordered: SortedIndex::new(),
            hashed: SortedIndex::new(),
            position,
            fill: FILL,
            guards: Guards::default(),
            chains: Chains::default(),
            applied: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    /// Replaces the hash order of [`position`], and the number of keys that one call adds to it. For tests of cases
    /// that otherwise need luck, or millions of keys.
    #[cfg(any(test, feature = "mutants"))]
    #[must_use]
    pub fn with_positions(mut self, position: fn(&[u8]) -> u64, fill: usize) -> Self {
        (self.position, self.fill) = (position, fill);
        self
    }

    /// An empty store with one index of slots. It is small and quickly created, but its longest steps grow with its
    /// keys. For the model, which creates millions of stores.
    #[cfg(any(test, feature = "mutants"))]
    pub fn small(seed: u64) -> Self {
        Self::in_parts(seed, 1)
    }

    #[cfg(any(test, feature = "mutants"))]
    #[must_use]
    pub fn with_guards(self, guards: Guards) -> Self {
        Self { guards, ..self }
    }

    fn find(&self, key: KeyRef<'_>, at_most: Sequence) -> Option<Held> {
        self.slots.peek(key, |slot| slot.read(|versions| versions.at(at_most).cloned())).flatten().flatten()
    }

    /// Applies `change` to a key's versions, and returns the result with the key's slot. A chain has one writer at a
    /// time, so the versions can't change until this writer replaces them; readers continue.
    fn changed<T>(&self, key: KeyRef<'_>, change: impl FnOnce(&Versions) -> T) -> Option<(Arc<Slot>, T)> {
        let slot = self.slots.get(key)?;
        let made = slot.read(change)?;
        Some((slot, made))
    }

    fn put(&self, chain: &mut Chain, key: KeyRef<'_>, held: &Held, keep_from: Sequence) -> Result<(), StoreError> {
        let (floor, version) = (chain.floor(keep_from), held.version);
        let follow = |old: &Versions| {
            let newest = old.newest().version;
            if newest.sequence >= version.sequence {
                return Err(StoreError::Failed(format!("version {version} isn't above {newest} of the same key")));
            }
            if version.sequence <= floor {
                return Ok(Versions::new(held.clone()));
            }
            let mut new = old.with(held.clone());
            new.prune(floor);
            Ok(new)
        };
        let Some((slot, new)) = self.changed(key, follow) else {
            self.insert(chain, key.to_key(), held.clone());
            return Ok(());
        };
        let new = new?;
        // Only the pins keep the older versions.
        if floor < version.sequence && version.sequence <= keep_from {
            chain.held_back.insert(Bytes::copy_from_slice(key.bytes));
        }
        self.replace(chain, key, &slot, new);
        Ok(())
    }

    fn insert(&self, chain: &mut Chain, key: Key, first: Held) {
        let versions = Versions::new(first);
        let weight = versions.weight();
        self.bytes.fetch_add(key.bytes.len() as u64 + weight.bytes, Ordering::Relaxed);
        chain.count(&key.bytes, None, Some(weight));
        let inserted = self.slots.insert(key.clone(), Arc::new(Slot::new(versions)));
        debug_assert!(inserted, "another writer of the same chain");
        self.place(chain, &key);
        let inserted = self.ordered.insert(key);
        debug_assert!(inserted, "a key is in one of the two indexes only");
    }

    fn replace(&self, chain: &mut Chain, key: KeyRef<'_>, slot: &Slot, new: Versions) {
        let after = new.weight();
        let Some(old) = slot.replace(Some(new)) else { return };
        let before = old.weight();
        chain.count(key.bytes, Some(before), Some(after));
        // A negative difference wraps, and so does the addition, so the sum is correct.
        let more = after.bytes.wrapping_sub(before.bytes);
        if more != 0 {
            self.bytes.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// Removes a key. The slot is emptied first, because the index frees removed entries later.
    fn remove(&self, chain: &mut Chain, key: KeyRef<'_>, slot: &Slot) {
        let Some(old) = slot.replace(None) else { return };
        let weight = old.weight();
        chain.count(key.bytes, Some(weight), None);
        self.bytes.fetch_sub(key.bytes.len() as u64 + weight.bytes, Ordering::Relaxed);
        self.slots.remove(key);
        self.ordered.remove(&key);
        self.displace(chain, key);
    }

    fn prune(&self, chain: &mut Chain, key: KeyRef<'_>, keep_from: Sequence) {
        let floor = chain.floor(keep_from);
        let pruned = self.changed(key, |old| {
            (!old.is_settled()).then(|| {
                let mut new = old.clone();
                let any = new.prune(floor);
                (new, any)
            })
        });
        let Some((slot, Some((new, any)))) = pruned else { return };
        if new.is_gone(floor) {
            self.remove(chain, key, &slot);
            return;
        }
        if floor < keep_from && !new.is_settled() {
            chain.held_back.insert(Bytes::copy_from_slice(key.bytes));
        }
        if any {
            self.replace(chain, key, &slot, new);
        }
    }

    fn drop_above(&self, chain: &mut Chain, key: KeyRef<'_>, last: Sequence, keep_from: Sequence) {
        let floor = chain.floor(keep_from);
        let cut = self.changed(key, |old| {
            (old.newest().version.sequence > last).then(|| {
                let mut left = old.without_above(last)?;
                left.prune(floor);
                (!left.is_gone(floor)).then_some(left)
            })
        });
        match cut {
            Some((slot, Some(Some(left)))) => self.replace(chain, key, &slot, left),
            Some((slot, Some(None))) => self.remove(chain, key, &slot),
            Some((_, None)) | None => {}
        }
    }
}

impl Store for MemoryStore {
    fn read(&self, chain: ChainId, key: &[u8], at_most: Sequence) -> Result<Option<Held>, StoreError> {
        Ok(self.find(KeyRef { chain, bytes: key }, at_most))
    }

    fn scan(&self, chain: ChainId, from: &[u8], at_most: Sequence) -> RecordIter<'_> {
        Box::new(MemoryScan::new(self, chain, from, at_most))
    }

    fn scan_hashed(&self, chain: ChainId, from: u64, at_most: Sequence) -> Option<HashedIter<'_>> {
        self.fill(chain).then(|| Box::new(HashedScan::new(self, chain, from, at_most)) as HashedIter<'_>)
    }

    fn apply(&self, batch: &StoreBatch) -> Result<Applied, StoreError> {
        let chain = self.chains.get(batch.chain);
        let mut chain = lock(&chain);
        chain.keep_from = chain.keep_from.max(batch.keep_from);
        for op in &batch.ops {
            let key = |bytes| KeyRef { chain: batch.chain, bytes };
            match op {
                StoreOp::Put { key: bytes, held } => {
                    self.put(&mut chain, key(bytes), held, batch.keep_from)?;
                }
                StoreOp::Prune { key: bytes } => self.prune(&mut chain, key(bytes), batch.keep_from),
                StoreOp::DropAbove { key: bytes, last } => {
                    self.drop_above(&mut chain, key(bytes), *last, batch.keep_from);
                }
            }
        }
        Ok(Applied(self.applied.fetch_add(1, Ordering::Relaxed) + 1))
    }

    fn persist(&self, _upto: Applied, done: Persisted) {
        done(Ok(()));
    }

    fn recover(&self) -> Result<Vec<RecoveredChain>, StoreError> {
        let newest = |chain| {
            let versions = self.all_keys(chain).filter_map(|key| self.find(key.borrow(), Sequence::MAX));
            versions.map(|held| held.version).max().unwrap_or(Version::NONE)
        };
        let chains = self.chains.ids().into_iter().map(|chain| {
            let last: Version = newest(chain);
            let watermark = lock(&self.chains.get(chain)).keep_from.min(last.sequence);
            RecoveredChain { chain, last, watermark }
        });
        Ok(chains.filter(|found| !found.last.is_none()).collect())
    }

    fn pin(&self, chain: ChainId, at: Sequence) {
        lock(&self.chains.get(chain)).pin(at);
    }

    fn unpin(&self, chain: ChainId, at: Sequence) {
        let state = self.chains.get(chain);
        let mut state = lock(&state);
        if !state.unpin(at) {
            return;
        }
        let keep_from = state.keep_from;
        for bytes in std::mem::take(&mut state.held_back) {
            self.prune(&mut state, KeyRef { chain, bytes: &bytes }, keep_from);
        }
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn due(&self, chain: ChainId, chain_time: u64, most: usize) -> Vec<Bytes> {
        lock(&self.chains.get(chain)).expiring.due(chain_time, most)
    }

    fn next_expiry(&self, chain: ChainId) -> Option<Expiry> {
        lock(&self.chains.get(chain)).expiring.first()
    }

    fn size(&self, chain: ChainId) -> Size {
        lock(&self.chains.get(chain)).size
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
