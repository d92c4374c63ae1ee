//! Keys in hash order, for scans whose cursor is a position there.
//!
//! Nobody pays for that order who doesn't scan in it: it is made when it is first asked for, a bounded number of keys a
//! call, and writers keep it from then on. Whoever adds a key, to this order or to the store, holds the lock of its chain.
//! So a key that comes while the order is being made is added by its writer, wherever the making is; one that goes is
//! removed by its writer, and the making doesn't meet it any more.

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

/// Keys added to the order by one call at most.
pub(super) const FILL: usize = 1024;

/// Keys added, or taken from the order, at a time.
const PAGE: usize = 128;

/// A key and its place in the order.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct HashedKey {
    chain: ChainId,
    position: u64,
    key: KeyBytes,
}

/// The same, borrowed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct PlacedRef<'a> {
    chain: ChainId,
    position: u64,
    key: &'a [u8],
}

/// 0 is no position.
impl Sorted for HashedKey {
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
    /// A key has come into the store.
    pub(super) fn place(&self, chain: &Chain, key: &Key) {
        match chain.hashed {
            Filled::Not => {}
            // The making of the order has passed by where the key belongs (trap 46).
            Filled::From(_) if allows!(self.guards, ForgetNewKeys) => {}
            Filled::From(_) | Filled::Whole => self.add_placed(key),
        }
    }

    /// A key has left the store.
    pub(super) fn displace(&self, chain: &Chain, key: KeyRef<'_>) {
        if !matches!(chain.hashed, Filled::Not) {
            let position = (self.position)(key.bytes);
            self.hashed.remove(&PlacedRef { chain: key.chain, position, key: key.bytes });
        }
    }

    fn add_placed(&self, key: &Key) {
        let position = (self.position)(&key.bytes);
        // It may be there already: its writer was first.
        self.hashed.insert(HashedKey { chain: key.chain, position, key: key.bytes.clone() });
    }

    /// Adds up to [`FILL`] keys to the order; whether it is whole then. Writers wait for a [`PAGE`] of them at most.
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

    /// Up to `limit` keys of a chain in hash order.
    fn placed(&self, chain: ChainId, from: Bound<(u64, KeyBytes)>, limit: usize) -> Vec<HashedKey> {
        let from = from.as_ref().map(|(position, key)| PlacedRef { chain, position: *position, key });
        let guard = Guard::new();
        self.hashed.from(from, &guard).take_while(|placed| placed.chain == chain).take(limit).cloned().collect()
    }
}

/// A scan in hash order, which is whole.
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
