//! The state that results from the entries of the group's log, and the window of entries that stay readable.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    io::Cursor,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use artillery_core::internal::{
    codec::{self, CodecError},
    watch,
};
use openraft::{
    AnyError, Entry, EntryPayload, RaftSnapshotBuilder, Snapshot, SnapshotMeta, StorageIOError,
    storage::RaftStateMachine,
};
use serde::{Deserialize, Serialize};

use super::kept::{KeptLog, KeptSnapshot, LogRecord};
use super::types::{EntryOutcome, LogProposal, Membership, RaftId, RaftLogId, RaftNode, StorageError, TypeConfig};
use crate::{
    Epoch,
    control::{
        Bootstrap,
        log::{ChainChange, ConfigChange, ConfigLogError, Configs, LogEntry, LogIndex, Term},
    },
};

/// The state applied on this node, for all readers.
#[derive(Debug)]
pub(super) struct AppliedConfigs {
    state: Mutex<MachineState>,
    /// Where the snapshot is stored; `None`: in memory only.
    kept: Option<KeptLog>,
    progress: watch::Sender<ApplyProgress>,
    window: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct ApplyProgress {
    pub(super) changes: u64,
    /// The last entry that took a place.
    pub(super) last: LogIndex,
    /// The last applied entry of the group's log.
    pub(super) raft: Option<RaftLogId>,
    /// Whether the log has ended: nothing further is applied.
    pub(super) ended: bool,
    /// Whether the log ended without being stopped.
    pub(super) failed: bool,
}

#[derive(Debug)]
struct MachineState {
    raft: Option<RaftLogId>,
    membership: Membership,
    configs: Arc<Configs>,
    /// The last entries that took a place, without gaps; they end at the last one applied.
    entries: VecDeque<LogEntry>,
    snapshot: Option<Built>,
    snapshots: u64,
}

#[derive(Clone, Debug)]
struct Built {
    meta: SnapshotMeta<RaftId, RaftNode>,
    bytes: Arc<Vec<u8>>,
}

#[derive(Serialize)]
struct SnapshotData<'a> {
    configs: &'a Configs,
    entries: &'a VecDeque<LogEntry>,
}

#[derive(Deserialize)]
struct Installed {
    configs: Configs,
    entries: VecDeque<LogEntry>,
}

impl Installed {
    fn is_whole(&self) -> bool {
        let from = self.entries.len() as u64;
        let indices = (0..from).rev().map(|back| self.configs.applied().0.checked_sub(back));
        self.entries.iter().zip(indices).all(|(entry, index)| Some(entry.index.0) == index)
    }
}

impl AppliedConfigs {
    pub(super) fn new(founding: &Bootstrap, window: usize) -> Self {
        let configs = Configs::of(founding);
        let changes = configs.iter().map(|config| ChainChange { replaces: Epoch(0), config: config.clone() });
        let first = LogEntry { index: LogIndex(1), term: Term(0), change: ConfigChange::Chains(changes.collect()) };
        let state = MachineState {
            raft: None,
            membership: Membership::default(),
            configs: Arc::new(configs),
            entries: VecDeque::from([first]),
            snapshot: None,
            snapshots: 0,
        };
        let progress = ApplyProgress { last: LogIndex(1), ..ApplyProgress::default() };
        Self { state: Mutex::new(state), kept: None, progress: watch::Sender::new(progress), window: window.max(1) }
    }

    /// The state stored on a disk: that of its snapshot or, without a snapshot, that of the founding.
    pub(super) fn of_disk(founding: &Bootstrap, window: usize, kept: KeptLog) -> Result<Self, ConfigLogError> {
        let mut applied = Self { kept: Some(kept.clone()), ..Self::new(founding, window) };
        if let Some(KeptSnapshot { meta, bytes }) = kept.record().snapshot {
            let installed: Installed = codec::decode_value(&bytes).map_err(super::failed)?;
            let state = applied.state.get_mut().unwrap_or_else(PoisonError::into_inner);
            let progress =
                ApplyProgress { last: installed.configs.applied(), raft: meta.last_log_id, ..ApplyProgress::default() };
            state.install(meta, installed, bytes);
            applied.progress.send_replace(progress);
        }
        Ok(applied)
    }

    /// The state of a recovered log, kept by `by` alone, at `raft` of the group's log. The count of changes continues
    /// from `changes`, so its waiters wake.
    pub(super) fn recovered(
        configs: Configs,
        raft: RaftLogId,
        by: (RaftId, RaftNode),
        window: usize,
        changes: u64,
    ) -> Self {
        let voters = vec![BTreeSet::from([by.0])];
        let membership = openraft::Membership::new(voters, BTreeMap::from([by]));
        let progress = ApplyProgress {
            changes: changes + 1,
            last: configs.applied(),
            raft: Some(raft),
            ended: false,
            failed: false,
        };
        let state = MachineState {
            raft: Some(raft),
            membership: Membership::new(Some(raft), membership),
            configs: Arc::new(configs),
            entries: VecDeque::new(),
            snapshot: None,
            snapshots: 0,
        };
        Self { state: Mutex::new(state), kept: None, progress: watch::Sender::new(progress), window: window.max(1) }
    }

    pub(super) fn configs(&self) -> Arc<Configs> {
        self.lock().configs.clone()
    }

    pub(super) fn entry(&self, index: LogIndex) -> Result<Option<LogEntry>, ConfigLogError> {
        let state = self.lock();
        let first = state.entries.front().map_or(state.configs.applied().next(), |entry| entry.index);
        match index.0.checked_sub(first.0) {
            Some(place) => Ok(usize::try_from(place).ok().and_then(|place| state.entries.get(place)).cloned()),
            None => Err(ConfigLogError::Compacted { first }),
        }
    }

    pub(super) fn progress(&self) -> ApplyProgress {
        *self.progress.borrow()
    }

    pub(super) fn watch(&self) -> watch::Receiver<ApplyProgress> {
        self.progress.subscribe()
    }

    /// Counts a change that isn't one of the configurations, for example of the leader.
    pub(super) fn touch(&self) {
        self.progress.send_modify(|progress| progress.changes += 1);
    }

    /// Marks the end of openraft's core. It counts as a failure, unless the log was stopped before.
    pub(super) fn end_of_core(&self) {
        self.progress.send_modify(|progress| {
            progress.changes += 1;
            progress.failed |= !progress.ended;
            progress.ended = true;
        });
    }

    pub(super) fn end(&self) {
        self.progress.send_modify(|progress| {
            progress.changes += 1;
            progress.ended = true;
        });
    }

    fn lock(&self) -> MutexGuard<'_, MachineState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores snapshots in `kept` from now on. Returns the current one, to be written with the rest of the log.
    pub(super) fn keep_in(&mut self, kept: KeptLog) -> Result<KeptSnapshot, CodecError> {
        self.kept = Some(kept);
        let mut state = self.lock();
        let built = state.build()?;
        let snapshot = KeptSnapshot { meta: built.meta.clone(), bytes: built.bytes.to_vec() };
        state.snapshot = Some(built);
        Ok(snapshot)
    }

    async fn keep(&self, meta: &SnapshotMeta<RaftId, RaftNode>, bytes: &[u8]) -> Result<(), StorageError> {
        let Some(kept) = &self.kept else { return Ok(()) };
        let snapshot = KeptSnapshot { meta: meta.clone(), bytes: bytes.to_vec() };
        // In the meantime a newer one may have arrived from the leader, or the log may have been recovered.
        let place = meta.last_log_id;
        let is_older = move |record: &LogRecord| {
            record.purged > place || record.snapshot.as_ref().is_some_and(|other| other.meta.last_log_id > place)
        };
        let change = move |record: &mut LogRecord| {
            if !is_older(record) {
                record.snapshot = Some(snapshot);
            }
        };
        kept.change(change, |_| {}).await
    }

    fn tell(&self, state: MutexGuard<'_, MachineState>) {
        let (last, raft) = (state.configs.applied(), state.raft);
        drop(state);
        self.progress.send_modify(|progress| {
            *progress = ApplyProgress { changes: progress.changes + 1, last, raft, ..*progress };
        });
    }
}

impl MachineState {
    fn install(&mut self, meta: SnapshotMeta<RaftId, RaftNode>, installed: Installed, bytes: Vec<u8>) {
        self.raft = meta.last_log_id;
        self.membership = meta.last_membership.clone();
        self.configs = Arc::new(installed.configs);
        self.entries = installed.entries;
        self.snapshot = Some(Built { meta, bytes: Arc::new(bytes) });
    }

    fn build(&mut self) -> Result<Built, CodecError> {
        let mut bytes = Vec::new();
        let content = SnapshotData { configs: &self.configs, entries: &self.entries };
        codec::encode(&content, &mut bytes)?;
        self.snapshots += 1;
        let meta = SnapshotMeta {
            last_log_id: self.raft,
            last_membership: self.membership.clone(),
            snapshot_id: format!("{}-{}", self.raft.map_or(0, |log_id| log_id.index), self.snapshots),
        };
        Ok(Built { meta, bytes: Arc::new(bytes) })
    }

    fn apply(&mut self, log_id: RaftLogId, proposal: LogProposal, window: usize) -> EntryOutcome {
        let last = self.configs.applied();
        if proposal.term != log_id.leader_id.term {
            return EntryOutcome::WrongTerm;
        }
        if proposal.at != last.next() {
            return EntryOutcome::Taken(last);
        }
        let entry = LogEntry { index: proposal.at, term: Term(proposal.term), change: proposal.change };
        if Arc::make_mut(&mut self.configs).apply(&entry).is_err() {
            return EntryOutcome::Taken(last);
        }
        self.entries.push_back(entry);
        while self.entries.len() > window {
            self.entries.pop_front();
        }
        EntryOutcome::Placed
    }
}

#[derive(Clone, Debug)]
pub(super) struct Machine(pub(super) Arc<AppliedConfigs>);

impl RaftStateMachine<TypeConfig> for Machine {
    type SnapshotBuilder = Self;

    async fn applied_state(&mut self) -> Result<(Option<RaftLogId>, Membership), StorageError> {
        let state = self.0.lock();
        Ok((state.raft, state.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<EntryOutcome>, StorageError>
    where
        I: IntoIterator<Item = Entry<TypeConfig>> + Send,
        I::IntoIter: Send,
    {
        let mut state = self.0.lock();
        let mut outcomes = Vec::new();
        for Entry { log_id, payload } in entries {
            state.raft = Some(log_id);
            outcomes.push(match payload {
                EntryPayload::Blank => EntryOutcome::Nothing,
                EntryPayload::Normal(proposal) => state.apply(log_id, proposal, self.0.window),
                EntryPayload::Membership(membership) => {
                    state.membership = Membership::new(Some(log_id), membership);
                    EntryOutcome::Nothing
                }
            });
        }
        self.0.tell(state);
        Ok(outcomes)
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        self.clone()
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<Cursor<Vec<u8>>>, StorageError> {
        Ok(Box::default())
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta<RaftId, RaftNode>,
        snapshot: Box<Cursor<Vec<u8>>>,
    ) -> Result<(), StorageError> {
        let bytes = snapshot.into_inner();
        let failed = |error| StorageIOError::read_snapshot(Some(meta.signature()), error);
        let installed: Installed = codec::decode_value(&bytes).map_err(|error| failed(AnyError::new(&error)))?;
        installed.configs.timing().validate().map_err(|error| failed(AnyError::new(&error)))?;
        if !installed.is_whole() {
            return Err(failed(AnyError::error("entries are missing from the snapshot")).into());
        }
        self.0.keep(meta, &bytes).await?;
        let mut state = self.0.lock();
        state.install(meta.clone(), installed, bytes);
        self.0.tell(state);
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<TypeConfig>>, StorageError> {
        Ok(self.0.lock().snapshot.as_ref().map(Built::open))
    }
}

impl RaftSnapshotBuilder<TypeConfig> for Machine {
    async fn build_snapshot(&mut self) -> Result<Snapshot<TypeConfig>, StorageError> {
        let built = self.0.lock().build();
        let built = built.map_err(|error| StorageIOError::write_snapshot(None, AnyError::new(&error)))?;
        // The entries before the snapshot are dropped only once it is on disk.
        self.0.keep(&built.meta, &built.bytes).await?;
        let mut state = self.0.lock();
        let place = built.meta.last_log_id;
        let newest = match state.snapshot.take() {
            Some(newer) if newer.meta.last_log_id > place => newer,
            _ => built,
        };
        let snapshot = newest.open();
        state.snapshot = Some(newest);
        Ok(snapshot)
    }
}

impl Built {
    fn open(&self) -> Snapshot<TypeConfig> {
        Snapshot { meta: self.meta.clone(), snapshot: Box::new(Cursor::new(Vec::clone(&self.bytes))) }
    }
}
