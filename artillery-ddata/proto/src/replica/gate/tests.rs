use std::sync::{Arc, atomic::AtomicBool};

use bytes::Bytes;
use smallvec::smallvec;

use super::*;
use crate::{
    Version,
    guards::Mutant,
    store::{Applied, HashedIter, MemoryStore, Persisted, RecordIter, RecoveredChain, Size, StoreBatch, StoreOp},
};

const CHAIN: ChainId = ChainId(2);
const KEY: &[u8] = b"key";

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

fn held(epoch: u64, sequence: u64, value: Option<&'static str>) -> Held {
    Held::new(Version::new(epoch, sequence), value.map(Bytes::from))
}

fn put(store: &MemoryStore, held: Held) {
    let ops = smallvec![StoreOp::Put { key: Bytes::from_static(KEY), held }];
    store.apply(&StoreBatch { chain: CHAIN, keep_from: Sequence::ZERO, ops }).unwrap();
}

fn prune(store: &MemoryStore, keep_from: u64) {
    let ops = smallvec![StoreOp::Prune { key: Bytes::from_static(KEY) }];
    store.apply(&StoreBatch { chain: CHAIN, keep_from: Sequence(keep_from), ops }).unwrap();
}

/// A gate that is open in epoch 1 with a lease until 100, over a store that holds the committed version 1.1.
fn open() -> (Gate, MemoryStore) {
    let (gate, store) = (Gate::new(CHAIN), MemoryStore::with_seed(1));
    put(&store, held(1, 1, Some("one")));
    gate.commit(Sequence(1));
    gate.lease(at(100));
    gate.serve(Some(Epoch(1)));
    (gate, store)
}

#[test]
fn an_open_gate_serves_committed_versions() {
    let (gate, store) = open();
    assert_eq!(gate.read(&store, KEY, || at(99)), Ok(Some(held(1, 1, Some("one")))));
    assert_eq!(gate.read(&store, b"absent", || at(99)), Ok(None));
    assert_eq!(gate.counters().total(), 2);
    assert_eq!((gate.serving(), gate.watermark(), gate.lease_until()), (Some(Epoch(1)), Sequence(1), at(100)));
}

#[test]
fn a_closed_gate_serves_nothing() {
    let (gate, store) = open();
    assert_eq!(Gate::new(CHAIN).read(&store, KEY, || at(0)), Err(NotLocal::NotHere), "closed at first");
    gate.serve(None);
    assert_eq!(gate.read(&store, KEY, || at(0)), Err(NotLocal::NotHere));
    assert_eq!(gate.serving(), None);
    assert_eq!(gate.counters().total(), 0, "only served reads are counted");
}

#[test]
fn pending_versions_are_dirty() {
    let (gate, store) = open();
    put(&store, held(1, 2, None));
    assert_eq!(gate.read(&store, KEY, || at(0)), Err(NotLocal::Dirty), "a deletion too");
    put(&store, held(1, 3, Some("three")));
    gate.commit(Sequence(2));
    assert_eq!(gate.read(&store, KEY, || at(0)), Err(NotLocal::Dirty));
    gate.commit(Sequence(3));
    assert_eq!(gate.read(&store, KEY, || at(0)), Ok(Some(held(1, 3, Some("three")))));
}

#[test]
fn a_held_gate_sends_readers_to_the_replica() {
    let (gate, store) = open();
    gate.hold();
    assert_eq!(gate.read(&store, KEY, || at(0)), Err(NotLocal::Dirty));
    assert_eq!(gate.read(&store, b"absent", || at(0)), Err(NotLocal::Dirty), "for any key");
    assert_eq!(gate.serving(), Some(Epoch(1)), "it still serves");
    gate.serve(Some(Epoch(2)));
    assert_eq!(gate.read(&store, KEY, || at(0)), Err(NotLocal::Dirty), "in a new epoch too");
    gate.serve(None);
    assert_eq!(gate.read(&store, KEY, || at(0)), Err(NotLocal::NotHere));
    gate.serve(Some(Epoch(3)));
    gate.release();
    assert_eq!(gate.read(&store, KEY, || at(0)), Ok(Some(held(1, 1, Some("one")))));
}

#[test]
fn a_lookup_before_the_hold_may_still_return() {
    let (gate, store) = open();
    let looked = gate.look(&store, KEY).unwrap();
    gate.hold();
    assert_eq!(gate.leave(looked, || at(0)), Ok(Some(held(1, 1, Some("one")))));
}

#[test]
fn the_lease_ends_before_its_last_moment() {
    let (gate, store) = open();
    assert_eq!(gate.read(&store, KEY, || at(100)), Err(NotLocal::NoLease));
    gate.lease(Timestamp::ZERO);
    assert_eq!(gate.read(&store, KEY, || at(0)), Err(NotLocal::NoLease));
    gate.lease(Timestamp::MAX);
    assert_eq!(gate.read(&store, KEY, || at(u64::MAX - 1)), Ok(Some(held(1, 1, Some("one")))));
}

/// A store that notes reads, and either fails or reads from `slow` after a delay and then calls `then`.
#[derive(Default)]
struct Probe {
    read: AtomicBool,
    fails: bool,
    slow: Option<Arc<MemoryStore>>,
    then: Option<Box<dyn Fn() + Send + Sync>>,
}

impl std::fmt::Debug for Probe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Probe").finish_non_exhaustive()
    }
}

impl Store for Probe {
    fn read(&self, chain: ChainId, key: &[u8], at_most: Sequence) -> Result<Option<Held>, StoreError> {
        assert_eq!((chain, at_most), (CHAIN, Sequence::MAX));
        self.read.store(true, Ordering::Relaxed);
        if self.fails {
            return Err(StoreError::Failed("broken".into()));
        }
        let Some(store) = &self.slow else { return Ok(None) };
        (0..100).for_each(|_| std::hint::spin_loop());
        let found = store.read(chain, key, at_most);
        self.then.iter().for_each(|then| then());
        found
    }

    fn due(&self, _chain: ChainId, _chain_time: u64, _most: usize) -> Vec<bytes::Bytes> {
        unreachable!()
    }

    fn next_expiry(&self, _chain: ChainId) -> Option<crate::Expiry> {
        unreachable!()
    }

    fn scan(&self, _chain: ChainId, _from: &[u8], _at_most: Sequence) -> RecordIter<'_> {
        unreachable!()
    }

    fn scan_hashed(&self, _chain: ChainId, _from: u64, _at_most: Sequence) -> Option<HashedIter<'_>> {
        unreachable!()
    }

    fn apply(&self, _batch: &StoreBatch) -> Result<Applied, StoreError> {
        unreachable!()
    }

    fn persist(&self, _upto: Applied, _done: Persisted) {
        unreachable!()
    }

    fn recover(&self) -> Result<Vec<RecoveredChain>, StoreError> {
        unreachable!()
    }

    fn pin(&self, _chain: ChainId, _at: Sequence) {
        unreachable!()
    }

    fn unpin(&self, _chain: ChainId, _at: Sequence) {
        unreachable!()
    }

    fn bytes(&self) -> u64 {
        unreachable!()
    }

    fn size(&self, _chain: ChainId) -> Size {
        unreachable!()
    }
}

#[test]
fn a_store_that_fails_is_reported() {
    let (gate, _) = open();
    let broken = Probe { fails: true, ..Probe::default() };
    let expected = Err(NotLocal::Store(StoreError::Failed("broken".into())));
    assert_eq!(gate.read(&broken, KEY, || at(0)), expected);
}

#[test]
fn the_clock_is_read_behind_the_lookup() {
    let (gate, _) = open();
    let probe = Probe::default();
    let now = || {
        assert!(probe.read.load(Ordering::Relaxed), "a pause between the two would go unseen");
        at(0)
    };
    assert_eq!(gate.read(&probe, KEY, now), Ok(None));
}

/// A reader finds the pending version 1.2. While its thread is paused, the member is cut and commits 2.2.
fn dropped_meanwhile((gate, store): (Gate, MemoryStore)) -> Result<Option<Held>, NotLocal> {
    put(&store, held(1, 2, Some("dropped")));
    let (gate, store) = (Arc::new(gate), Arc::new(store));
    let (cuts, drops) = (gate.clone(), store.clone());
    let cut = move || {
        let ops = smallvec![StoreOp::DropAbove { key: Bytes::from_static(KEY), last: Sequence(1) }];
        drops.apply(&StoreBatch { chain: CHAIN, keep_from: Sequence(1), ops }).unwrap();
        put(&drops, held(2, 2, Some("two")));
        cuts.commit(Sequence(2));
    };
    let probe = Probe { slow: Some(store), then: Some(Box::new(cut)), ..Probe::default() };
    gate.read(&probe, KEY, || at(0))
}

#[test]
fn a_version_dropped_behind_the_lookup_is_not_served() {
    assert_eq!(dropped_meanwhile(open()), Err(NotLocal::Dirty));
}

#[test]
fn a_watermark_loaded_late_covers_a_dropped_version() {
    let (gate, store) = open();
    let gate = gate.with_guards(Guards::without(Mutant::LoadWatermarkLate));
    assert_eq!(dropped_meanwhile((gate, store)), Ok(Some(held(1, 2, Some("dropped")))));
}

#[test]
fn a_gate_that_closes_meanwhile_serves_nothing() {
    let (gate, store) = open();
    let closing = || {
        gate.serve(None);
        at(0)
    };
    assert_eq!(gate.read(&store, KEY, closing), Err(NotLocal::NotHere));
}

#[test]
fn a_lease_of_a_later_term_covers_no_earlier_lookup() {
    let (gate, store) = open();
    let expelled_and_back = || {
        gate.serve(None);
        put(&store, held(3, 2, Some("written elsewhere")));
        gate.commit(Sequence(2));
        gate.lease(at(1_000));
        gate.serve(Some(Epoch(3)));
        at(500)
    };
    assert_eq!(gate.read(&store, KEY, expelled_and_back), Err(NotLocal::NotHere));
    assert_eq!(gate.read(&store, KEY, || at(500)), Ok(Some(held(3, 2, Some("written elsewhere")))));
}

/// Without the guard of trap 28, the test above would fail.
#[test]
fn a_gate_that_looks_once_serves_what_was_superseded() {
    let (gate, store) = open();
    let gate = gate.with_guards(Guards::without(Mutant::LookOnce));
    let expelled_and_back = || {
        gate.serve(None);
        put(&store, held(3, 2, Some("written elsewhere")));
        gate.commit(Sequence(2));
        gate.serve(Some(Epoch(3)));
        at(0)
    };
    assert_eq!(gate.read(&store, KEY, expelled_and_back), Ok(Some(held(1, 1, Some("one")))));
}

/// Stops the readers of a test, even if its writer panics.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `read` on two threads repeatedly until `write` has returned.
fn readers_beside(read: impl Fn() + Sync, write: impl FnOnce()) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    read();
                }
            });
        }
        let _ending = Ending(&done);
        write();
    });
}

/// Versions that are stored while the gate is closed are not served.
#[test]
fn changes_behind_a_closed_gate_are_never_served() {
    let (gate, store) = open();
    let store = Arc::new(store);
    let slow = Probe { slow: Some(store.clone()), ..Probe::default() };
    gate.commit(Sequence::MAX);
    readers_beside(
        || {
            if let Ok(found) = gate.read(&slow, KEY, || at(0)) {
                let found = found.expect("the key was never absent");
                assert!(found.value.is_some(), "{found:?} was stored while the gate was closed");
            }
        },
        || {
            for term in 1..100_000 {
                gate.serve(None);
                put(&store, held(term, 2 * term, None));
                put(&store, held(term, 2 * term + 1, Some("open")));
                gate.serve(Some(Epoch(term + 1)));
                prune(&store, 2 * term + 1);
            }
        },
    );
}

/// Every update writes the key. So a read must return at least the watermark at its beginning, and at most the
/// watermark at its end.
#[test]
fn local_reads_are_linearizable() {
    let (gate, store) = open();
    readers_beside(
        || {
            let before = gate.watermark();
            if let Ok(found) = gate.read(&store, KEY, || at(0)) {
                let found = found.expect("the key was never absent").version.sequence;
                let after = gate.watermark();
                assert!(before <= found && found <= after, "{found} between {before} and {after}");
            }
        },
        || {
            for sequence in 2..200_000 {
                put(&store, held(1, sequence, Some("value")));
                gate.commit(Sequence(sequence));
                prune(&store, sequence);
            }
        },
    );
}
