//! A durable node's copy of the group's log in its control file: its vote, the entries, and the snapshot before them.
//!
//! Each change is on disk before openraft, and so any other node, is notified of it. An incarnation never leads in a
//! term for which an earlier one of its store was elected (docs/adr/0030): it restores the vote without the leadership.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use artillery_core::internal::codec;
use artillery_proto::{
    control::HeardStores,
    data_dir::{ControlFile, ControlFileError, ControlRecord},
};
use openraft::{AnyError, Entry, ErrorSubject, ErrorVerb, SnapshotMeta, StorageIOError, Vote};
use serde::{Deserialize, Serialize};

use super::{
    messages::CallError,
    types::{RaftId, RaftLogId, RaftNode, Speaker, StorageError, TypeConfig},
};
use crate::{
    MemberId,
    control::{History, StorePosition, StoreRolledBack, log::ConfigLogError},
    offload::offload,
};

/// An incarnation of a store on a disk, and that store's position. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct StorePlace {
    me: MemberId,
    pub(crate) control: ControlFile,
    /// The number of synced groups in the store's journal.
    groups: Arc<AtomicU64>,
    /// The last reported positions of other stores. The copy on disk may be older.
    heard: Arc<Mutex<HeardStores>>,
}

impl StorePlace {
    pub(crate) fn new(me: MemberId, control: ControlFile, groups: Arc<AtomicU64>) -> Self {
        let heard = Arc::new(Mutex::new(control.look(|record| record.heard.clone())));
        Self { me, control, groups, heard }
    }

    pub(crate) fn position(&self) -> StorePosition {
        self.control.position(self.groups.load(Ordering::Acquire))
    }

    /// The node's id and its store's position, which this node sends with each message of the group.
    pub(super) fn speaker(&self) -> Speaker {
        Speaker { id: self.me, position: self.position() }
    }

    fn heard(&self) -> MutexGuard<'_, HeardStores> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks another node's reported position, and records it in the same step.
    pub(crate) fn hear(&self, id: MemberId, position: StorePosition) -> Result<(), StoreRolledBack> {
        self.heard().hear(id, position).map(drop)
    }

    pub(crate) fn all_heard(&self) -> HeardStores {
        self.heard().clone()
    }

    /// Like [`hear`](Self::hear), but when this returns, the store's start and the number of writes of its control file
    /// are recorded on disk. Only then may the other node's answer be used.
    pub(super) async fn keep_heard(&self, speaker: Speaker) -> Result<(), CallError> {
        let Speaker { id, position } = speaker;
        self.hear(id, position)?;
        if self.control.look(|record| record.heard.covers(id, position)) {
            return Ok(());
        }
        // After a restart, this node detects an older copy of the other store only by this record.
        self.change(move |record| record.heard.hear(id, position)).await??;
        Ok(())
    }

    /// Records this node's history, if none is recorded yet. A founder needs no such record: its history follows from the
    /// bootstrap record. The history is on disk before anything else that belongs to it.
    pub(super) async fn keep_history(&self, history: History) -> Result<(), CallError> {
        if self.control.look(|record| record.history.is_some()) {
            return Ok(());
        }
        self.change(move |record| *record.history.get_or_insert(history)).await.map(drop)
    }

    async fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut ControlRecord) -> T + Send + 'static,
    ) -> Result<T, CallError> {
        let control = self.control.clone();
        let write = move || {
            let mut result = None;
            let changed = control.change(|record| result = Some(change(record)));
            changed.map_err(|error| error.to_string()).map(|()| result)
        };
        let ended = offload(write).await.map_err(|error| error.to_string());
        ended.and_then(|changed| changed).and_then(|result| result.ok_or_else(String::new)).map_err(CallError::Stopped)
    }
}

/// The group's log on a disk. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct KeptLog(Arc<KeptInner>);

#[derive(Debug)]
struct KeptInner {
    control: ControlFile,
    record: Mutex<LogRecord>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct LogRecord {
    pub(super) vote: Option<Vote<RaftId>>,
    pub(super) purged: Option<RaftLogId>,
    pub(super) entries: Vec<Entry<TypeConfig>>,
    pub(super) snapshot: Option<KeptSnapshot>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct KeptSnapshot {
    pub(super) meta: SnapshotMeta<RaftId, RaftNode>,
    pub(super) bytes: Vec<u8>,
}

impl KeptLog {
    /// The log in the control file; an empty one, if the file has none.
    pub(super) fn open(control: ControlFile) -> Result<Self, ConfigLogError> {
        let bytes = control.look(|record| record.log.clone());
        let record = match bytes.is_empty() {
            true => LogRecord::default(),
            false => codec::decode_value(&bytes).map_err(super::failed)?,
        };
        Ok(Self(Arc::new(KeptInner { control, record: Mutex::new(record) })))
    }

    pub(super) fn record(&self) -> LogRecord {
        self.lock().clone()
    }

    /// Whether the store has never taken part in the log.
    pub(super) fn is_new(&self) -> bool {
        let record = self.lock();
        record.vote.is_none() && record.purged.is_none() && record.entries.is_empty() && record.snapshot.is_none()
    }

    /// Changes the record, and other parts of the control file in the same step. Both are durable when this returns.
    pub(super) async fn change(
        &self,
        change: impl FnOnce(&mut LogRecord) + Send + 'static,
        more: impl FnOnce(&mut ControlRecord) + Send + 'static,
    ) -> Result<(), StorageError> {
        let kept = self.clone();
        let done = offload(move || kept.put(change, more)).await;
        match done {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(failed(&error)),
            Err(error) => Err(failed(&error)),
        }
    }

    fn put(
        &self,
        change: impl FnOnce(&mut LogRecord),
        more: impl FnOnce(&mut ControlRecord),
    ) -> Result<(), ControlFileError> {
        let mut record = self.lock();
        let mut next = record.clone();
        change(&mut next);
        let mut bytes = Vec::new();
        codec::encode(&next, &mut bytes)?;
        self.0.control.change(|control| {
            control.log = bytes;
            more(control);
        })?;
        *record = next;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, LogRecord> {
        self.0.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LogRecord {
    /// The stored vote. If it is for `me`, it is returned without the leadership: the promise is kept, but an
    /// incarnation leads only in terms for which it was elected itself.
    pub(super) fn vote_of_another_life(&self, me: RaftId) -> Option<Vote<RaftId>> {
        let vote = self.vote?;
        let is_mine = vote.leader_id().voted_for() == Some(me);
        Some(if is_mine { Vote::new(vote.leader_id().term, me) } else { vote })
    }
}

fn failed(error: &(impl std::error::Error + 'static)) -> StorageError {
    StorageIOError::new(ErrorSubject::Store, ErrorVerb::Write, AnyError::new(error)).into()
}
