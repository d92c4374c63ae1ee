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
    /// The version of the update that made it.
    pub version: Version,
    /// The value; `None` if that update deleted the key.
    pub value: Option<Bytes>,
}

/// One record of a scan.
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
    /// Adds the newest version of the key. At or below [`StoreBatch::keep_from`] the versions that it supersedes are
    /// dropped, as if a [`Prune`](Self::Prune) of the key came next. A tombstone that is added stays.
    Put {
        /// The key.
        key: Bytes,
        /// The version and its value.
        held: Held,
    },
    /// Versions of the key that no reader needs may be dropped: each that has a newer one at or below both
    /// [`StoreBatch::keep_from`] and every pin; and the newest, if it is a tombstone at or below them.
    Prune {
        /// The key.
        key: Bytes,
    },
    /// Drops all versions of the key above this sequence: their updates are no part of the history. A cut of the
    /// history names every key that a dropped update changed, so its cost is that of what it drops.
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
    /// The chain to which the keys belong.
    pub chain: ChainId,
    /// The committed watermark: versions that a reader at this sequence or above needs are kept.
    pub keep_from: Sequence,
    /// The operations, in this order.
    pub ops: SmallVec<[StoreOp; 2]>,
}

/// The number of a batch, in the order in which a store applied them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Applied(pub u64);

/// What a store found of one chain when it was opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecoveredChain {
    /// The chain.
    pub chain: ChainId,
    /// The newest version that the store holds.
    pub last: Version,
    /// The watermark that was written with the data: never ahead of the data, perhaps old.
    pub watermark: Sequence,
}

/// An error of a store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The medium failed.
    #[error("the store failed: {0}")]
    Failed(String),
    /// The data read isn't the data written.
    #[error("{place} is damaged: {what}")]
    Damaged {
        /// File or table, and position.
        place: String,
        /// The inconsistency.
        what: String,
    },
}

/// Called when the batches asked for are on stable storage, or never will be.
pub type Persisted = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// Versions of every key of every chain of a node.
///
/// Calls are synchronous, and only [`persist`](Self::persist) has a callback: so the simulator drives a store without a
/// runtime. `read` may be called from any thread at any time. It waits for a writer no longer than that takes to
/// exchange the versions of one key. One driver per chain makes all other calls. Versions of a key are applied in
/// rising order.
pub trait Store: Send + Sync + fmt::Debug + 'static {
    /// The newest version of `key` at or below `at_most`, tombstones included.
    ///
    /// # Errors
    /// [`StoreError`]. A damaged value is an error, too.
    fn read(&self, chain: ChainId, key: &[u8], at_most: Sequence) -> Result<Option<Held>, StoreError>;

    /// All keys from `from` on in byte order, each with its newest version at or below `at_most`. Not a cut unless
    /// `at_most` is pinned.
    fn scan(&self, chain: ChainId, from: &[u8], at_most: Sequence) -> RecordIter<'_>;

    /// The keys from position `from` on in hash order, each with its newest version at or below `at_most`. Hash order
    /// is by [`position`], and by bytes where the positions are equal. Not a cut unless `at_most` is pinned.
    ///
    /// `None`: the store hasn't built that order yet. Each call does a bounded part of that work, so call again.
    fn scan_hashed(&self, chain: ChainId, from: u64, at_most: Sequence) -> Option<HashedIter<'_>>;

    /// Makes the changes of `batch`. Those of each key become visible at once and as a whole; they become durable
    /// later.
    ///
    /// # Errors
    /// [`StoreError`]: then no change of the batch is visible, and the store must not be used any more.
    fn apply(&self, batch: &StoreBatch) -> Result<Applied, StoreError>;

    /// Calls `done` once all batches up to `upto` are on stable storage. Many calls may share one sync.
    fn persist(&self, upto: Applied, done: Persisted);

    /// What the store holds of each chain. Called once, after opening.
    ///
    /// # Errors
    /// [`StoreError`], which names the damaged place.
    fn recover(&self) -> Result<Vec<RecoveredChain>, StoreError>;

    /// From now on keeps every version that a reader at `at` needs, until [`unpin`](Self::unpin) is called as often.
    fn pin(&self, chain: ChainId, at: Sequence);

    /// Releases one pin at `at`.
    fn unpin(&self, chain: ChainId, at: Sequence);

    /// Bytes of keys and values held, old versions included.
    fn bytes(&self) -> u64;

    /// How much the store holds of one chain. The store keeps the count, so this is cheap.
    fn size(&self, chain: ChainId) -> Size;
}
