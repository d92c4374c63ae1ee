//! The joiner of a snapshot: its history is not part of the chain until the snapshot is complete.
//!
//! The records of a complete snapshot are from different times: each key as it was committed at some time between the
//! beginning and the highest watermark at which a part was made. All updates up to that watermark are then applied on
//! top, without replacing newer versions by older ones. The result is the state at that watermark
//! (docs/adr/0020-a-snapshot-of-what-is-there.md).

use std::collections::VecDeque;

use bytes::Bytes;

use super::{
    receiver::{PartOutcome, SnapshotReceiver},
    steps::{Step, clear_from, free},
};
use crate::{
    Sequence, Version,
    message::{ChunkPart, SnapshotHeader, SnapshotPart, SnapshotProgress},
    replica::{
        Context, Halt, ResyncStatus,
        log::{Log, Ops},
    },
    store::{ScanRecord, StoreError, StoreOp},
    types::update::Update,
};

#[derive(Clone, Hash, Debug, Default)]
pub(in crate::replica) struct Joiner {
    filling: Option<Box<SnapshotReceiver>>,
    /// Updates from before a snapshot, which are freed in steps.
    past: VecDeque<Update>,
    /// The number of the newest snapshot that began here in this epoch.
    seen: u64,
    /// Completed resyncs with a snapshot (`full`), and epochs in which none was needed (`partial`).
    full: u64,
    partial: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::replica) enum CatchUp {
    Continues,
    /// The buffer accepts updates again. Updates that the source sent before it received the hold were dropped.
    Accepts,
    /// [`Joiner::finish`] is next.
    Whole,
}

impl Joiner {
    pub(in crate::replica) fn is_filling(&self) -> bool {
        self.filling.is_some()
    }

    #[cfg(test)]
    pub(in crate::replica) fn has_ended(&self) -> bool {
        self.filling.as_ref().is_some_and(|filling| filling.has_ended())
    }

    /// The resyncs of this member, without the snapshot that it sends.
    pub(in crate::replica) fn status(&self) -> ResyncStatus {
        let receiving = self.filling.as_ref().map(|filling| filling.received());
        ResyncStatus { full: self.full, partial: self.partial, receiving, sending: None }
    }

    /// The history here has turned out to be a prefix of the chain's, so no snapshot is needed.
    pub(in crate::replica) fn count_partial(&mut self) {
        self.partial += 1;
    }

    /// The report to the source. `missed`: updates are missing.
    pub(in crate::replica) fn progress(&self, missed: bool) -> Option<SnapshotProgress> {
        self.filling.as_ref().map(|filling| filling.progress(missed))
    }

    /// During a snapshot: the newest update received, buffered or applied.
    pub(in crate::replica) fn reached(&self) -> Option<Version> {
        self.filling.as_ref().map(|filling| filling.reached())
    }

    /// Whether updates can be kept or applied.
    pub(in crate::replica) fn accepts_updates(&self, cx: Context<'_>) -> bool {
        self.filling.as_ref().is_none_or(|filling| {
            filling.takes_updates() && (!allows!(cx.guards(), KeepNothing) || filling.has_ended())
        })
    }

    /// Stops accepting updates if the buffer has no capacity for a large update that begins.
    pub(in crate::replica) fn reserve(&mut self, cx: Context<'_>, part: &ChunkPart) {
        if let (Some(filling), ChunkPart::First(outline)) = (&mut self.filling, part) {
            let bytes = usize::try_from(outline.bytes()).unwrap_or(usize::MAX);
            filling.accepts(bytes, cx.settings().joiner_buffer);
        }
    }

    /// Buffers an update during a snapshot. Returns it otherwise.
    pub(in crate::replica) fn keep(&mut self, cx: Context<'_>, update: Update) -> Option<Update> {
        let Some(filling) = &mut self.filling else { return Some(update) };
        filling.keep(update, cx.settings().joiner_buffer);
        None
    }

    pub(in crate::replica) fn leave_epoch(&mut self) {
        self.seen = 0;
        let updates = self.filling.as_mut().map(|filling| filling.abandon()).unwrap_or_default();
        updates.into_iter().for_each(|updates| self.free_later(updates));
    }

    /// Whether this snapshot is new, and meant for a joiner at this position. A snapshot with a known number is in
    /// progress, complete or obsolete. One for another position is late, but a joiner in the middle of a snapshot has
    /// no position and accepts every new one.
    pub(in crate::replica) fn may_begin(&self, log: &Log, id: u64, beginning: &SnapshotHeader) -> bool {
        id > self.seen && (self.is_filling() || log.last() == beginning.said)
    }

    /// Begins a snapshot. `past` has the updates of the history here, which is no longer valid.
    pub(in crate::replica) fn begin(
        &mut self,
        cx: Context<'_>,
        id: u64,
        beginning: SnapshotHeader,
        past: VecDeque<Update>,
    ) {
        self.seen = id;
        self.free_later(past);
        let mut filling = Box::new(SnapshotReceiver::new(id, beginning));
        let mut before = self.filling.take();
        let updates = before.as_mut().map(|before| before.take_updates()).unwrap_or_default();
        updates.into_iter().for_each(|updates| self.free_later(updates));
        match before.filter(|_| allows!(cx.guards(), SkipFinished)) {
            Some(before) => filling.skip(*before),
            None => drop(filling.clear_from((!allows!(cx.guards(), NoWipe)).then(Bytes::new))),
        }
        self.filling = Some(filling);
    }

    pub(in crate::replica) fn is_clearing(&self) -> bool {
        !self.past.is_empty() || self.filling.as_ref().is_some_and(|filling| filling.clearing().is_some())
    }

    /// Enqueues updates to be freed in steps.
    fn free_later(&mut self, mut updates: VecDeque<Update>) {
        if updates.len() > self.past.len() {
            std::mem::swap(&mut self.past, &mut updates);
        }
        self.past.append(&mut updates);
    }

    /// Does one step of freeing old updates and clearing the store. Returns whether the joiner now requests the parts
    /// of the snapshot.
    pub(in crate::replica) fn clear_some(&mut self, cx: Context<'_>, log: &Log) -> Result<bool, StoreError> {
        let most = cx.settings().clear_keys.max(1);
        free(&mut self.past, most);
        let Some(filling) = &mut self.filling else { return Ok(false) };
        let Some(from) = filling.clearing().cloned() else { return Ok(false) };
        let rest = clear_from(log, &from, most)?;
        Ok(filling.clear_from(rest))
    }

    /// Receives a part that isn't the beginning. Returns whether it was the last one.
    pub(in crate::replica) fn receive(
        &mut self,
        cx: Context<'_>,
        log: &Log,
        part: SnapshotPart,
    ) -> Result<bool, StoreError> {
        let Some(filling) = self.filling.as_mut().filter(|filling| filling.id() == part.id) else { return Ok(false) };
        // A record that is put now would be cleared too, or collide with a deleted key's newer version (traps 11, 64).
        if filling.clearing().is_some() && !allows!(cx.guards(), TakeWhileClearing) {
            return Ok(false);
        }
        match filling.take(part) {
            PartOutcome::Nothing => Ok(false),
            PartOutcome::Records(records) => put_records(cx, log, records).map(|()| false),
            PartOutcome::End => {
                filling.end_parts(allows!(cx.guards(), WholeTooSoon));
                Ok(true)
            }
        }
    }

    /// Whether the last part is received, and a step can apply an update or end the resync.
    pub(in crate::replica) fn is_catching_up(&self) -> bool {
        self.filling.as_ref().is_some_and(|filling| filling.has_step())
    }

    /// Applies one step of the buffered updates: first those that the records may contain, then those that the source
    /// has committed since. The joiner is complete once its buffer has no such update (docs/adr/0029).
    ///
    /// A received frame or a [`settle`](crate::runner::ChainRunner::settle) does at most one step, so lease renewals
    /// are sent between two steps.
    pub(in crate::replica) fn catch_up(
        &mut self,
        cx: Context<'_>,
        log: &mut Log,
        source_watermark: Sequence,
    ) -> Result<CatchUp, Halt> {
        let Some(filling) = &mut self.filling else { return Ok(CatchUp::Continues) };
        let Some(until) = filling.until() else { return Ok(CatchUp::Continues) };
        let committed = until.max(source_watermark);
        let mut step = Step::of(cx.settings().catch_up);
        while !step.is_over()
            && let Some(update) = filling.next(committed)
        {
            step.count(&update);
            apply_over_records(cx, log, filling, update)?;
        }
        Ok(if !step.is_over() && filling.is_whole() {
            CatchUp::Whole
        } else if filling.lift_hold(cx.settings().joiner_buffer) {
            CatchUp::Accepts
        } else {
            CatchUp::Continues
        })
    }

    /// Ends the resync. The history begins at the snapshot's first watermark, and one step of the buffered updates is
    /// applied as usual. The others are dropped and requested again: the source hadn't committed them when it reported
    /// its watermark, so it usually still has them. If they are no longer in its backlog, it offers another snapshot.
    pub(in crate::replica) fn finish(&mut self, cx: Context<'_>, log: &mut Log) -> Result<(), Halt> {
        let Some(filling) = self.filling.take() else { return Ok(()) };
        let (history, sessions, stamp, mut buffer) = filling.finish();
        log.end_resync(cx.now, history, sessions, stamp);
        let mut step = Step::of(cx.settings().catch_up);
        while !step.is_over()
            && let Some(update) = buffer.pop_front()
        {
            step.count(&update);
            log.follow(cx, update)?;
        }
        self.free_later(buffer);
        self.full += 1;
        Ok(())
    }
}

fn put_records(cx: Context<'_>, log: &Log, records: Vec<ScanRecord>) -> Result<(), StoreError> {
    // Mutants: skip records that are still in the store, which would refuse to put them again.
    let may_be_there = allows!(cx.guards(), NoWipe) || allows!(cx.guards(), SkipFinished);
    let known = |record: &ScanRecord| may_be_there && log.has_newer(&record.key, record.held.version).unwrap_or(false);
    let records = records.into_iter().filter(|record| !known(record));
    let ops: Ops = records.map(|ScanRecord { key, held }| StoreOp::Put { key, held }).collect();
    log.store().apply(log.watermark(), ops)
}

/// Applies an update that the source has committed. Newer versions here stay.
fn apply_over_records(
    cx: Context<'_>,
    log: &mut Log,
    filling: &mut SnapshotReceiver,
    update: Update,
) -> Result<(), Halt> {
    if !update.kind.is_known() {
        return Err(Halt::UnknownKind(update.kind.0));
    }
    // This member may never have had the value that the update deleted. In that case it records no value rather than a
    // wrong one.
    let taken = log.taken_by(&update)?;
    let mut ops = Ops::new();
    for change in &update.changes {
        if log.has_newer(&change.key, update.version)? {
            continue;
        }
        if let Some(held) = log.held(update.version, change)? {
            ops.push(StoreOp::Put { key: change.key.clone(), held });
            ops.push(StoreOp::Prune { key: change.key.clone() });
        }
    }
    if !ops.is_empty() {
        log.store().apply(update.version.sequence, ops)?;
    }
    filling.committed(update, taken, cx.settings().backlog);
    Ok(())
}
