//! The store that forgets at exit.
//!
//! Every key has one slot, which points to all its versions, committed and pending; a change makes new versions and
//! swaps that one pointer, so a reader meets the old ones or the new ones, whole. The slots stand in a hash index that
//! is read without locks. They are never replaced there, only added and removed: `scc::HashIndex` replaces an entry by
//! adding the new one and marking the old one removed, and a reader that looked for the one before and looks for the
//! other afterwards finds neither (`conformance::readers_meet_whole_entries` sees it).

mod chains;
mod hashed;
mod key;
mod scan;
mod slot;
mod slots;
mod sorted;
mod spares;
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
    hashed::{FILL, HashedScan, Placed},
    key::{Key, KeyRef},
    scan::Scan,
    slot::{Slot, SlotId},
    slots::{PARTS, Slots},
    sorted::SortedIndex,
    versions::Versions,
};
use crate::{
    ChainId, Sequence, Version,
    store::{
        Applied, HashedIter, Held, Persisted, RecordIter, Recovered, Size, Store, StoreBatch, StoreError, StoreOp,
        position,
    },
};

/// A store in memory.
pub struct MemoryStore {
    slots: Slots,
    ordered: SortedIndex<Key>,
    hashed: SortedIndex<Placed>,
    position: fn(&[u8]) -> u64,
    /// Keys put into hash order by one call at most.
    fill: usize,
    /// A mutant: writers leave it to the making of the order to meet new keys.
    #[cfg(any(test, feature = "mutants"))]
    forgets: bool,
    chains: Chains,
    applied: AtomicU64,
    bytes: AtomicU64,
}

impl MemoryStore {
    /// An empty store whose index hashes keys under `seed`.
    ///
    /// Nothing that can be observed depends on the seed, except that who knows it can choose keys that make the store
    /// slow: take a random one wherever keys come from outside.
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
            #[cfg(any(test, feature = "mutants"))]
            forgets: false,
            chains: Chains::default(),
            applied: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    /// The same store with another order than that of [`position`], to which `fill` keys are added at a time: to meet in
    /// tests what takes luck, or millions of keys.
    #[cfg(any(test, feature = "mutants"))]
    #[must_use]
    pub fn with_positions(mut self, position: fn(&[u8]) -> u64, fill: usize) -> Self {
        (self.position, self.fill) = (position, fill);
        self
    }

    /// An empty store with one index of slots: it takes little room and time to make, and its longest steps grow with its keys. For
    /// the model, which makes millions of stores.
    #[cfg(any(test, feature = "mutants"))]
    pub fn small(seed: u64) -> Self {
        Self::in_parts(seed, 1)
    }

    /// The same store without a guard: a key that comes while the order is being made, before where that is, is left out
    /// (trap 46).
    #[cfg(any(test, feature = "mutants"))]
    #[must_use]
    pub fn forgetting_new_keys(mut self) -> Self {
        self.forgets = true;
        self
    }

    fn find(&self, key: KeyRef<'_>, at_most: Sequence) -> Option<Held> {
        self.slots.peek(key, |slot| slot.read(|versions| versions.at(at_most).cloned())).flatten()
    }

    /// The slot of a key and what is in it, for writers: there is one at a time for each chain, so both stay as they are.
    fn slot(&self, key: KeyRef<'_>) -> Option<(Arc<Slot>, Arc<Versions>)> {
        let slot = self.slots.get(key)?;
        let versions = slot.load()?;
        Some((slot, versions))
    }

    fn put(&self, chain: &mut Chain, key: KeyRef<'_>, held: Held, keep_from: Sequence) -> Result<(), StoreError> {
        let Some((slot, old)) = self.slot(key) else {
            self.insert(chain, key.to_key(), held);
            return Ok(());
        };
        let newest = old.newest().version;
        if newest.sequence >= held.version.sequence {
            return Err(StoreError::Failed(format!("version {} was to follow {newest} of the same key", held.version)));
        }
        let (floor, made) = (chain.floor(keep_from), held.version.sequence);
        let new = if made <= floor {
            Versions::new(slot.id(), held)
        } else {
            let mut new = old.with(held);
            new.prune(floor);
            new
        };
        // But for the pins nothing older would be left.
        if floor < made && made <= keep_from {
            chain.held_back.insert(Bytes::copy_from_slice(key.bytes));
        }
        self.replace(chain, key, &slot, old, new);
        Ok(())
    }

    fn insert(&self, chain: &mut Chain, key: Key, first: Held) {
        let versions = Versions::new(SlotId::new(), first);
        self.bytes.fetch_add(key.bytes.len() as u64 + versions.bytes(), Ordering::Relaxed);
        chain.count(key.bytes.len(), None, Some(&versions));
        let inserted = self.slots.insert(key.clone(), Arc::new(Slot::new(versions)));
        debug_assert!(inserted, "another writer of the same chain");
        self.place(chain, &key);
        let inserted = self.ordered.insert(key);
        debug_assert!(inserted, "a key left one index alone");
    }

    fn replace(&self, chain: &mut Chain, key: KeyRef<'_>, slot: &Slot, old: Arc<Versions>, new: Versions) {
        chain.count(key.bytes.len(), Some(&old), Some(&new));
        // Around zero both wrap alike.
        let more = new.bytes().wrapping_sub(old.bytes());
        if more != 0 {
            self.bytes.fetch_add(more, Ordering::Relaxed);
        }
        drop(old);
        if let Some(replaced) = slot.replace(Some(chain.spares.make(new))) {
            chain.spares.keep(replaced);
        }
    }

    /// The index frees what it removed at its leisure, hence the slot is emptied first.
    fn remove(&self, chain: &mut Chain, key: KeyRef<'_>, slot: &Slot, old: &Versions) {
        chain.count(key.bytes.len(), Some(old), None);
        self.bytes.fetch_sub(key.bytes.len() as u64 + old.bytes(), Ordering::Relaxed);
        drop(slot.replace(None));
        self.slots.remove(key);
        self.ordered.remove(&key);
        self.displace(chain, key);
    }

    fn prune(&self, chain: &mut Chain, key: KeyRef<'_>, keep_from: Sequence) {
        let Some((slot, old)) = self.slot(key) else { return };
        if old.is_settled() {
            return;
        }
        let floor = chain.floor(keep_from);
        let mut new = Versions::clone(&old);
        let changed = new.prune(floor);
        if new.is_gone(floor) {
            self.remove(chain, key, &slot, &old);
            return;
        }
        if floor < keep_from && !new.is_settled() {
            chain.held_back.insert(Bytes::copy_from_slice(key.bytes));
        }
        if changed {
            self.replace(chain, key, &slot, old, new);
        }
    }

    fn drop_above(&self, chain: &mut Chain, key: KeyRef<'_>, last: Sequence, keep_from: Sequence) {
        let Some((slot, old)) = self.slot(key) else { return };
        if old.newest().version.sequence <= last {
            return;
        }
        let floor = chain.floor(keep_from);
        let left = old.without_above(last).map(|mut new| {
            new.prune(floor);
            new
        });
        match left.filter(|new| !new.is_gone(floor)) {
            Some(new) => self.replace(chain, key, &slot, old, new),
            None => self.remove(chain, key, &slot, &old),
        }
    }
}

impl Store for MemoryStore {
    fn read(&self, chain: ChainId, key: &[u8], at_most: Sequence) -> Result<Option<Held>, StoreError> {
        Ok(self.find(KeyRef { chain, bytes: key }, at_most))
    }

    fn scan(&self, chain: ChainId, from: &[u8], at_most: Sequence) -> RecordIter<'_> {
        Box::new(Scan::new(self, chain, from, at_most))
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
                    self.put(&mut chain, key(bytes), held.clone(), batch.keep_from)?;
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

    fn recover(&self) -> Result<Vec<Recovered>, StoreError> {
        let newest = |chain| {
            let versions = self.all_keys(chain).filter_map(|key| self.find(key.borrow(), Sequence::MAX));
            versions.map(|held| held.version).max().unwrap_or(Version::NONE)
        };
        let chains = self.chains.ids().into_iter().map(|chain| {
            let last: Version = newest(chain);
            let watermark = lock(&self.chains.get(chain)).keep_from.min(last.sequence);
            Recovered { chain, last, watermark }
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
