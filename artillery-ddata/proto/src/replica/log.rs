//! This member's copy of the chain: its history over its store, the table of sessions, and the journal.
//!
//! The log decides nothing. It applies, commits and cuts as its callers order, and keeps its parts consistent with each
//! other.

mod chain_time;
mod checkpoint;
mod expiring;
mod history;
mod journal;
mod parts;
mod restore;
mod sessions;
mod store;
mod unreplicated;

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;
use smallvec::SmallVec;

use self::{
    chain_time::ChainTime,
    expiring::{ExpiringKeys, Soonest, held_after},
    journal::Journal,
    unreplicated::UnreplicatedRecords,
};
pub(crate) use self::{
    history::UpdateHistory,
    journal::{RECORD_BYTES, checkpoint_bytes},
    parts::{entries_of, piece_at},
    sessions::{KnownRequest, RequestRecord, Sessions},
    store::{Ops, WriteBehindStore},
};
pub use self::{
    journal::JournalBatch,
    restore::{ChainRestore, RestoreError, RestoreSurvey, RestoredChain},
};
use super::{Context, Gate, Halt, Membership, Outbox, ReplicaEvent, unhashed::Unhashed};
use crate::{
    ChainId, Expiry, Sequence, Timestamp, Version,
    api::Query,
    message::Fullness,
    store::{Held, Store, StoreError, StoreOp},
    types::update::{KeyChange, MAX_TAKEN, RequestOutcome, Update},
};

/// The part of a chain's history that this member has, and all state derived from it.
#[derive(Hash)]
#[cfg_attr(feature = "mutants", derive(Clone))]
pub(super) struct Log {
    store: WriteBehindStore,
    history: UpdateHistory,
    watermark: Sequence,
    sessions: Sessions,
    chain_time: Unhashed<ChainTime>,
    soonest: Unhashed<Soonest>,
    /// The cost of every update that was applied, in bytes.
    applied_bytes: u64,
    /// `None`: the member keeps no journal.
    journal: Option<Box<Journal>>,
    unreplicated: Unhashed<UnreplicatedRecords>,
}

pub(super) struct Committed {
    /// The watermark before.
    pub(super) before: Sequence,
    pub(super) updates: u64,
    pub(super) bytes: u64,
}

impl Log {
    pub(super) fn new(chain: ChainId, store: Arc<dyn Store>, gate: Arc<Gate>, is_durable: bool) -> Self {
        Self {
            store: WriteBehindStore::new(chain, store, gate),
            history: UpdateHistory::default(),
            watermark: Sequence::ZERO,
            sessions: Sessions::default(),
            chain_time: Unhashed::default(),
            soonest: Unhashed::default(),
            applied_bytes: 0,
            journal: is_durable.then(Box::default),
            unreplicated: Unhashed::default(),
        }
    }

    /// Test-only: attaches the copy of a member to its own store and gate.
    #[cfg(feature = "mutants")]
    pub(super) fn attach(&mut self, store: Arc<dyn Store>, gate: Arc<Gate>) {
        self.store.attach(store, gate);
    }

    pub(super) fn restore(&mut self, restored: RestoredChain) {
        let RestoredChain { sessions, history, chain_time, watermark, unreplicated, checkpoint } = restored;
        *self.unreplicated = unreplicated;
        if let Some(journal) = &mut self.journal {
            **journal = Journal::resumed(history.last(), watermark, checkpoint);
        }
        (self.sessions, self.history, self.watermark) = (sessions, history, watermark);
        *self.chain_time = chain_time;
        self.soonest.forget();
        self.store.commit(watermark);
    }

    pub(super) fn store(&self) -> &WriteBehindStore {
        &self.store
    }

    pub(super) fn history(&self) -> &UpdateHistory {
        &self.history
    }

    pub(super) fn last(&self) -> Version {
        self.history.last()
    }

    pub(super) fn watermark(&self) -> Sequence {
        self.watermark
    }

    /// Whether every update here is committed.
    pub(super) fn is_committed(&self) -> bool {
        self.last().sequence == self.watermark
    }

    pub(super) fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// The stamp of an update that this member creates.
    pub(super) fn next_stamp(&mut self, now: Timestamp) -> u64 {
        self.chain_time.next(now)
    }

    /// Begins to count chain time, unless it has begun.
    pub(super) fn start_chain_time(&mut self, now: Timestamp) {
        self.chain_time.start(now);
        self.publish_chain_time();
    }

    pub(super) fn chain_time_at(&self, now: Timestamp) -> u64 {
        self.chain_time.at(now)
    }

    /// The stamp of the newest update.
    pub(super) fn newest_stamp(&self) -> u64 {
        let newest = self.history.updates().back();
        newest.map_or(self.chain_time.committed(), |update| update.chain_time)
    }

    /// When this member's clock reaches this chain time, if it receives nothing before.
    pub(super) fn reaches(&self, chain_time: u64) -> Option<Timestamp> {
        self.chain_time.reaches(chain_time)
    }

    pub(super) fn expiring(&mut self) -> ExpiringKeys<'_> {
        ExpiringKeys { soonest: &mut self.soonest, store: &self.store }
    }

    /// A time at or before the first expiry of any key, if it is known.
    pub(super) fn known_expiry(&self) -> Option<Expiry> {
        self.soonest.known()
    }

    fn publish_chain_time(&self) {
        self.store.set_chain_time(self.chain_time.origin());
    }

    pub(super) fn applied_bytes(&self) -> u64 {
        self.applied_bytes
    }

    /// The sequence of the newest version of a key, committed or not.
    pub(super) fn newest(&self, key: &[u8]) -> Result<Sequence, StoreError> {
        Ok(self.store.read(key, Sequence::MAX)?.map_or(Sequence::ZERO, |held| held.version.sequence))
    }

    /// Whether the store has this version of the key, or a newer one.
    pub(super) fn has_newer(&self, key: &[u8], version: Version) -> Result<bool, StoreError> {
        let newest = self.store.read(key, Sequence::MAX)?;
        Ok(newest.is_some_and(|held| held.version.sequence >= version.sequence))
    }

    /// The record of the update with this sequence, which must not have been trimmed.
    pub(super) fn record_at(&self, sequence: Sequence) -> Option<RequestRecord> {
        let update = self.history.from(sequence).next()?;
        Some(RequestRecord::of(update, self.sessions.taken(update)))
    }

    /// The value that an update deleted, if it is small enough to be kept. Valid only while the store still has the
    /// value.
    pub(super) fn taken_by(&self, update: &Update) -> Result<Option<Bytes>, StoreError> {
        let (RequestOutcome::Took(version), [change]) = (update.outcome, &update.changes[..]) else { return Ok(None) };
        let held = self.store.read(&change.key, version.sequence)?;
        Ok(held.filter(|held| held.version == version).and_then(|held| held.value).filter(|v| v.len() <= MAX_TAKEN))
    }

    /// The version of the key after a change; `None`: the change renews an absent key.
    pub(super) fn held(&self, version: Version, change: &KeyChange) -> Result<Option<Held>, StoreError> {
        held_after(change, version, |key| self.store.read(key, Sequence::MAX))
    }

    /// Appends the next update to the history, which this member made, and puts its changes into the store, now or later.
    pub(super) fn apply(&mut self, cx: Context<'_>, update: Update) -> Result<(), Halt> {
        if !update.kind.is_known() {
            return Err(Halt::UnknownKind(update.kind.0));
        }
        // With the mutant `WholeTooSoon` the store may hold a newer version, and would refuse this update.
        let too_soon = allows!(cx.guards(), WholeTooSoon);
        let known = |key: &[u8]| too_soon && self.has_newer(key, update.version).unwrap_or(false);
        let (mut ops, mut expiries) = (Ops::new(), SmallVec::<[_; 1]>::new());
        for change in update.changes.iter().filter(|change| !known(&change.key)) {
            if let Some(held) = self.held(update.version, change)? {
                expiries.extend(held.expiry());
                ops.push(StoreOp::Put { key: change.key.clone(), held });
            }
        }
        expiries.into_iter().for_each(|expiry| self.soonest.note(expiry));
        let taken = self.taken_by(&update)?;
        if !ops.is_empty() {
            if cx.place().is_alone() {
                self.store.apply(self.watermark, ops)?;
            } else {
                let holds = !allows!(cx.guards(), ReadBehind);
                self.store.put_later(update.version.sequence, self.watermark, ops, holds)?;
            }
        }
        if let Some(journal) = &mut self.journal {
            journal.append(&update, taken.clone(), self.watermark);
        }
        self.sessions.note(&update, taken);
        self.applied_bytes += update.cost() as u64;
        self.history.push(update);
        Ok(())
    }

    /// Like [`apply`](Self::apply), for an update that another member made.
    pub(super) fn follow(&mut self, cx: Context<'_>, update: Update) -> Result<(), Halt> {
        let stamp = update.chain_time;
        self.apply(cx, update)?;
        if !allows!(cx.guards(), KeepOlderBase) || stamp > self.chain_time.newest() {
            self.chain_time.follow(stamp, cx.now);
            self.publish_chain_time();
        }
        Ok(())
    }

    /// Commits every update up to `watermark`: shows them to local readers, and defers the pruning of the versions that
    /// they supersede. Their history is kept until [`trim`](Self::trim).
    pub(super) fn commit(&mut self, cx: Context<'_>, watermark: Sequence) -> Result<Committed, Halt> {
        if cx.place().is_alone() {
            // No other copy exists, so the only member stores before it answers.
            self.store.settle()?;
        }
        self.store.commit(watermark);
        let before = std::mem::replace(&mut self.watermark, watermark);
        self.prune(before)?;
        let mut committed = Committed { before, updates: 0, bytes: 0 };
        for update in self.history.from(before.next()).take_while(|update| update.version.sequence <= watermark) {
            self.sessions.commit(update);
            self.chain_time.commit(update.chain_time);
            committed.updates += 1;
            committed.bytes += update.cost() as u64;
        }
        Ok(committed)
    }

    fn prune(&mut self, before: Sequence) -> Result<(), StoreError> {
        let deferred = self.store.supersede(self.watermark);
        let ops: Ops = self
            .history
            .from(before.next())
            .take_while(|update| update.version.sequence <= self.watermark)
            .flat_map(|update| {
                let is_deferred = update.version.sequence >= deferred;
                update.changes.iter().filter(move |change| !is_deferred || change.is_deletion())
            })
            .map(|change| StoreOp::Prune { key: change.key.clone() })
            .collect();
        if ops.is_empty() { Ok(()) } else { self.store.apply_later(self.watermark, ops) }
    }

    /// Shortens the committed part of the history to the backlog.
    pub(super) fn trim(&mut self, backlog: usize) {
        self.history.commit(self.watermark, backlog);
    }

    /// Drops every update above `keep`, which is at or above the watermark.
    pub(super) fn cut(&mut self, cx: Context<'_>, keep: Version, out: &mut Outbox) -> Result<(), StoreError> {
        let last = keep.sequence;
        // The history has every update above the watermark, so it names all keys that the dropped updates changed.
        let changes = self.history.from(last.next()).flat_map(|update| &update.changes);
        let ops: Ops = changes.map(|change| StoreOp::DropAbove { key: change.key.clone(), last }).collect();
        if !allows!(cx.guards(), KeepDirty) {
            self.store.apply(self.watermark, ops)?;
        }
        self.history.cut(keep);
        if !allows!(cx.guards(), KeepDroppedStamps) {
            let stamp = self.newest_stamp();
            self.chain_time.follow(stamp, cx.now);
            self.publish_chain_time();
        }
        self.soonest.forget();
        if let Some(journal) = &mut self.journal {
            journal.cut(keep, cx.guards());
        }
        self.drop_unreplicated(cx.now, last, out);
        self.sessions.forget_pending();
        Ok(())
    }

    /// After a cut: notes the requests of the updates that are still pending.
    pub(super) fn note_pending(&mut self) -> Result<(), StoreError> {
        for update in self.history.from(self.watermark.next()) {
            let taken = self.taken_by(update)?;
            self.sessions.note(update, taken);
        }
        Ok(())
    }

    /// A resync begins: drops the sessions and the history, whose updates it returns. The store is cleared later, in
    /// steps.
    pub(super) fn begin_resync(&mut self) -> VecDeque<Update> {
        if let Some(journal) = &mut self.journal {
            journal.not_whole();
        }
        self.sessions = Sessions::default();
        *self.chain_time = ChainTime::default();
        self.soonest.forget();
        self.watermark = Sequence::ZERO;
        self.store.commit(Sequence::ZERO);
        std::mem::take(&mut self.history).into_updates()
    }

    /// A resync ends with this committed history, whose newest update has this stamp.
    pub(super) fn end_resync(&mut self, now: Timestamp, history: UpdateHistory, sessions: Sessions, stamp: u64) {
        self.watermark = history.last().sequence;
        self.store.commit(self.watermark);
        (self.history, self.sessions) = (history, sessions);
        self.chain_time.follow(stamp, now);
        self.chain_time.commit(stamp);
        self.publish_chain_time();
        self.soonest.forget();
        self.await_checkpoint();
    }

    pub(super) fn await_checkpoint(&mut self) {
        if let Some(journal) = &mut self.journal {
            journal.await_checkpoint(self.history.last(), self.watermark);
        }
    }

    /// Whether the members of this chain keep journals.
    pub(super) fn is_durable(&self) -> bool {
        self.journal.is_some()
    }

    pub(super) fn journal(&self) -> Option<&Journal> {
        self.journal.as_deref()
    }

    pub(super) fn journal_mut(&mut self) -> Option<&mut Journal> {
        self.journal.as_deref_mut()
    }

    /// The last sequence that is durable at this member; `None`: it keeps no journal.
    pub(super) fn durable(&self) -> Option<Sequence> {
        Some(self.journal.as_ref()?.held().sequence)
    }

    /// Whether the highest watermark in the journal is below the present one.
    pub(super) fn has_unwritten_watermark(&self) -> bool {
        self.journal.as_ref().is_some_and(|journal| journal.watermark() < self.watermark)
    }

    pub(super) fn write_watermark(&mut self) {
        if self.has_unwritten_watermark()
            && let Some(journal) = &mut self.journal
        {
            journal.write_watermark(self.watermark);
        }
    }

    /// Queues parts of the checkpoint in progress after the records, so that a checkpoint ends however many updates are
    /// written.
    pub(super) fn add_parts(&mut self, member: &Membership, room: usize) -> Result<(), StoreError> {
        let wanted = self.journal.as_ref().map_or(0, |journal| journal.wanted_parts(room, member.settings().chunk()));
        (0..wanted).try_for_each(|_| self.continue_checkpoint(member, room))
    }

    pub(super) fn next_batch(&mut self, member: &Membership, room: usize) -> Option<JournalBatch> {
        let late = allows!(member.guards(), StampLate).then_some(self.watermark);
        let data = checkpoint_bytes(self.store.size(), self.sessions.bytes());
        self.journal.as_mut()?.next_batch(member.chain(), room, data, late)
    }

    pub(super) fn has_full_disk(&self) -> bool {
        self.journal.as_ref().is_some_and(|journal| journal.is_full())
    }

    /// The resource of this member that is full; [`Fullness::Nothing`] also if the member doesn't serve.
    pub(super) fn fullness(&self, member: &Membership) -> Fullness {
        let has_full_memory = || member.settings().max_memory.is_some_and(|most| self.store.bytes() >= most);
        if !member.place().serves() {
            Fullness::Nothing
        } else if self.has_full_disk() {
            Fullness::Disk
        } else if has_full_memory() {
            Fullness::Memory
        } else {
            Fullness::Nothing
        }
    }

    pub(super) fn unreplicated(&self) -> &UnreplicatedRecords {
        &self.unreplicated
    }

    pub(super) fn unreplicated_mut(&mut self) -> &mut UnreplicatedRecords {
        &mut self.unreplicated
    }

    pub(super) fn commit_unreplicated(&mut self, now: Timestamp, out: &mut Outbox) {
        if let Some(settled) = self.unreplicated.commit(now, self.watermark) {
            out.event(ReplicaEvent::Rereplicating(settled.into()));
        }
    }

    pub(super) fn drop_unreplicated(&mut self, now: Timestamp, keep: Sequence, out: &mut Outbox) {
        let kept = self.history.from(self.watermark.next());
        if let Some(settled) = self.unreplicated.cut(now, keep, kept) {
            out.event(ReplicaEvent::Rereplicating(settled.into()));
        }
    }

    /// Counts a strong read that waits because the newest version of one of its keys isn't known to be committed.
    pub(super) fn count_waiting_read(&mut self, now: Timestamp, query: &Query) -> Result<(), StoreError> {
        let keys = match query {
            Query::Key(key) => std::slice::from_ref(key),
            Query::Keys(keys) => keys,
            Query::Scan(_) | Query::Changes(_) | Query::Hashed(_) | Query::Digest(_) | Query::Copy(_) => &[],
        };
        for key in keys {
            let newest = self.newest(key)?;
            self.unreplicated.read(now, newest);
        }
        Ok(())
    }
}
