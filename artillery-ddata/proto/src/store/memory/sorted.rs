//! An ordered index that is read without locks.

use std::ops::Bound;

use scc::{Comparable, Guard, TreeIndex};

pub(super) trait Sorted: Clone + Ord + 'static {
    /// An entry below all others, including the empty key.
    const LOWEST: Self;
}

/// An index in which a range costs the same from any start.
///
/// `scc::TreeIndex::range` begins at an entry below its start. If there is none, it walks back from every node of the
/// tree to the first leaf: that takes seconds for 100,000 keys, and a hundred times as long for ten times the keys. So
/// the index always contains an entry below all others (docs/adr/0029-bounded-steps-of-a-store.md).
pub(super) struct SortedIndex<K: Sorted>(TreeIndex<K, ()>);

impl<K: Sorted> SortedIndex<K> {
    pub(super) fn new() -> Self {
        let index = TreeIndex::new();
        let inserted = index.insert_sync(K::LOWEST, ());
        debug_assert!(inserted.is_ok(), "the index is empty");
        Self(index)
    }

    /// Adds a key. Returns whether it is new.
    pub(super) fn insert(&self, key: K) -> bool {
        self.0.insert_sync(key, ()).is_ok()
    }

    pub(super) fn remove(&self, key: &impl Comparable<K>) -> bool {
        self.0.remove_sync(key)
    }

    /// The keys from `start` up.
    pub(super) fn from<'a, Q: Comparable<K>>(
        &'a self,
        start: Bound<Q>,
        guard: &'a Guard,
    ) -> impl Iterator<Item = &'a K> {
        self.0.range::<Q, _>((start, Bound::Unbounded), guard).map(|(key, ())| key)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len() - 1
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
