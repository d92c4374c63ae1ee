//! Brings the parts of a backup to one point of the history.

use std::{collections::BTreeMap, fmt, sync::Arc};

use super::{BackupEnd, BackupError};
use crate::{
    ChainId, Sequence,
    api::{HashKey, Sums},
    journal::{EntryPlace, JournalEntry},
    message::{ChainMessage, SnapshotContent, SnapshotPart},
    replica::ChainRestore,
    store::{MemoryStore, Store},
};

/// Loads the entries of a backup into memory, as a start loads those of a journal.
#[derive(Debug)]
pub struct BackupLoad {
    /// For the hash of the stores: a writer of keys that knows it can make them slow.
    seed: u64,
    chains: BTreeMap<ChainId, LoadedChain>,
}

#[derive(Debug)]
struct LoadedChain {
    store: Arc<dyn Store>,
    restore: ChainRestore,
}

/// The contents of a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupReport {
    /// The cluster, its history, and the position of each chain.
    pub end: BackupEnd,
    /// The chains, in order.
    pub chains: Vec<ChainBackup>,
}

/// One chain of a backup.
#[derive(Clone)]
pub struct ChainBackup {
    /// The chain.
    pub chain: ChainId,
    /// The point of the chain's history that the backup shows.
    pub at: Sequence,
    /// The chain time at that point, in milliseconds.
    pub chain_time: u64,
    /// The digest of the records, by the key that was given.
    pub sums: Sums,
    /// The records.
    pub store: Arc<dyn Store>,
}

impl fmt::Debug for ChainBackup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { chain, at, sums, .. } = self;
        f.debug_struct("ChainBackup").field("chain", chain).field("at", at).field("sums", sums).finish_non_exhaustive()
    }
}

impl PartialEq for ChainBackup {
    fn eq(&self, other: &Self) -> bool {
        let of = |backup: &Self| (backup.chain, backup.at, backup.chain_time, backup.sums);
        of(self) == of(other)
    }
}

impl Eq for ChainBackup {}

impl BackupLoad {
    pub fn new(seed: u64) -> Self {
        Self { seed, chains: BTreeMap::new() }
    }

    /// Adds entries, in the order of the file.
    ///
    /// # Errors
    /// [`BackupError::Restore`].
    pub fn add(&mut self, entries: Vec<JournalEntry>) -> Result<(), BackupError> {
        entries.into_iter().try_for_each(|entry| self.entry(entry))
    }

    fn entry(&mut self, entry: JournalEntry) -> Result<(), BackupError> {
        let (chain, place) = (entry.chain(), EntryPlace::default());
        if begins(&entry) {
            // A chain that begins again replaces its earlier entries.
            let store: Arc<dyn Store> = Arc::new(MemoryStore::with_seed(self.seed));
            let restore = ChainRestore::from_beginning(chain, store.clone());
            self.chains.insert(chain, LoadedChain { store, restore });
        }
        let loaded = self.chains.get_mut(&chain).ok_or(BackupError::OtherEntries)?;
        loaded.restore.take(place, entry).map_err(|error| BackupError::Restore { chain, error })
    }

    /// The loaded chains, after the last entry, with digests by the key `hash`.
    ///
    /// # Errors
    /// [`BackupError`] if the entries don't lead to the stated end.
    pub fn finish(self, end: BackupEnd, hash: HashKey) -> Result<BackupReport, BackupError> {
        if !end.chains.iter().map(|(chain, _)| chain).eq(self.chains.keys()) {
            return Err(BackupError::OtherEntries);
        }
        let mut chains = Vec::new();
        for ((chain, LoadedChain { store, restore }), &(_, stated)) in self.chains.into_iter().zip(&end.chains) {
            let failed = |error| BackupError::Restore { chain, error };
            let restored = restore.finish().map_err(failed)?;
            let at = restored.last().sequence;
            if at != stated || restored.watermark() != stated {
                return Err(BackupError::OtherPoint { chain, stated, found: at });
            }
            let mut sums = Sums::default();
            for record in store.scan(chain, b"", Sequence::MAX) {
                let record = record.map_err(|error| failed(error.into()))?;
                sums.add_record(hash, &record.key, &record.held);
            }
            chains.push(ChainBackup { chain, at, chain_time: restored.chain_time(), sums, store });
        }
        Ok(BackupReport { end, chains })
    }
}

fn begins(entry: &JournalEntry) -> bool {
    let JournalEntry::Sent(frame) = entry else { return false };
    matches!(frame.message, ChainMessage::Snapshot(SnapshotPart { content: SnapshotContent::Begin(_), .. }))
}
