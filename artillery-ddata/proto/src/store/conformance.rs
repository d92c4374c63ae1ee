//! The contract of [`Store`] as a test suite for implementations.
//!
//! Each function panics with an explanation if the store breaks the contract. Call them from tests: [`run`] runs the
//! fixed cases, and [`model::replay`] compares a store with a naive model over given steps, for example those of a
//! property test.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
    mpsc,
};

use bytes::Bytes;
use smallvec::SmallVec;

use super::{Applied, Held, Store, StoreBatch, StoreOp};
use crate::{ChainId, Sequence, Version};

mod expiring;
pub mod hashed;
pub mod model;
mod scans;

pub use self::scans::{scans_are_in_order, scans_at_a_pin_are_a_cut, scans_begin_below_every_key};

const CHAIN: ChainId = ChainId(7);

/// Runs all fixed cases, each on an empty store from `make`.
pub fn run(make: impl Fn() -> Arc<dyn Store>) {
    let cases: [fn(&Arc<dyn Store>); 24] = [
        |store| nothing_is_there_at_first(&**store),
        |store| reads_find_the_newest_version_at_or_below(&**store),
        |store| a_deleted_key_is_a_version(&**store),
        |store| any_bytes_are_a_key(&**store),
        |store| chains_are_apart(&**store),
        |store| operations_of_a_batch_have_an_order(&**store),
        |store| pruning_keeps_what_readers_need(&**store),
        |store| puts_below_the_watermark_prune(&**store),
        |store| puts_below_the_watermark_leave_what_is_pinned(&**store),
        |store| pruned_tombstones_vanish(&**store),
        |store| pins_hold_versions_and_are_counted(&**store),
        |store| dropped_versions_uncover_older_ones(&**store),
        |store| scans_are_in_order(&**store),
        |store| scans_at_a_pin_are_a_cut(&**store),
        |store| scans_begin_below_every_key(&**store),
        |store| a_chain_is_emptied_key_by_key(&**store),
        |store| hashed::scans_are_in_order(&**store),
        |store| hashed::keys_come_and_go(&**store),
        |store| hashed::chains_are_apart(&**store),
        |store| hashed::size_is_what_is_held(&**store),
        expiring::keys_are_due_by_their_newest_version,
        expiring::a_renewal_shares_its_value,
        |store| persistence_is_told(&**store),
        |store| recovery_names_every_chain(&**store),
    ];
    for case in cases {
        case(&make());
    }
    readers_meet_whole_entries(&*make());
    hashed::what_stays_is_met(&*make());
    hashed::writers_beside_the_making(&*make());
    many_pending_versions(&*make());
}

fn apply(store: &dyn Store, chain: ChainId, keep_from: u64, ops: impl IntoIterator<Item = StoreOp>) -> Applied {
    let ops = SmallVec::from_iter(ops);
    store.apply(&StoreBatch { chain, keep_from: Sequence(keep_from), ops }).expect("a batch is applied")
}

fn held(sequence: u64, value: Option<&str>) -> Held {
    Held::new(Version::new(1, sequence), value.map(|value| Bytes::copy_from_slice(value.as_bytes())))
}

fn put(key: &[u8], sequence: u64, value: &str) -> StoreOp {
    StoreOp::Put { key: Bytes::copy_from_slice(key), held: held(sequence, Some(value)) }
}

fn delete(key: &[u8], sequence: u64) -> StoreOp {
    StoreOp::Put { key: Bytes::copy_from_slice(key), held: held(sequence, None) }
}

fn prune(key: &[u8]) -> StoreOp {
    StoreOp::Prune { key: Bytes::copy_from_slice(key) }
}

fn drop_above(key: &[u8], last: u64) -> StoreOp {
    StoreOp::DropAbove { key: Bytes::copy_from_slice(key), last: Sequence(last) }
}

fn read(store: &dyn Store, chain: ChainId, key: &[u8], at_most: u64) -> Option<Held> {
    store.read(chain, key, Sequence(at_most)).expect("a read succeeds")
}

fn scan(store: &dyn Store, chain: ChainId, from: &[u8], at_most: u64) -> Vec<(Bytes, Held)> {
    let records = store.scan(chain, from, Sequence(at_most)).map(|record| record.expect("a scan succeeds"));
    records.map(|record| (record.key, record.held)).collect()
}

fn keys(store: &dyn Store, chain: ChainId, from: &[u8], at_most: u64) -> Vec<Bytes> {
    scan(store, chain, from, at_most).into_iter().map(|(key, _)| key).collect()
}

/// An empty store holds no bytes, keys or chains.
pub fn nothing_is_there_at_first(store: &dyn Store) {
    assert_eq!(read(store, CHAIN, b"a", u64::MAX), None);
    assert_eq!(scan(store, CHAIN, b"", u64::MAX), []);
    assert_eq!(store.recover().expect("an empty store isn't damaged"), []);
    assert_eq!(store.bytes(), 0);
    apply(store, CHAIN, 9, [prune(b"a"), drop_above(b"a", 0)]);
    assert_eq!(scan(store, CHAIN, b"", u64::MAX), []);
}

/// A read finds the newest version at or below its bound.
pub fn reads_find_the_newest_version_at_or_below(store: &dyn Store) {
    apply(store, CHAIN, 0, [put(b"a", 2, "two")]);
    apply(store, CHAIN, 0, [put(b"a", 5, "five")]);
    apply(store, CHAIN, 0, [put(b"a", 6, "")]);
    assert_eq!(read(store, CHAIN, b"a", 1), None);
    for at in 2..5 {
        assert_eq!(read(store, CHAIN, b"a", at), Some(held(2, Some("two"))), "at {at}");
    }
    assert_eq!(read(store, CHAIN, b"a", 5), Some(held(5, Some("five"))));
    assert_eq!(read(store, CHAIN, b"a", u64::MAX), Some(held(6, Some(""))), "an empty value is a value");
    assert_eq!(read(store, CHAIN, b"b", u64::MAX), None);
    assert_eq!(store.bytes(), 1 + 3 + 4, "the key once and every value");
}

/// A deletion is stored as a version.
pub fn a_deleted_key_is_a_version(store: &dyn Store) {
    apply(store, CHAIN, 0, [put(b"a", 1, "one"), delete(b"a", 2), put(b"a", 3, "three")]);
    assert_eq!(read(store, CHAIN, b"a", 1), Some(held(1, Some("one"))));
    assert_eq!(read(store, CHAIN, b"a", 2), Some(held(2, None)));
    assert_eq!(read(store, CHAIN, b"a", 3), Some(held(3, Some("three"))));
    apply(store, CHAIN, 0, [delete(b"never", 4)]);
    assert_eq!(read(store, CHAIN, b"never", 4), Some(held(4, None)), "an uncommitted tombstone is kept");
}

/// A key may have any bytes, and a read returns the value that was put.
pub fn any_bytes_are_a_key(store: &dyn Store) {
    let long = vec![0xff; crate::types::update::MAX_KEY];
    let all: [&[u8]; 7] = [b"", b"\0", b"\0\0", b"a", b"a\0", b"\xff", &long];
    let big = "x".repeat(1 << 20);
    apply(store, CHAIN, 0, all.iter().zip(1..).map(|(key, sequence)| put(key, sequence, &big[sequence as usize..])));
    for (key, sequence) in all.iter().zip(1..) {
        let found = read(store, CHAIN, key, u64::MAX).expect("it was put");
        assert_eq!(found, held(sequence, Some(&big[sequence as usize..])));
    }
    assert_eq!(keys(store, CHAIN, b"", u64::MAX), all);
}

/// Chains share no keys, watermarks, pins or dropped versions.
pub fn chains_are_apart(store: &dyn Store) {
    let (one, two) = (ChainId(1), ChainId(256));
    apply(store, one, 0, [put(b"a", 1, "one")]);
    apply(store, two, 0, [put(b"a", 1, "two"), put(b"b", 2, "two")]);
    assert_eq!(read(store, one, b"a", u64::MAX), Some(held(1, Some("one"))));
    assert_eq!(read(store, one, b"b", u64::MAX), None);
    assert_eq!(keys(store, one, b"", u64::MAX), [&b"a"[..]]);
    assert_eq!(keys(store, two, b"", u64::MAX), [&b"a"[..], b"b"]);
    store.pin(one, Sequence(1));
    apply(store, two, 2, [put(b"a", 3, "new"), prune(b"a")]);
    apply(store, two, 3, [prune(b"a"), drop_above(b"a", 3), drop_above(b"b", 3)]);
    apply(store, one, 0, [drop_above(b"a", 0)]);
    store.unpin(one, Sequence(1));
    assert_eq!(read(store, one, b"a", u64::MAX), None);
    assert_eq!(keys(store, two, b"", u64::MAX), [&b"a"[..], b"b"]);
    assert_eq!(store.bytes(), 1 + 3 + 1 + 3, "superseded versions went despite the pins of another chain");
}

pub fn operations_of_a_batch_have_an_order(store: &dyn Store) {
    apply(store, CHAIN, 0, [put(b"a", 1, "one"), put(b"a", 2, "two"), put(b"b", 2, "two")]);
    let again = |key: &[u8]| StoreOp::Put {
        key: Bytes::copy_from_slice(key),
        held: Held::new(Version::new(2, 2), Some(Bytes::from_static(b"again"))),
    };
    apply(
        store,
        CHAIN,
        0,
        [drop_above(b"a", 1), drop_above(b"b", 1), again(b"a"), put(b"c", 3, "three"), drop_above(b"c", 2)],
    );
    assert_eq!(read(store, CHAIN, b"a", u64::MAX).map(|held| held.version), Some(Version::new(2, 2)));
    assert_eq!(read(store, CHAIN, b"a", 1), Some(held(1, Some("one"))));
    assert_eq!(keys(store, CHAIN, b"", u64::MAX), [&b"a"[..]]);
}

/// Pruning drops exactly the versions that no reader at the watermark or above can find.
pub fn pruning_keeps_what_readers_need(store: &dyn Store) {
    apply(store, CHAIN, 0, [put(b"a", 1, "1"), put(b"a", 3, "3"), put(b"a", 5, "5"), put(b"a", 7, "7")]);
    apply(store, CHAIN, 4, [prune(b"a")]);
    assert_eq!(read(store, CHAIN, b"a", 4), Some(held(3, Some("3"))), "the newest at the watermark is needed");
    assert_eq!(read(store, CHAIN, b"a", 6), Some(held(5, Some("5"))));
    assert_eq!(read(store, CHAIN, b"a", 7), Some(held(7, Some("7"))));
    assert_eq!(store.bytes(), 1 + 3);
    apply(store, CHAIN, 7, [prune(b"a"), prune(b"absent")]);
    assert_eq!(read(store, CHAIN, b"a", u64::MAX), Some(held(7, Some("7"))));
    assert_eq!(store.bytes(), 1 + 1);
}

/// A put at or below the watermark drops exactly the versions that it supersedes, and stays even as a tombstone.
pub fn puts_below_the_watermark_prune(store: &dyn Store) {
    apply(store, CHAIN, 0, [put(b"a", 1, "1"), put(b"b", 2, "2"), put(b"c", 3, "3")]);
    apply(store, CHAIN, 4, [put(b"a", 4, "4"), put(b"b", 5, "5")]);
    assert_eq!(read(store, CHAIN, b"a", u64::MAX), Some(held(4, Some("4"))));
    assert_eq!(read(store, CHAIN, b"b", 4), Some(held(2, Some("2"))), "an uncommitted version supersedes none");
    assert_eq!(store.bytes(), 3 + 1 + 2 + 1);
    apply(store, CHAIN, 6, [delete(b"c", 6)]);
    assert_eq!(read(store, CHAIN, b"c", u64::MAX), Some(held(6, None)));
    assert_eq!(store.bytes(), 3 + 1 + 2);
}

/// Like `puts_below_the_watermark_prune` with a pinned position: versions that the pin protects are dropped when it is
/// released.
pub fn puts_below_the_watermark_leave_what_is_pinned(store: &dyn Store) {
    apply(store, CHAIN, 1, [put(b"a", 1, "1")]);
    store.pin(CHAIN, Sequence(1));
    apply(store, CHAIN, 3, [put(b"a", 2, "2"), put(b"a", 3, "3")]);
    assert_eq!(read(store, CHAIN, b"a", 1), Some(held(1, Some("1"))));
    store.unpin(CHAIN, Sequence(1));
    assert_eq!(read(store, CHAIN, b"a", u64::MAX), Some(held(3, Some("3"))));
    assert_eq!(store.bytes(), 1 + 1, "nothing is held for a pin that is gone");
}

/// A pruned tombstone leaves nothing in reads, scans or sizes.
pub fn pruned_tombstones_vanish(store: &dyn Store) {
    apply(store, CHAIN, 0, [put(b"a", 1, "1"), delete(b"a", 2), put(b"b", 3, "3")]);
    apply(store, CHAIN, 1, [prune(b"a")]);
    assert_eq!(read(store, CHAIN, b"a", u64::MAX), Some(held(2, None)), "pending");
    apply(store, CHAIN, 2, [prune(b"a")]);
    assert_eq!(read(store, CHAIN, b"a", u64::MAX), None);
    assert_eq!(keys(store, CHAIN, b"", u64::MAX), [&b"b"[..]]);
    assert_eq!(store.bytes(), 1 + 1);
    apply(store, CHAIN, 3, [put(b"a", 4, "back")]);
    assert_eq!(read(store, CHAIN, b"a", u64::MAX), Some(held(4, Some("back"))));
    apply(store, CHAIN, 3, [delete(b"a", 5), drop_above(b"a", 3)]);
    assert_eq!(read(store, CHAIN, b"a", u64::MAX), None);
}

/// Reads at a pinned position keep their results until it has been unpinned as often as pinned.
pub fn pins_hold_versions_and_are_counted(store: &dyn Store) {
    apply(store, CHAIN, 2, [put(b"a", 1, "1"), put(b"gone", 1, "1"), put(b"a", 2, "2"), delete(b"gone", 2)]);
    store.pin(CHAIN, Sequence(2));
    store.pin(CHAIN, Sequence(2));
    apply(store, CHAIN, 2, [put(b"a", 3, "3"), put(b"b", 4, "4"), put(b"gone", 5, "5")]);
    apply(store, CHAIN, 5, [prune(b"a"), prune(b"b"), prune(b"gone")]);
    let check = || {
        assert_eq!(read(store, CHAIN, b"a", 2), Some(held(2, Some("2"))));
        assert_eq!(read(store, CHAIN, b"b", 2), None);
        assert_eq!(read(store, CHAIN, b"gone", 2).and_then(|held| held.value), None);
    };
    check();
    store.unpin(CHAIN, Sequence(2));
    apply(store, CHAIN, 5, [prune(b"a"), prune(b"gone")]);
    check();
    store.unpin(CHAIN, Sequence(2));
    apply(store, CHAIN, 5, [prune(b"a"), prune(b"gone")]);
    assert_eq!(read(store, CHAIN, b"a", 5), Some(held(3, Some("3"))));
    assert_eq!(store.bytes(), 1 + 1 + 1 + 1 + 4 + 1, "nothing is held for a pin that is gone");
}

/// Dropping the versions above a sequence uncovers the older ones, and newer epochs may reuse the sequences.
pub fn dropped_versions_uncover_older_ones(store: &dyn Store) {
    apply(store, CHAIN, 0, [put(b"a", 1, "1"), put(b"a", 3, "3"), put(b"a", 4, "4"), put(b"new", 4, "4")]);
    apply(store, CHAIN, 0, [delete(b"b", 2), put(b"c", 2, "2"), delete(b"c", 5)]);
    apply(store, CHAIN, 2, [b"a", &b"new"[..], b"c", b"absent"].map(|key| drop_above(key, 3)));
    assert_eq!(read(store, CHAIN, b"a", u64::MAX), Some(held(3, Some("3"))));
    assert_eq!(read(store, CHAIN, b"a", 2), Some(held(1, Some("1"))));
    assert_eq!(read(store, CHAIN, b"new", u64::MAX), None);
    assert_eq!(read(store, CHAIN, b"c", u64::MAX), Some(held(2, Some("2"))), "the deletion was never part of it");
    apply(store, CHAIN, 2, [b"a", &b"new"[..], b"c", b"absent"].map(|key| drop_above(key, 3)));
    assert_eq!(read(store, CHAIN, b"a", u64::MAX), Some(held(3, Some("3"))), "once more changes nothing");
    let next = Held::new(Version::new(2, 4), Some(Bytes::from_static(b"other")));
    apply(store, CHAIN, 2, [StoreOp::Put { key: Bytes::from_static(b"a"), held: next.clone() }]);
    assert_eq!(read(store, CHAIN, b"a", u64::MAX), Some(next));
}

/// `DropAbove` affects only the named key. It changes nothing if the key is absent, or has no versions above the bound.
pub fn a_chain_is_emptied_key_by_key(store: &dyn Store) {
    let name = |n: u64| format!("{n:04}").into_bytes();
    apply(store, CHAIN, 0, (0..300).map(|n| put(&name(n), n + 1, "v")));
    apply(store, CHAIN, 0, (0..150).map(|n| put(&name(n), 1000 + n, "new")));
    assert_eq!(hashed::scan(store, CHAIN, 0, u64::MAX).len(), 300);
    apply(store, CHAIN, 0, (100..300).map(|n| drop_above(&name(n), 300)));
    for (n, sequence) in [(0, 1000), (99, 1099), (100, 101), (149, 150), (150, 151)] {
        let found = read(store, CHAIN, &name(n), u64::MAX).map(|held| held.version.sequence.0);
        assert_eq!(found, Some(sequence), "of key {n}");
    }
    for n in 0..300 {
        apply(store, CHAIN, 0, [drop_above(&name(n), 0), drop_above(b"absent", 0)]);
        assert_eq!(store.size(CHAIN).keys, 299 - n);
    }
    assert_eq!((scan(store, CHAIN, b"", u64::MAX), hashed::scan(store, CHAIN, 0, u64::MAX)), (vec![], vec![]));
    assert_eq!((store.bytes(), store.size(CHAIN).bytes), (0, 0));
    assert_eq!(store.recover().expect("nothing is damaged"), []);
    apply(store, CHAIN, 0, [put(b"a", 1, "1")]);
    assert_eq!(keys(store, CHAIN, b"", u64::MAX), [&b"a"[..]]);
}

/// Batch numbers ascend, and each callback of `persist` is called once.
pub fn persistence_is_told(store: &dyn Store) {
    let first = apply(store, CHAIN, 0, [put(b"a", 1, "1")]);
    let second = apply(store, ChainId(9), 0, [put(b"a", 1, "1")]);
    assert!(Applied::default() < first && first < second);
    for upto in [first, second, second] {
        let (tell, told) = mpsc::sync_channel(1);
        store.persist(
            upto,
            Box::new(move |result| {
                // The send can't fail: the receiver waits for it.
                let _ = tell.send(result);
            }),
        );
        assert_eq!(told.recv(), Ok(Ok(())), "the callback is called");
    }
}

/// Recovery returns the newest version of every chain, and a watermark that isn't ahead of it.
pub fn recovery_names_every_chain(store: &dyn Store) {
    apply(store, ChainId(3), 1, [put(b"a", 1, "1"), put(b"b", 2, "2")]);
    apply(store, ChainId(1), 0, [put(b"a", 4, "4"), put(b"b", 6, "6"), drop_above(b"b", 5)]);
    let mut found = store.recover().expect("nothing is damaged");
    found.sort_by_key(|found| found.chain);
    let summary: Vec<_> = found.iter().map(|found| (found.chain.0, found.last)).collect();
    assert_eq!(summary, [(1, Version::new(1, 4)), (3, Version::new(1, 2))]);
    assert!(found.iter().all(|found| found.watermark <= found.last.sequence));
    assert!(found[0].watermark == Sequence(0) && found[1].watermark <= Sequence(1), "never ahead of the batches'");
}

/// A key with many pending versions costs at most twice the bytes of its needed versions, and all of these can be read.
pub fn many_pending_versions(store: &dyn Store) {
    const MANY: u64 = 5000;
    for n in 1..=MANY {
        apply(store, CHAIN, n / 2, [put(b"hot", n, "v"), prune(b"hot")]);
    }
    for at in (MANY / 2..=MANY).step_by(7) {
        assert_eq!(read(store, CHAIN, b"hot", at), Some(held(at, Some("v"))));
    }
    assert!(store.bytes() <= 3 + MANY + 1, "at most as many superseded versions as needed ones");
    apply(store, CHAIN, MANY, [prune(b"hot")]);
    assert_eq!(store.bytes(), 3 + 1);
}

/// Readers on other threads find either the old or the new entry, whole, and never an older one afterwards.
///
/// The writer replaces entries that always exist, and adds and removes others between them, so that an index has to
/// move entries.
pub fn readers_meet_whole_entries(store: &dyn Store) {
    const STEADY: u64 = 8;
    const ROUNDS: u64 = 20_000;
    let steady = |n: u64| format!("steady/{}", n % STEADY).into_bytes();
    let value = |n: u64| format!("{n}:{n}");
    apply(store, CHAIN, 0, (1..=STEADY).map(|n| put(&steady(n), n, &value(n))));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..3 {
            let done = &done;
            scope.spawn(move || {
                let mut newest = [0; STEADY as usize];
                let mut n = reader;
                while !done.load(Ordering::Relaxed) {
                    n += 1;
                    let key = steady(n);
                    let found = read(store, CHAIN, &key, u64::MAX).expect("the key was never absent");
                    let sequence = found.version.sequence.0;
                    assert_eq!(found.value.as_deref(), Some(value(sequence).as_bytes()), "a whole entry");
                    let before = &mut newest[(n % STEADY) as usize];
                    assert!(*before <= sequence, "{sequence} after {before}");
                    *before = sequence;
                }
            });
        }
        let _ending = StopsReaders(&done);
        for n in STEADY + 1..ROUNDS {
            let passing = format!("passing/{}", n % 3000).into_bytes();
            let around = if n / 3000 % 2 == 0 { put(&passing, n, "x") } else { delete(&passing, n) };
            apply(store, CHAIN, n - 1, [put(&steady(n), n, &value(n)), around]);
            apply(store, CHAIN, n, [prune(&steady(n)), prune(&passing)]);
        }
    });
}

/// Stops the readers, even if their writer panics.
pub(crate) struct StopsReaders<'a>(pub(crate) &'a AtomicBool);

impl Drop for StopsReaders<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
