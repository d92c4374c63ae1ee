//! The index of keys that expire: by the newest version of each key, committed or not.

use std::sync::Arc;

use bytes::Bytes;

use super::{CHAIN, apply};
use crate::{
    ChainId, Expiry, Sequence, Version,
    store::{Held, Store, StoreOp},
};

fn put(key: &str, sequence: u64, value: Option<&'static str>, expires: Option<u64>) -> StoreOp {
    let (version, value) = (Version::new(1, sequence), value.map(Bytes::from));
    StoreOp::Put { key: key.to_owned().into(), held: Held { version, value, expires: expires.map(Expiry::at) } }
}

/// The keys that are due at this chain time, at most `most`.
fn due(store: &dyn Store, chain_time: u64, most: usize) -> Vec<Bytes> {
    store.due(CHAIN, chain_time, most)
}

fn next(store: &dyn Store) -> Option<u64> {
    store.next_expiry(CHAIN).map(Expiry::chain_time)
}

pub(super) fn keys_are_due_by_their_newest_version(store: &Arc<dyn Store>) {
    let store = &**store;
    assert_eq!((next(store), due(store, u64::MAX, 9)), (None, Vec::new()));
    let long = "k".repeat(100);
    let first = [put("a", 1, Some("1"), Some(50)), put(&long, 1, Some("1"), Some(20)), put("c", 1, Some("1"), None)];
    apply(store, CHAIN, 0, first);
    apply(store, ChainId(8), 0, [put("other", 1, Some("1"), Some(1))]);
    assert_eq!((next(store), store.size(CHAIN).expiring), (Some(20), 2));
    assert_eq!(due(store, 19, 9), Vec::<Bytes>::new());
    assert_eq!(due(store, 20, 9), [Bytes::from(long.clone())]);
    assert_eq!(due(store, 50, 9), [Bytes::from(long.clone()), Bytes::from("a")], "the first one first");
    assert_eq!(due(store, 50, 1), [Bytes::from(long.clone())]);

    // A pending renewal, and a pending deletion.
    apply(store, CHAIN, 1, [put(&long, 2, Some("1"), Some(70)), put("a", 2, None, None)]);
    assert_eq!((next(store), due(store, 60, 9), store.size(CHAIN).expiring), (Some(70), Vec::new(), 1));
    let drop = |key: &str| StoreOp::DropAbove { key: key.to_owned().into(), last: Sequence(1) };
    apply(store, CHAIN, 1, [drop(&long), drop("a")]);
    assert_eq!((next(store), store.size(CHAIN).expiring), (Some(20), 2), "the dropped versions uncover older ones");

    let prune = |key: &str| StoreOp::Prune { key: key.to_owned().into() };
    apply(store, CHAIN, 2, [put(&long, 2, None, None), prune(&long), put("a", 2, Some("2"), None), prune("a")]);
    assert_eq!((next(store), due(store, u64::MAX, 9), store.size(CHAIN).expiring), (None, Vec::new(), 0));
}

pub(super) fn a_renewal_shares_its_value(store: &Arc<dyn Store>) {
    let value = Bytes::from(vec![7; 1000]);
    let version = |sequence, expires| {
        let held = Held { version: Version::new(1, sequence), value: Some(value.clone()), expires: Some(expires) };
        StoreOp::Put { key: "k".into(), held }
    };
    for sequence in 1..=40 {
        apply(&**store, CHAIN, 0, [version(sequence, Expiry::at(sequence))]);
        assert_eq!(store.bytes(), 1001, "after {sequence} versions");
    }
    apply(&**store, CHAIN, 0, [StoreOp::DropAbove { key: "k".into(), last: Sequence(17) }]);
    apply(&**store, CHAIN, 9, [StoreOp::Prune { key: "k".into() }]);
    assert_eq!((store.bytes(), store.size(CHAIN).bytes), (1001, 1001));
    apply(&**store, CHAIN, 9, [put("k", 18, Some("other"), None)]);
    assert_eq!(store.bytes(), 1006, "the older versions still share one value");
    apply(&**store, CHAIN, 18, [StoreOp::Prune { key: "k".into() }]);
    assert_eq!(store.bytes(), 6);
}
