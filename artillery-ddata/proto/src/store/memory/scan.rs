//! Scans in key order.

use std::{ops::Bound, vec};

use scc::Guard;

use super::{
    MemoryStore,
    key::{Key, KeyBytes, KeyRef},
};
use crate::{
    ChainId, Sequence,
    store::{ScanRecord, StoreError},
};

/// Keys read from the index at a time. A scan holds no guard between two pages, so removed entries can be freed.
const PAGE: usize = 128;

pub(super) struct MemoryScan<'a> {
    store: &'a MemoryStore,
    chain: ChainId,
    at_most: Sequence,
    page: vec::IntoIter<Key>,
    /// Where the next page begins; `None` after the last one.
    next: Option<Bound<KeyBytes>>,
}

impl<'a> MemoryScan<'a> {
    pub(super) fn new(store: &'a MemoryStore, chain: ChainId, from: &[u8], at_most: Sequence) -> Self {
        let next = Some(Bound::Included(from.into()));
        Self { store, chain, at_most, page: Vec::new().into_iter(), next }
    }

    fn turn(&mut self, from: &Bound<KeyBytes>) {
        let page = self.store.keys(self.chain, from, PAGE);
        self.next = page.get(PAGE - 1).map(|last| Bound::Excluded(last.bytes.clone()));
        self.page = page.into_iter();
    }
}

impl Iterator for MemoryScan<'_> {
    type Item = Result<ScanRecord, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            for key in self.page.by_ref() {
                if let Some(held) = self.store.find(key.borrow(), self.at_most) {
                    return Some(Ok(ScanRecord { key: key.bytes.to_bytes(), held }));
                }
            }
            let from = self.next.take()?;
            self.turn(&from);
        }
    }
}

impl MemoryStore {
    pub(super) fn keys(&self, chain: ChainId, from: &Bound<KeyBytes>, limit: usize) -> Vec<Key> {
        let from = from.as_ref().map(|bytes| KeyRef { chain, bytes });
        let guard = Guard::new();
        self.ordered.from(from, &guard).take_while(|key| key.chain == chain).take(limit).cloned().collect()
    }

    pub(super) fn all_keys(&self, chain: ChainId) -> impl Iterator<Item = Key> + '_ {
        let mut from = Some(Bound::Included(KeyBytes::EMPTY));
        std::iter::from_fn(move || {
            let page = self.keys(chain, &from.take()?, PAGE);
            from = page.get(PAGE - 1).map(|last| Bound::Excluded(last.bytes.clone()));
            Some(page)
        })
        .flatten()
    }
}
