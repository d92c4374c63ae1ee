//! Reads that the gate doesn't serve. They are served from this member's state at once, after a version query, once the
//! watermark is high enough, or after a barrier.

mod copies;
mod digests;
mod hashed_pages;
mod lookup;
mod parked;
mod portion;
mod rounds;
mod snapshots;
mod watch;

use std::sync::Arc;

use bytes::Bytes;

pub(super) use self::parked::PendingRead;
use self::{
    copies::copy,
    lookup::{Apart, look_apart, newest_of, pending_versions},
    parked::{Parked, ParkedReads},
    snapshots::Snapshots,
    watch::Watchers,
};
use super::{Context, Gate, Outbox, ReadCounts, Token, log::Log, unhashed::Unhashed};
use crate::{
    ChainConfig, MemberId, Mode, Sequence, Timestamp,
    api::{DigestStep, Query, ReadMode, ReadPath, Refusal, Reply, Snapshot},
    message::VersionAnswer,
    store::StoreError,
    types::update::MAX_KEY,
};

const MAX_KEYS: usize = 4096;

#[derive(Clone, Hash, Debug)]
pub(super) struct Reads {
    gate: Unhashed<Arc<Gate>>,
    lease: Timestamp,
    parked: ParkedReads,
    /// The newest barrier that this member ordered for reads of its own.
    own_barrier: Sequence,
    /// The last time at which this member is known to have held every committed update.
    shown: Option<Timestamp>,
    counts: ReadCounts,
    snapshots: Snapshots,
    watchers: Watchers,
}

/// The store failed during this caller's read. The member must halt.
#[derive(Debug)]
pub(super) struct ReadFailed {
    pub(super) token: Token,
    pub(super) why: StoreError,
}

impl Reads {
    pub(super) fn new(me: MemberId, gate: Arc<Gate>) -> Self {
        Self {
            gate: Unhashed(gate),
            lease: Timestamp::ZERO,
            parked: ParkedReads::default(),
            own_barrier: Sequence::ZERO,
            shown: None,
            counts: ReadCounts::default(),
            snapshots: Snapshots::of(me),
            watchers: Watchers::default(),
        }
    }

    /// Test-only: attaches the copy of a member to its own gate.
    #[cfg(feature = "mutants")]
    pub(super) fn attach(&mut self, gate: Arc<Gate>) {
        *self.gate = gate;
    }

    #[cfg(any(test, feature = "mutants"))]
    pub(super) fn note_time(&self, now: Timestamp) {
        self.gate.note_time(now);
    }

    /// Opens the gate to local readers, if this member serves them in its configuration.
    pub(super) fn open_gate(&self, cx: Context<'_>, config: &ChainConfig) {
        if cx.place().serves_local_reads(config.mode) {
            self.gate.serve(Some(config.epoch));
        }
    }

    pub(super) fn close_gate(&self) {
        self.gate.serve(None);
    }

    pub(super) fn set_lease(&mut self, cx: Context<'_>, until: Timestamp) {
        self.lease = if allows!(cx.guards(), IgnoreLease) { Timestamp::MAX } else { until };
        self.gate.lease(self.lease);
    }

    pub(super) fn is_leased(&self, now: Timestamp) -> bool {
        now < self.lease
    }

    /// This member is known to have held every committed update at `at`.
    pub(super) fn served_at(&mut self, at: Timestamp) {
        self.shown = self.shown.max(Some(at));
    }

    pub(super) fn counts(&self) -> ReadCounts {
        ReadCounts { version_queries: self.parked.queries.sent(), ..self.counts }
    }

    pub(super) fn parked(&self) -> usize {
        self.parked.len()
    }

    pub(super) fn snapshots(&self) -> usize {
        self.snapshots.len()
    }

    pub(super) fn watchers(&self) -> usize {
        self.watchers.len()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.parked() + self.snapshots() + self.watchers() == 0
    }

    /// The number of the version query for a frame that is built now; 0: none.
    pub(super) fn query(&mut self, now: Timestamp) -> u64 {
        self.parked.queries.ask(now)
    }

    /// The number of the barrier request for a frame that is built now; 0: none.
    pub(super) fn barrier(&mut self, now: Timestamp) -> u64 {
        self.parked.barriers.ask(now)
    }

    /// Whether a frame to the tail must carry another version query.
    pub(super) fn wants_query(&self) -> bool {
        self.parked.queries.wants_to_ask() && !self.parked.queries.is_in_flight()
    }

    /// Whether a frame to the head must carry another request for a barrier.
    pub(super) fn wants_barrier(&self) -> bool {
        self.parked.barriers.wants_to_ask() && !self.parked.barriers.is_in_flight()
    }

    pub(super) fn awaits_answer(&self) -> bool {
        self.parked.queries.is_waiting()
    }

    pub(super) fn awaits_barrier(&self) -> bool {
        self.parked.barriers.is_waiting()
    }

    /// Serves, refuses or parks a read.
    pub(super) fn read(
        &mut self,
        cx: Context<'_>,
        log: &mut Log,
        asked: PendingRead,
        out: &mut Outbox,
    ) -> Result<(), ReadFailed> {
        let token = asked.token;
        if let Some(refusal) = refusal_of(cx, &asked) {
            out.refuse(token, refusal);
            return Ok(());
        }
        self.try_read(cx, log, asked, out).map_err(|why| ReadFailed { token, why })
    }

    fn try_read(
        &mut self,
        cx: Context<'_>,
        log: &mut Log,
        asked: PendingRead,
        out: &mut Outbox,
    ) -> Result<(), StoreError> {
        let token = asked.token;
        if let Query::Changes(watch) = &asked.query {
            if watch.asks_position(asked.floor) && asked.floor > Some(log.watermark()) {
                self.park_until_floor(asked);
            } else {
                self.watchers.watch(cx, log, (token, asked.deadline, asked.floor), watch.clone(), out);
            }
            return Ok(());
        }
        if let Query::Scan(scan) = &asked.query
            && let Snapshot::Of(number) = scan.snapshot
        {
            out.reply(token, self.snapshots.page(cx, log, scan, number)?);
            return Ok(());
        }
        if let Query::Digest(digest) = &asked.query
            && let DigestStep::Part { number, at, from } = &digest.step
        {
            if *at > log.watermark() && !allows!(cx.guards(), DigestNow) {
                self.park_until_floor(PendingRead { floor: Some(*at), ..asked });
            } else {
                out.reply(token, self.snapshots.digest_part(cx, log, digest, (*number, *at, from))?);
            }
            return Ok(());
        }
        if let Query::Copy(step) = &asked.query
            && let Some(floor) = step.floor()
        {
            if floor > log.watermark() {
                self.park_until_floor(PendingRead { floor: Some(floor), ..asked });
            } else {
                out.reply(token, copy(cx, log, step, floor)?);
            }
            return Ok(());
        }
        let newest = newest_of(log, &asked.query)?;
        if let Some(at_most) = self.is_served_loosely(cx, log, &asked, newest)? {
            let clean = at_most != Sequence::MAX || newest <= log.watermark();
            out.reply(token, self.snapshots.read_at(cx, log, &asked.query, (at_most, clean, ReadPath::Local))?);
            return Ok(());
        }
        if cx.is_expelled() {
            // No further update will be committed here.
            out.refuse(token, Refusal::NoChain);
            return Ok(());
        }
        if asked.mode == ReadMode::Eventual {
            self.park_until_floor(asked);
            return Ok(());
        }
        self.read_strongly(cx, log, asked, newest, out)
    }

    /// Parks an eventual read until the watermark reaches its floor, which is that of a session or of a copy.
    fn park_until_floor(&mut self, asked: PendingRead) {
        let watermark = asked.floor;
        self.parked.park(Parked { asked, through_chain: false, apart: Apart::default(), round: None, watermark });
    }

    /// Whether an eventual or bounded read can be served now, and at which sequence; [`Sequence::MAX`]: the newest
    /// versions, committed or not.
    fn is_served_loosely(
        &self,
        cx: Context<'_>,
        log: &Log,
        asked: &PendingRead,
        newest: Sequence,
    ) -> Result<Option<Sequence>, StoreError> {
        let is_close = match asked.mode {
            ReadMode::Eventual => true,
            ReadMode::Bounded { versions, age } => {
                let is_tail = cx.place().is_tail && self.is_leased(cx.now);
                let is_fresh = is_tail || self.shown.is_some_and(|shown| cx.now - shown <= age);
                is_fresh && pending_versions(log, &asked.query, newest, versions)? <= versions
            }
            _ => false,
        };
        let watermark = log.watermark();
        Ok(match asked.floor {
            _ if !is_close => None,
            // Other queries show one point of the history, so they see committed versions only.
            None if matches!(asked.query, Query::Key(_)) => Some(Sequence::MAX),
            None => Some(watermark),
            Some(floor) => (watermark >= floor || allows!(cx.guards(), IgnoreFloor)).then_some(watermark),
        })
    }

    fn read_strongly(
        &mut self,
        cx: Context<'_>,
        log: &mut Log,
        asked: PendingRead,
        newest: Sequence,
        out: &mut Outbox,
    ) -> Result<(), StoreError> {
        let (place, guards, watermark) = (cx.place(), cx.guards(), log.watermark());
        let is_classic = cx.config().is_some_and(|config| config.mode == Mode::Classic);
        if is_classic && !place.is_tail && asked.mode != ReadMode::ThroughChain {
            out.refuse(asked.token, Refusal::NotTail(place.tail));
            return Ok(());
        }
        let clean = newest <= watermark || allows!(guards, DirtyAsCommitted);
        let leased = self.is_leased(cx.now);
        let through_chain = asked.mode == ReadMode::ThroughChain || (place.is_tail && !leased);
        if !through_chain && clean && leased {
            let at_most = if allows!(guards, DirtyAsCommitted) { Sequence::MAX } else { watermark };
            out.reply(asked.token, self.snapshots.read_at(cx, log, &asked.query, (at_most, true, ReadPath::Local))?);
            return Ok(());
        }
        if through_chain && place.is_alone() && allows!(guards, AnswerAlone) {
            out.reply(asked.token, self.snapshots.read_at(cx, log, &asked.query, (watermark, true, ReadPath::Chain))?);
            return Ok(());
        }
        if !clean && !log.unreplicated().is_empty() {
            log.count_waiting_read(cx.now, &asked.query)?;
        }
        let apart = if allows!(guards, ReadKeysApart) { look_apart(log, &asked.query)? } else { Apart::default() };
        let mut parked = Parked { asked, through_chain, apart, round: None, watermark: None };
        if through_chain {
            parked.round = Some(self.parked.barriers.for_new_read());
        } else {
            // The tail queries no member: it waits for its own watermark, which rises once the epoch is open here.
            let queries = &self.parked.queries;
            let joins = allows!(guards, JoinQueryInFlight) && queries.is_in_flight();
            parked.round = (!place.is_tail).then(|| if joins { queries.sent() } else { queries.for_new_read() });
            // Without a lease even a clean version needs the tail's answer.
            parked.watermark = (!clean && leased).then_some(newest);
        }
        self.parked.park(parked);
        Ok(())
    }

    /// The tail answered a version query. The answer serves every read that waited before the query was sent.
    pub(super) fn answered(
        &mut self,
        cx: Context<'_>,
        log: &Log,
        answer: VersionAnswer,
        out: &mut Outbox,
    ) -> Result<(), ReadFailed> {
        let sent_at = self.parked.queries.sent_at();
        let Some(ids) = self.parked.queries.answer(answer.number) else { return Ok(()) };
        self.served_at(sent_at);
        self.counts.answered(ids.len());
        // Versions below our own watermark may be pruned already. If our watermark is above the answer, read at the
        // watermark (trap 12).
        let at_most = if allows!(cx.guards(), AnswerBelowOwnWatermark) {
            answer.sequence
        } else {
            answer.sequence.max(log.watermark())
        };
        ids.into_iter().try_for_each(|id| self.serve(cx, log, id, at_most, out))
    }

    /// The head ordered a barrier. The reads of its round now wait until the watermark reaches the barrier.
    pub(super) fn barrier_ordered(
        &mut self,
        cx: Context<'_>,
        log: &Log,
        answer: VersionAnswer,
        out: &mut Outbox,
    ) -> Result<(), ReadFailed> {
        let Some(ids) = self.parked.barriers.answer(answer.number) else { return Ok(()) };
        for id in ids {
            if let Some(mut parked) = self.parked.take(id) {
                parked.round = None;
                parked.watermark = Some(answer.sequence);
                self.parked.park(parked);
            }
        }
        self.serve_committed(cx, log, out)
    }

    /// Whether this head must order a barrier for its own reads. It orders one at a time: reads that arrive until its
    /// commit share the next one.
    pub(super) fn needs_own_barrier(&self, log: &Log) -> bool {
        self.parked.barriers.wants_to_ask() && self.own_barrier <= log.watermark()
    }

    pub(super) fn own_barrier_ordered(
        &mut self,
        cx: Context<'_>,
        log: &Log,
        sequence: Sequence,
        out: &mut Outbox,
    ) -> Result<(), ReadFailed> {
        self.own_barrier = sequence;
        let number = self.barrier(cx.now);
        self.barrier_ordered(cx, log, VersionAnswer { number, sequence }, out)
    }

    /// Serves the reads whose watermark has been reached.
    pub(super) fn serve_committed(&mut self, cx: Context<'_>, log: &Log, out: &mut Outbox) -> Result<(), ReadFailed> {
        let watermark = log.watermark();
        let upto = if allows!(cx.guards(), WaitEndsEarly) { Sequence(u64::MAX - 1) } else { watermark };
        self.parked.ready(upto).into_iter().try_for_each(|id| self.serve(cx, log, id, watermark, out))
    }

    fn serve(
        &mut self,
        cx: Context<'_>,
        log: &Log,
        id: u64,
        at_most: Sequence,
        out: &mut Outbox,
    ) -> Result<(), ReadFailed> {
        let Some(Parked { asked, through_chain, apart, .. }) = self.parked.take(id) else { return Ok(()) };
        let path = match asked.mode {
            // The read waited for this member's own watermark, without a query.
            ReadMode::Eventual => ReadPath::Local,
            _ if through_chain => ReadPath::Chain,
            _ => ReadPath::Query,
        };
        match path {
            ReadPath::Chain => self.counts.through_chain += 1,
            ReadPath::Query => self.counts.dirty += 1,
            ReadPath::Local => {}
        }
        if let Query::Changes(watch) = asked.query {
            self.watchers.watch(cx, log, (asked.token, asked.deadline, asked.floor), watch, out);
            return Ok(());
        }
        let reply = match &asked.query {
            Query::Digest(digest) => match &digest.step {
                DigestStep::Begin => Ok(self.snapshots.begin_digest(cx, log, digest, at_most)),
                DigestStep::Part { number, at, from } => {
                    self.snapshots.digest_part(cx, log, digest, (*number, *at, from))
                }
            },
            query => self.snapshots.read_at(cx, log, query, (at_most, true, path)),
        };
        out.reply(asked.token, apart.over(reply.map_err(|why| ReadFailed { token: asked.token, why })?));
        Ok(())
    }

    pub(super) fn answer_watchers(&mut self, cx: Context<'_>, log: &Log, before: Sequence, out: &mut Outbox) {
        self.watchers.answer(cx, log, before, out);
    }

    /// Ends the snapshots during which too much was written.
    pub(super) fn end_overtaken_snapshots(&mut self, cx: Context<'_>, log: &Log) {
        self.snapshots.end_overtaken(log, cx.settings().snapshots.bytes);
    }

    /// Returns all waiting reads after an epoch change or a cut. Answers to earlier queries don't serve them, so the
    /// caller handles each again.
    pub(super) fn restart(&mut self, cx: Context<'_>) -> Vec<PendingRead> {
        if allows!(cx.guards(), KeepWaiting) {
            return Vec::new();
        }
        let parked = self.parked.take_all();
        self.own_barrier = Sequence::ZERO;
        self.parked.queries.abandon();
        self.parked.barriers.abandon();
        parked
    }

    pub(super) fn expire(&mut self, now: Timestamp, out: &mut Outbox) {
        self.parked.take_late(now).iter().for_each(|read| out.reply(read.token, Reply::Expired));
    }

    pub(super) fn expire_snapshots(&mut self, now: Timestamp, log: &Log) {
        self.snapshots.expire(now, log);
    }

    pub(super) fn expire_watchers(&mut self, now: Timestamp, log: &Log, out: &mut Outbox) {
        self.watchers.expire(now, log.watermark(), out);
    }

    pub(super) fn refuse_all(&mut self, out: &mut Outbox) {
        self.parked.take_all().iter().for_each(|read| out.refuse(read.token, Refusal::NoChain));
        self.watchers.refuse_all(out);
    }

    pub(super) fn forget_shown(&mut self) {
        self.shown = None;
    }

    pub(super) fn end_snapshots(&mut self, log: &Log) {
        self.snapshots.end_all(log);
    }
}

fn refusal_of(cx: Context<'_>, asked: &PendingRead) -> Option<Refusal> {
    if cx.is_halted() || (cx.config().is_none() && !cx.is_expelled()) {
        return Some(Refusal::NoChain);
    }
    // The store of a member that doesn't serve may be incomplete.
    let needs_whole = asked.mode != ReadMode::Eventual || matches!(asked.query, Query::Digest(_) | Query::Copy(_));
    if !cx.place().serves() && needs_whole {
        return Some(Refusal::NoChain);
    }
    if cx.is_expelled() && matches!(asked.query, Query::Changes(_)) {
        return Some(Refusal::NoChain);
    }
    let longest = asked.query.bounds().map(Bytes::len).max().unwrap_or(0);
    if longest > MAX_KEY {
        return Some(Refusal::KeyTooLong { len: longest as u64, limit: MAX_KEY as u64 });
    }
    match &asked.query {
        Query::Keys(keys) if keys.is_empty() || keys.len() > MAX_KEYS => {
            Some(Refusal::BatchSize { len: keys.len() as u64, limit: MAX_KEYS as u64 })
        }
        _ => None,
    }
}
