//! Reads that the gate couldn't serve: dirty ones wait for a version query or a watermark, others for a barrier.
//!
//! Queries and barriers are *rounds*: numbered, one on its way at a time. A round answers every read that was parked
//! before it was sent, and no later one (trap 3).

mod rounds;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use rounds::Rounds;

use super::{
    ReadCounts, Replica, ReplicaOutput, Token,
    snapshot_reads::{Apart, Lookup},
};
use crate::{
    Mode, Sequence, Timestamp,
    api::{Query, ReadMode, ReadPath, Refusal, Reply, Snapshot},
    message::VersionAnswer,
    store::StoreError,
    types::update::MAX_KEY,
};

/// The most keys of one read.
const MAX_KEYS: usize = 4096;

/// Reads that wait.
#[derive(Clone, Debug, Default)]
pub(super) struct Reads {
    next_id: u64,
    parked: BTreeMap<u64, Parked>,
    /// Which watermark each parked read waits for, by the read's id.
    by_watermark: BTreeSet<(Sequence, u64)>,
    pub(super) queries: Rounds,
    pub(super) barriers: Rounds,
    /// The newest barrier that this member ordered for reads of its own.
    own_barrier: Sequence,
    /// The last moment at which this member is known to have held every committed update.
    pub(super) shown: Option<Timestamp>,
    pub(super) counters: ReadCounts,
}

/// A read as it arrived.
#[derive(Clone, Debug)]
pub(super) struct PendingRead {
    pub(super) token: Token,
    pub(super) query: Query,
    pub(super) mode: ReadMode,
    pub(super) floor: Option<Sequence>,
    pub(super) deadline: Timestamp,
}

#[derive(Clone, Debug)]
struct Parked {
    asked: PendingRead,
    /// The read waits for a barrier rather than a query.
    through_chain: bool,
    apart: Apart,
    /// The round that will serve it, if one will.
    round: Option<u64>,
    /// The watermark that will serve it: that of the newest version seen on arrival (trap 29), or of its barrier.
    watermark: Option<Sequence>,
}

impl Reads {
    pub(super) fn len(&self) -> usize {
        self.parked.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.parked.is_empty()
    }

    fn rounds(&mut self, through_chain: bool) -> &mut Rounds {
        if through_chain { &mut self.barriers } else { &mut self.queries }
    }

    fn park(&mut self, parked: Parked) {
        let id = self.next_id;
        self.next_id += 1;
        if let Some(round) = parked.round {
            self.rounds(parked.through_chain).wait(round, id);
        }
        if let Some(watermark) = parked.watermark {
            self.by_watermark.insert((watermark, id));
        }
        self.parked.insert(id, parked);
    }

    fn take(&mut self, id: u64) -> Option<Parked> {
        let parked = self.parked.remove(&id)?;
        if let Some(round) = parked.round {
            self.rounds(parked.through_chain).leave(round, id);
        }
        if let Some(watermark) = parked.watermark {
            self.by_watermark.remove(&(watermark, id));
        }
        Some(parked)
    }

    fn take_all(&mut self) -> Vec<Parked> {
        let all: Vec<_> = self.parked.keys().copied().collect();
        all.into_iter().filter_map(|id| self.take(id)).collect()
    }
}

impl Replica {
    pub(super) fn read(&mut self, now: Timestamp, asked: PendingRead) {
        if let Some(refusal) = self.refuses_read(&asked) {
            self.reply(asked.token, Reply::Refused(refusal));
            return;
        }
        let token = asked.token;
        if let Err(error) = self.try_read(now, asked) {
            self.read_failed(token, error);
        }
    }

    fn try_read(&mut self, now: Timestamp, asked: PendingRead) -> Result<(), StoreError> {
        if let Query::Changes(watch) = &asked.query {
            let watch = watch.clone();
            self.watch(asked, watch);
            return Ok(());
        }
        if let Query::Scan(scan) = &asked.query
            && let Snapshot::Of(number) = scan.snapshot
        {
            let reply = self.look_at_snapshot(now, &asked.query, number)?;
            self.reply(asked.token, reply);
            return Ok(());
        }
        let seen = self.seen(&asked.query)?;
        if let Some(at_most) = self.is_served_loosely(now, &asked, &seen)? {
            let clean = at_most != Sequence::MAX || seen.newest <= self.watermark;
            let reply = self.read_at(now, &asked.query, at_most, clean, ReadPath::Local)?;
            self.reply(asked.token, reply);
            return Ok(());
        }
        if self.is_expelled() {
            // Nothing more will be committed here.
            self.reply(asked.token, Reply::Refused(Refusal::NoChain));
            return Ok(());
        }
        // An eventual read of a session waits until the watermark reaches the session's floor.
        if asked.mode == ReadMode::Eventual {
            let watermark = asked.floor;
            self.reads.park(Parked { asked, through_chain: false, apart: Apart::default(), round: None, watermark });
            return Ok(());
        }
        self.read_strongly(now, asked, &seen)
    }

    /// Whether an eventual or bounded read can be served now, and at which sequence; [`Sequence::MAX`]: the newest
    /// versions, committed or not.
    fn is_served_loosely(
        &self,
        now: Timestamp,
        asked: &PendingRead,
        seen: &Lookup,
    ) -> Result<Option<Sequence>, StoreError> {
        let is_close = match asked.mode {
            ReadMode::Eventual => true,
            ReadMode::Bounded { versions, age } => {
                let is_tail = self.place.is_tail && now < self.lease;
                let is_fresh = is_tail || self.reads.shown.is_some_and(|shown| now - shown <= age);
                is_fresh && self.pending_versions(&asked.query, seen, versions)? <= versions
            }
            _ => false,
        };
        Ok(match asked.floor {
            _ if !is_close => None,
            // Pages of a scan show one point of the history, so they show committed versions.
            None if matches!(asked.query, Query::Key(_)) => Some(Sequence::MAX),
            None => Some(self.watermark),
            Some(floor) => {
                (self.watermark >= floor || allows!(self.settings.guards, IgnoreFloor)).then_some(self.watermark)
            }
        })
    }

    fn read_strongly(&mut self, now: Timestamp, asked: PendingRead, seen: &Lookup) -> Result<(), StoreError> {
        let is_classic = self.config.as_ref().is_some_and(|config| config.mode == Mode::Classic);
        if is_classic && !self.place.is_tail && asked.mode != ReadMode::ThroughChain {
            self.reply(asked.token, Reply::Refused(Refusal::NotTail(self.place.tail)));
            return Ok(());
        }
        let clean = seen.newest <= self.watermark || allows!(self.settings.guards, DirtyAsCommitted);
        let leased = now < self.lease;
        let through_chain = asked.mode == ReadMode::ThroughChain || (self.place.is_tail && !leased);
        if !through_chain && clean && leased {
            let at_most = if allows!(self.settings.guards, DirtyAsCommitted) { Sequence::MAX } else { self.watermark };
            let reply = self.read_at(now, &asked.query, at_most, true, ReadPath::Local)?;
            self.reply(asked.token, reply);
            return Ok(());
        }
        if through_chain && self.place.is_head && self.place.is_tail && allows!(self.settings.guards, AnswerAlone) {
            let reply = self.read_at(now, &asked.query, self.watermark, true, ReadPath::Chain)?;
            self.reply(asked.token, reply);
            return Ok(());
        }
        if !clean {
            self.count_read_of_unreplicated(now, &asked.query)?;
        }
        let apart = if allows!(self.settings.guards, ReadKeysApart) {
            self.look_apart(&asked.query)?
        } else {
            Apart::default()
        };
        let mut parked = Parked { asked, through_chain, apart, round: None, watermark: None };
        if through_chain {
            parked.round = Some(self.reads.barriers.for_new_read());
        } else {
            // The tail asks no member: it waits for its own watermark, which rises once the epoch is open here.
            parked.round = (!self.place.is_tail).then(|| self.round_for_query());
            // Without a lease even a clean version needs the tail's answer.
            parked.watermark = (!clean && leased).then_some(seen.newest);
        }
        self.reads.park(parked);
        if self.reads.queries.wants_to_ask() && !self.reads.queries.on_its_way() {
            self.due_for(self.place.tail);
        }
        if self.reads.barriers.wants_to_ask() && !self.reads.barriers.on_its_way() {
            self.due_for(self.place.head);
        }
        Ok(())
    }

    fn round_for_query(&self) -> u64 {
        let queries = &self.reads.queries;
        if allows!(self.settings.guards, JoinQueryInFlight) && queries.on_its_way() {
            queries.sent()
        } else {
            queries.for_new_read()
        }
    }

    fn refuses_read(&self, asked: &PendingRead) -> Option<Refusal> {
        if self.halted.is_some() || self.filling.is_some() || (self.config.is_none() && !self.is_expelled()) {
            return Some(Refusal::NoChain);
        }
        if !self.place.serves() && asked.mode != ReadMode::Eventual {
            return Some(Refusal::NoChain);
        }
        if self.is_expelled() && matches!(asked.query, Query::Changes(_)) {
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

    fn read_failed(&mut self, token: Token, error: StoreError) {
        self.halt(error.into());
        self.reply(token, Reply::Refused(Refusal::StoreFailed));
    }

    /// The tail answered a version query. The answer serves every read that waited before the query was sent.
    pub(super) fn answered(&mut self, now: Timestamp, answer: VersionAnswer) {
        let sent_at = self.reads.queries.sent_at;
        let Some(ids) = self.reads.queries.answer(answer.number) else { return };
        self.reads.shown = self.reads.shown.max(Some(sent_at));
        self.reads.counters.answered(ids.len());
        // Versions below our own watermark may be pruned already. Where our watermark is above the answer, read by the
        // watermark (trap 12).
        let at_most = if allows!(self.settings.guards, AnswerBelowOwnWatermark) {
            answer.sequence
        } else {
            answer.sequence.max(self.watermark)
        };
        for id in ids {
            self.serve(now, id, at_most);
        }
        if self.reads.queries.wants_to_ask() {
            self.due_for(self.place.tail);
        }
    }

    /// The head ordered a barrier. The reads of that round now wait for the watermark to reach it.
    pub(super) fn barrier_ordered(&mut self, now: Timestamp, answer: VersionAnswer) {
        let Some(ids) = self.reads.barriers.answer(answer.number) else { return };
        for id in ids {
            if let Some(mut parked) = self.reads.take(id) {
                parked.round = None;
                parked.watermark = Some(answer.sequence);
                self.reads.park(parked);
            }
        }
        if self.reads.barriers.wants_to_ask() {
            self.due_for(self.place.head);
        }
        self.serve_committed_reads(now);
    }

    /// Serves the reads whose watermark has been reached.
    pub(super) fn serve_committed_reads(&mut self, now: Timestamp) {
        let upto = if allows!(self.settings.guards, WaitEndsEarly) { Sequence(u64::MAX - 1) } else { self.watermark };
        let later = self.reads.by_watermark.split_off(&(upto.next(), 0));
        let ready = std::mem::replace(&mut self.reads.by_watermark, later);
        for (_, id) in ready {
            self.serve(now, id, self.watermark);
        }
    }

    fn serve(&mut self, now: Timestamp, id: u64, at_most: Sequence) {
        let Some(parked) = self.reads.take(id) else { return };
        let way = match parked.asked.mode {
            // It waited for this member's own watermark; no query was sent for it.
            ReadMode::Eventual => ReadPath::Local,
            _ if parked.through_chain => ReadPath::Chain,
            _ => ReadPath::Query,
        };
        match way {
            ReadPath::Chain => self.reads.counters.through_chain += 1,
            ReadPath::Query => self.reads.counters.dirty += 1,
            ReadPath::Local => {}
        }
        match self.read_at(now, &parked.asked.query, at_most, true, way) {
            Ok(reply) => self.reply(parked.asked.token, parked.apart.over(reply)),
            Err(error) => self.read_failed(parked.asked.token, error),
        }
    }

    /// Starts all waiting reads anew on entering another epoch: answers of the old epoch don't count for them any more.
    pub(super) fn restart_reads(&mut self, now: Timestamp) {
        if allows!(self.settings.guards, KeepWaiting) {
            return;
        }
        let parked = self.reads.take_all();
        self.reads.own_barrier = Sequence::ZERO;
        self.reads.queries.give_up();
        self.reads.barriers.give_up();
        for read in parked {
            self.read(now, read.asked);
        }
    }

    pub(super) fn expire_reads(&mut self, now: Timestamp) {
        let late: Vec<_> =
            self.reads.parked.iter().filter(|(_, read)| read.asked.deadline <= now).map(|(&id, _)| id).collect();
        for id in late {
            if let Some(read) = self.reads.take(id) {
                self.reply(read.asked.token, Reply::Expired);
            }
        }
    }

    pub(super) fn reply_all_reads(&mut self, reply: &Reply) {
        for read in self.reads.take_all() {
            self.outputs.push_back(ReplicaOutput::Reply(read.asked.token, reply.clone()));
        }
    }

    /// Orders the barriers that other members and this head's own reads ask for.
    pub(super) fn order_barriers(&mut self, now: Timestamp) {
        if !self.place.is_head {
            return;
        }
        let asked: Vec<_> = self.peers.iter().filter(|(_, peer)| peer.wants_barrier()).map(|(&id, _)| id).collect();
        for id in asked {
            let Some(sequence) = self.order_barrier(now) else { return };
            if let Some(peer) = self.peers.get_mut(&id) {
                peer.barrier_ordered(sequence);
            }
        }
        // One own barrier at a time. Reads that come meanwhile share the next one.
        if self.reads.barriers.wants_to_ask() && self.reads.own_barrier <= self.watermark {
            let Some(sequence) = self.order_barrier(now) else { return };
            self.reads.own_barrier = sequence;
            let number = self.reads.barriers.ask(now);
            self.barrier_ordered(now, VersionAnswer { number, sequence });
        }
    }
}
