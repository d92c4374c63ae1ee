//! What calls cost as a store grows, in comparisons of keys.

use super::*;

/// So many keys in no order, at the sequences from 1 on.
fn scattered(count: u64) -> MemoryStore {
    let store = MemoryStore::with_seed(1).with_positions(position, 64);
    (1..=count).for_each(|n| {
        let held = Held { version: Version::new(1, n), value: Some(Bytes::new()) };
        apply(&store, [StoreOp::Put { key: key(n), held }]);
    });
    store
}

fn key(n: u64) -> Bytes {
    Bytes::copy_from_slice(&position(&n.to_le_bytes()).to_le_bytes())
}

fn apply(store: &MemoryStore, ops: impl IntoIterator<Item = StoreOp>) {
    let ops = ops.into_iter().collect();
    store.apply(&StoreBatch { chain: ChainId(0), keep_from: Sequence(0), ops }).unwrap();
}

fn first(store: &MemoryStore) -> Vec<Bytes> {
    store.scan(ChainId(0), b"", Sequence::MAX).take(100).map(|record| record.unwrap().key).collect()
}

fn hashed(store: &MemoryStore) -> Option<usize> {
    store.scan_hashed(ChainId(0), 0, Sequence::MAX).map(|records| records.take(100).count())
}

/// Has a call cost at most twice as much with ten times the keys: trees grow by a level or two.
fn assert_flat<T>(prepare: impl Fn(&MemoryStore), call: impl Fn(&MemoryStore) -> T) {
    let [few, many] = [2_000, 20_000].map(|count| {
        let store = scattered(count);
        prepare(&store);
        work::of(|| call(&store))
    });
    assert!(few > 0 && many <= 2 * few, "{few} comparisons, and {many} with ten times the keys");
}

#[test]
fn a_first_page() {
    assert_flat(|_| {}, first);
}

#[test]
fn a_step_towards_hash_order() {
    assert_flat(|_| {}, hashed);
}

#[test]
fn a_first_page_in_hash_order() {
    assert_flat(|store| while hashed(store).is_none() {}, hashed);
}

#[test]
fn a_cut() {
    let cut = |n| StoreOp::DropAbove { key: key(n), last: Sequence(1_990) };
    assert_flat(|_| {}, |store| apply(store, (1_991..=2_000).map(cut)));
}

/// Nothing is left of where the scan begins but what lies below all keys.
#[test]
fn a_first_page_behind_keys_that_went() {
    let clear = |store: &MemoryStore| {
        for _ in 0..19 {
            apply(store, first(store).into_iter().map(|key| StoreOp::DropAbove { key, last: Sequence::ZERO }));
        }
    };
    assert_flat(clear, first);
}
