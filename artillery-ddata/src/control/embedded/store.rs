//! The group's log and this node's vote, in memory, and on the disk of a durable node.
//!
//! Without a disk, log and vote end with the process, and so does the node's store: the next process is another node of
//! the group. So no node of the group ever forgets a promise on which another one relies.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    ops::RangeBounds,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use artillery_core::internal::codec;
use artillery_proto::{allows, guards::Guards};
use openraft::{
    Entry, EntryPayload, LogState, RaftLogReader, Vote,
    storage::{LogFlushed, RaftLogStorage},
};

use super::{
    kept::{KeptLog, LogRecord},
    messages::{MAX_ENTRIES_BYTES, MAX_MESSAGE},
    types::{RaftId, RaftLogId, RaftNode, StorageError, TypeConfig},
};

/// The group's log at this node. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct LogStore {
    log: Arc<Mutex<Log>>,
    kept: Option<KeptLog>,
}

#[derive(Debug, Default)]
struct Log {
    entries: BTreeMap<u64, Sized>,
    purged: Option<RaftLogId>,
    vote: Option<Vote<RaftId>>,
}

#[derive(Debug)]
struct Sized {
    entry: Entry<TypeConfig>,
    bytes: usize,
}

impl Sized {
    fn new(entry: Entry<TypeConfig>) -> Self {
        let mut encoded = Vec::new();
        // An entry that can't be encoded is sent alone, and its encoding then fails there.
        let bytes = codec::encode(&entry, &mut encoded).map_or(MAX_MESSAGE, |()| encoded.len());
        Self { entry, bytes }
    }
}

pub(super) fn first_entry(voters: impl IntoIterator<Item = (RaftId, RaftNode)>) -> Entry<TypeConfig> {
    let nodes: BTreeMap<_, _> = voters.into_iter().collect();
    let membership = openraft::Membership::new(vec![nodes.keys().copied().collect()], nodes);
    Entry { log_id: RaftLogId::default(), payload: EntryPayload::Membership(membership) }
}

impl LogStore {
    /// A log whose first entry names the voters. It is the same at each of them. openraft's `initialize` writes the
    /// same entry, but also calls an election at once, so that every voter would vote for itself.
    pub(super) fn kept_by(voters: impl IntoIterator<Item = (RaftId, RaftNode)>) -> Self {
        let store = Self::default();
        store.lock().entries.insert(0, Sized::new(first_entry(voters)));
        store
    }

    /// The log on a disk, for the incarnation of `me` that starts now.
    pub(super) fn of_disk(kept: KeptLog, me: RaftId, guards: Guards) -> Self {
        let record = kept.record();
        let again = allows!(guards, LeadAgain);
        let vote = if again { record.vote } else { record.vote_of_another_life(me) };
        let entries = record.entries.into_iter().map(|entry| (entry.log_id.index, Sized::new(entry))).collect();
        let log = Log { entries, purged: record.purged, vote };
        Self { log: Arc::new(Mutex::new(log)), kept: Some(kept) }
    }

    pub(super) const fn kept(&self) -> Option<&KeptLog> {
        self.kept.as_ref()
    }

    async fn keep(&self, change: impl FnOnce(&mut LogRecord) + Send + 'static) -> Result<(), StorageError> {
        match &self.kept {
            Some(kept) => kept.change(change, |_| {}).await,
            None => Ok(()),
        }
    }

    /// An empty log after `last`, for a node that continues from a snapshot up to `last`. The vote is for `me`, in the
    /// term of `last`, without the leadership.
    pub(super) fn behind(last: RaftLogId, me: RaftId) -> Self {
        let store = Self::default();
        {
            let mut log = store.lock();
            (log.purged, log.vote) = (Some(last), Some(Vote::new(last.leader_id.term, me)));
        }
        store
    }

    pub(super) fn last(&self) -> Option<RaftLogId> {
        let log = self.lock();
        log.entries.last_key_value().map(|(_, sized)| sized.entry.log_id).or(log.purged)
    }

    fn lock(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RaftLogReader<TypeConfig> for LogStore {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + Send>(
        &mut self,
        range: R,
    ) -> Result<Vec<Entry<TypeConfig>>, StorageError> {
        Ok(self.lock().entries.range(range).map(|(_, sized)| sized.entry.clone()).collect())
    }

    /// As many entries as fit into a message, but at least one.
    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> Result<Vec<Entry<TypeConfig>>, StorageError> {
        let log = self.lock();
        let mut bytes = 0;
        let entries = log.entries.range(start..end).take_while(|(_, sized)| {
            let first = bytes == 0;
            bytes += sized.bytes;
            first || bytes <= MAX_ENTRIES_BYTES
        });
        Ok(entries.map(|(_, sized)| sized.entry.clone()).collect())
    }
}

impl RaftLogStorage<TypeConfig> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<TypeConfig>, StorageError> {
        let last_log_id = self.last();
        Ok(LogState { last_purged_log_id: self.lock().purged, last_log_id })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote<RaftId>) -> Result<(), StorageError> {
        let vote = *vote;
        self.keep(move |record| record.vote = Some(vote)).await?;
        self.lock().vote = Some(vote);
        Ok(())
    }

    async fn read_vote(&mut self) -> Result<Option<Vote<RaftId>>, StorageError> {
        Ok(self.lock().vote)
    }

    async fn append<I>(&mut self, entries: I, callback: LogFlushed<TypeConfig>) -> Result<(), StorageError>
    where
        I: IntoIterator<Item = Entry<TypeConfig>> + Send,
        I::IntoIter: Send,
    {
        let entries: Vec<_> = entries.into_iter().collect();
        if self.kept.is_some() {
            let more = entries.clone();
            self.keep(move |record| record.entries.extend(more)).await?;
        }
        let entries = entries.into_iter().map(|entry| (entry.log_id.index, Sized::new(entry)));
        self.lock().entries.extend(entries);
        callback.log_io_completed(Ok(()));
        Ok(())
    }

    async fn truncate(&mut self, since: RaftLogId) -> Result<(), StorageError> {
        self.keep(move |record| record.entries.retain(|entry| entry.log_id.index < since.index)).await?;
        self.lock().entries.split_off(&since.index);
        Ok(())
    }

    async fn purge(&mut self, upto: RaftLogId) -> Result<(), StorageError> {
        self.keep(move |record| {
            record.purged = record.purged.max(Some(upto));
            record.entries.retain(|entry| entry.log_id.index > upto.index);
        })
        .await?;
        let mut log = self.lock();
        log.purged = log.purged.max(Some(upto));
        log.entries = log.entries.split_off(&(upto.index + 1));
        Ok(())
    }
}
