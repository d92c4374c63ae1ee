//! State of a chain, shared by its writers, pins and the build of its hash order. Reads, and scans in key order, never
//! use it.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
};

use bytes::Bytes;

use super::{expiring::Expiring, key::KeyBytes, versions::Weight};
use crate::{ChainId, Sequence, store::Size};

#[derive(Debug, Default)]
pub(super) struct Chains {
    chains: RwLock<BTreeMap<ChainId, Arc<Mutex<Chain>>>>,
}

#[derive(Debug, Default)]
pub(super) struct Chain {
    /// The highest watermark of the batches applied.
    pub(super) keep_from: Sequence,
    pins: BTreeMap<Sequence, u64>,
    /// Keys with versions that only the pins keep.
    pub(super) held_back: BTreeSet<Bytes>,
    pub(super) size: Size,
    /// The keys whose newest version expires.
    pub(super) expiring: Expiring,
    pub(super) hashed: Filled,
}

/// The part of a chain that is in hash order.
#[derive(Debug, Default)]
pub(super) enum Filled {
    /// Nothing: no scan has asked for the order yet.
    #[default]
    Not,
    /// All keys before this bound in byte order, and possibly some after it.
    From(Bound<KeyBytes>),
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

/// A panic leaves no partial change in a chain's state, so a poisoned lock is used regardless.
pub(super) fn lock(chain: &Mutex<Chain>) -> MutexGuard<'_, Chain> {
    chain.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Chain {
    pub(super) fn pin(&mut self, at: Sequence) {
        *self.pins.entry(at).or_default() += 1;
    }

    /// Releases a pin. Returns whether the lowest pin has changed.
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

    /// The lowest sequence that may still be read: the lower of `keep_from` and the lowest pin.
    pub(super) fn floor(&self, keep_from: Sequence) -> Sequence {
        self.lowest_pin().map_or(keep_from, |pin| pin.min(keep_from))
    }

    /// Counts a change to the versions of a key. `old` or `new` is `None` if the key is absent before or after the
    /// change.
    pub(super) fn count(&mut self, key: &[u8], old: Option<Weight>, new: Option<Weight>) {
        let bytes = |weight: Option<Weight>| weight.map_or(0, |weight| key.len() as u64 + weight.bytes);
        let live = |weight: Option<Weight>| u64::from(weight.is_some_and(|weight| weight.is_live));
        self.size.bytes = self.size.bytes + bytes(new) - bytes(old);
        self.size.keys = self.size.keys + live(new) - live(old);
        let expiry = |weight: Option<Weight>| weight.and_then(|weight| weight.expiry);
        self.expiring.change(key, expiry(old), expiry(new));
        self.size.expiring = self.expiring.len();
    }

    fn lowest_pin(&self) -> Option<Sequence> {
        self.pins.keys().next().copied()
    }
}
