//! The store to which the log applies updates. Usually, other members receive an update before it is applied to this
//! member's store.
//!
//! Only one member of a chain works on an update at a time, and most of that work is putting keys into the store. So a
//! member first forwards the update, or announces its commit. Until the update is in the store, the gate is held: local
//! readers go to the replica, which applies the pending batches before it reads (docs/adr/0024-trailing-store.md).

use std::{
    hash::{Hash, Hasher},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use smallvec::SmallVec;

use crate::{
    ChainId, Expiry, Sequence,
    replica::Gate,
    store::{HashedIter, Held, RecordIter, Size, Store, StoreBatch, StoreError, StoreOp},
};

/// The most deferred operations, so that applying them takes bounded time.
const MAX_DEFERRED_OPS: usize = 1024;

pub(crate) type Ops = SmallVec<[StoreOp; 2]>;

/// The part of a store that belongs to one chain. It applies the deferred batches before it reads, scans or pins.
pub(crate) struct WriteBehindStore {
    chain: ChainId,
    store: Arc<dyn Store>,
    gate: Arc<Gate>,
    deferred: Mutex<Deferred>,
}

#[derive(Clone, Default, Hash)]
struct Deferred {
    batches: Vec<StoreBatch>,
    ops: usize,
    /// The first new version among the batches.
    first: Option<Sequence>,
    /// The batches drop versions that are superseded up to this sequence.
    keep_from: Sequence,
    /// The watermark to set for local readers once the batches are applied.
    watermark: Option<Sequence>,
    /// A store that has failed is never used again.
    failed: Option<StoreError>,
}

#[cfg(feature = "mutants")]
/// A copy shares the store and the gate.
impl Clone for WriteBehindStore {
    fn clone(&self) -> Self {
        let (store, gate, deferred) = (self.store.clone(), self.gate.clone(), self.deferred().clone());
        Self { chain: self.chain, store, gate, deferred: Mutex::new(deferred) }
    }
}

/// Leaves out the content of the store, including the deferred batches.
impl Hash for WriteBehindStore {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.is_behind().hash(state);
    }
}

impl WriteBehindStore {
    pub(crate) fn new(chain: ChainId, store: Arc<dyn Store>, gate: Arc<Gate>) -> Self {
        Self { chain, store, gate, deferred: Mutex::default() }
    }

    /// Test-only: puts the deferred batches in front of copies of the store and the gate.
    #[cfg(feature = "mutants")]
    pub(super) fn attach(&mut self, store: Arc<dyn Store>, gate: Arc<Gate>) {
        (self.store, self.gate) = (store, gate);
    }

    /// One replica has one driver, so the lock is never contended. A panic leaves no partial change, so a poisoned lock
    /// is used nevertheless.
    fn deferred(&self) -> MutexGuard<'_, Deferred> {
        self.deferred.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_behind(&self) -> bool {
        !self.deferred().batches.is_empty()
    }

    /// Whether the gate is held until the batches are applied.
    pub(crate) fn is_held(&self) -> bool {
        self.deferred().first.is_some()
    }

    /// Applies the deferred batches, and releases the gate.
    pub(crate) fn settle(&self) -> Result<(), StoreError> {
        let mut deferred = self.deferred();
        if let Some(error) = &deferred.failed {
            return Err(error.clone());
        }
        if deferred.batches.is_empty() {
            return Ok(());
        }
        (deferred.ops, deferred.first) = (0, None);
        let keep_from = std::mem::take(&mut deferred.keep_from);
        for mut batch in std::mem::take(&mut deferred.batches) {
            batch.keep_from = batch.keep_from.max(keep_from);
            if let Err(error) = self.store.apply(&batch) {
                deferred.failed = Some(error.clone());
                return Err(error);
            }
        }
        if let Some(watermark) = deferred.watermark.take() {
            self.gate.commit(watermark);
        }
        self.gate.release();
        Ok(())
    }

    /// Defers the new versions of update `made`. With `hold` the gate is held until they are in the store.
    pub(crate) fn put_later(
        &self,
        made: Sequence,
        keep_from: Sequence,
        ops: Ops,
        hold: bool,
    ) -> Result<(), StoreError> {
        if hold {
            self.gate.hold();
        }
        self.deferred().first.get_or_insert(made);
        self.apply_later(keep_from, ops)
    }

    /// Allows versions superseded at or below `keep_from` to be dropped. Returns the first update whose versions are
    /// still deferred; [`Sequence::MAX`]: none. From that update on, each put drops the versions that it supersedes, so
    /// only tombstones need a separate prune.
    pub(crate) fn supersede(&self, keep_from: Sequence) -> Sequence {
        let mut deferred = self.deferred();
        deferred.keep_from = keep_from;
        deferred.first.unwrap_or(Sequence::MAX)
    }

    /// Sets the watermark for local readers, once the store has the versions that it covers.
    pub(crate) fn commit(&self, watermark: Sequence) {
        let mut deferred = self.deferred();
        if deferred.first.is_some() {
            deferred.watermark = Some(watermark);
        } else {
            self.gate.commit(watermark);
        }
    }

    /// Defers a batch. A batch that readers would notice needs [`put_later`](Self::put_later).
    pub(crate) fn apply_later(&self, keep_from: Sequence, ops: Ops) -> Result<(), StoreError> {
        let mut deferred = self.deferred();
        deferred.ops += ops.len();
        deferred.batches.push(StoreBatch { chain: self.chain, keep_from, ops });
        let is_full = deferred.ops > MAX_DEFERRED_OPS;
        drop(deferred);
        if is_full { self.settle() } else { Ok(()) }
    }

    pub(crate) fn apply(&self, keep_from: Sequence, ops: Ops) -> Result<(), StoreError> {
        self.settle()?;
        self.store.apply(&StoreBatch { chain: self.chain, keep_from, ops }).map(drop)
    }

    pub(crate) fn read(&self, key: &[u8], at_most: Sequence) -> Result<Option<Held>, StoreError> {
        self.settle()?;
        self.store.read(self.chain, key, at_most)
    }

    pub(crate) fn scan(&self, from: &[u8], at_most: Sequence) -> RecordIter<'_> {
        match self.settle() {
            Ok(()) => self.store.scan(self.chain, from, at_most),
            Err(error) => Box::new(std::iter::once(Err(error))),
        }
    }

    pub(crate) fn scan_hashed(&self, from: u64, at_most: Sequence) -> Option<HashedIter<'_>> {
        match self.settle() {
            Ok(()) => self.store.scan_hashed(self.chain, from, at_most),
            Err(error) => Some(Box::new(std::iter::once(Err(error)))),
        }
    }

    pub(crate) fn due(&self, chain_time: u64, most: usize) -> Result<Vec<Bytes>, StoreError> {
        self.settle()?;
        Ok(self.store.due(self.chain, chain_time, most))
    }

    pub(crate) fn next_expiry(&self) -> Result<Option<Expiry>, StoreError> {
        self.settle()?;
        Ok(self.store.next_expiry(self.chain))
    }

    /// Publishes the chain time for local readers: the time on this node's clock at which it was 0.
    pub(crate) fn set_chain_time(&self, origin: i64) {
        self.gate.set_chain_time(origin);
    }

    /// Ignores a failed store: its next read or write reports the failure.
    pub(crate) fn pin(&self, at: Sequence) {
        drop(self.settle());
        self.store.pin(self.chain, at);
    }

    pub(crate) fn unpin(&self, at: Sequence) {
        drop(self.settle());
        self.store.unpin(self.chain, at);
    }

    pub(crate) fn size(&self) -> Size {
        self.store.size(self.chain)
    }

    /// The bytes of all chains, without the deferred batches.
    pub(crate) fn bytes(&self) -> u64 {
        self.store.bytes()
    }
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;

    use super::*;
    use crate::{Epoch, Timestamp, Version, replica::NotLocal, store::MemoryStore};

    const CHAIN: ChainId = ChainId(3);

    fn put(sequence: u64) -> Ops {
        let held = Held::new(Version::new(1, sequence), Some(b"value".to_vec().into()));
        smallvec![StoreOp::Put { key: "key".into(), held }]
    }

    fn trailing() -> (WriteBehindStore, impl Fn() -> Result<Option<Held>, NotLocal>) {
        let (store, gate) = (Arc::new(MemoryStore::with_seed(1)), Arc::new(Gate::new(CHAIN)));
        gate.serve(Some(Epoch(1)));
        gate.lease(Timestamp::MAX);
        let trailing = WriteBehindStore::new(CHAIN, store.clone(), gate.clone());
        (trailing, move || gate.read(&*store, b"key", || Timestamp::ZERO))
    }

    #[test]
    fn readers_go_by_the_watermark_once_the_store_has_what_it_covers() {
        let (trailing, read) = trailing();
        trailing.put_later(Sequence(1), Sequence::ZERO, put(1), true).unwrap();
        trailing.commit(Sequence(1));
        assert_eq!(read(), Err(NotLocal::Dirty));
        trailing.settle().unwrap();
        assert_eq!(read().unwrap().unwrap().version, Version::new(1, 1));
        trailing.put_later(Sequence(2), Sequence::ZERO, put(2), true).unwrap();
        trailing.settle().unwrap();
        assert_eq!(read(), Err(NotLocal::Dirty), "it isn't committed");
        trailing.commit(Sequence(2));
        assert_eq!(read().unwrap().unwrap().version, Version::new(1, 2));
    }

    #[test]
    fn what_is_put_late_takes_along_what_it_supersedes() {
        let (trailing, read) = trailing();
        let bytes = |count: u64| count * 5 + 3;
        trailing.put_later(Sequence(1), Sequence::ZERO, put(1), true).unwrap();
        assert_eq!(trailing.supersede(Sequence::ZERO), Sequence(1), "1 is still deferred");
        trailing.settle().unwrap();
        trailing.put_later(Sequence(2), Sequence::ZERO, put(2), true).unwrap();
        trailing.put_later(Sequence(3), Sequence::ZERO, put(3), true).unwrap();
        trailing.commit(Sequence(2));
        assert_eq!(trailing.supersede(Sequence(2)), Sequence(2));
        trailing.settle().unwrap();
        assert_eq!(trailing.store.bytes(), bytes(2), "2 and 3");
        assert_eq!(trailing.supersede(Sequence(3)), Sequence::MAX, "nothing is deferred");
        trailing.commit(Sequence(3));
        assert_eq!(read().unwrap().unwrap().version, Version::new(1, 3));
    }

    #[test]
    fn a_store_that_has_failed_is_never_asked_again() {
        let (trailing, read) = trailing();
        trailing.put_later(Sequence(5), Sequence::ZERO, put(5), true).unwrap();
        trailing.put_later(Sequence(4), Sequence::ZERO, put(4), true).unwrap();
        let failed = trailing.settle();
        assert!(failed.is_err(), "versions of a key rise");
        assert_eq!(trailing.read(b"key", Sequence::MAX).map(drop), failed);
        assert_eq!(trailing.apply(Sequence::ZERO, put(6)), failed);
        assert_eq!(read(), Err(NotLocal::Dirty), "the gate stays held");
    }
}
