//! Writes at the head: ordered, resolved, applied, and answered when the tail has committed them.

use std::collections::VecDeque;

use bytes::Bytes;
use smallvec::{SmallVec, smallvec};

use super::ends::Ends as _;
use super::{
    Replica, ReplicaOutput, Token,
    client_sessions::{KnownRequest, RequestRecord},
    resolve::WriteResult,
};
use crate::{
    Sequence, Timestamp, Version,
    api::{Computed, Refusal, Reply, Write, WriteReply},
    store::StoreError,
    types::update::{MAX_TAKEN, RequestFailure, RequestKey, RequestOutcome, Update},
};

/// Writes that wait for their commit.
#[derive(Clone, Debug, Default)]
pub(super) struct Writes {
    /// In the order of their updates' sequences.
    waiting: VecDeque<PendingWrite>,
    /// Bytes of the results that are held for these writes.
    results: usize,
    /// The newest large update.
    pub(super) large: Sequence,
    chain_time: u64,
}

/// The callers that wait for the commit of one update.
#[derive(Clone, Debug)]
struct PendingWrite {
    sequence: Sequence,
    seen: WriteResult,
    askers: SmallVec<[Waiter; 1]>,
}

#[derive(Clone, Debug)]
pub(super) struct Waiter {
    pub(super) token: Token,
    pub(super) deadline: Timestamp,
    /// The caller asked after the update had been ordered for an earlier attempt.
    pub(super) replayed: bool,
}

impl Writes {
    pub(super) fn len(&self) -> usize {
        self.waiting.iter().map(|waiting| waiting.askers.len()).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn chain_time(&self) -> u64 {
        self.chain_time
    }

    pub(super) fn follow_chain_time(&mut self, stamp: u64) {
        self.chain_time = self.chain_time.max(stamp);
    }

    pub(super) fn wait(&mut self, sequence: Sequence, seen: WriteResult, asker: Waiter) {
        match self.waiting.binary_search_by_key(&sequence, |waiting| waiting.sequence) {
            Ok(at) => self.waiting[at].askers.push(asker),
            Err(at) => {
                self.results += seen.results();
                self.waiting.insert(at, PendingWrite { sequence, seen, askers: smallvec![asker] });
            }
        }
    }

    /// Takes out the first write, if its update is at or below `watermark`.
    fn next_done(&mut self, watermark: Sequence) -> Option<PendingWrite> {
        let done = self.waiting.take_front_if(|waiting| waiting.sequence <= watermark)?;
        self.results -= done.seen.results();
        Some(done)
    }

    /// Takes out the last write, if its update is above `keep`.
    fn next_above(&mut self, keep: Sequence) -> Option<PendingWrite> {
        let cut = self.waiting.take_back_if(|waiting| waiting.sequence > keep)?;
        self.results -= cut.seen.results();
        Some(cut)
    }
}

impl Replica {
    /// Whether a write would be taken in now rather than answered with [`Refusal::Busy`]. While it is false, drivers
    /// leave writes in their own bounded queues. The last write let in may overshoot the window by its own size:
    /// otherwise a value larger than the window would wait for ever.
    pub(crate) fn has_room(&self) -> bool {
        self.held() < self.settings.window.max(1) && !self.is_closed() && self.assembling.is_none()
    }

    /// The same for a [large](crate::runner::WriteLine::Large) write. A small write is committed behind everything that
    /// was ordered before it. So that it doesn't wait for long, large writes get a quarter of the window. One large
    /// write may always come when no other is under way.
    pub(crate) fn has_room_for_large(&self) -> bool {
        let is_alone = self.writes.large <= self.watermark;
        self.has_room() && (is_alone || self.held() < self.settings.window / 4)
    }

    fn held(&self) -> usize {
        self.history.in_flight() + self.writes.results
    }

    pub(super) fn write(
        &mut self,
        now: Timestamp,
        mut asker: Waiter,
        request: Option<RequestKey>,
        write: Write,
        wall_clock: u64,
    ) {
        let token = asker.token;
        match self.known(request, matches!(write, Write::Resolve)) {
            Ok(KnownRequest::Nothing) => {}
            Ok(KnownRequest::Pending(sequence)) => {
                asker.replayed = true;
                return self.writes.wait(sequence, WriteResult::Nothing, asker);
            }
            Ok(KnownRequest::Done(record)) => {
                asker.replayed = true;
                return self.answer(&record, &WriteResult::Nothing, asker);
            }
            Ok(KnownRequest::NoSession) => return self.reply(token, Reply::Refused(Refusal::SessionExpired)),
            Ok(KnownRequest::Answered) => return self.reply(token, Reply::Refused(Refusal::Forgotten)),
            Ok(KnownRequest::Full) => return self.reply(token, Reply::Refused(Refusal::SessionFull)),
            Err(refusal) => return self.reply(token, Reply::Refused(refusal)),
        }
        if let Err(not_ordered) = self.order(now, asker, request, write, wall_clock) {
            self.not_ordered(token, not_ordered);
        }
    }

    /// What the head knows of a request. Other members refuse.
    fn known(&self, request: Option<RequestKey>, settles: bool) -> Result<KnownRequest, Refusal> {
        self.may_know()?;
        let Some(request) = request else { return Ok(KnownRequest::Nothing) };
        let known = self.sessions.look_up(request, settles, self.settings.sessions);
        Ok(match known {
            KnownRequest::Pending(_) | KnownRequest::Done(_) if allows!(self.settings.guards, ForgetRecords) => {
                KnownRequest::Nothing
            }
            KnownRequest::NoSession if allows!(self.settings.guards, RunEvicted) => KnownRequest::Nothing,
            KnownRequest::Pending(sequence) if allows!(self.settings.guards, AnswerPendingRecord) => {
                self.record_at(sequence).map_or(known, KnownRequest::Done)
            }
            known => known,
        })
    }

    pub(super) fn may_know(&self) -> Result<(), Refusal> {
        if self.config.is_none() || self.halted.is_some() {
            return Err(Refusal::NoChain);
        }
        if self.place.is_head { Ok(()) } else { Err(Refusal::NotHead(self.place.head)) }
    }

    /// Answers every write at or below the watermark.
    pub(super) fn answer_writes(&mut self) {
        while let Some(done) = self.writes.next_done(self.watermark) {
            let Some(record) = self.record_at(done.sequence) else { continue };
            for asker in done.askers {
                self.answer(&record, &done.seen, asker);
            }
        }
    }

    /// The record of the update with this sequence, if the update is still kept.
    pub(super) fn record_at(&self, sequence: Sequence) -> Option<RequestRecord> {
        let update = self.history.from(sequence).next()?;
        Some(RequestRecord::of(update, self.sessions.taken(update)))
    }

    /// Answers from the record of a committed update. `seen` holds what the record doesn't, if the update was ordered
    /// here.
    pub(super) fn answer(&mut self, record: &RequestRecord, seen: &WriteResult, asker: Waiter) {
        let Waiter { token, replayed, .. } = asker;
        let reply = self.reply_of(record, seen, replayed);
        self.reply(token, reply);
    }

    fn reply_of(&self, record: &RequestRecord, seen: &WriteResult, replayed: bool) -> Reply {
        let copies = self.config.as_ref().map_or(0, |config| config.serving().count() as u32);
        let at = record.version;
        let result = match record.outcome {
            RequestOutcome::Done => Computed::Nothing,
            RequestOutcome::Length(length) => Computed::Length(length),
            RequestOutcome::Number(number) => Computed::Number(number),
            RequestOutcome::Took(version) if version.is_none() => Computed::Took(None),
            RequestOutcome::Took(version) => match seen.value().or_else(|| record.taken.clone()) {
                Some(value) => Computed::Took(Some((version, value))),
                None => Computed::TookForgotten(version),
            },
            RequestOutcome::Conflict(version) => return self.conflict(at, 0, version, seen, replayed),
            RequestOutcome::Unmet { step, version } => return self.conflict(at, step, version, seen, replayed),
            RequestOutcome::Failed(failure) => return Reply::Refused(self.failed(failure)),
            RequestOutcome::Barred => return Reply::Refused(Refusal::Barred),
            RequestOutcome::Ran => match seen {
                WriteResult::Results(outcomes) => Computed::Ran(outcomes.clone()),
                WriteResult::Nothing | WriteResult::Held(_) => Computed::RanForgotten,
            },
        };
        Reply::Committed(WriteReply { version: at, copies, replayed, result })
    }

    fn conflict(&self, at: Version, step: u32, version: Version, seen: &WriteResult, replayed: bool) -> Reply {
        Reply::Conflict { at, step, version, value: seen.value(), replayed }
    }

    fn failed(&self, failure: RequestFailure) -> Refusal {
        let limit = self.settings.max_value as u64;
        match failure {
            RequestFailure::NotANumber => Refusal::NotANumber,
            RequestFailure::Overflow => Refusal::Overflow,
            RequestFailure::TooLarge(len) => Refusal::ValueTooLarge { len, limit },
            RequestFailure::ResultsTooLarge(len) => Refusal::ResultsTooLarge { len, limit },
            RequestFailure::UpdateTooLarge(len) => {
                Refusal::UpdateTooLarge { len, limit: self.settings.largest_update() as u64 }
            }
        }
    }

    /// Answers the callers whose deadline has passed as expired: the outcome of their writes is unknown.
    pub(super) fn expire_writes(&mut self, now: Timestamp) {
        for waiting in &mut self.writes.waiting {
            waiting.askers.retain(|asker| {
                let is_late = asker.deadline <= now;
                if is_late {
                    self.outputs.push_back(ReplicaOutput::Reply(asker.token, Reply::Expired));
                }
                !is_late
            });
        }
    }

    /// Updates above `keep` were dropped here. Their callers are answered as expired: the outcome is unknown.
    pub(super) fn cut_writes(&mut self, keep: Version) {
        self.writes.large = self.writes.large.min(keep.sequence);
        while let Some(cut) = self.writes.next_above(keep.sequence) {
            for asker in cut.askers {
                self.outputs.push_back(ReplicaOutput::Reply(asker.token, Reply::Expired));
            }
        }
    }

    /// After updates were dropped: notes the records of those that are still pending.
    pub(super) fn note_pending_anew(&mut self) -> Result<(), StoreError> {
        self.sessions.forget_pending();
        for update in self.history.from(self.watermark.next()) {
            let taken = self.taken_by(update)?;
            self.sessions.note(update, taken);
        }
        Ok(())
    }

    /// The value that an update took away, if it is small enough to be kept. Call it while the store still has the
    /// value.
    pub(super) fn taken_by(&self, update: &Update) -> Result<Option<Bytes>, StoreError> {
        let (RequestOutcome::Took(version), [change]) = (update.outcome, &update.changes[..]) else { return Ok(None) };
        let held = self.store.read(self.chain, &change.key, version.sequence)?;
        Ok(held.filter(|held| held.version == version).and_then(|held| held.value).filter(|v| v.len() <= MAX_TAKEN))
    }
}
