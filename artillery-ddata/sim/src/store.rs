//! A store that fails on command.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use artillery_proto::{
    ChainId, Expiry, Sequence,
    store::{
        Applied, HashedIter, Held, MemoryStore, Persisted, RecordIter, RecoveredChain, Size, Store, StoreBatch,
        StoreError, StoreOp,
    },
};
use bytes::Bytes;

/// A memory store that rejects all changes after [`FailingStore::fail`].
#[derive(Debug)]
pub struct FailingStore {
    inner: Arc<MemoryStore>,
    fails: AtomicBool,
    puts: AtomicU64,
}

impl FailingStore {
    /// Wraps `inner`. Changes succeed until [`fail`](Self::fail).
    pub fn new(inner: Arc<MemoryStore>) -> Self {
        Self { inner, fails: AtomicBool::new(false), puts: AtomicU64::new(0) }
    }

    /// Makes all further changes fail.
    pub fn fail(&self) {
        self.fails.store(true, Ordering::Relaxed);
    }

    /// Number of records in all batches, including rejected ones.
    pub fn puts(&self) -> u64 {
        self.puts.load(Ordering::Relaxed)
    }
}

impl Store for FailingStore {
    fn read(&self, chain: ChainId, key: &[u8], at_most: Sequence) -> Result<Option<Held>, StoreError> {
        self.inner.read(chain, key, at_most)
    }

    fn due(&self, chain: ChainId, chain_time: u64, most: usize) -> Vec<Bytes> {
        self.inner.due(chain, chain_time, most)
    }

    fn next_expiry(&self, chain: ChainId) -> Option<Expiry> {
        self.inner.next_expiry(chain)
    }

    fn scan(&self, chain: ChainId, from: &[u8], at_most: Sequence) -> RecordIter<'_> {
        self.inner.scan(chain, from, at_most)
    }

    fn scan_hashed(&self, chain: ChainId, from: u64, at_most: Sequence) -> Option<HashedIter<'_>> {
        self.inner.scan_hashed(chain, from, at_most)
    }

    fn apply(&self, batch: &StoreBatch) -> Result<Applied, StoreError> {
        let puts = batch.ops.iter().filter(|op| matches!(op, StoreOp::Put { .. })).count();
        self.puts.fetch_add(puts as u64, Ordering::Relaxed);
        match self.fails.load(Ordering::Relaxed) {
            true => Err(StoreError::Failed("as planned".to_owned())),
            false => self.inner.apply(batch),
        }
    }

    fn persist(&self, upto: Applied, done: Persisted) {
        self.inner.persist(upto, done);
    }

    fn recover(&self) -> Result<Vec<RecoveredChain>, StoreError> {
        self.inner.recover()
    }

    fn pin(&self, chain: ChainId, at: Sequence) {
        self.inner.pin(chain, at);
    }

    fn unpin(&self, chain: ChainId, at: Sequence) {
        self.inner.unpin(chain, at);
    }

    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }

    fn size(&self, chain: ChainId) -> Size {
        self.inner.size(chain)
    }
}
