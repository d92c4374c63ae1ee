//! Cases for scans in hash order, and for the size of a chain.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use bytes::Bytes;

use super::{CHAIN, StopsReaders, apply, delete, drop_above, held, prune, put};
use crate::{
    ChainId, Sequence,
    store::{HashedIter, Held, Size, Store},
};

/// The most calls until a store has built the order: far more than the keys of these cases should need.
const MAX_CALLS: usize = 1_000_000;

fn begin(store: &dyn Store, chain: ChainId, from: u64, at_most: u64) -> HashedIter<'_> {
    let found = (0..MAX_CALLS).find_map(|_| store.scan_hashed(chain, from, Sequence(at_most)));
    found.expect("each call brings the order closer")
}

fn placed(store: &dyn Store, chain: ChainId, from: u64, at_most: u64) -> Vec<(u64, Bytes, Held)> {
    let records = begin(store, chain, from, at_most).map(|record| record.expect("a scan succeeds"));
    records.map(|(position, record)| (position, record.key, record.held)).collect()
}

pub(super) fn scan(store: &dyn Store, chain: ChainId, from: u64, at_most: u64) -> Vec<(Bytes, Held)> {
    placed(store, chain, from, at_most).into_iter().map(|(_, key, held)| (key, held)).collect()
}

fn keys(store: &dyn Store, chain: ChainId) -> Vec<Bytes> {
    let mut keys: Vec<Bytes> = scan(store, chain, 0, u64::MAX).into_iter().map(|(key, _)| key).collect();
    keys.sort();
    keys
}

fn name(n: u64) -> Vec<u8> {
    format!("key/{n:05}").into_bytes()
}

/// A scan from any position returns each key once, ordered by position, then by bytes, with the version that a read at
/// its bound finds.
pub fn scans_are_in_order(store: &dyn Store) {
    apply(store, CHAIN, 0, (0..1000).map(|n| put(&name(n), n + 1, "old")));
    apply(store, CHAIN, 0, (0..500).map(|n| put(&name(n), 2000 + n, "new")));
    let found = placed(store, CHAIN, 0, 1000);
    assert_eq!(found.len(), 1000);
    assert!(found.windows(2).all(|pair| (pair[0].0, &pair[0].1) < (pair[1].0, &pair[1].1)), "ascending");
    assert!(found.iter().all(|(position, ..)| *position > 0), "0 is no position");
    let old = |(_, key, held): &(u64, Bytes, Held)| super::read(store, CHAIN, key, 1000).as_ref() == Some(held);
    assert!(found.iter().all(old));
    for at in [0, 1, 500, 998, 999] {
        let (position, from) = (found[at].0, found.partition_point(|other| other.0 < found[at].0));
        assert_eq!(placed(store, CHAIN, position, 1000), found[from..], "from the {at}th on");
    }
    if let Some(behind) = found[999].0.checked_add(1) {
        assert_eq!(placed(store, CHAIN, behind, 1000), []);
    }
    assert_eq!(scan(store, CHAIN, 0, 500).len(), 500, "keys written later are absent");
}

/// An order that is already built follows keys that are added, removed and added again.
pub fn keys_come_and_go(store: &dyn Store) {
    assert_eq!(keys(store, CHAIN), Vec::<Bytes>::new());
    apply(store, CHAIN, 0, [put(b"a", 1, "1"), put(b"b", 2, "2"), put(b"", 3, "3")]);
    assert_eq!(keys(store, CHAIN), [&b""[..], b"a", b"b"]);
    apply(store, CHAIN, 4, [delete(b"a", 4), prune(b"a")]);
    assert_eq!(keys(store, CHAIN), [&b""[..], b"b"]);
    apply(store, CHAIN, 4, [put(b"a", 5, "5"), put(b"c", 6, "6"), drop_above(b"c", 5)]);
    assert_eq!(keys(store, CHAIN), [&b""[..], b"a", b"b"]);
    store.pin(CHAIN, Sequence(5));
    apply(store, CHAIN, 6, [delete(b"b", 6), prune(b"b")]);
    let pinned = scan(store, CHAIN, 0, 5);
    assert!(pinned.contains(&(Bytes::from_static(b"b"), held(2, Some("2")))), "{pinned:?}");
    store.unpin(CHAIN, Sequence(5));
    assert_eq!(keys(store, CHAIN), [&b""[..], b"a"]);
}

/// A chain's order contains no key of another chain, whichever chain is scanned first.
pub fn chains_are_apart(store: &dyn Store) {
    let chains = [ChainId(0), ChainId(1), ChainId(u32::MAX)];
    for (chain, n) in chains.into_iter().zip(1..) {
        apply(store, chain, 0, (0..n).map(|key| put(&name(key), key + 1, "v")));
        assert_eq!(keys(store, chain).len() as u64, n);
    }
    apply(store, chains[1], 0, [put(b"late", 9, "v"), drop_above(b"late", 1), drop_above(&name(1), 1)]);
    assert_eq!(chains.map(|chain| keys(store, chain).len()), [1, 1, 3]);
}

/// A key is counted while its newest version is a value; bytes are counted while they are held.
pub fn size_is_what_is_held(store: &dyn Store) {
    let size = |keys, bytes| Size { keys, bytes, expiring: 0 };
    assert_eq!(store.size(CHAIN), size(0, 0));
    apply(store, CHAIN, 0, [put(b"a", 1, "one"), put(b"bb", 2, "two"), put(b"a", 3, "three")]);
    assert_eq!(store.size(CHAIN), size(2, 1 + 3 + 5 + 2 + 3));
    apply(store, CHAIN, 0, [delete(b"bb", 4)]);
    assert_eq!(store.size(CHAIN), size(1, 1 + 3 + 5 + 2 + 3), "deleted, but the deletion is pending");
    apply(store, CHAIN, 4, [prune(b"a"), prune(b"bb"), delete(b"never", 5)]);
    assert_eq!(store.size(CHAIN), size(1, 1 + 5 + 5));
    assert_eq!(store.size(ChainId(8)), size(0, 0), "of another chain");
    apply(store, CHAIN, 4, [put(b"never", 6, "n"), drop_above(b"never", 4)]);
    assert_eq!(store.size(CHAIN), size(1, 1 + 5));
    apply(store, CHAIN, 0, [drop_above(b"a", 0), drop_above(b"bb", 0)]);
    assert_eq!(store.size(CHAIN), size(0, 0));
}

/// Scans on other threads return each key that is present throughout, once and in order, while other keys are added and
/// removed.
pub fn what_stays_is_met(store: &dyn Store) {
    const STEADY: u64 = 300;
    const ROUNDS: u64 = 20_000;
    apply(store, CHAIN, 0, (0..STEADY).map(|n| put(&name(n), n + 1, "v")));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let done = &done;
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    let found = placed(store, CHAIN, 0, u64::MAX);
                    assert!(found.windows(2).all(|pair| (pair[0].0, &pair[0].1) < (pair[1].0, &pair[1].1)));
                    let steady = found.iter().filter(|(_, key, _)| key.starts_with(b"key/"));
                    assert_eq!(steady.count() as u64, STEADY, "every key that was present throughout");
                }
            });
        }
        // Stops the readers, even if this thread panics.
        let _ending = StopsReaders(&done);
        for n in STEADY + 1..ROUNDS {
            let passing = format!("passing/{}", n % 1000).into_bytes();
            let change = if n / 1000 % 2 == 0 { put(&passing, n, "x") } else { delete(&passing, n) };
            apply(store, CHAIN, n, [change, prune(&passing)]);
        }
    });
}

/// After keys were added and removed while another thread built the order, the order has exactly the keys of the store.
pub fn writers_beside_the_making(store: &dyn Store) {
    const KEYS: u64 = 30_000;
    apply(store, CHAIN, 0, (0..KEYS).map(|n| put(&name(2 * n), n + 1, "v")));
    let (made, written) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ending = StopsReaders(&made);
            drop(begin(store, CHAIN, 0, u64::MAX));
        });
        for n in 0.. {
            let (gone, new) = (name(2 * (n * 7919 % KEYS)), name(2 * (n * 104_729 % KEYS) + 1));
            let at = KEYS + 1 + 2 * n;
            apply(store, CHAIN, at, [delete(&gone, at), prune(&gone), put(&new, at + 1, "n")]);
            written.store(n + 1, Ordering::Relaxed);
            if made.load(Ordering::Relaxed) && n >= 1000 {
                break;
            }
        }
    });
    assert!(written.load(Ordering::Relaxed) >= 1000);
    let by_key: BTreeMap<Bytes, Held> = super::scan(store, CHAIN, b"", u64::MAX).into_iter().collect();
    let hashed = scan(store, CHAIN, 0, u64::MAX);
    assert_eq!(hashed.len(), by_key.len(), "no key is left out or left over");
    assert_eq!(hashed.into_iter().collect::<BTreeMap<_, _>>(), by_key);
}
