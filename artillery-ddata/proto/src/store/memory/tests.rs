use std::{
    sync::atomic::AtomicBool,
    thread::{self, ScopedJoinHandle},
    time::Duration,
};

use proptest::prelude::*;
use smallvec::smallvec;

use super::*;
use crate::store::conformance::{self, StopsReaders, model::ModelStep};

mod costs;

#[test]
fn conforms() {
    conformance::run(|| Arc::new(MemoryStore::with_seed(1)));
}

/// The correct value of the store's counter of bytes.
fn recount(store: &MemoryStore) -> u64 {
    let mut bytes = 0;
    store.slots.for_each(|key, slot| {
        bytes += key.bytes.len() as u64 + slot.read(Versions::recount).unwrap_or_default();
    });
    bytes
}

fn step() -> impl Strategy<Value = ModelStep> {
    let changes = prop::collection::vec((any::<u8>(), prop::option::weighted(0.7, 0..9u8)), 0..4);
    prop_oneof![
        8 => (any::<u8>(), changes).prop_map(|(chain, changes)| ModelStep::Update { chain, changes }),
        4 => (any::<u8>(), 0..4u8).prop_map(|(chain, by)| ModelStep::Commit { chain, by }),
        1 => (any::<u8>(), 0..4u8).prop_map(|(chain, keep)| ModelStep::DropAbove { chain, keep }),
        1 => any::<u8>().prop_map(|chain| ModelStep::Pin { chain }),
        1 => (any::<u8>(), any::<u8>()).prop_map(|(chain, which)| ModelStep::Unpin { chain, which }),
    ]
}

proptest! {
    #[test]
    fn does_what_the_model_does(seed: u64, steps in prop::collection::vec(step(), 0..80)) {
        let store = MemoryStore::with_seed(seed);
        conformance::model::replay(&store, &steps);
        prop_assert_eq!(store.bytes(), recount(&store));
        prop_assert_eq!(store.slots.len(), store.ordered.len());
        prop_assert!(store.hashed.is_empty() || store.hashed.len() == store.ordered.len());
        let bytes: u64 = store.chains.ids().into_iter().map(|id| store.size(id).bytes).sum();
        prop_assert_eq!(bytes, store.bytes());
        let held_back: usize = store.chains.ids().into_iter().map(|id| lock(&store.chains.get(id)).held_back.len()).sum();
        prop_assert_eq!(held_back, 0, "no key is remembered for released pins");
    }
}

#[test]
fn versions_out_of_order_are_refused() {
    let store = MemoryStore::with_seed(1);
    let put =
        |sequence| StoreOp::Put { key: Bytes::from_static(b"a"), held: Held::new(Version::new(1, sequence), None) };
    let apply = |op| store.apply(&StoreBatch { chain: ChainId(0), keep_from: Sequence(0), ops: smallvec![op] });
    assert_eq!(apply(put(5)), Ok(Applied(1)));
    assert!(matches!(apply(put(5)), Err(StoreError::Failed(_))));
    assert!(matches!(apply(put(4)), Err(StoreError::Failed(_))));
    assert_eq!(apply(put(6)), Ok(Applied(2)));
}

#[test]
fn an_unpinned_key_is_pruned_at_once() {
    let store = MemoryStore::with_seed(1);
    let chain = ChainId(0);
    let put = |sequence, value| StoreOp::Put {
        key: Bytes::from_static(b"a"),
        held: Held::new(Version::new(1, sequence), value),
    };
    // Each in memory of its own: shared values are counted once.
    let value = || Some(Bytes::from(b"value".to_vec()));
    store.pin(chain, Sequence(1));
    let ops =
        smallvec![put(1, value()), put(2, value()), put(3, None), StoreOp::Prune { key: Bytes::from_static(b"a") }];
    store.apply(&StoreBatch { chain, keep_from: Sequence(3), ops }).unwrap();
    assert_eq!(store.bytes(), 11, "held back by the pin");
    store.unpin(chain, Sequence(1));
    assert_eq!(store.bytes(), 0, "a key that isn't written again is never pruned later");
    assert_eq!((store.slots.len(), store.ordered.len()), (0, 0));
}

#[test]
fn the_index_keeps_no_frame_alive() {
    let store = MemoryStore::with_seed(1);
    let frame = Bytes::from(vec![7; 100]);
    let held = Held::new(Version::new(1, 1), None);
    let ops = smallvec![StoreOp::Put { key: frame.slice(10..20), held }];
    store.apply(&StoreBatch { chain: ChainId(0), keep_from: Sequence(0), ops }).unwrap();
    assert!(frame.is_unique());
}

#[test]
fn values_are_freed_at_once() {
    let store = MemoryStore::with_seed(1);
    let apply = |op| {
        let ops = smallvec![op];
        store.apply(&StoreBatch { chain: ChainId(0), keep_from: Sequence(0), ops }).unwrap();
    };
    let value = Bytes::from(vec![7; 100]);
    let held = Held::new(Version::new(1, 1), Some(value.clone()));
    apply(StoreOp::Put { key: Bytes::from_static(b"a"), held });
    assert!(!value.is_unique());
    apply(StoreOp::DropAbove { key: Bytes::from_static(b"a"), last: Sequence(0) });
    assert!(value.is_unique(), "the index frees its entries later, but the values at once");
}

#[test]
fn no_superseded_version_outlives_the_pending_ones() {
    let store = MemoryStore::with_seed(1);
    let key = Bytes::from_static(b"a");
    let apply = |keep_from, op| {
        let ops = smallvec![op];
        store.apply(&StoreBatch { chain: ChainId(0), keep_from: Sequence(keep_from), ops }).unwrap();
    };
    for sequence in 1..=40 {
        let held = Held::new(Version::new(1, sequence), Some(Bytes::from(b"v".to_vec())));
        apply(0, StoreOp::Put { key: key.clone(), held });
    }
    apply(10, StoreOp::Prune { key: key.clone() });
    assert_eq!(store.bytes(), 1 + 40, "not worth copying the others for");
    apply(10, StoreOp::DropAbove { key, last: Sequence(10) });
    assert_eq!(store.bytes(), 1 + 1);
}

/// A store with few positions, which many keys share, and with many calls until the order is built.
fn coarse(seed: u64) -> MemoryStore {
    MemoryStore::with_seed(seed).with_positions(|key| key.iter().map(|&byte| u64::from(byte)).sum::<u64>() % 7 + 1, 3)
}

#[test]
fn keys_that_share_a_position_conform() {
    conformance::run(|| Arc::new(coarse(1)));
}

#[test]
fn hash_order_is_built_on_demand_in_bounded_steps() {
    let store = coarse(1);
    let put = |sequence: u64| StoreOp::Put {
        key: Bytes::from(format!("{sequence:03}")),
        held: Held::new(Version::new(1, sequence), Some(Bytes::new())),
    };
    let apply = |op| {
        store.apply(&StoreBatch { chain: ChainId(0), keep_from: Sequence(0), ops: smallvec![op] }).unwrap();
    };
    (1..=100).for_each(|sequence| apply(put(sequence)));
    assert_eq!(store.hashed.len(), 0, "no scan has asked for it");
    for call in 1..=33 {
        assert!(store.scan_hashed(ChainId(0), 0, Sequence::MAX).is_none());
        assert_eq!(store.hashed.len(), 3 * call);
    }
    assert_eq!(store.scan_hashed(ChainId(0), 0, Sequence::MAX).map(Iterator::count), Some(100));
    apply(put(101));
    assert_eq!(store.scan_hashed(ChainId(0), 0, Sequence::MAX).map(Iterator::count), Some(101));
    (51..=101).for_each(|n| apply(StoreOp::DropAbove { key: Bytes::from(format!("{n:03}")), last: Sequence(50) }));
    assert_eq!(store.hashed.len(), 50);
}

/// A reader that is preempted during a read still finds versions of its own key. One thread puts two keys alternately,
/// and threads that wake up often preempt the readers (docs/adr/0025-versions-say-whose-they-are.md).
#[test]
#[expect(clippy::disallowed_methods, reason = "a thread that wakes up takes the processor from another one")]
fn readers_meet_versions_of_their_own_key() {
    const WRITES: u64 = 1_000_000;
    const CHAIN: ChainId = ChainId(0);
    let store = MemoryStore::with_seed(1);
    let keys = [Bytes::from_static(b"a"), Bytes::from_static(b"b")];
    let put = |sequence: u64| {
        let key = &keys[(sequence % 2) as usize];
        let held = Held::new(Version::new(1, sequence), Some(key.clone()));
        let ops = smallvec![StoreOp::Put { key: key.clone(), held }];
        store.apply(&StoreBatch { chain: CHAIN, keep_from: Sequence(sequence), ops }).unwrap();
    };
    put(1);
    put(2);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_micros(10));
                }
            });
        }
        let readers = keys.each_ref().map(|key| {
            let read = || store.read(CHAIN, key, Sequence::MAX).unwrap().unwrap().value;
            let done = &done;
            scope.spawn(move || while !done.load(Ordering::Relaxed) && read().as_ref() == Some(key) {})
        });
        let ending = StopsReaders(&done);
        for sequence in 3..WRITES {
            if readers.iter().any(ScopedJoinHandle::is_finished) {
                break;
            }
            put(sequence);
        }
        let wrong = readers.iter().any(ScopedJoinHandle::is_finished);
        drop(ending);
        assert!(!wrong, "a reader met the other key's value");
    });
}
