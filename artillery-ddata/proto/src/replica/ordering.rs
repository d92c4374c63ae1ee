//! How a head orders: writes, resolved to full values, and updates of its own.

use smallvec::smallvec;

use super::{
    Halt, Replica, Token, Waiter,
    resolve::{MAX_STEPS, Resolved, Terms, lengths, resolve},
};
use crate::{
    Sequence, Timestamp, Version,
    api::{Refusal, Reply, Write},
    types::update::{MAX_KEY, RequestKey, RequestOutcome, Update, UpdateKind},
};

impl Replica {
    fn may_order(&self) -> Result<(), Refusal> {
        self.may_know()?;
        let Some(config) = &self.config else { return Err(Refusal::NoChain) };
        if config.is_sealed() {
            return Err(Refusal::Busy);
        }
        let (have, need) = (config.serving().count() as u32, config.fewest());
        if have < need {
            return Err(Refusal::TooFewMembers { have, need });
        }
        if self.has_room() { Ok(()) } else { Err(Refusal::Busy) }
    }

    /// Refuses a write that is too large or malformed. Every head refuses it likewise.
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
            // Without a request id there is nothing to settle.
            Write::Resolve if request.is_none() => Err(Refusal::SessionExpired),
            _ => Ok(()),
        }
    }

    /// Makes an update of a write and appends it, also if the write's condition fails. The write is answered when the
    /// update is committed. So the answer never names a version that may vanish (trap 20), and a late duplicate finds
    /// its record.
    pub(super) fn order(
        &mut self,
        now: Timestamp,
        asker: Waiter,
        request: Option<RequestKey>,
        write: Write,
        wall_clock: u64,
    ) -> Result<(), NotOrdered> {
        self.check(request, &write)?;
        self.may_order()?;
        let kind = match &write {
            Write::OpenSession => UpdateKind::SESSION_OPEN,
            Write::Resolve => UpdateKind::NOOP,
            _ => UpdateKind::WRITE,
        };
        self.writes.follow_chain_time(wall_clock);
        let mut update = self.next_update(kind);
        let terms = Terms {
            at: update.version,
            limit: self.settings.max_value,
            most: self.settings.largest_update(),
            keeps_failed_groups: allows!(self.settings.guards, KeepFailedGroups),
        };
        let resolved = resolve(write, terms, |key| {
            let newest = self.store.read(self.chain, key, Sequence::MAX)?;
            Ok(newest.filter(|held| held.value.is_some()))
        })
        .map_err(Halt::from)?;
        self.check_room(now, &resolved.changes)?;
        // The request that opens a session belongs to none.
        update.request = request.filter(|_| kind != UpdateKind::SESSION_OPEN);
        update.outcome = resolved.outcome;
        if allows!(self.settings.guards, ForgetFailedSwaps) && matches!(update.outcome, RequestOutcome::Conflict(_)) {
            update.request = None;
        }
        self.join_some(now, Joining { asker, update, resolved })
    }

    /// Puts the values of a write together, one step of them, and appends the update after the last step. Until then
    /// there is no room for another write: the next place in the history is reserved for this one.
    fn join_some(&mut self, now: Timestamp, mut joining: Joining) -> Result<(), NotOrdered> {
        joining.resolved.join_some(self.settings.join.max(1));
        if !joining.resolved.is_whole() {
            self.assembling = Some(Box::new(joining));
            return Ok(());
        }
        let Joining { asker, mut update, resolved } = joining;
        update.changes = resolved.changes;
        let sequence = update.version.sequence;
        let too_soon = match update.outcome {
            RequestOutcome::Conflict(_) => allows!(self.settings.guards, AnswerFailedSwapAtOnce),
            RequestOutcome::Ran => allows!(self.settings.guards, AnswerScriptAtOnce),
            _ => false,
        };
        self.append_ordered(update)?;
        if too_soon && let Some(record) = self.record_at(sequence) {
            self.answer(&record, &resolved.seen, asker);
        } else {
            self.writes.wait(sequence, resolved.seen, asker);
        }
        self.commit_as_tail(now);
        Ok(())
    }

    /// Does one more step of the write that is being put together.
    pub(super) fn go_on_joining(&mut self, now: Timestamp) {
        let Some(joining) = self.assembling.take() else { return };
        let token = joining.asker.token;
        if let Err(not_ordered) = self.join_some(now, *joining) {
            self.not_ordered(token, not_ordered);
        }
    }

    /// Refuses the write that is being put together. No reader and no other member has seen it yet.
    pub(super) fn give_up_joining(&mut self, refusal: Refusal) {
        if let Some(joining) = self.assembling.take() {
            self.reply(joining.asker.token, Reply::Refused(refusal));
        }
    }

    pub(super) fn not_ordered(&mut self, token: Token, not_ordered: NotOrdered) {
        match not_ordered {
            NotOrdered::Refused(refusal) => self.reply(token, Reply::Refused(refusal)),
            NotOrdered::Failed(halt) => {
                self.halt(halt);
                self.reply(token, Reply::Refused(Refusal::StoreFailed));
            }
        }
    }

    /// Keeps the table of sessions within its bytes. An eviction is an update like any other. If a write filled the
    /// window, there was no room for it: so it is tried after every input, before another write can take the room.
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
            Some(config) if !allows!(self.settings.guards, ReuseEpoch) || last.is_none() => config.epoch,
            _ => last.epoch,
        };
        Update {
            version: Version { epoch, sequence: last.sequence.next() },
            kind,
            request: None,
            outcome: RequestOutcome::Done,
            chain_time: self.writes.chain_time(),
            changes: smallvec![],
        }
    }

    fn append_ordered(&mut self, update: Update) -> Result<(), Halt> {
        if update.cost() >= self.settings.large_write() {
            self.writes.large = update.version.sequence;
        }
        self.apply(update)?;
        // Follow the newest stamp, also of another head: should we become head, our stamps must not be lower.
        self.follow_chain_time();
        Ok(())
    }

    pub(super) fn follow_chain_time(&mut self) {
        let newest = self.history.updates().back().map_or(0, |update| update.chain_time);
        self.writes.follow_chain_time(newest);
    }

    /// Orders a barrier: an update that changes nothing. `None`: there is no room, or this member may not order.
    pub(super) fn order_barrier(&mut self, now: Timestamp) -> Option<Sequence> {
        self.order_own(now, UpdateKind::BARRIER, None)
    }

    /// Orders an update of the head's own, for which no caller waits.
    fn order_own(&mut self, now: Timestamp, kind: UpdateKind, request: Option<RequestKey>) -> Option<Sequence> {
        self.may_order().ok()?;
        let mut update = self.next_update(kind);
        update.request = request;
        let sequence = update.version.sequence;
        if let Err(halt) = self.append_ordered(update) {
            self.halt(halt);
            return None;
        }
        self.commit_as_tail(now);
        Some(sequence)
    }
}

/// The write that is ordered next, while its values are put together.
#[derive(Clone, Debug)]
pub(super) struct Joining {
    asker: Waiter,
    update: Update,
    resolved: Resolved,
}

/// Why a write wasn't ordered.
pub(super) enum NotOrdered {
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
