//! What writers and pins of one chain share; readers never come here.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
};

use bytes::Bytes;

use super::{key::KeyBytes, versions::Weight};
use crate::{ChainId, Sequence, store::Size};

/// The chains of a store.
#[derive(Debug, Default)]
pub(super) struct Chains {
    chains: RwLock<BTreeMap<ChainId, Arc<Mutex<Chain>>>>,
}

/// One of them.
#[derive(Debug, Default)]
pub(super) struct Chain {
    /// The highest watermark that a batch brought along.
    pub(super) keep_from: Sequence,
    pins: BTreeMap<Sequence, u64>,
    /// Keys that have more versions than they would have without the pins.
    pub(super) held_back: BTreeSet<Bytes>,
    pub(super) size: Size,
    /// How much of it stands in hash order.
    pub(super) hashed: Filled,
}

/// How much of a chain stands in hash order.
#[derive(Debug, Default)]
pub(super) enum Filled {
    /// Nothing: nobody has asked for it.
    #[default]
    Not,
    /// All keys before this bound in byte order, and some behind it.
    From(Bound<KeyBytes>),
    /// All keys.
    Whole,
}

impl Chains {
    pub(super) fn get(&self, chain: ChainId) -> Arc<Mutex<Chain>> {
        if let Some(found) = self.chains.read().unwrap_or_else(PoisonError::into_inner).get(&chain) {
            return found.clone();
        }
        self.chains.write().unwrap_or_else(PoisonError::into_inner).entry(chain).or_default().clone()
    }

    pub(super) fn ids(&self) -> Vec<ChainId> {
        self.chains.read().unwrap_or_else(PoisonError::into_inner).keys().copied().collect()
    }
}

/// Nothing in here is left half done by a panic, so a poisoned lock is as good as another.
pub(super) fn lock(chain: &Mutex<Chain>) -> MutexGuard<'_, Chain> {
    chain.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Chain {
    pub(super) fn pin(&mut self, at: Sequence) {
        *self.pins.entry(at).or_default() += 1;
    }

    /// Whether the lowest pin is another one now.
    pub(super) fn unpin(&mut self, at: Sequence) -> bool {
        let before = self.lowest_pin();
        if let Some(count) = self.pins.get_mut(&at) {
            *count -= 1;
            if *count == 0 {
                self.pins.remove(&at);
            }
        }
        before != self.lowest_pin()
    }

    /// Readers below `keep_from` and below every pin there are none.
    pub(super) fn floor(&self, keep_from: Sequence) -> Sequence {
        self.lowest_pin().map_or(keep_from, |pin| pin.min(keep_from))
    }

    /// The versions of a key have become others; `None`: the key wasn't, or isn't, there.
    pub(super) fn count(&mut self, key: usize, old: Option<Weight>, new: Option<Weight>) {
        let bytes = |weight: Option<Weight>| weight.map_or(0, |weight| key as u64 + weight.bytes);
        let live = |weight: Option<Weight>| u64::from(weight.is_some_and(|weight| weight.is_live));
        self.size.bytes = self.size.bytes + bytes(new) - bytes(old);
        self.size.keys = self.size.keys + live(new) - live(old);
    }

    fn lowest_pin(&self) -> Option<Sequence> {
        self.pins.keys().next().copied()
    }
}
