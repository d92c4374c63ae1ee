//! Writes at the head: ordered, resolved, applied, and answered when the tail has committed them.

use std::collections::VecDeque;

use bytes::Bytes;
use smallvec::{SmallVec, smallvec};

use super::{
    Committed, Computed, Halt, Mutant, Output, Refusal, Replica, Reply, Token, Write,
    resolve::{MAX_STEPS, Seen, Terms, lengths, resolve},
    sessions::{Known, Record},
};
use crate::{
    Sequence, Timestamp, Version,
    store::StoreError,
    update::{Failure, MAX_KEY, MAX_TAKEN, Outcome, RequestKey, Update, UpdateKind},
};

/// Writes that wait for their commit.
#[derive(Clone, Debug, Default)]
pub(super) struct Writes {
    /// By the sequence of their update, rising.
    waiting: VecDeque<Waiting>,
    /// Bytes of the results that are held for them.
    results: usize,
    chain_time: u64,
}

/// Who waits for the commit of one update.
#[derive(Clone, Debug)]
struct Waiting {
    sequence: Sequence,
    seen: Seen,
    askers: SmallVec<[Asker; 1]>,
}

#[derive(Clone, Debug)]
pub(super) struct Asker {
    pub(super) token: Token,
    pub(super) deadline: Timestamp,
    /// It asked after the update had been ordered for an earlier attempt.
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

    fn wait(&mut self, sequence: Sequence, seen: Seen, asker: Asker) {
        match self.waiting.binary_search_by_key(&sequence, |waiting| waiting.sequence) {
            Ok(at) => self.waiting[at].askers.push(asker),
            Err(at) => {
                self.results += seen.results();
                self.waiting.insert(at, Waiting { sequence, seen, askers: smallvec![asker] });
            }
        }
    }

    /// The first ones, as long as their updates aren't above `watermark`.
    fn next_done(&mut self, watermark: Sequence) -> Option<Waiting> {
        let done = self.waiting.pop_front_if(|waiting| waiting.sequence <= watermark)?;
        self.results -= done.seen.results();
        Some(done)
    }

    /// The last ones, as long as their updates are above `keep`.
    fn next_above(&mut self, keep: Sequence) -> Option<Waiting> {
        let cut = self.waiting.pop_back_if(|waiting| waiting.sequence > keep)?;
        self.results -= cut.seen.results();
        Some(cut)
    }
}

impl Replica {
    /// Whether a write would be taken in now rather than answered with [`Refusal::Busy`]: drivers leave writes in their
    /// own bounded queues while it is false. The last one let in may overshoot the window by its own size, so that a
    /// value larger than the window doesn't wait for ever.
    pub(crate) fn has_room(&self) -> bool {
        let held = self.history.in_flight() + self.writes.results;
        held < self.settings.window.max(1) && !self.is_closed()
    }

    pub(super) fn write(
        &mut self,
        now: Timestamp,
        mut asker: Asker,
        request: Option<RequestKey>,
        write: Write,
        wall_clock: u64,
    ) {
        let token = asker.token;
        match self.known(request) {
            Ok(Known::Nothing) => {}
            Ok(Known::Pending(sequence)) if !self.is(Mutant::AnswerPendingRecord) => {
                asker.replayed = true;
                return self.writes.wait(sequence, Seen::Nothing, asker);
            }
            Ok(Known::Pending(sequence)) => return self.answer_at(sequence, token),
            Ok(Known::Done(record)) => {
                asker.replayed = true;
                return self.answer(&record, &Seen::Nothing, asker);
            }
            Ok(Known::NoSession) => return self.reply(token, Reply::Refused(Refusal::SessionExpired)),
            Ok(Known::Answered) => return self.reply(token, Reply::Refused(Refusal::Forgotten)),
            Ok(Known::Full) => return self.reply(token, Reply::Refused(Refusal::SessionFull)),
            Err(refusal) => return self.reply(token, Reply::Refused(refusal)),
        }
        match self.order(request, write, wall_clock) {
            Ok((sequence, seen)) => {
                self.writes.wait(sequence, seen, asker);
                self.answer_too_soon(sequence);
                self.commit_as_tail(now);
            }
            Err(NotOrdered::Refused(refusal)) => self.reply(token, Reply::Refused(refusal)),
            Err(NotOrdered::Failed(halt)) => {
                self.halt(halt);
                self.reply(token, Reply::Refused(Refusal::StoreFailed));
            }
        }
    }

    /// What is known of a request; only a head says so.
    fn known(&self, request: Option<RequestKey>) -> Result<Known, Refusal> {
        self.may_know()?;
        let Some(request) = request else { return Ok(Known::Nothing) };
        let known = self.sessions.look_up(request, self.settings.sessions);
        Ok(match known {
            Known::Pending(_) | Known::Done(_) if self.is(Mutant::ForgetRecords) => Known::Nothing,
            Known::NoSession if self.is(Mutant::RunEvicted) => Known::Nothing,
            known => known,
        })
    }

    fn may_know(&self) -> Result<(), Refusal> {
        if self.config.is_none() || self.halted.is_some() {
            return Err(Refusal::NoChain);
        }
        if self.place.is_head { Ok(()) } else { Err(Refusal::NotHead(self.place.head)) }
    }

    fn may_order(&self) -> Result<(), Refusal> {
        self.may_know()?;
        let Some(config) = &self.config else { return Err(Refusal::NoChain) };
        let have = config.serving().count() as u32;
        if have < config.min_members {
            return Err(Refusal::TooFewMembers { have, need: config.min_members });
        }
        if self.has_room() { Ok(()) } else { Err(Refusal::Busy) }
    }

    /// Refuses what is too large or malformed for whatever head.
    fn check(&self, request: Option<RequestKey>, write: &Write) -> Result<(), Refusal> {
        let (key, value) = lengths(write);
        if key > MAX_KEY {
            return Err(Refusal::KeyTooLong { len: key as u64, limit: MAX_KEY as u64 });
        }
        if value > self.settings.max_value {
            return Err(Refusal::ValueTooLarge { len: value as u64, limit: self.settings.max_value as u64 });
        }
        match write {
            Write::Batch(steps) if steps.is_empty() || steps.len() > MAX_STEPS => {
                Err(Refusal::BatchSize { len: steps.len() as u64, limit: MAX_STEPS as u64 })
            }
            Write::Script(script) if script.size() == 0 || script.size() > MAX_STEPS => {
                Err(Refusal::BatchSize { len: script.size() as u64, limit: MAX_STEPS as u64 })
            }
            // Without a request there is nothing to settle.
            Write::Resolve if request.is_none() => Err(Refusal::SessionExpired),
            _ => Ok(()),
        }
    }

    /// Makes an update of a write and takes it in: a failed condition becomes one too. It is answered when that update
    /// is committed, and so never tells of a version that may vanish (trap 20); and a late duplicate finds its record.
    fn order(
        &mut self,
        request: Option<RequestKey>,
        write: Write,
        wall_clock: u64,
    ) -> Result<(Sequence, Seen), NotOrdered> {
        self.check(request, &write)?;
        self.may_order()?;
        let kind = match &write {
            Write::OpenSession => UpdateKind::SESSION_OPEN,
            Write::Resolve => UpdateKind::NOOP,
            _ => UpdateKind::WRITE,
        };
        self.writes.chain_time = self.writes.chain_time.max(wall_clock);
        let mut update = self.next_update(kind);
        let terms = Terms {
            at: update.version,
            limit: self.settings.max_value,
            keeps_failed_groups: self.is(Mutant::KeepFailedGroups),
        };
        let resolved = resolve(write, terms, |key| {
            let newest = self.store.read(self.chain, key, Sequence::MAX)?;
            Ok(newest.filter(|held| held.value.is_some()))
        })
        .map_err(Halt::from)?;
        // A session is opened by nobody yet.
        update.request = request.filter(|_| kind != UpdateKind::SESSION_OPEN);
        update.outcome = resolved.outcome;
        update.changes = resolved.changes;
        if self.is(Mutant::ForgetFailedSwaps) && matches!(update.outcome, Outcome::Conflict(_)) {
            update.request = None;
        }
        let sequence = update.version.sequence;
        self.take_in(update)?;
        Ok((sequence, resolved.seen))
    }

    /// Keeps the table of sessions within its bytes: evicting one is an update like any other. Called behind every
    /// input: a write that filled the window left no room for this, and no other one may come before it.
    pub(super) fn evict_sessions(&mut self, now: Timestamp) {
        if !self.place.is_head {
            return;
        }
        while let Some(session) = self.sessions.to_evict(self.settings.sessions) {
            let request = RequestKey { session, number: 0, lowest: 0 };
            if self.order_own(now, UpdateKind::SESSION_EVICT, Some(request)).is_none() {
                return;
            }
        }
    }

    fn next_update(&self, kind: UpdateKind) -> Update {
        let last = self.history.last();
        let epoch = match &self.config {
            Some(config) if !self.is(Mutant::ReuseEpoch) || last.is_none() => config.epoch,
            _ => last.epoch,
        };
        Update {
            version: Version { epoch, sequence: last.sequence.next() },
            kind,
            request: None,
            outcome: Outcome::Done,
            chain_time: self.writes.chain_time,
            changes: smallvec![],
        }
    }

    fn take_in(&mut self, update: Update) -> Result<(), Halt> {
        self.apply(update)?;
        // The stamp of an update that another head made counts too, should we become head.
        self.follow_chain_time();
        Ok(())
    }

    pub(super) fn follow_chain_time(&mut self) {
        let newest = self.history.updates().back().map_or(0, |update| update.chain_time);
        self.writes.follow_chain_time(newest);
    }

    /// Orders a barrier: an update that changes nothing. `None` while there is no room, or nothing may be ordered here.
    pub(super) fn order_barrier(&mut self, now: Timestamp) -> Option<Sequence> {
        self.order_own(now, UpdateKind::BARRIER, None)
    }

    /// Orders an update of the head's own, that nobody waits for.
    fn order_own(&mut self, now: Timestamp, kind: UpdateKind, request: Option<RequestKey>) -> Option<Sequence> {
        self.may_order().ok()?;
        let mut update = self.next_update(kind);
        update.request = request;
        let sequence = update.version.sequence;
        if let Err(halt) = self.take_in(update) {
            self.halt(halt);
            return None;
        }
        self.commit_as_tail(now);
        Some(sequence)
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

    /// What stands in the update with this sequence, which is kept.
    fn record_at(&self, sequence: Sequence) -> Option<Record> {
        let update = self.history.from(sequence).next()?;
        Some(Record::of(update, self.sessions.taken(update)))
    }

    /// Answers with what stands in a committed update, and with what was seen when that was ordered, if it was here.
    fn answer(&mut self, record: &Record, seen: &Seen, asker: Asker) {
        let Asker { token, replayed, .. } = asker;
        let reply = self.reply_of(record, seen, replayed);
        self.reply(token, reply);
    }

    fn reply_of(&self, record: &Record, seen: &Seen, replayed: bool) -> Reply {
        let copies = self.config.as_ref().map_or(0, |config| config.serving().count() as u32);
        let at = record.version;
        let result = match record.outcome {
            Outcome::Done => Computed::Nothing,
            Outcome::Length(length) => Computed::Length(length),
            Outcome::Number(number) => Computed::Number(number),
            Outcome::Took(version) if version.is_none() => Computed::Took(None),
            Outcome::Took(version) => match seen.value().or_else(|| record.taken.clone()) {
                Some(value) => Computed::Took(Some((version, value))),
                None => Computed::TookForgotten(version),
            },
            Outcome::Conflict(version) => return self.conflict(at, 0, version, seen, replayed),
            Outcome::Unmet { step, version } => return self.conflict(at, step, version, seen, replayed),
            Outcome::Failed(failure) => return Reply::Refused(self.failed(failure)),
            Outcome::Barred => return Reply::Refused(Refusal::Barred),
            Outcome::Ran => match seen {
                Seen::Results(outcomes) => Computed::Ran(outcomes.clone()),
                Seen::Nothing | Seen::Held(_) => Computed::RanForgotten,
            },
        };
        Reply::Committed(Committed { version: at, copies, replayed, result })
    }

    fn conflict(&self, at: Version, step: u32, version: Version, seen: &Seen, replayed: bool) -> Reply {
        Reply::Conflict { at, step, version, value: seen.value(), replayed }
    }

    fn failed(&self, failure: Failure) -> Refusal {
        let limit = self.settings.max_value as u64;
        match failure {
            Failure::NotANumber => Refusal::NotANumber,
            Failure::Overflow => Refusal::Overflow,
            Failure::TooLarge(len) => Refusal::ValueTooLarge { len, limit },
            Failure::ResultsTooLarge(len) => Refusal::ResultsTooLarge { len, limit },
        }
    }

    /// Mutant: answers from an update that may still vanish.
    fn answer_at(&mut self, sequence: Sequence, token: Token) {
        let Some(record) = self.record_at(sequence) else { return };
        self.answer(&record, &Seen::Nothing, Asker { token, deadline: Timestamp::MAX, replayed: true });
    }

    /// Mutants: tell of a failed condition, or of what a script found, before what they saw is committed.
    fn answer_too_soon(&mut self, sequence: Sequence) {
        let (swaps, scripts) = (self.is(Mutant::AnswerFailedSwapAtOnce), self.is(Mutant::AnswerScriptAtOnce));
        if !swaps && !scripts {
            return;
        }
        let tells = |record: &Record| match record.outcome {
            Outcome::Conflict(_) => swaps,
            Outcome::Ran => scripts,
            _ => false,
        };
        let Some(record) = self.record_at(sequence).filter(tells) else { return };
        let before = Sequence(sequence.0.saturating_sub(1));
        if let Some(waiting) = self.writes.next_above(before) {
            for asker in waiting.askers {
                self.answer(&record, &waiting.seen, asker);
            }
        }
    }

    /// Nobody waits any longer for writes whose deadline has passed; what becomes of them is unknown.
    pub(super) fn expire_writes(&mut self, now: Timestamp) {
        for waiting in &mut self.writes.waiting {
            waiting.askers.retain(|asker| {
                let is_late = asker.deadline <= now;
                if is_late {
                    self.outputs.push_back(Output::Reply(asker.token, Reply::Expired));
                }
                !is_late
            });
        }
    }

    /// Updates above `keep` are gone from here: whoever waits for one can't be told what became of it.
    pub(super) fn cut_writes(&mut self, keep: Version) {
        while let Some(cut) = self.writes.next_above(keep.sequence) {
            for asker in cut.askers {
                self.outputs.push_back(Output::Reply(asker.token, Reply::Expired));
            }
        }
    }

    /// After updates were dropped: what is pending now.
    pub(super) fn note_pending_anew(&mut self) -> Result<(), StoreError> {
        self.sessions.forget_pending();
        for update in self.history.from(self.watermark.next()) {
            let taken = self.taken_by(update)?;
            self.sessions.note(update, taken);
        }
        Ok(())
    }

    /// The value that an update took away, if it is small enough to be kept: looked up while it is still there.
    pub(super) fn taken_by(&self, update: &Update) -> Result<Option<Bytes>, StoreError> {
        let (Outcome::Took(version), [change]) = (update.outcome, &update.changes[..]) else { return Ok(None) };
        let held = self.store.read(self.chain, &change.key, version.sequence)?;
        Ok(held.filter(|held| held.version == version).and_then(|held| held.value).filter(|v| v.len() <= MAX_TAKEN))
    }
}

enum NotOrdered {
    Refused(Refusal),
    Failed(Halt),
}

impl From<Refusal> for NotOrdered {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<Halt> for NotOrdered {
    fn from(halt: Halt) -> Self {
        Self::Failed(halt)
    }
}
