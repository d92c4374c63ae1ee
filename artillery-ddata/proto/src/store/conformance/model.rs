//! Compares a store with a naive model, step by step.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{apply, drop_above, hashed, keys, read, scan};
use crate::{
    ChainId, Sequence, Version,
    store::{Held, Store, StoreOp},
};

/// One step of a run. Numbers are reduced modulo their valid range, so any steps make a valid run.
#[derive(Clone, Debug)]
pub enum ModelStep {
    Update {
        chain: u8,
        /// Keys and the lengths of their values; `None` deletes.
        changes: Vec<(u8, Option<u8>)>,
    },
    /// Raises the watermark and prunes the keys that were written up to it.
    Commit {
        chain: u8,
        /// The most updates to commit.
        by: u8,
    },
    /// Drops updates above the watermark, and begins another epoch.
    DropAbove {
        chain: u8,
        /// The number of pending updates that stay.
        keep: u8,
    },
    /// Pins the watermark.
    Pin { chain: u8 },
    Unpin {
        chain: u8,
        /// The index of the pin.
        which: u8,
    },
}

const CHAINS: u8 = 3;
const KEYS: u8 = 6;

#[derive(Debug, Default)]
struct ModelChain {
    epoch: u64,
    last: u64,
    watermark: u64,
    pins: Vec<u64>,
    /// Every version that was written and not dropped, including superseded ones.
    versions: BTreeMap<Bytes, BTreeMap<u64, Held>>,
}

/// Applies `steps` to the empty `store` and to the model, and compares all results available to readers after each
/// step. At the end it commits all updates, releases all pins, and checks that only the needed versions are left.
///
/// # Panics
/// If the two differ.
pub fn replay(store: &dyn Store, steps: &[ModelStep]) {
    let mut chains: BTreeMap<u8, ModelChain> = (0..CHAINS).map(|id| (id, ModelChain::default())).collect();
    for step in steps {
        let (id, chain) = match step {
            ModelStep::Update { chain, .. }
            | ModelStep::Commit { chain, .. }
            | ModelStep::DropAbove { chain, .. }
            | ModelStep::Pin { chain }
            | ModelStep::Unpin { chain, .. } => (*chain % CHAINS, chains.entry(*chain % CHAINS).or_default()),
        };
        chain.step(store, ChainId(id.into()), step);
        chains.iter().for_each(|(&id, chain)| chain.compare(store, ChainId(id.into())));
        let needed: u64 = chains.values().map(ModelChain::needed_bytes).sum();
        assert!(store.bytes() >= needed, "{} bytes after {step:?}, readers need {needed}", store.bytes());
    }
    for (&id, chain) in &mut chains {
        chain.settle(store, ChainId(id.into()));
    }
    for (&id, chain) in &chains {
        assert_eq!(store.size(ChainId(id.into())).bytes, chain.needed_bytes(), "of chain {id}");
    }
    let live: u64 = chains.values().map(ModelChain::needed_bytes).sum();
    assert_eq!(store.bytes(), live, "only the newest values are left");
}

fn name(key: u8) -> Bytes {
    // Some names are prefixes of others.
    Bytes::from("k".repeat((key % KEYS).into()))
}

impl ModelChain {
    fn step(&mut self, store: &dyn Store, id: ChainId, step: &ModelStep) {
        match step {
            ModelStep::Update { changes, .. } => self.update(store, id, changes),
            ModelStep::Commit { by, .. } => self.commit(store, id, (self.watermark + u64::from(*by)).min(self.last)),
            ModelStep::DropAbove { keep, .. } => self.drop_above(store, id, (*keep).into()),
            ModelStep::Pin { .. } => {
                store.pin(id, Sequence(self.watermark));
                self.pins.push(self.watermark);
            }
            ModelStep::Unpin { which, .. } => {
                if !self.pins.is_empty() {
                    let pin = self.pins.swap_remove(usize::from(*which) % self.pins.len());
                    store.unpin(id, Sequence(pin));
                }
            }
        }
    }

    fn update(&mut self, store: &dyn Store, id: ChainId, changes: &[(u8, Option<u8>)]) {
        self.last += 1;
        let version = Version::new(self.epoch + 1, self.last);
        let changes: BTreeMap<Bytes, Option<u8>> = changes.iter().map(|&(key, length)| (name(key), length)).collect();
        let ops = changes.into_iter().map(|(key, length)| {
            let value = length.map(|length| Bytes::from(vec![self.last as u8; length.into()]));
            let held = Held::new(version, value);
            self.versions.entry(key.clone()).or_default().insert(self.last, held.clone());
            StoreOp::Put { key, held }
        });
        let ops: Vec<_> = ops.collect();
        apply(store, id, self.watermark, ops);
    }

    fn commit(&mut self, store: &dyn Store, id: ChainId, watermark: u64) {
        let covered = self.watermark + 1..=watermark;
        self.watermark = watermark;
        let written =
            self.versions.iter().filter(|(_, versions)| versions.keys().any(|sequence| covered.contains(sequence)));
        apply(store, id, watermark, written.map(|(key, _)| StoreOp::Prune { key: key.clone() }));
    }

    fn drop_above(&mut self, store: &dyn Store, id: ChainId, keep: u64) {
        self.last = (self.watermark + keep).min(self.last);
        self.epoch += 1;
        let last = self.last;
        let dropped = self.versions.iter_mut().filter_map(|(key, versions)| {
            let gone = versions.split_off(&(last + 1));
            (!gone.is_empty()).then(|| drop_above(key, last))
        });
        let dropped: Vec<_> = dropped.collect();
        apply(store, id, self.watermark, dropped);
    }

    fn settle(&mut self, store: &dyn Store, id: ChainId) {
        self.commit(store, id, self.last);
        std::mem::take(&mut self.pins).into_iter().for_each(|pin| store.unpin(id, Sequence(pin)));
        apply(store, id, self.last, self.versions.keys().map(|key| StoreOp::Prune { key: key.clone() }));
        self.compare(store, id);
        let live = self.versions.iter().filter(|(_, versions)| value(versions, u64::MAX).is_some());
        let live: Vec<_> = live.map(|(key, _)| key.clone()).collect();
        assert_eq!(keys(store, id, b"", u64::MAX), live, "no tombstone is left");
    }

    /// Compares reads at every position available to readers: the pinned ones, and all from the watermark up.
    fn compare(&self, store: &dyn Store, id: ChainId) {
        for at in self.pins.iter().copied().chain(self.watermark..=self.last + 1).chain([u64::MAX]) {
            let mut scanned: BTreeMap<_, _> = scan(store, id, b"", at).into_iter().collect();
            for key in (0..KEYS).map(name) {
                let found = read(store, id, &key, at);
                assert_eq!(scanned.remove(&key), found, "scan and read of {key:?} at {at}");
                self.compare_key(&key, at, found);
            }
            assert!(scanned.is_empty(), "keys from nowhere: {scanned:?}");
            let mut by_key = hashed::scan(store, id, 0, at);
            by_key.sort_by(|a, b| a.0.cmp(&b.0));
            assert_eq!(by_key, scan(store, id, b"", at), "both orders at {at}");
        }
        let live = self.versions.values().filter(|versions| value(versions, u64::MAX).is_some());
        assert_eq!(store.size(id).keys, live.count() as u64, "keys that hold a value");
    }

    fn compare_key(&self, key: &Bytes, at: u64, found: Option<Held>) {
        let expected = self.versions.get(key).and_then(|versions| newest(versions, at));
        match expected {
            // No reader needs this tombstone, so the store may keep or drop it.
            Some(tombstone) if tombstone.value.is_none() && tombstone.version.sequence.0 <= self.watermark => {
                assert!(found.is_none() || found.as_ref() == Some(tombstone), "{key:?} at {at}: {found:?}");
            }
            expected => assert_eq!(found.as_ref(), expected, "{key:?} at {at}"),
        }
    }

    /// Bytes of the keys that hold a value and of their newest values: the least that a store can hold.
    fn needed_bytes(&self) -> u64 {
        let sizes =
            self.versions.iter().filter_map(|(key, versions)| Some(key.len() + value(versions, u64::MAX)?.len()));
        sizes.sum::<usize>() as u64
    }
}

fn newest(versions: &BTreeMap<u64, Held>, at: u64) -> Option<&Held> {
    versions.range(..=at).next_back().map(|(_, held)| held)
}

fn value(versions: &BTreeMap<u64, Held>, at: u64) -> Option<&Bytes> {
    newest(versions, at)?.value.as_ref()
}
