//! A store that may trail what its replica has taken in: others hear of an update before it is put here.
//!
//! Along a chain only one member at a time works for an update, and most of its work is to put keys into its store. So
//! it hands the update on first, or its commit, if nobody reads here meanwhile: the gate is held, so that local readers
//! come to the replica, and that makes up for what it put off before it looks (docs/adr/0024-trailing-store.md).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Gate;
use crate::{
    ChainId, Sequence,
    store::{HashedIter, Held, RecordIter, Size, Store, StoreBatch, StoreError},
};

/// So many changes are put off at most: to make up for them must not take long.
const MOST: usize = 1024;

/// The store of one replica. Whatever is asked of it, what was put off is done first.
pub(super) struct Trailing {
    store: Arc<dyn Store>,
    gate: Arc<Gate>,
    behind: Mutex<Behind>,
}

/// What was put off.
#[derive(Clone, Default)]
struct Behind {
    batches: Vec<StoreBatch>,
    ops: usize,
    /// There are new versions among it.
    puts: bool,
    /// The watermark that local readers are to go by once they are here.
    watermark: Option<Sequence>,
    /// The store has failed: nothing more is ever done.
    failed: Option<StoreError>,
}

impl Trailing {
    pub(super) fn new(store: Arc<dyn Store>, gate: Arc<Gate>) -> Self {
        Self { store, gate, behind: Mutex::default() }
    }

    /// The same in front of copies of the store and the gate.
    #[cfg(feature = "mutants")]
    pub(super) fn fork(&self, store: Arc<dyn Store>, gate: Arc<Gate>) -> Self {
        Self { store, gate, behind: Mutex::new(self.behind().clone()) }
    }

    /// A panic leaves nothing half done in it, and the lock is never waited for: one replica has one driver.
    fn behind(&self) -> MutexGuard<'_, Behind> {
        self.behind.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether anything is put off.
    pub(super) fn is_behind(&self) -> bool {
        !self.behind().batches.is_empty()
    }

    /// Does what was put off.
    pub(super) fn settle(&self) -> Result<(), StoreError> {
        let mut behind = self.behind();
        if let Some(error) = &behind.failed {
            return Err(error.clone());
        }
        if behind.batches.is_empty() {
            return Ok(());
        }
        (behind.ops, behind.puts) = (0, false);
        for batch in std::mem::take(&mut behind.batches) {
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

    /// Puts off new versions: until they are here nobody reads at the gate.
    pub(super) fn put_later(&self, batch: StoreBatch, hold: bool) -> Result<(), StoreError> {
        if hold {
            self.gate.hold();
        }
        self.behind().puts = true;
        self.later(batch)
    }

    /// Local readers are to go by this watermark, from when the versions that it covers are here.
    pub(super) fn commit(&self, watermark: Sequence) {
        let mut behind = self.behind();
        if behind.puts {
            behind.watermark = Some(watermark);
        } else {
            self.gate.commit(watermark);
        }
    }

    /// Puts off what makes no difference to readers.
    pub(super) fn later(&self, batch: StoreBatch) -> Result<(), StoreError> {
        let mut behind = self.behind();
        behind.ops += batch.ops.len();
        behind.batches.push(batch);
        let enough = behind.ops > MOST;
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

    /// A store that has failed is noticed by whoever asks it for something next.
    pub(super) fn pin(&self, chain: ChainId, at: Sequence) {
        drop(self.settle());
        self.store.pin(chain, at);
    }

    pub(super) fn unpin(&self, chain: ChainId, at: Sequence) {
        drop(self.settle());
        self.store.unpin(chain, at);
    }

    /// Without what is put off.
    pub(super) fn size(&self, chain: ChainId) -> Size {
        self.store.size(chain)
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

    fn trailing() -> (Trailing, impl Fn() -> Result<Option<Held>, NotLocal>) {
        let (store, gate) = (Arc::new(MemoryStore::with_seed(1)), Arc::new(Gate::new(CHAIN)));
        gate.serve(Some(Epoch(1)));
        gate.lease(Timestamp::MAX);
        let trailing = Trailing::new(store.clone(), gate.clone());
        (trailing, move || gate.read(&*store, b"key", || Timestamp::ZERO))
    }

    #[test]
    fn readers_go_by_the_watermark_once_the_store_has_what_it_covers() {
        let (trailing, read) = trailing();
        trailing.put_later(put(1), true).unwrap();
        trailing.commit(Sequence(1));
        assert_eq!(read(), Err(NotLocal::Dirty));
        trailing.settle().unwrap();
        assert_eq!(read().unwrap().unwrap().version, Version::new(1, 1));
        trailing.put_later(put(2), true).unwrap();
        trailing.settle().unwrap();
        assert_eq!(read(), Err(NotLocal::Dirty), "it isn't committed");
        trailing.commit(Sequence(2));
        assert_eq!(read().unwrap().unwrap().version, Version::new(1, 2));
    }

    #[test]
    fn a_store_that_has_failed_is_never_asked_again() {
        let (trailing, read) = trailing();
        trailing.put_later(put(5), true).unwrap();
        trailing.put_later(put(4), true).unwrap();
        let failed = trailing.settle();
        assert!(failed.is_err(), "versions of a key rise");
        assert_eq!(trailing.read(CHAIN, b"key", Sequence::MAX).map(drop), failed);
        assert_eq!(trailing.apply(&put(6)), failed);
        assert_eq!(read(), Err(NotLocal::Dirty), "nobody reads what isn't whole");
    }
}
