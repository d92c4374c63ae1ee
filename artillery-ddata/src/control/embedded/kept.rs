//! What a durable node keeps of the group's log, in its control file: its vote, the entries, and the snapshot before them.
//!
//! Each change is on the disk before openraft, and so any other node, hears of it. A life never leads in a term that an
//! earlier one of its store was elected in (docs/adr/0030): it restores the vote without the leadership.

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
};

/// A life of a store on a disk, and how far that store has come. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct StorePlace {
    me: MemberId,
    pub(crate) control: ControlFile,
    /// The number of groups of its journal that are synced.
    groups: Arc<AtomicU64>,
    /// How far other stores have come. The disk learns of it later.
    heard: Arc<Mutex<HeardStores>>,
}

impl StorePlace {
    pub(crate) fn new(me: MemberId, control: ControlFile, groups: Arc<AtomicU64>) -> Self {
        let heard = Arc::new(Mutex::new(control.look(|record| record.heard.clone())));
        Self { me, control, groups, heard }
    }

    /// How far the store has come.
    pub(crate) fn position(&self) -> StorePosition {
        self.control.position(self.groups.load(Ordering::Acquire))
    }

    /// What this node says of its store with each message of the group.
    pub(super) fn speaker(&self) -> Speaker {
        Speaker { id: self.me, position: self.position() }
    }

    fn heard(&self) -> MutexGuard<'_, HeardStores> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks what another node says of its store, and takes note of it in the same step.
    pub(crate) fn hear(&self, id: MemberId, position: StorePosition) -> Result<(), StoreRolledBack> {
        self.heard().hear(id, position).map(drop)
    }

    /// All that was heard of other stores.
    pub(crate) fn all_heard(&self) -> HeardStores {
        self.heard().clone()
    }

    /// The same as [`hear`](Self::hear), and on the disk before this returns: the other node's answer may be used then.
    pub(super) async fn keep_heard(&self, speaker: Speaker) -> Result<(), CallError> {
        let Speaker { id, position } = speaker;
        self.hear(id, position)?;
        if self.control.look(|record| record.heard.covers(id, position)) {
            return Ok(());
        }
        // Without the note, this node could not tell an older copy of the other store.
        self.change(move |record| record.heard.hear(id, position)).await??;
        Ok(())
    }

    /// A node that came after the founding belongs to this history: it is on the disk before anything of that history is.
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
        let ended = tokio::task::spawn_blocking(write).await.map_err(|error| error.to_string());
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

/// What the disk holds of the log.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct LogRecord {
    pub(super) vote: Option<Vote<RaftId>>,
    pub(super) purged: Option<RaftLogId>,
    pub(super) entries: Vec<Entry<TypeConfig>>,
    pub(super) snapshot: Option<KeptSnapshot>,
}

/// The state after all entries up to some place.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct KeptSnapshot {
    pub(super) meta: SnapshotMeta<RaftId, RaftNode>,
    pub(super) bytes: Vec<u8>,
}

impl KeptLog {
    /// The log that the control file holds; an empty one, if it holds none.
    pub(super) fn open(control: ControlFile) -> Result<Self, ConfigLogError> {
        let bytes = control.look(|record| record.log.clone());
        let record = match bytes.is_empty() {
            true => LogRecord::default(),
            false => codec::decode_value(&bytes).map_err(super::failed)?,
        };
        Ok(Self(Arc::new(KeptInner { control, record: Mutex::new(record) })))
    }

    /// What is kept.
    pub(super) fn record(&self) -> LogRecord {
        self.lock().clone()
    }

    /// Whether the store has never had a part in the log.
    pub(super) fn is_new(&self) -> bool {
        let record = self.lock();
        record.vote.is_none() && record.purged.is_none() && record.entries.is_empty() && record.snapshot.is_none()
    }

    /// Changes the record, and more of the control file in the same step. Both are durable when this returns.
    pub(super) async fn change(
        &self,
        change: impl FnOnce(&mut LogRecord) + Send + 'static,
        more: impl FnOnce(&mut ControlRecord) + Send + 'static,
    ) -> Result<(), StorageError> {
        let kept = self.clone();
        let done = tokio::task::spawn_blocking(move || kept.put(change, more)).await;
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
    /// The vote, without a leadership of its own: the promise stays, and a life leads only in terms that it was elected in.
    pub(super) fn vote_of_another_life(&self, me: RaftId) -> Option<Vote<RaftId>> {
        let vote = self.vote?;
        let is_mine = vote.leader_id().voted_for() == Some(me);
        Some(if is_mine { Vote::new(vote.leader_id().term, me) } else { vote })
    }
}

fn failed(error: &(impl std::error::Error + 'static)) -> StorageError {
    StorageIOError::new(ErrorSubject::Store, ErrorVerb::Write, AnyError::new(error)).into()
}
