//! Keys in hash order, for scans whose cursor is a position in that order.
//!
//! The first scan of a chain starts to build its order, so a chain without such scans has no cost. Each call of
//! `scan_hashed` adds a bounded number of keys until the order is complete. Every thread that changes the order or the
//! keys of the store holds the lock of the chain, so the build and the writers take turns. From the first scan on,
//! writers add their new keys to the order and remove deleted ones. The build adds the keys that existed before.

use std::{cmp::Ordering, ops::Bound, vec};

use scc::{Comparable, Equivalent, Guard};

use super::{
    MemoryStore,
    chains::{Chain, Filled, lock},
    key::{Key, KeyBytes, KeyRef},
    sorted::Sorted,
};
use crate::{
    ChainId, Sequence,
    store::{ScanRecord, StoreError},
};

/// The most keys that one call adds to the order.
pub(super) const FILL: usize = 1024;

/// Keys that are added to the order, or read from it, at a time.
const PAGE: usize = 128;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct HashedKey {
    chain: ChainId,
    position: u64,
    key: KeyBytes,
}

/// A borrowed [`HashedKey`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct PlacedRef<'a> {
    chain: ChainId,
    position: u64,
    key: &'a [u8],
}

impl Sorted for HashedKey {
    // Below all keys: no key has position 0.
    const LOWEST: Self = Self { chain: ChainId(0), position: 0, key: KeyBytes::EMPTY };
}

impl HashedKey {
    fn borrow(&self) -> PlacedRef<'_> {
        PlacedRef { chain: self.chain, position: self.position, key: &self.key }
    }
}

impl Equivalent<HashedKey> for PlacedRef<'_> {
    fn equivalent(&self, placed: &HashedKey) -> bool {
        *self == placed.borrow()
    }
}

impl Comparable<HashedKey> for PlacedRef<'_> {
    fn compare(&self, placed: &HashedKey) -> Ordering {
        #[cfg(test)]
        super::work::count();
        self.cmp(&placed.borrow())
    }
}

impl MemoryStore {
    /// Adds a key that is new in the store, if the build of the order has begun.
    pub(super) fn place(&self, chain: &Chain, key: &Key) {
        match chain.hashed {
            Filled::Not => {}
            // The build may already have passed the place of the key (trap 46).
            Filled::From(_) if allows!(self.guards, ForgetNewKeys) => {}
            Filled::From(_) | Filled::Whole => self.add_placed(key),
        }
    }

    pub(super) fn displace(&self, chain: &Chain, key: KeyRef<'_>) {
        if !matches!(chain.hashed, Filled::Not) {
            let position = (self.position)(key.bytes);
            self.hashed.remove(&PlacedRef { chain: key.chain, position, key: key.bytes });
        }
    }

    fn add_placed(&self, key: &Key) {
        let position = (self.position)(&key.bytes);
        // If the key's writer has added it already, the insertion has no effect.
        self.hashed.insert(HashedKey { chain: key.chain, position, key: key.bytes.clone() });
    }

    /// Adds a bounded number of keys to the order, and returns whether the order is complete. Releases the lock after
    /// each [`PAGE`] of keys, but the lock isn't fair: a writer may wait for the whole call.
    pub(super) fn fill(&self, id: ChainId) -> bool {
        let chain = self.chains.get(id);
        let mut left = self.fill;
        loop {
            let mut chain = lock(&chain);
            let from = match &chain.hashed {
                Filled::Whole => return true,
                Filled::Not => Bound::Included(KeyBytes::EMPTY),
                Filled::From(_) if left == 0 => return false,
                Filled::From(from) => from.clone(),
            };
            let limit = PAGE.min(left.max(1));
            let page = self.keys(id, &from, limit);
            page.iter().for_each(|key| self.add_placed(key));
            left = left.saturating_sub(limit);
            chain.hashed = match page.get(limit - 1) {
                Some(last) => Filled::From(Bound::Excluded(last.bytes.clone())),
                None => Filled::Whole,
            };
        }
    }

    fn placed(&self, chain: ChainId, from: Bound<(u64, KeyBytes)>, limit: usize) -> Vec<HashedKey> {
        let from = from.as_ref().map(|(position, key)| PlacedRef { chain, position: *position, key });
        let guard = Guard::new();
        self.hashed.from(from, &guard).take_while(|placed| placed.chain == chain).take(limit).cloned().collect()
    }
}

/// A scan in hash order. The order must be complete.
pub(super) struct HashedScan<'a> {
    store: &'a MemoryStore,
    chain: ChainId,
    at_most: Sequence,
    page: vec::IntoIter<HashedKey>,
    /// Where the next page begins; `None` after the last one.
    next: Option<Bound<(u64, KeyBytes)>>,
}

impl<'a> HashedScan<'a> {
    pub(super) fn new(store: &'a MemoryStore, chain: ChainId, from: u64, at_most: Sequence) -> Self {
        let next = Some(Bound::Included((from.max(1), KeyBytes::EMPTY)));
        Self { store, chain, at_most, page: Vec::new().into_iter(), next }
    }
}

impl Iterator for HashedScan<'_> {
    type Item = Result<(u64, ScanRecord), StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            for HashedKey { chain, position, key } in self.page.by_ref() {
                if let Some(held) = self.store.find(KeyRef { chain, bytes: &key }, self.at_most) {
                    return Some(Ok((position, ScanRecord { key: key.to_bytes(), held })));
                }
            }
            let page = self.store.placed(self.chain, self.next.take()?, PAGE);
            self.next = page.get(PAGE - 1).map(|last| Bound::Excluded((last.position, last.key.clone())));
            self.page = page.into_iter();
        }
    }
}
