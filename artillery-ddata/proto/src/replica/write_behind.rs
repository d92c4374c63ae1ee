//! A store behind its replica: others hear of an update before this store has it.
//!
//! Along a chain one member at a time works on an update, and most of that work is to put keys into the store. So a
//! member hands on the update, or announces its commit, first. Meanwhile the gate is held: local readers come to the
//! replica, which applies the pending batches before it reads (docs/adr/0024-trailing-store.md).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Gate;
use crate::{
    ChainId, Sequence,
    store::{HashedIter, Held, RecordIter, Size, Store, StoreBatch, StoreError},
};

/// The most operations that are put off, so that applying them doesn't take long.
const MAX_PUT_OFF: usize = 1024;

/// The store of one replica. Before any access it applies what was put off.
pub(super) struct WriteBehindStore {
    store: Arc<dyn Store>,
    gate: Arc<Gate>,
    behind: Mutex<Behind>,
}

/// What was put off.
#[derive(Clone, Default)]
struct Behind {
    batches: Vec<StoreBatch>,
    ops: usize,
    /// The first new version among the batches.
    first: Option<Sequence>,
    /// The batches drop the versions that they supersede up to here.
    keep_from: Sequence,
    /// The watermark for local readers, once the batches are applied.
    watermark: Option<Sequence>,
    /// The store has failed: it is never used again.
    failed: Option<StoreError>,
}

impl WriteBehindStore {
    pub(super) fn new(store: Arc<dyn Store>, gate: Arc<Gate>) -> Self {
        Self { store, gate, behind: Mutex::default() }
    }

    /// The same in front of copies of the store and the gate.
    #[cfg(feature = "mutants")]
    pub(super) fn fork(&self, store: Arc<dyn Store>, gate: Arc<Gate>) -> Self {
        Self { store, gate, behind: Mutex::new(self.behind().clone()) }
    }

    /// A panic leaves no half-made change in it, so a poisoned lock is used all the same. One replica has one driver,
    /// so the lock is never contended.
    fn behind(&self) -> MutexGuard<'_, Behind> {
        self.behind.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether anything is put off.
    pub(super) fn is_behind(&self) -> bool {
        !self.behind().batches.is_empty()
    }

    /// Whether the gate is held until the batches are applied.
    pub(super) fn is_held(&self) -> bool {
        self.behind().first.is_some()
    }

    /// Applies what was put off, and releases the gate.
    pub(super) fn settle(&self) -> Result<(), StoreError> {
        let mut behind = self.behind();
        if let Some(error) = &behind.failed {
            return Err(error.clone());
        }
        if behind.batches.is_empty() {
            return Ok(());
        }
        (behind.ops, behind.first) = (0, None);
        let keep_from = std::mem::take(&mut behind.keep_from);
        for mut batch in std::mem::take(&mut behind.batches) {
            batch.keep_from = batch.keep_from.max(keep_from);
            if let Err(error) = self.store.apply(&batch) {
                behind.failed = Some(error.clone());
                return Err(error);
            }
        }
        if let Some(watermark) = behind.watermark.take() {
            self.gate.commit(watermark);
        }
        self.gate.release();
        Ok(())
    }

    /// Puts off the new versions of an update, and holds the gate until they are in the store.
    pub(super) fn put_later(&self, made: Sequence, batch: StoreBatch, hold: bool) -> Result<(), StoreError> {
        if hold {
            self.gate.hold();
        }
        self.behind().first.get_or_insert(made);
        self.later(batch)
    }

    /// Versions superseded at or below `keep_from` may be dropped. Returns the first update whose versions are still
    /// put off. From that one on each put drops what it supersedes, so only its tombstones need a separate prune.
    pub(super) fn supersede(&self, keep_from: Sequence) -> Sequence {
        let mut behind = self.behind();
        behind.keep_from = keep_from;
        behind.first.unwrap_or(Sequence::MAX)
    }

    /// Sets the watermark for local readers, once the versions that it covers are in the store.
    pub(super) fn commit(&self, watermark: Sequence) {
        let mut behind = self.behind();
        if behind.first.is_some() {
            behind.watermark = Some(watermark);
        } else {
            self.gate.commit(watermark);
        }
    }

    /// Puts off a batch that changes nothing for readers.
    pub(super) fn later(&self, batch: StoreBatch) -> Result<(), StoreError> {
        let mut behind = self.behind();
        behind.ops += batch.ops.len();
        behind.batches.push(batch);
        let enough = behind.ops > MAX_PUT_OFF;
        drop(behind);
        if enough { self.settle() } else { Ok(()) }
    }

    pub(super) fn apply(&self, batch: &StoreBatch) -> Result<(), StoreError> {
        self.settle()?;
        self.store.apply(batch).map(drop)
    }

    pub(super) fn read(&self, chain: ChainId, key: &[u8], at_most: Sequence) -> Result<Option<Held>, StoreError> {
        self.settle()?;
        self.store.read(chain, key, at_most)
    }

    pub(super) fn scan(&self, chain: ChainId, from: &[u8], at_most: Sequence) -> RecordIter<'_> {
        match self.settle() {
            Ok(()) => self.store.scan(chain, from, at_most),
            Err(error) => Box::new(std::iter::once(Err(error))),
        }
    }

    pub(super) fn scan_hashed(&self, chain: ChainId, from: u64, at_most: Sequence) -> Option<HashedIter<'_>> {
        match self.settle() {
            Ok(()) => self.store.scan_hashed(chain, from, at_most),
            Err(error) => Some(Box::new(std::iter::once(Err(error)))),
        }
    }

    /// Ignores a failed store: its next read or write reports that.
    pub(super) fn pin(&self, chain: ChainId, at: Sequence) {
        drop(self.settle());
        self.store.pin(chain, at);
    }

    pub(super) fn unpin(&self, chain: ChainId, at: Sequence) {
        drop(self.settle());
        self.store.unpin(chain, at);
    }

    /// The size without what is put off.
    pub(super) fn size(&self, chain: ChainId) -> Size {
        self.store.size(chain)
    }

    /// The bytes of all chains without what is put off.
    pub(super) fn bytes(&self) -> u64 {
        self.store.bytes()
    }
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;

    use super::*;
    use crate::{
        Epoch, Timestamp, Version,
        replica::NotLocal,
        store::{MemoryStore, StoreOp},
    };

    const CHAIN: ChainId = ChainId(3);

    fn put(sequence: u64) -> StoreBatch {
        let held = Held { version: Version::new(1, sequence), value: Some("value".into()) };
        StoreBatch { chain: CHAIN, keep_from: Sequence::ZERO, ops: smallvec![StoreOp::Put { key: "key".into(), held }] }
    }

    fn trailing() -> (WriteBehindStore, impl Fn() -> Result<Option<Held>, NotLocal>) {
        let (store, gate) = (Arc::new(MemoryStore::with_seed(1)), Arc::new(Gate::new(CHAIN)));
        gate.serve(Some(Epoch(1)));
        gate.lease(Timestamp::MAX);
        let trailing = WriteBehindStore::new(store.clone(), gate.clone());
        (trailing, move || gate.read(&*store, b"key", || Timestamp::ZERO))
    }

    #[test]
    fn readers_go_by_the_watermark_once_the_store_has_what_it_covers() {
        let (trailing, read) = trailing();
        trailing.put_later(Sequence(1), put(1), true).unwrap();
        trailing.commit(Sequence(1));
        assert_eq!(read(), Err(NotLocal::Dirty));
        trailing.settle().unwrap();
        assert_eq!(read().unwrap().unwrap().version, Version::new(1, 1));
        trailing.put_later(Sequence(2), put(2), true).unwrap();
        trailing.settle().unwrap();
        assert_eq!(read(), Err(NotLocal::Dirty), "it isn't committed");
        trailing.commit(Sequence(2));
        assert_eq!(read().unwrap().unwrap().version, Version::new(1, 2));
    }

    #[test]
    fn what_is_put_late_takes_along_what_it_supersedes() {
        let (trailing, read) = trailing();
        let bytes = |count: u64| count * 5 + 3;
        trailing.put_later(Sequence(1), put(1), true).unwrap();
        assert_eq!(trailing.supersede(Sequence::ZERO), Sequence(1), "1 is still put off");
        trailing.settle().unwrap();
        trailing.put_later(Sequence(2), put(2), true).unwrap();
        trailing.put_later(Sequence(3), put(3), true).unwrap();
        trailing.commit(Sequence(2));
        assert_eq!(trailing.supersede(Sequence(2)), Sequence(2));
        trailing.settle().unwrap();
        assert_eq!(trailing.store.bytes(), bytes(2), "2 and 3");
        assert_eq!(trailing.supersede(Sequence(3)), Sequence::MAX, "nothing is put off");
        trailing.commit(Sequence(3));
        assert_eq!(read().unwrap().unwrap().version, Version::new(1, 3));
    }

    #[test]
    fn a_store_that_has_failed_is_never_asked_again() {
        let (trailing, read) = trailing();
        trailing.put_later(Sequence(5), put(5), true).unwrap();
        trailing.put_later(Sequence(4), put(4), true).unwrap();
        let failed = trailing.settle();
        assert!(failed.is_err(), "versions of a key rise");
        assert_eq!(trailing.read(CHAIN, b"key", Sequence::MAX).map(drop), failed);
        assert_eq!(trailing.apply(&put(6)), failed);
        assert_eq!(read(), Err(NotLocal::Dirty), "the gate stays held");
    }
}
