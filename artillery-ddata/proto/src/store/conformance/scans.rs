//! Cases for scans in key order.

use bytes::Bytes;

use super::{CHAIN, apply, delete, drop_above, hashed, held, keys, prune, put, read, scan};
use crate::{ChainId, Sequence, store::Store};

/// A scan returns each key once, in byte order from its start, with the version that a read at its bound finds.
pub fn scans_are_in_order(store: &dyn Store) {
    let name = |n: u64| format!("key/{:04}", n * 7 % 1000).into_bytes();
    for n in 0..1000 {
        apply(store, CHAIN, 0, [put(&name(n), n + 1, "old")]);
    }
    apply(store, CHAIN, 0, (0..500).map(|n| put(&name(n), 2000 + n, "new")));
    let found = scan(store, CHAIN, b"", 1000);
    assert_eq!(found.len(), 1000);
    assert!(found.windows(2).all(|pair| pair[0].0 < pair[1].0), "ascending");
    assert!(found.iter().all(|(key, held)| read(store, CHAIN, key, 1000).as_ref() == Some(held)));
    assert_eq!(scan(store, CHAIN, b"", 500).len(), 500, "keys written later are absent");
    assert_eq!(keys(store, CHAIN, b"key/0998", 1000), [&b"key/0998"[..], b"key/0999"]);
    assert_eq!(keys(store, CHAIN, b"key/0998\0", 1000), [&b"key/0999"[..]]);
    assert_eq!(keys(store, CHAIN, b"z", u64::MAX), Vec::<Bytes>::new());
    let newer = scan(store, CHAIN, b"", u64::MAX);
    assert_eq!(newer.iter().filter(|(_, held)| held.version.sequence >= Sequence(2000)).count(), 500);
}

/// Writes don't affect a running scan at a pinned position.
pub fn scans_at_a_pin_are_a_cut(store: &dyn Store) {
    let name = |n: u64| format!("{n:04}").into_bytes();
    apply(store, CHAIN, 0, (0..400).map(|n| put(&name(n * 2), n + 1, "old")));
    store.pin(CHAIN, Sequence(400));
    let mut running = store.scan(CHAIN, b"", Sequence(400));
    let mut seen: Vec<_> = running.by_ref().take(10).collect();
    for n in 0..400 {
        let changed = if n % 3 == 0 { delete(&name(n * 2), 1000 + n) } else { put(&name(n * 2), 1000 + n, "new") };
        apply(store, CHAIN, 1000 + n, [changed, prune(&name(n * 2))]);
        apply(store, CHAIN, 1000 + n, [put(&name(n * 2 + 1), 2000 + n, "later")]);
    }
    seen.extend(running);
    let seen: Vec<_> = seen.into_iter().map(|record| record.expect("a scan succeeds")).collect();
    assert_eq!(seen.len(), 400);
    for (record, n) in seen.iter().zip(0..) {
        assert_eq!((record.key.to_vec(), record.held.clone()), (name(n * 2), held(n + 1, Some("old"))));
    }
    store.unpin(CHAIN, Sequence(400));
}

/// A scan from below the smallest key finds all keys, whether the empty key exists, is deleted, or never existed.
pub fn scans_begin_below_every_key(store: &dyn Store) {
    let at_start = |chain| {
        let mut by_hash = hashed::scan(store, chain, 0, u64::MAX);
        by_hash.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(by_hash, scan(store, chain, b"", u64::MAX), "both orders");
        by_hash.into_iter().map(|(key, _)| key).collect::<Vec<_>>()
    };
    for chain in [ChainId(0), ChainId(u32::MAX)] {
        assert_eq!(at_start(chain), Vec::<Bytes>::new());
        apply(store, chain, 0, [put(b"\0", 1, "1"), put(b"b", 2, "2")]);
        assert_eq!(at_start(chain), [&b"\0"[..], b"b"], "the empty key never existed");
        apply(store, chain, 0, [put(b"", 3, "3")]);
        assert_eq!(at_start(chain), [&b""[..], b"\0", b"b"]);
        assert_eq!(keys(store, chain, b"\0", u64::MAX), [&b"\0"[..], b"b"]);
        assert_eq!((store.size(chain).keys, store.size(chain).bytes), (3, 1 + 1 + 1 + 1 + 1));
        apply(store, chain, 4, [delete(b"", 4), prune(b"")]);
        assert_eq!(at_start(chain), [&b"\0"[..], b"b"], "the empty key is deleted");
        apply(store, chain, 4, [put(b"", 5, "5"), drop_above(b"", 4)]);
        assert_eq!(at_start(chain), [&b"\0"[..], b"b"], "the empty key is dropped");
        assert_eq!((store.size(chain).keys, store.size(chain).bytes), (2, 1 + 1 + 1 + 1));
    }
    assert_eq!(store.bytes(), 8);
}
