//! What a durable node keeps of the group's log, in its control file: its vote, the entries, and the snapshot before them.
//!
//! Each change is on the disk before openraft, and so any other node, hears of it. A life never leads in a term that an
//! earlier one of its store was elected in (docs/adr/0030): it restores the vote without the leadership.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use artillery_core::internal::codec;
use artillery_proto::data_dir::{ControlFile, ControlFileError, ControlRecord};
use openraft::{AnyError, Entry, ErrorSubject, ErrorVerb, SnapshotMeta, StorageIOError, Vote};
use serde::{Deserialize, Serialize};

use super::{
    messages::CallError,
    types::{RaftId, RaftLogId, RaftNode, Speaker, StorageError, TypeConfig},
};
use crate::{
    MemberId,
    control::{StorePosition, log::ConfigLogError},
};

/// A life of a store on a disk, and how far that store has come. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct StorePlace {
    me: MemberId,
    /// A random number of this start.
    start: u64,
    pub(crate) control: ControlFile,
    /// The number of groups of its journal that are synced.
    groups: Arc<AtomicU64>,
}

impl StorePlace {
    pub(crate) fn new(me: MemberId, start: u64, control: ControlFile, groups: Arc<AtomicU64>) -> Self {
        Self { me, start, control, groups }
    }

    /// How far the store has come.
    pub(crate) fn position(&self) -> StorePosition {
        let (control, groups) = (self.control.number(), self.groups.load(Ordering::Acquire));
        StorePosition { start: self.start, control, groups }
    }

    /// What this node says of its store with each message of the group.
    pub(super) fn speaker(&self) -> Speaker {
        Speaker { id: self.me, position: self.position() }
    }

    /// Takes note of what another node says of its store: on the disk, before its answer is used.
    pub(super) async fn hears(&self, speaker: Speaker) -> Result<(), CallError> {
        let Speaker { id, position } = speaker;
        let known = self.control.look(|record| record.heard.check(id, position).map(|()| record.heard.position(id)))?;
        if known.is_some_and(|known| known.start == position.start && known.control >= position.control) {
            return Ok(());
        }
        let control = self.control.clone();
        let note = move || {
            control.change(|record| {
                let _ = record.heard.note(id, position);
            })
        };
        let noted = tokio::task::spawn_blocking(note).await;
        noted.map_err(|error| error.to_string()).and_then(|noted| noted.map_err(|error| error.to_string())).map_err(
            // Without the note, this node could not tell an older copy of the other store.
            CallError::Stopped,
        )
    }

    /// Checks what another node says of its store.
    pub(super) fn check(&self, speaker: Speaker) -> Result<(), CallError> {
        Ok(self.control.look(|record| record.heard.check(speaker.id, speaker.position))?)
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
