//! Versions of every key, behind one trait.

use std::fmt;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::{ChainId, Sequence, Version};

pub mod conformance;
pub mod memory;
mod position;

pub use memory::MemoryStore;
pub use position::position;

/// A version of a key as a store holds it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Held {
    /// Which update made it.
    pub version: Version,
    /// The value; `None` if that update deleted the key.
    pub value: Option<Bytes>,
}

/// One record met by a scan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScanRecord {
    /// The key.
    pub key: Bytes,
    /// Its newest version at or below the bound of the scan.
    pub held: Held,
}

/// The records of a scan, in key order.
pub type RecordIter<'a> = Box<dyn Iterator<Item = Result<ScanRecord, StoreError>> + Send + 'a>;

/// The records of a scan in hash order, each with its position.
pub type HashedIter<'a> = Box<dyn Iterator<Item = Result<(u64, ScanRecord), StoreError>> + Send + 'a>;

/// How much a store holds of one chain.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Size {
    /// Keys whose newest version, committed or not, is a value.
    pub keys: u64,
    /// Bytes of keys and values, old versions included.
    pub bytes: u64,
}

/// One step of a [`StoreBatch`]. Exhaustive on purpose: a store that skips what it doesn't know loses data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreOp {
    /// The key has this version from now on, the newest of all. At or below [`StoreBatch::keep_from`] it takes along what it
    /// supersedes, as if a [`Prune`](Self::Prune) of the key came next, but stays itself if it is a tombstone.
    Put {
        /// The key.
        key: Bytes,
        /// The version and its value.
        held: Held,
    },
    /// Of this key's versions, all that are superseded by another at or below [`StoreBatch::keep_from`] and below every
    /// pin may go; so may a tombstone there that nothing supersedes.
    Prune {
        /// The key.
        key: Bytes,
    },
    /// Of this key's versions, all above this sequence go: the updates that made them are no part of the history. A cut of
    /// the history names every key that a dropped update changed, so it costs by what it drops.
    DropAbove {
        /// The key.
        key: Bytes,
        /// The last sequence that stays.
        last: Sequence,
    },
}

/// Changes that a store makes as one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreBatch {
    /// Which chain's data.
    pub chain: ChainId,
    /// Versions that a reader at this sequence or above needs are kept: the committed watermark.
    pub keep_from: Sequence,
    /// In this order.
    pub ops: SmallVec<[StoreOp; 2]>,
}

/// A position in the order in which a store took batches in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Applied(pub u64);

/// What a store found of one chain when it was opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecoveredChain {
    /// Which chain.
    pub chain: ChainId,
    /// The newest version that it holds.
    pub last: Version,
    /// The watermark that was written with the data: never ahead of it, perhaps old.
    pub watermark: Sequence,
}

/// A store can't do its work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The medium failed.
    #[error("the store failed: {0}")]
    Failed(String),
    /// What is held isn't what was written.
    #[error("{place} is damaged: {what}")]
    Damaged {
        /// File or table, and position.
        place: String,
        /// What doesn't add up.
        what: String,
    },
}

/// Told when what was asked for is on stable storage, or never will be.
pub type Persisted = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// Versions of every key of every chain of a node.
///
/// Calls are synchronous and the only wait is behind a callback, so the simulator drives a store without a runtime.
/// `read` may be called from any thread at any time, and waits for a writer no longer than that takes to exchange what one
/// key has; the others are called by one driver per chain. Versions of a key are applied in rising order.
pub trait Store: Send + Sync + fmt::Debug + 'static {
    /// The newest version of `key` at or below `at_most`, tombstones included.
    ///
    /// # Errors
    /// [`StoreError`]; never a damaged value.
    fn read(&self, chain: ChainId, key: &[u8], at_most: Sequence) -> Result<Option<Held>, StoreError>;

    /// All keys from `from` on in byte order, each with its newest version at or below `at_most`. Not a cut unless
    /// `at_most` is pinned.
    fn scan(&self, chain: ChainId, from: &[u8], at_most: Sequence) -> RecordIter<'_>;

    /// The keys from position `from` on in hash order, that is by [`position`] and, where that is the same, by their bytes;
    /// each with its newest version at or below `at_most`. Not a cut unless `at_most` is pinned.
    ///
    /// `None`: the store doesn't know that order yet. Each call brings it closer by a bounded amount of work, so whoever
    /// needs it asks again.
    fn scan_hashed(&self, chain: ChainId, from: u64, at_most: Sequence) -> Option<HashedIter<'_>>;

    /// Makes the changes of `batch`; each key's visible at once and whole, durable later.
    ///
    /// # Errors
    /// [`StoreError`]: then nothing of the batch is visible and the store is to be given up.
    fn apply(&self, batch: &StoreBatch) -> Result<Applied, StoreError>;

    /// Calls `done` once all batches up to `upto` are on stable storage. Many calls may share one sync.
    fn persist(&self, upto: Applied, done: Persisted);

    /// What is there of each chain: called once, after opening.
    ///
    /// # Errors
    /// [`StoreError`], which names the damaged place.
    fn recover(&self) -> Result<Vec<RecoveredChain>, StoreError>;

    /// From now on keeps every version that a reader at `at` needs, until [`unpin`](Self::unpin) is called as often.
    fn pin(&self, chain: ChainId, at: Sequence);

    /// Takes one pin at `at` back.
    fn unpin(&self, chain: ChainId, at: Sequence);

    /// Bytes of keys and values held, old versions included.
    fn bytes(&self) -> u64;

    /// How much is held of one chain, known without counting.
    fn size(&self, chain: ChainId) -> Size;
}
