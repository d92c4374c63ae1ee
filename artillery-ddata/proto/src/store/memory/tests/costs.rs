//! The cost of calls in a growing store, in comparisons of keys.

use super::*;

/// A store with `count` keys in scattered order, at the sequences from 1 up.
fn scattered(count: u64) -> MemoryStore {
    let store = MemoryStore::with_seed(1).with_positions(position, 64);
    (1..=count).for_each(|n| {
        let held = Held::new(Version::new(1, n), Some(Bytes::new()));
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

/// Asserts that a call costs at most twice as much with ten times the keys: trees grow by a level or two.
fn assert_flat<T>(prepare: impl Fn(&MemoryStore), call: impl Fn(&MemoryStore) -> T) {
    let [few, many] = [2_000, 20_000].map(|count| {
        let store = scattered(count);
        prepare(&store);
        work::of(|| call(&store))
    });
    assert!(few > 0 && many <= 2 * few, "{few} comparisons, and {many} with ten times the keys");
}

#[test]
fn a_first_page_costs_the_same() {
    assert_flat(|_| {}, first);
}

#[test]
fn a_step_of_building_hash_order_costs_the_same() {
    assert_flat(|_| {}, hashed);
}

#[test]
fn a_first_page_in_hash_order_costs_the_same() {
    assert_flat(|store| while hashed(store).is_none() {}, hashed);
}

#[test]
fn a_cut_costs_the_same() {
    let cut = |n| StoreOp::DropAbove { key: key(n), last: Sequence(1_990) };
    assert_flat(|_| {}, |store| apply(store, (1_991..=2_000).map(cut)));
}

/// All keys near the start of the scan are removed; only the entry below all keys is left.
#[test]
fn a_first_page_behind_removed_keys_costs_the_same() {
    let clear = |store: &MemoryStore| {
        for _ in 0..19 {
            apply(store, first(store).into_iter().map(|key| StoreOp::DropAbove { key, last: Sequence::ZERO }));
        }
    };
    assert_flat(clear, first);
}
