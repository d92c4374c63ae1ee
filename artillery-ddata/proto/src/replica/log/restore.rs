//! Restores the state of a durable member from its journal at a restart (docs/adr/0042).
//!
//! The journal is read twice. [`RestoreSurvey`] finds the beginning of the last complete checkpoint of each chain.
//! [`ChainRestore`] applies the entries from there on. Updates wait in a queue until the checkpoint is complete and the
//! watermark covers them. A cut removes the newest ones from the queue. Those left after the last entry are applied as
//! uncommitted.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use bytes::Bytes;
use smallvec::SmallVec;

use super::{
    Sessions, UpdateHistory, chain_time::ChainTime, checkpoint::Checkpoint, expiring::held_after,
    unreplicated::UnreplicatedRecords,
};
use crate::{
    ChainId, Sequence, Version,
    journal::{EntryPlace, GroupNumber, JournalEntry},
    message::{ChainMessage, SessionEntry, SnapshotContent, SnapshotCursor, SnapshotHeader, SnapshotPart},
    replica::ends::Ends as _,
    store::{Held, ScanRecord, Store, StoreBatch, StoreError, StoreOp},
    types::update::Update,
};

/// A journal that can't be loaded, although each of its entries can be decoded.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    #[error("the journal has no complete checkpoint of chain {0:?}")]
    NoBeginning(ChainId),
    #[error("update {found} does not follow {after}")]
    Gap {
        /// The newest update before it.
        after: Version,
        /// The update that doesn't follow, or the last version that a cut keeps; [`Version::NONE`]: the next update is
        /// missing.
        found: Version,
    },
    /// The update's kind is unknown to this release.
    #[error("an update of the unknown kind {0}")]
    UnknownKind(u8),
    #[error("an unexpected entry")]
    Misplaced,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The chains in a journal, as found in the first pass.
#[derive(Debug, Clone, Default)]
pub struct RestoreSurvey {
    chains: BTreeMap<ChainId, ChainSurvey>,
}

#[derive(Debug, Clone, Default)]
struct ChainSurvey {
    /// The newest checkpoint, if it has no end.
    begun: Option<BegunCheckpoint>,
    /// The beginning of the last complete checkpoint.
    whole: Option<EntryPlace>,
    /// A resync has begun, and no checkpoint has been completed since.
    lacks: bool,
    updates: u64,
}

/// A checkpoint without an end. A later start may continue it: the parts of a checkpoint are from different times
/// anyway, and the journal has the updates after its beginning.
#[derive(Debug, Clone)]
struct BegunCheckpoint {
    begin: EntryPlace,
    /// The position after its last part.
    at: SnapshotCursor,
    /// The key and the version of a large record, if the last part is one of its pieces.
    piece: Option<(Bytes, Version)>,
    /// The number of entries in its table of sessions.
    sessions: u64,
}

impl BegunCheckpoint {
    fn new(begin: EntryPlace, header: &SnapshotHeader) -> Self {
        Self { begin, at: SnapshotCursor::default(), piece: None, sessions: header.sessions }
    }

    fn note(&mut self, part: &SnapshotPart) {
        // Copy the keys: the originals are slices that keep the whole read buffer alive.
        let copy = |key: &Bytes| Bytes::copy_from_slice(key);
        self.at = part.at.clone();
        self.at.advance(&part.content);
        self.at.behind = self.at.behind.as_ref().map(copy);
        self.piece = match &part.content {
            SnapshotContent::Piece(piece) if self.at.bytes > 0 => Some((copy(&piece.key), piece.version)),
            _ => None,
        };
    }
}

impl ChainSurvey {
    /// The first group that the chain needs. A checkpoint in progress is used if none is complete.
    fn first(&self) -> Option<GroupNumber> {
        self.whole.or(self.begun.as_ref().map(|begun| begun.begin)).map(|place| place.group)
    }
}

impl RestoreSurvey {
    /// Notes an entry. Call it with every entry, in order.
    pub fn note(&mut self, place: EntryPlace, entry: &JournalEntry) {
        let chain = self.chains.entry(entry.chain()).or_default();
        match entry {
            JournalEntry::NotWhole { .. } => {
                *chain = ChainSurvey { lacks: true, updates: chain.updates, ..ChainSurvey::default() };
            }
            JournalEntry::Sent(frame) => match &frame.message {
                ChainMessage::Snapshot(SnapshotPart { content: SnapshotContent::Begin(header), .. }) => {
                    chain.begun = Some(BegunCheckpoint::new(place, header));
                }
                ChainMessage::Snapshot(SnapshotPart { content: SnapshotContent::End, .. }) => {
                    let begun = chain.begun.take().map(|begun| begun.begin);
                    (chain.whole, chain.lacks) = (begun.or(chain.whole), chain.lacks && begun.is_none());
                }
                ChainMessage::Snapshot(part) => {
                    if let Some(begun) = &mut chain.begun {
                        begun.note(part);
                    }
                }
                ChainMessage::Updates(updates) => chain.updates += updates.updates.len() as u64,
                _ => {}
            },
            _ => {}
        }
    }

    pub fn chains(&self) -> impl Iterator<Item = ChainId> + '_ {
        self.chains.keys().copied()
    }

    /// The first group that any chain needs; `None`: no chain needs one.
    pub fn floor(&self) -> Option<GroupNumber> {
        self.chains.values().filter_map(ChainSurvey::first).min()
    }

    /// All chains, in the order of the first group that they need. Chains that need none are last.
    pub fn by_age(&self) -> Vec<ChainId> {
        let mut chains: Vec<_> = self.chains.iter().map(|(&chain, survey)| (survey.first(), chain)).collect();
        chains.sort_unstable_by_key(|&(first, chain)| (first.is_none(), first, chain));
        chains.into_iter().map(|(_, chain)| chain).collect()
    }

    /// Whether the journal doesn't hold the chain's whole store, because a resync has begun.
    pub fn lacks(&self, chain: ChainId) -> bool {
        self.chains.get(&chain).is_some_and(|chain| chain.lacks)
    }

    /// The number of updates of this chain in the journal. An update that was written again for a checkpoint is counted
    /// each time.
    pub fn updates(&self, chain: ChainId) -> u64 {
        self.chains.get(&chain).map_or(0, |chain| chain.updates)
    }

    /// Begins to restore a chain into an empty part of `store`. `None`: the journal has no complete checkpoint of the
    /// chain, because it has no entry of it, a resync has begun, or its first checkpoint has no end. Then the chain
    /// starts empty.
    ///
    /// # Errors
    /// [`RestoreError::NoBeginning`]: the journal has entries of the chain, but neither the beginning of a checkpoint
    /// nor that of a resync.
    pub fn restore(
        &self,
        chain: ChainId,
        store: Arc<dyn Store>,
        backlog: usize,
    ) -> Result<Option<ChainRestore>, RestoreError> {
        match self.chains.get(&chain) {
            Some(ChainSurvey { whole: Some(begin), begun, .. }) => {
                Ok(Some(ChainRestore::new(chain, store, (*begin, begun.clone()), backlog)))
            }
            Some(ChainSurvey { lacks: false, begun: None, .. }) => Err(RestoreError::NoBeginning(chain)),
            _ => Ok(None),
        }
    }
}

#[derive(Debug)]
pub struct ChainRestore {
    chain: ChainId,
    store: Arc<dyn Store>,
    begin: EntryPlace,
    /// Bytes of committed updates that are kept for resends.
    backlog: usize,
    sessions: Sessions,
    history: UpdateHistory,
    /// The updates that aren't known to be committed, with the values that they deleted.
    queue: VecDeque<(Update, Option<Bytes>)>,
    /// The newest update in the queue or, if the queue is empty, in the history.
    newest: Version,
    taken: Option<(Version, Bytes)>,
    /// The received bytes of a value in pieces.
    value: Vec<u8>,
    /// The stamp of the newest update in the history.
    stamp: u64,
    /// The highest watermark read from the journal.
    watermark: Sequence,
    /// The highest watermark at which a part of the checkpoint was made.
    shown: Sequence,
    ended: bool,
    /// A later checkpoint without an end.
    begun: Option<BegunCheckpoint>,
    /// The table of sessions at the beginning of that checkpoint; `None`: its beginning hasn't been read.
    table: Option<Vec<SessionEntry>>,
}

impl ChainRestore {
    fn new(
        chain: ChainId,
        store: Arc<dyn Store>,
        (begin, begun): (EntryPlace, Option<BegunCheckpoint>),
        backlog: usize,
    ) -> Self {
        Self {
            chain,
            store,
            begin,
            backlog,
            sessions: Sessions::default(),
            history: UpdateHistory::default(),
            queue: VecDeque::new(),
            newest: Version::NONE,
            taken: None,
            value: Vec::new(),
            stamp: 0,
            watermark: Sequence::ZERO,
            shown: Sequence::ZERO,
            ended: false,
            begun,
            table: None,
        }
    }

    /// Restores a chain from entries that begin with its checkpoint, into an empty part of `store`.
    pub fn from_beginning(chain: ChainId, store: Arc<dyn Store>) -> Self {
        Self::new(chain, store, (EntryPlace::default(), None), 0)
    }

    /// Applies an entry. Entries of other chains, and those before the checkpoint, are skipped.
    ///
    /// # Errors
    /// [`RestoreError`].
    pub fn take(&mut self, place: EntryPlace, entry: JournalEntry) -> Result<(), RestoreError> {
        if entry.chain() != self.chain || place < self.begin {
            return Ok(());
        }
        match entry {
            JournalEntry::Sent(frame) => match frame.message {
                ChainMessage::Snapshot(part) => self.part(place, part),
                ChainMessage::Updates(updates) => {
                    updates.updates.into_iter().try_for_each(|update| self.update(update))?;
                    self.commit(updates.watermark)
                }
                _ => Err(RestoreError::Misplaced),
            },
            JournalEntry::Cut { keep, .. } => self.cut(keep),
            JournalEntry::Watermark { watermark, .. } => self.commit(watermark),
            JournalEntry::Taken { version, value, .. } => {
                self.taken = Some((version, value));
                Ok(())
            }
            JournalEntry::NotWhole { .. } => Err(RestoreError::Misplaced),
        }
    }

    fn part(&mut self, place: EntryPlace, part: SnapshotPart) -> Result<(), RestoreError> {
        if self.ended {
            return self.later_part(place, part);
        }
        self.shown = self.shown.max(part.watermark);
        match part.content {
            SnapshotContent::Begin(header) if place == self.begin => {
                self.begun(header);
                Ok(())
            }
            SnapshotContent::Begin(_) => Err(RestoreError::Misplaced),
            SnapshotContent::Sessions(entries) => {
                entries.into_iter().for_each(|entry| self.sessions.add(entry));
                Ok(())
            }
            SnapshotContent::Records(records) => self.put(records),
            SnapshotContent::Piece(piece) => {
                if part.at.bytes == 0 {
                    self.value.clear();
                }
                self.value.extend_from_slice(&piece.bytes);
                if self.value.len() < piece.len as usize {
                    return Ok(());
                }
                let value = Some(std::mem::take(&mut self.value).into());
                let held = Held { version: piece.version, value, expires: piece.expires };
                self.put(vec![ScanRecord { key: piece.key, held }])
            }
            SnapshotContent::End => self.end(),
        }
    }

    /// Handles a part of a later checkpoint without an end: commits the updates up to the part's watermark, so that the
    /// checkpoint can be continued.
    fn later_part(&mut self, place: EntryPlace, part: SnapshotPart) -> Result<(), RestoreError> {
        self.commit(part.watermark)?;
        if self.begun.as_ref().is_some_and(|begun| begun.begin == place) {
            self.table = Some(self.sessions.copy());
        }
        Ok(())
    }

    /// The later checkpoint, if it can be continued after its last part.
    fn continued(&mut self) -> Result<Option<Checkpoint>, StoreError> {
        // Don't continue a checkpoint without parts: the updates that were pending at its beginning may not have been
        // written again yet.
        let begun = self.begun.take().filter(|begun| begun.at != SnapshotCursor::default());
        let Some(BegunCheckpoint { mut at, piece, sessions, .. }) = begun else { return Ok(None) };
        let Some(table) = self.table.take().filter(|table| table.len() as u64 == sessions) else { return Ok(None) };
        let large = match piece {
            Some((key, version)) => self.store.read(self.chain, &key, self.watermark)?.and_then(|held| {
                let is_same = held.version == version && held.value.is_some();
                is_same.then_some(ScanRecord { key, held })
            }),
            None => None,
        };
        if large.is_none() {
            // The value has changed since. Restart with its first piece, or with the record after it.
            at.bytes = 0;
        }
        Ok(Some(Checkpoint::begun(table, at, large)))
    }

    fn begun(&mut self, header: SnapshotHeader) {
        self.newest = header.version;
        self.watermark = header.version.sequence;
        self.stamp = header.chain_time;
        self.history = UpdateHistory::behind(header.version, header.epochs);
    }

    fn put(&mut self, records: Vec<ScanRecord>) -> Result<(), RestoreError> {
        let ops = records.into_iter().map(|ScanRecord { key, held }| StoreOp::Put { key, held }).collect();
        self.apply(ops, Sequence::ZERO)
    }

    fn apply(&self, ops: SmallVec<[StoreOp; 2]>, keep_from: Sequence) -> Result<(), RestoreError> {
        if !ops.is_empty() {
            self.store.apply(&StoreBatch { chain: self.chain, keep_from, ops })?;
        }
        Ok(())
    }

    /// Completes the checkpoint. Its records are from different times. Applying every update up to the highest
    /// watermark of its parts makes them the state at that watermark.
    fn end(&mut self) -> Result<(), RestoreError> {
        while self.history.last().sequence < self.shown {
            let Some((update, taken)) = self.queue.pop_front() else {
                return Err(RestoreError::Gap { after: self.history.last(), found: Version::NONE });
            };
            self.committed(update, taken)?;
        }
        self.ended = true;
        self.commit(self.watermark)
    }

    fn update(&mut self, update: Update) -> Result<(), RestoreError> {
        let taken = self.taken.take().filter(|(version, _)| *version == update.version).map(|(_, value)| value);
        let (after, found) = (self.newest, update.version);
        if found.sequence <= after.sequence {
            // The update was written again, after the beginning of a later checkpoint.
            return Ok(());
        }
        if found.sequence != after.sequence.next() || found.epoch < after.epoch {
            return Err(RestoreError::Gap { after, found });
        }
        if !update.kind.is_known() {
            return Err(RestoreError::UnknownKind(update.kind.0));
        }
        self.newest = found;
        self.queue.push_back((update, taken));
        Ok(())
    }

    fn cut(&mut self, keep: Version) -> Result<(), RestoreError> {
        while self.queue.take_back_if(|(update, _)| update.version.sequence > keep.sequence).is_some() {}
        self.newest = self.queue.back().map_or(self.history.last(), |(update, _)| update.version);
        if self.newest == keep { Ok(()) } else { Err(RestoreError::Gap { after: self.newest, found: keep }) }
    }

    /// Commits all updates up to `watermark`.
    fn commit(&mut self, watermark: Sequence) -> Result<(), RestoreError> {
        self.watermark = self.watermark.max(watermark);
        let upto = self.watermark;
        while self.ended
            && let Some((update, taken)) = self.queue.take_front_if(|(update, _)| update.version.sequence <= upto)
        {
            self.committed(update, taken)?;
        }
        Ok(())
    }

    /// Applies a committed update. Until the checkpoint is complete, records that are newer than the update are kept.
    fn committed(&mut self, update: Update, taken: Option<Bytes>) -> Result<(), RestoreError> {
        let sequence = update.version.sequence;
        let mut ops = SmallVec::new();
        for change in &update.changes {
            if !self.ended && self.has_newer(&change.key, sequence)? {
                continue;
            }
            let key = &change.key;
            let Some(held) = held_after(change, update.version, |key| self.newest(key))? else { continue };
            // Putting a value drops the superseded versions at once. A tombstone needs a prune.
            let is_deleted = held.value.is_none();
            ops.push(StoreOp::Put { key: key.clone(), held });
            if is_deleted {
                ops.push(StoreOp::Prune { key: key.clone() });
            }
        }
        self.apply(ops, sequence)?;
        self.stamp = update.chain_time;
        self.sessions.note(&update, taken);
        self.sessions.commit(&update);
        self.history.push(update);
        self.history.commit(sequence, self.backlog);
        Ok(())
    }

    fn has_newer(&self, key: &Bytes, sequence: Sequence) -> Result<bool, StoreError> {
        Ok(self.newest(key)?.is_some_and(|held| held.version.sequence >= sequence))
    }

    fn newest(&self, key: &[u8]) -> Result<Option<Held>, StoreError> {
        self.store.read(self.chain, key, Sequence::MAX)
    }

    /// Ends the restore after the last entry.
    ///
    /// # Errors
    /// [`RestoreError`].
    pub fn finish(mut self) -> Result<RestoredChain, RestoreError> {
        if !self.ended {
            return Err(RestoreError::NoBeginning(self.chain));
        }
        let (watermark, committed) = (self.history.last().sequence, self.stamp);
        let unreplicated = UnreplicatedRecords::of(self.queue.iter().map(|(update, _)| update));
        for (update, taken) in std::mem::take(&mut self.queue) {
            let mut ops = SmallVec::new();
            for change in &update.changes {
                let (key, held) = (&change.key, held_after(change, update.version, |key| self.newest(key))?);
                ops.extend(held.map(|held| StoreOp::Put { key: key.clone(), held }));
            }
            self.apply(ops, watermark)?;
            self.stamp = update.chain_time;
            self.sessions.note(&update, taken);
            self.history.push(update);
        }
        let checkpoint = self.continued()?;
        let chain_time = ChainTime::of(self.stamp, committed);
        let Self { sessions, history, .. } = self;
        Ok(RestoredChain { sessions, history, chain_time, watermark, unreplicated, checkpoint })
    }
}

/// The state of a chain, except for its records, which are in the store.
#[derive(Debug)]
pub struct RestoredChain {
    pub(super) sessions: Sessions,
    pub(super) history: UpdateHistory,
    pub(super) chain_time: ChainTime,
    pub(super) watermark: Sequence,
    pub(super) unreplicated: UnreplicatedRecords,
    /// A checkpoint of an earlier start, which this start continues.
    pub(super) checkpoint: Option<Checkpoint>,
}

impl RestoredChain {
    pub(crate) fn session_bytes(&self) -> usize {
        self.sessions.bytes()
    }

    pub(crate) const fn continues(&self) -> bool {
        self.checkpoint.is_some()
    }

    /// The chain time of the newest committed update, in milliseconds.
    pub(crate) const fn chain_time(&self) -> u64 {
        self.chain_time.committed()
    }

    pub fn last(&self) -> Version {
        self.history.last()
    }

    /// The watermark in the journal. The chain may have committed more.
    pub const fn watermark(&self) -> Sequence {
        self.watermark
    }

    /// Records whose last update is above the watermark.
    pub const fn unreplicated(&self) -> u64 {
        self.unreplicated.so_far().left
    }
}
