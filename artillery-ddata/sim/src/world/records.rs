//! Bookkeeping of finished operations: histories, sessions, scans, and late duplicates.

use std::sync::Arc;

use artillery_proto::{
    api::{ReadMode, ReadPath, Refusal, Reply, Snapshot, retry::Ending},
    types::update::RequestKey,
};

use super::{Arrival, Event, Phase, Served, World};
use crate::{
    client::{self, Ask, Choice, Next, Pending, Scanning, Told},
    history::{Answer, Call, Cut, Look, Operation, SeriesAnswer, SeriesCall, SeriesOperation},
    node::Origin,
    oracle::{Failure, Oracle},
    scenario::SECOND,
};

impl World {
    /// Checks the reply to an operation on a key with a time to live.
    fn note_timed(&mut self, index: usize, pending: &Pending, reply: &Reply) {
        let Ask::Timed(name, call) = pending.asked.ask else { return };
        if name != self.clients[index].timed.name(index) {
            return;
        }
        let drift = self.setup.drift();
        let seen = self.clients[index].timed.told(call, reply, pending.since, self.now, drift);
        if let Err(what) = seen {
            self.claim(Failure::new(Oracle::Expiry, what));
        }
    }

    pub(super) fn finish_operation(&mut self, index: usize, pending: &Pending, next: Next) {
        let asked = &pending.asked;
        if self.setup.audited {
            self.audit(pending, &next);
        }
        if let Next::Done(_, reply) = &next {
            self.note_timed(index, pending, reply);
        }
        let standing = &mut self.standings[index / self.setup.lanes][asked.chain];
        if asked.ask == Ask::Open {
            standing.opening = false;
        }
        if let Some(id) = asked.id {
            standing.close(id);
        }
        match next {
            Next::Again(..) => {}
            Next::Done(told, reply) => {
                if let (Ask::Open, Some(id)) = (&asked.ask, told.version) {
                    standing.opened(id);
                }
                let seen = told.as_of.into_iter().chain(told.version.map(|version| version.sequence));
                if standing.history == asked.history {
                    seen.for_each(|sequence| standing.rise(sequence));
                }
                if matches!(*reply, Reply::Committed(_)) {
                    self.counts.acknowledged += 1;
                    self.counts.wrote(self.now);
                }
                let is_read = asked.ask.mode() == Some(ReadMode::Strong);
                if asked.ask.is_write() || is_read {
                    self.note_done(asked.chain, asked.ask.is_write());
                }
                self.counts.conflicts += u64::from(matches!(*reply, Reply::Conflict { .. }));
                self.walked(index, &asked.ask, &told);
                self.record(index, pending, *told);
                self.duplicate(index, pending, *reply);
            }
            Next::Over(ending) => {
                let (Ending::NotApplied(refusal) | Ending::Unknown(refusal)) = ending;
                if refusal == Some(Refusal::OtherHistory) {
                    standing.begin_history();
                }
                if let (Some((session, _)), Some(Refusal::SessionExpired)) = (asked.id, refusal) {
                    standing.expired(session);
                }
                self.end_without_outcome(index, pending, ending);
            }
        }
    }

    fn audit(&mut self, pending: &Pending, next: &Next) {
        let by_itself = |reply: &Reply| {
            let Reply::Read(read) = reply else { return false };
            pending.node == pending.first && matches!(read.way, ReadPath::Local | ReadPath::Query)
        };
        let itself = matches!(pending.asked.ask, Ask::Read(_, ReadMode::Strong))
            .then(|| matches!(next, Next::Done(_, reply) if by_itself(reply)));
        let done = matches!(next, Next::Done(..));
        self.audit.push(Served { node: pending.first, begun: pending.since, over: self.now, done, itself });
    }

    fn end_without_outcome(&mut self, index: usize, pending: &Pending, ending: Ending) {
        let asked = &pending.asked;
        if ending == Ending::NotApplied(Some(Refusal::SessionExpired)) && self.phase == Phase::Work {
            // Nothing was applied under that id, so the operation can be repeated under another one.
            let (ask, chain, node) = (asked.ask.clone(), asked.chain, pending.node);
            self.clients[index].next = Some(Choice { ask, chain, node, pinned: false });
            return;
        }
        let refused = matches!(ending, Ending::NotApplied(_));
        if matches!(asked.ask, Ask::Timed(..)) && asked.is_write() && !refused {
            self.clients[index].timed.lost();
        }
        self.counts.healed_refused += u64::from(self.is_measured(pending.since));
        self.counts.refused += u64::from(refused && asked.is_write());
        self.counts.unanswered += u64::from(!refused || !asked.is_write());
        self.record(index, pending, client::ended(asked, refused));
        self.end_scan(index);
        self.clients[index].walk = None;
        if ending == Ending::NotApplied(Some(Refusal::Barred)) {
            self.duplicate(index, pending, Reply::Refused(Refusal::Barred));
        }
    }

    fn record(&mut self, index: usize, pending: &Pending, mut told: Told) {
        let asked = pending.asked.clone();
        let (mut called, mut returned) = (pending.called, self.moment());
        let client = index as u32;
        let seen = std::mem::take(&mut told.seen);
        if let Ask::Page { limit, snapshot, mode, .. } = asked.ask
            && let Some((after, kept)) = told.page
        {
            let scan = self.clients[index].scan.take();
            let snapshot_goes_on = matches!(snapshot, Snapshot::Of(_));
            let (first, earlier) = match scan {
                Some(scan) if snapshot_goes_on => (scan.first, scan.seen),
                _ => ((called, returned), Vec::new()),
            };
            (called, returned) = first;
            let seen_so_far = if kept.is_some() { [earlier, seen.clone()].concat() } else { Vec::new() };
            let (chain, node) = (asked.chain, pending.node);
            let scan = Scanning { chain, after, limit, mode, snapshot: kept, node, first, seen: seen_so_far };
            self.clients[index].scan = Some(scan);
            if after.is_none() {
                self.end_scan(index);
            }
        }
        let batch = asked.ask.batch();
        let (mut operations, mut series) = (Vec::new(), Vec::new());
        if asked.is_write() || asked.ask.is_linearizable() {
            operations.extend(told.operations.into_iter().map(|(key, call, answer)| Operation {
                client,
                key,
                called,
                returned,
                call,
                answer,
                batch: if call == Call::Read { 0 } else { batch },
            }));
            series.extend(told.series.into_iter().map(|(key, call, answer)| SeriesOperation {
                client,
                key,
                called,
                returned,
                call,
                answer,
            }));
        }
        if self.spans_loss(asked.chain, called) {
            return self.record_spanning(&operations, &series);
        }
        let history = &mut self.histories[asked.chain];
        history.operations.extend(operations);
        history.series.extend(series);
        if let Some(floor) = asked.floor {
            let looks = seen.iter().map(|&(key, found)| Look { client, key, called, returned, floor, found });
            history.looks.extend(looks);
        }
        let is_part = told.page.is_some_and(|(_, snapshot)| snapshot.is_some());
        if seen.len() > 1 && !is_part {
            history.cuts.push(Cut { client, called, returned, seen });
        }
    }

    /// Ends a scan. All pages of its snapshot form one cut of the history.
    pub(super) fn end_scan(&mut self, index: usize) {
        if let Some(Scanning { chain, first: (called, returned), seen, .. }) = self.clients[index].scan.take()
            && seen.len() > 1
            && !self.spans_loss(chain, called)
        {
            self.histories[chain].cuts.push(Cut { client: index as u32, called, returned, seen });
        }
    }

    /// By chance, schedules a late duplicate of an answered or barred write with a request id.
    fn duplicate(&mut self, index: usize, pending: &Pending, reply: Reply) {
        let Some((session, number)) = pending.asked.id else { return };
        let rng = &mut self.clients[index].rng;
        if self.phase != Phase::Work || !rng.chance(self.setup.mix.duplicates) {
            return;
        }
        let after = match rng.below(3) {
            0 => rng.below(4 * self.setup.profile.delay),
            _ => rng.below(2 * SECOND),
        };
        let node =
            if rng.chance(500) { rng.index(self.nodes.len()) } else { self.clients[index].head(pending.asked.chain) };
        self.counts.duplicates += 1;
        let asked = pending.asked.clone();
        let request = asked.request.clone();
        let origin =
            Origin { client: index, number: pending.number, attempt: 0, asked, expected: Some(Arc::new(reply)) };
        let key = Some(RequestKey { session, number, lowest: 0 });
        let (at, until) = (self.now + after, self.now + after + SECOND);
        self.queue.push(at, Event::Request(Box::new(Arrival { origin, node, request, key, until })));
    }

    /// Adds the unanswered writes to the history: they may have taken effect.
    pub(super) fn give_up_all(&mut self) {
        for index in 0..self.clients.len() {
            self.end_scan(index);
            if let Some(pending) = self.clients[index].pending.take()
                && pending.asked.is_write()
            {
                self.record(index, &pending, client::ended(&pending.asked, false));
            }
        }
    }

    pub(super) fn newest_acknowledged(&self, chain: usize) -> Option<artillery_proto::Version> {
        let history = &self.histories[chain];
        let registers = history.operations.iter().filter_map(|operation| match (operation.call, operation.answer) {
            (Call::Read, _) => None,
            (_, Answer::Written(version) | Answer::Took { version, .. }) => Some(version),
            _ => None,
        });
        let series = history.series.iter().filter_map(|operation| match (operation.call, &operation.answer) {
            (SeriesCall::Append(_) | SeriesCall::Increment, SeriesAnswer::Counted { version, .. }) => Some(*version),
            _ => None,
        });
        registers.chain(series).max()
    }
}
