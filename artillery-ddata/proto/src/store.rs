//! The trait of stores, which hold the versions of every key.

use std::fmt;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::{ChainId, Expiry, Sequence, Version};

pub mod conformance;
pub mod memory;
mod position;

pub use memory::MemoryStore;
pub use position::position;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Held {
    /// The version of the update that wrote this value or deleted the key.
    pub version: Version,
    /// `None` if that update deleted the key.
    pub value: Option<Bytes>,
    /// When the key expires; `None`: never. A deletion that a watch reports has one if the key expired.
    pub expires: Option<Expiry>,
}

impl Held {
    /// A value that doesn't expire, or a tombstone.
    pub const fn new(version: Version, value: Option<Bytes>) -> Self {
        Self { version, value, expires: None }
    }

    /// The expiry of a value.
    pub fn expiry(&self) -> Option<Expiry> {
        self.expires.filter(|_| self.value.is_some())
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ScanRecord {
    pub key: Bytes,
    /// The key's newest version at or below the bound of the scan.
    pub held: Held,
}

pub type RecordIter<'a> = Box<dyn Iterator<Item = Result<ScanRecord, StoreError>> + Send + 'a>;

/// The records of a scan in hash order, each with its position.
pub type HashedIter<'a> = Box<dyn Iterator<Item = Result<(u64, ScanRecord), StoreError>> + Send + 'a>;

/// The size of one chain's data in a store.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Size {
    /// Keys whose newest version, committed or not, is a value.
    pub keys: u64,
    /// Bytes of keys and values, including old versions.
    pub bytes: u64,
    /// Keys whose newest version, committed or not, expires.
    pub expiring: u64,
}

/// One step of a [`StoreBatch`]. Deliberately exhaustive: a store that skipped an unknown step would lose data.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum StoreOp {
    /// Adds the newest version of the key. If it is at or below [`StoreBatch::keep_from`], the versions that it
    /// supersedes are dropped as by [`Prune`](Self::Prune), but the new version stays even if it is a tombstone.
    Put { key: Bytes, held: Held },
    /// Allows the store to drop the versions of the key that no reader needs: each that has a newer one at or below
    /// both [`StoreBatch::keep_from`] and every pin; and the newest, if it is a tombstone at or below them.
    Prune { key: Bytes },
    /// Drops all versions of the key above `last`, whose updates are no longer part of the history. A batch has one
    /// such step for each key that a dropped update changed, so the cost of a cut is proportional to the number of
    /// dropped changes.
    DropAbove {
        key: Bytes,
        /// The last sequence that is kept.
        last: Sequence,
    },
}

/// Changes to one chain. See [`Store::apply`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct StoreBatch {
    pub chain: ChainId,
    /// The commit watermark: versions that a reader at this sequence or above needs are kept.
    pub keep_from: Sequence,
    /// Applied in this order.
    pub ops: SmallVec<[StoreOp; 2]>,
}

/// The number of a batch, in the order in which a store applied them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Applied(pub u64);

/// The content of one chain in a store that was opened.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RecoveredChain {
    pub chain: ChainId,
    /// The newest version that the store holds.
    pub last: Version,
    /// The watermark stored with the data: never ahead of the data, possibly outdated.
    pub watermark: Sequence,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The storage medium reported an error, or a batch has a version that isn't above all others of its key.
    #[error("the store failed: {0}")]
    Failed(String),
    /// The data read differs from the data written.
    #[error("{place} is damaged: {what}")]
    Damaged {
        /// The file or table, and the position.
        place: String,
        what: String,
    },
}

/// Called when the requested batches are on stable storage, or never will be.
pub type Persisted = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// A store of the versions of every key of a node's chains.
///
/// Calls are synchronous and only [`persist`](Self::persist) has a callback, so the simulator drives a store without a
/// runtime. Any thread may call `read` at any time; the reader waits for a writer at most while the writer exchanges
/// the versions of one key. All other calls for a chain are made by its one driver. Versions of a key are applied in
/// ascending order.
pub trait Store: Send + Sync + fmt::Debug + 'static {
    /// The newest version of `key` at or below `at_most`, including tombstones.
    ///
    /// # Errors
    /// [`StoreError`], also for a damaged value.
    fn read(&self, chain: ChainId, key: &[u8], at_most: Sequence) -> Result<Option<Held>, StoreError>;

    /// All keys from `from` up in byte order, each with its newest version at or below `at_most`. The records are a
    /// consistent cut only if `at_most` is pinned.
    fn scan(&self, chain: ChainId, from: &[u8], at_most: Sequence) -> RecordIter<'_>;

    /// The keys from position `from` up in hash order, each with its newest version at or below `at_most`. Hash order
    /// is by `position`, then by bytes. The records are a consistent cut only if `at_most` is pinned.
    ///
    /// `None` if the store hasn't built the order yet. Each call does a bounded part of that work, so call again.
    fn scan_hashed(&self, chain: ChainId, from: u64, at_most: Sequence) -> Option<HashedIter<'_>>;

    /// Applies a batch. Each change becomes visible immediately and as a whole, and durable later.
    ///
    /// # Errors
    /// [`StoreError`]: the store must not be used any longer.
    fn apply(&self, batch: &StoreBatch) -> Result<Applied, StoreError>;

    /// Calls `done` once all batches up to `upto` are on stable storage. Several calls may share one sync.
    fn persist(&self, upto: Applied, done: Persisted);

    /// The content of each chain. Called once, after opening.
    ///
    /// # Errors
    /// [`StoreError`] with the damaged place.
    fn recover(&self) -> Result<Vec<RecoveredChain>, StoreError>;

    /// Keeps every version that a reader at `at` needs, until [`unpin`](Self::unpin) has been called as often as `pin`.
    fn pin(&self, chain: ChainId, at: Sequence);

    /// Releases one pin at `at`.
    fn unpin(&self, chain: ChainId, at: Sequence);

    /// The keys whose newest version, committed or not, is due at `chain_time`: the first ones, at most `most`. Cheap if
    /// no key is due.
    fn due(&self, chain: ChainId, chain_time: u64, most: usize) -> Vec<Bytes>;

    /// The first expiry among the newest versions of all keys. Cheap.
    fn next_expiry(&self, chain: ChainId) -> Option<Expiry>;

    /// Bytes of keys and values of all chains, including old versions.
    fn bytes(&self) -> u64;

    /// The size of one chain's data. The store maintains it, so the call is cheap.
    fn size(&self, chain: ChainId) -> Size;
}
