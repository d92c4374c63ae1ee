//! The head of a chain: it orders writes, resolves them to full values, and answers them once they are committed.
//!
//! Every member has this part, which refuses writes while the member isn't the head. A member that is replaced as head
//! still answers the writes that wait here.

mod answer;
mod close;
mod expire;
mod resolve;
mod waiting;

use smallvec::smallvec;

use self::{
    answer::reply_of,
    close::Closing,
    expire::Removals,
    resolve::{MAX_STEPS, Resolved, Terms, WriteResult, resolve},
    waiting::WaitingWrites,
};
use super::{
    Context, Halt, Membership, Outbox, Token,
    log::{KnownRequest, Log},
    peers::Peers,
};
use crate::{
    Sequence, Timestamp, Version,
    api::{Refusal, Write},
    types::update::{RequestKey, RequestOutcome, Update, UpdateKind},
};

#[derive(Clone, Hash, Debug, Default)]
pub(super) struct Head {
    waiting: WaitingWrites,
    /// The sequence of the newest large update that was ordered here.
    large: Sequence,
    /// The next write to be ordered, while its values are assembled.
    assembling: Option<Box<Assembly>>,
    /// While set, the head orders nothing; it expires on its own.
    closing: Option<Closing>,
    removals: Removals,
}

#[derive(Debug)]
pub(super) struct WriteInput {
    pub(super) waiter: Waiter,
    pub(super) request: Option<RequestKey>,
    pub(super) write: Write,
}

#[derive(Clone, Hash, Debug)]
pub(super) struct Waiter {
    pub(super) token: Token,
    pub(super) deadline: Timestamp,
    /// The request arrived after the update had been ordered for an earlier attempt.
    pub(super) replayed: bool,
}

#[derive(Clone, Hash, Debug)]
struct Assembly {
    waiter: Waiter,
    update: Update,
    resolved: Resolved,
}

/// Whether an update was appended. A head that is also the tail may then commit it immediately.
pub(super) type IsAppended = bool;

#[derive(Debug)]
pub(super) struct WriteFailed {
    pub(super) token: Token,
    pub(super) why: Halt,
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

impl Head {
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.closing.is_none()
    }

    pub(super) fn is_assembling(&self) -> bool {
        self.assembling.is_some()
    }

    /// Whether the window has capacity for a write, and the head is neither closed nor assembling another write.
    /// Otherwise writes are refused with [`Refusal::Busy`], so drivers leave them in their own bounded queues. The last
    /// accepted write may exceed the window by its own size: otherwise a value larger than the window would wait
    /// forever.
    pub(super) fn has_room(&self, member: &Membership, log: &Log) -> bool {
        self.held(log) < member.settings().window.max(1) && !self.is_closed() && !self.is_assembling()
    }

    /// Like [`has_room`](Self::has_room), but [large](crate::runner::WriteLine::Large) writes get only a quarter of the
    /// window, unless none is in flight: small writes are committed after all writes ordered before them.
    pub(super) fn has_room_for_large(&self, member: &Membership, log: &Log) -> bool {
        let is_alone = self.large <= log.watermark();
        self.has_room(member, log) && (is_alone || self.held(log) < member.settings().window / 4)
    }

    fn held(&self, log: &Log) -> usize {
        log.history().in_flight() + self.waiting.result_bytes()
    }

    pub(super) fn write(
        &mut self,
        cx: Context<'_>,
        log: &mut Log,
        peers: &Peers,
        input: WriteInput,
        out: &mut Outbox,
    ) -> Result<IsAppended, WriteFailed> {
        let WriteInput { mut waiter, request, write } = input;
        let token = waiter.token;
        let mut removed = false;
        let refusal = match known(cx, log, request, matches!(write, Write::Resolve)) {
            Ok(KnownRequest::Nothing) => {
                if let Err(refusal) = check(cx, request, &write) {
                    out.refuse(token, refusal);
                    return Ok(false);
                }
                removed = self.remove_due_among(cx, log, &write).map_err(|why| WriteFailed { token, why })?;
                match self.order(cx, log, peers, waiter, (request, write), out) {
                    Ok(is_appended) => return Ok(is_appended || removed),
                    Err(NotOrdered::Failed(why)) => return Err(WriteFailed { token, why }),
                    Err(NotOrdered::Refused(refusal)) => refusal,
                }
            }
            Ok(KnownRequest::Pending(sequence)) => {
                waiter.replayed = true;
                self.waiting.push(sequence, WriteResult::Nothing, waiter);
                return Ok(false);
            }
            Ok(KnownRequest::Done(record)) => {
                out.reply(token, reply_of(cx, &record, &WriteResult::Nothing, true));
                return Ok(false);
            }
            Ok(KnownRequest::NoSession) => Refusal::SessionExpired,
            Ok(KnownRequest::Answered) => Refusal::Forgotten,
            Ok(KnownRequest::Full) => Refusal::SessionFull,
            Err(refusal) => refusal,
        };
        out.refuse(token, refusal);
        Ok(removed)
    }

    /// Turns a write into an update and appends it, even if the write's condition fails. The write is answered once the
    /// update is committed. So its answer never names a version that may vanish (trap 20), and a late duplicate finds
    /// its record.
    fn order(
        &mut self,
        cx: Context<'_>,
        log: &mut Log,
        peers: &Peers,
        waiter: Waiter,
        (request, write): (Option<RequestKey>, Write),
        out: &mut Outbox,
    ) -> Result<IsAppended, NotOrdered> {
        self.may_order(cx, log)?;
        let kind = match &write {
            Write::OpenSession => UpdateKind::SESSION_OPEN,
            Write::Resolve => UpdateKind::NOOP,
            _ => UpdateKind::WRITE,
        };
        let mut update = next_update(cx, log, kind);
        let terms = Terms {
            at: update.version,
            stamp: update.chain_time,
            limit: cx.settings().max_value,
            most: cx.settings().largest_update(),
            keeps_failed_groups: allows!(cx.guards(), KeepFailedGroups),
        };
        let resolved = resolve(write, terms, |key| {
            let newest = log.store().read(key, Sequence::MAX)?;
            Ok(newest.filter(|held| held.value.is_some()))
        })
        .map_err(Halt::from)?;
        peers.check_space(cx, log, &resolved.changes)?;
        // The request that opens a session belongs to none.
        update.request = request.filter(|_| kind != UpdateKind::SESSION_OPEN);
        update.outcome = resolved.outcome;
        if allows!(cx.guards(), ForgetFailedSwaps) && matches!(update.outcome, RequestOutcome::Conflict(_)) {
            update.request = None;
        }
        Ok(self.assemble(cx, log, Assembly { waiter, update, resolved }, out)?)
    }

    /// Assembles one step of a write's values, and appends the update after the last step. Until then the head accepts
    /// no other write: the next sequence is reserved for this one.
    fn assemble(
        &mut self,
        cx: Context<'_>,
        log: &mut Log,
        mut assembly: Assembly,
        out: &mut Outbox,
    ) -> Result<IsAppended, Halt> {
        if !assembly.resolved.join_some(cx.settings().join.max(1)) {
            self.assembling = Some(Box::new(assembly));
            return Ok(false);
        }
        let Assembly { waiter, mut update, resolved } = assembly;
        update.changes = resolved.changes;
        let sequence = update.version.sequence;
        let too_soon = match update.outcome {
            RequestOutcome::Conflict(_) => allows!(cx.guards(), AnswerFailedSwapAtOnce),
            RequestOutcome::Ran => allows!(cx.guards(), AnswerScriptAtOnce),
            _ => false,
        };
        self.append(cx, log, update)?;
        if too_soon && let Some(record) = log.record_at(sequence) {
            out.reply(waiter.token, reply_of(cx, &record, &resolved.seen, waiter.replayed));
        } else {
            self.waiting.push(sequence, resolved.seen, waiter);
        }
        Ok(true)
    }

    pub(super) fn continue_assembly(
        &mut self,
        cx: Context<'_>,
        log: &mut Log,
        out: &mut Outbox,
    ) -> Result<IsAppended, WriteFailed> {
        let Some(assembly) = self.assembling.take() else { return Ok(false) };
        let token = assembly.waiter.token;
        self.assemble(cx, log, *assembly, out).map_err(|why| WriteFailed { token, why })
    }

    /// Refuses the write in assembly. No reader and no other member has seen it yet.
    pub(super) fn cancel_assembly(&mut self, refusal: Refusal, out: &mut Outbox) {
        if let Some(assembly) = self.assembling.take() {
            out.refuse(assembly.waiter.token, refusal);
        }
    }

    /// Whether a member that [may know](may_know) the requests of its chain may order another update now.
    fn may_order(&self, cx: Context<'_>, log: &Log) -> Result<(), Refusal> {
        let Some(config) = cx.config() else { return Err(Refusal::NoChain) };
        if config.is_sealed() {
            return Err(Refusal::Busy);
        }
        let (have, need) = (config.serving().count() as u32, config.fewest());
        if have < need {
            return Err(Refusal::TooFewMembers { have, need });
        }
        if self.has_room(&cx, log) { Ok(()) } else { Err(Refusal::Busy) }
    }

    /// Orders an update that is no client's write: a barrier or an eviction. `None`: the head may not order.
    pub(super) fn order_own(
        &mut self,
        cx: Context<'_>,
        log: &mut Log,
        kind: UpdateKind,
        request: Option<RequestKey>,
    ) -> Result<Option<Sequence>, Halt> {
        if may_know(cx).and_then(|()| self.may_order(cx, log)).is_err() {
            return Ok(None);
        }
        let mut update = next_update(cx, log, kind);
        update.request = request;
        let sequence = update.version.sequence;
        self.append(cx, log, update)?;
        Ok(Some(sequence))
    }

    /// Evicts the least recently used session if all sessions together exceed the byte limit. An eviction is an update,
    /// so it may have to wait for capacity in the window; it is tried again after every input.
    pub(super) fn evict_session(&mut self, cx: Context<'_>, log: &mut Log) -> Result<IsAppended, Halt> {
        let Some(session) = log.sessions().to_evict(cx.settings().sessions) else { return Ok(false) };
        let request = RequestKey { session, number: 0, lowest: 0 };
        Ok(self.order_own(cx, log, UpdateKind::SESSION_EVICT, Some(request))?.is_some())
    }

    fn append(&mut self, cx: Context<'_>, log: &mut Log, update: Update) -> Result<(), Halt> {
        if update.cost() >= cx.settings().large_write() {
            self.large = update.version.sequence;
        }
        log.apply(cx, update)?;
        Ok(())
    }

    pub(super) fn answer_committed(&mut self, cx: Context<'_>, log: &Log, out: &mut Outbox) {
        while let Some(done) = self.waiting.pop_committed(log.watermark()) {
            let Some(record) = log.record_at(done.sequence) else { continue };
            for waiter in done.waiters {
                out.reply(waiter.token, reply_of(cx, &record, &done.seen, waiter.replayed));
            }
        }
    }

    /// Updates above `keep` were dropped here. The outcome of their writes is unknown.
    pub(super) fn cut(&mut self, keep: Sequence, out: &mut Outbox) {
        self.large = self.large.min(keep);
        self.forget_removals(keep);
        self.waiting.cut(keep, out);
    }

    /// Answers the callers whose deadline has passed as expired: the outcome of their writes is unknown.
    pub(super) fn expire(&mut self, now: Timestamp, out: &mut Outbox) {
        self.waiting.expire(now, out);
    }

    /// Refuses the write in assembly, and ends the closing.
    pub(super) fn leave_epoch(&mut self, out: &mut Outbox) {
        self.cancel_assembly(Refusal::NoChain, out);
        self.closing = None;
    }
}

fn may_know(cx: Context<'_>) -> Result<(), Refusal> {
    if cx.config().is_none() || cx.halted().is_some() {
        return Err(Refusal::NoChain);
    }
    if cx.place().is_head { Ok(()) } else { Err(Refusal::NotHead(cx.place().head)) }
}

/// The state of a request at the head. `Err`: this member isn't the head, is in no configuration, or has halted.
fn known(cx: Context<'_>, log: &Log, request: Option<RequestKey>, settles: bool) -> Result<KnownRequest, Refusal> {
    may_know(cx)?;
    let Some(request) = request else { return Ok(KnownRequest::Nothing) };
    let known = log.sessions().look_up(request, settles, cx.settings().sessions);
    Ok(match known {
        KnownRequest::Pending(_) | KnownRequest::Done(_) if allows!(cx.guards(), ForgetRecords) => {
            KnownRequest::Nothing
        }
        KnownRequest::NoSession if allows!(cx.guards(), RunEvicted) => KnownRequest::Nothing,
        KnownRequest::Pending(sequence) if allows!(cx.guards(), AnswerPendingRecord) => {
            log.record_at(sequence).map_or(known, KnownRequest::Done)
        }
        known => known,
    })
}

/// Refuses a write that is too large or malformed.
fn check(cx: Context<'_>, request: Option<RequestKey>, write: &Write) -> Result<(), Refusal> {
    write.check_lengths(cx.settings().max_value as u64)?;
    let size = match write {
        Write::Batch(steps) => steps.len(),
        Write::Script(script) => script.size(),
        // Without a request id there is nothing to settle.
        Write::Resolve if request.is_none() => return Err(Refusal::SessionExpired),
        _ => return Ok(()),
    };
    if size == 0 || size > MAX_STEPS {
        return Err(Refusal::BatchSize { len: size as u64, limit: MAX_STEPS as u64 });
    }
    Ok(())
}

fn next_update(cx: Context<'_>, log: &mut Log, kind: UpdateKind) -> Update {
    let last = log.last();
    let epoch = match cx.config() {
        Some(config) if !allows!(cx.guards(), ReuseEpoch) || last.is_none() => config.epoch,
        _ => last.epoch,
    };
    Update {
        version: Version { epoch, sequence: last.sequence.next() },
        kind,
        request: None,
        outcome: RequestOutcome::Done,
        chain_time: log.next_stamp(cx.now),
        changes: smallvec![],
    }
}
