//! The actions of clients.

use std::{fmt::Write as _, sync::Arc};

use artillery_proto::{
    MemberId, Sequence,
    api::{Query, ReadMode, ReadPath, ReadReply, Reply, Snapshot, retry::RetryState},
    replica::{Begun, NotLocal},
    runner::{ReadRequest, WriteRequest},
    types::update::RequestKey,
};

use super::{Arrival, Event, Phase, World};
use crate::{
    client::{self, Ask, Asked, Choice, Next, Pending, Request},
    node::{Caller, Input, Origin, Work},
    oracle::{Failure, Oracle},
    scenario::{CRASHES, OPERATIONS, SECOND, STOP},
};

/// A local read that has passed the first half of the gate's checks.
#[derive(Debug)]
pub(crate) struct Stalled {
    begun: Begun,
    as_of: Sequence,
    arrival: Arrival,
}

/// The number of operations that clients aim to begin before [`STOP`], at a pace of 1. It exceeds the minimum, so that
/// enough of them complete in time.
const AIM: u64 = OPERATIONS + OPERATIONS / 5;

impl World {
    pub(super) fn think(&mut self, index: usize) {
        if self.clients[index].pending.is_some() {
            return;
        }
        if let Some((node, key, mode)) = self.clients[index].script.pop_front() {
            let chain = self.setup.keys.chain(key);
            return self.start(index, Choice { ask: Ask::Read(key, mode), chain, node, pinned: false });
        }
        if self.phase != Phase::Work || self.counts.operations >= self.setup.most {
            self.end_scan(index);
            return;
        }
        if let Some(choice) = self.clients[index].next.take() {
            return self.start(index, choice);
        }
        if let Some(burst) = self.setup.bursts
            && self.now % SECOND > burst
        {
            // All clients resume together in the next second.
            let after = SECOND - self.now % SECOND + self.clients[index].rng.below(self.setup.profile.delay);
            return self.queue.push(self.now + after, Event::Think(index));
        }
        // All clients pause while they are ahead of schedule, and send without pauses while they are behind it.
        if self.setup.bursts.is_none() && self.counts.operations > AIM * self.setup.pace * self.now / STOP {
            let after = self.clients[index].rng.below(600_000_000 / self.setup.pace);
            self.queue.push(self.now + after, Event::Think(index));
            return;
        }
        let value = self.fresh_value();
        let timed = self.setup.longest_ttl.filter(|_| self.clients[index].rng.chance(700));
        let (chains, nodes) = (self.setup.chains, self.nodes.len());
        let client = &mut self.clients[index];
        let mut choice = match timed {
            Some(longest) => client.choose_timed(index, chains, nodes, longest),
            None => client.choose(&self.setup.mix, &self.setup.keys, nodes, value),
        };
        let is_write = choice.ask.is_write();
        if !is_write && !choice.pinned && self.clients[index].rng.chance(self.setup.favourite) {
            // All clients use the same node for a second, so that reads coincide there.
            choice.node = (self.now / SECOND) as usize % self.nodes.len();
        }
        self.start(index, choice);
    }

    pub(super) fn retry(&mut self, index: usize, number: u64) {
        if self.clients[index].pending.as_ref().is_some_and(|pending| pending.number == number) {
            self.attempt(index);
        }
    }

    fn start(&mut self, index: usize, choice: Choice) {
        let Some(Choice { ask, chain, node, pinned }) = self.opening(index, choice) else {
            // Another client is opening the required session.
            let after = 1 + self.clients[index].rng.below(10 * self.setup.profile.delay);
            self.queue.push(self.now + after, Event::Think(index));
            return;
        };
        self.begin_walk(index, &ask, chain);
        let called = self.moment();
        let (shortest, longest) = self.setup.patience;
        let asked = self.asked(index, ask, chain);
        let client = &mut self.clients[index];
        client.begun += 1;
        let number = client.begun;
        let until = self.now + client.rng.between(shortest, longest);
        self.trace.line(self.now, |out| {
            write!(out, "client {index} op {number}: {:?} chain {chain}", asked.ask)?;
            asked.id.map_or(Ok(()), |(session, id)| write!(out, " request {session}/{id}"))
        });
        client.pending = Some(Pending {
            number,
            tries: RetryState::new(asked.repeat()).with_guards(self.setup.guards),
            asked: Arc::new(asked),
            called,
            since: self.now,
            until,
            attempts: 0,
            retries: 0,
            first: node,
            node,
            pinned,
            waits: false,
            settles: false,
        });
        self.counts.operations += 1;
        self.in_flight += 1;
        self.counts.in_flight = self.counts.in_flight.max(self.in_flight);
        self.counts.healed += u64::from(self.is_measured(self.now));
        self.queue.push(until, Event::GiveUp { client: index, number });
        self.attempt(index);
    }

    /// The operation to begin: a numbered write must first open a session. `None` while another client is opening it.
    fn opening(&mut self, index: usize, choice: Choice) -> Option<Choice> {
        let is_write = choice.ask.is_write();
        self.clients[index].numbers = is_write && self.clients[index].rng.chance(self.setup.mix.numbered);
        let standing = &mut self.standings[index / self.setup.lanes][choice.chain];
        if !self.clients[index].numbers || standing.has_session() {
            return Some(choice);
        }
        let is_first = !std::mem::replace(&mut standing.opening, true);
        let open = is_first.then(|| Choice { ask: Ask::Open, ..choice.clone() });
        self.clients[index].next = Some(choice);
        open
    }

    fn asked(&mut self, index: usize, ask: Ask, chain: usize) -> Asked {
        let client = &mut self.clients[index];
        let standing = &mut self.standings[index / self.setup.lanes][chain];
        let present = self.control.as_ref().filter(|_| self.setup.control.is_some_and(|control| control.accepts));
        standing.history = standing.history.or(present.map(|control| control.configs().sessions_id()));
        let history = standing.history;
        let padding = client.rng.between(0, self.setup.padding) as usize;
        let id = if client.numbers && ask != Ask::Open { standing.number() } else { None };
        // A snapshot is fixed, so it may be below the floor.
        let is_old = matches!(ask, Ask::Page { snapshot: Snapshot::Of(_), .. });
        let floor =
            (ask.mode().is_some() && !is_old && client.rng.chance(self.setup.mix.sessions)).then_some(standing.floor);
        let request = client::request(&ask, padding);
        Asked { ask, chain, request, id, floor, tells_floor: self.setup.floors, history }
    }

    /// Whether an operation begun at `since` must be served: faults are over, and no crash precedes its deadline.
    pub(super) fn is_measured(&self, since: u64) -> bool {
        since >= self.setup.healed && (self.setup.crash.is_none() || since + self.setup.patience.1 < CRASHES)
    }

    fn attempt(&mut self, index: usize) {
        let delay = self.network.client_delay(index);
        let count = self.nodes.len();
        let gone_over = self.clients[index].pending.as_ref().is_some_and(|pending| self.has_gone_over(pending.node));
        let client = &mut self.clients[index];
        let Some(pending) = &mut client.pending else { return };
        // Clients avoid a node that has left or that belongs to another cluster.
        if (self.leaves > 0 || gone_over) && !self.nodes[pending.node].is_alive() {
            let next = (1..count).map(|step| (pending.node + step) % count).find(|&at| self.nodes[at].is_alive());
            pending.node = next.unwrap_or(pending.node);
        }
        pending.attempts += 1;
        pending.waits = true;
        let (number, attempt, node, until) = (pending.number, pending.attempts, pending.node, pending.until);
        let (asked, request) = (pending.asked.clone(), pending.request());
        self.counts.retries += u64::from(pending.tries.is_open());
        let key = asked.id.map(|(session, number)| {
            // Confirm some answers late, so that records outlive their answers.
            let lowest = self.standings[index / self.setup.lanes][asked.chain].lowest(session).min(number);
            RequestKey { session, number, lowest: lowest.saturating_sub(client.rng.below(4)) }
        });
        self.counts.most_retries = self.counts.most_retries.max(u64::from(pending.retries));
        if pending.is_repeated() && pending.retries < self.setup.retries {
            let (shortest, longest) = self.setup.attempt;
            let at = self.now + client.rng.between(shortest, longest);
            self.queue.push(at, Event::Unanswered { client: index, number, attempt });
        }
        self.trace.line(self.now, |out| {
            write!(out, "client {index} op {number} asks n{node}{}", if delay.is_none() { ", lost" } else { "" })
        });
        if let Some(delay) = delay {
            let origin = Origin { client: index, number, attempt, asked, expected: None };
            let arrival = Arrival { origin, node, request, key, until };
            self.queue.push(self.now + delay, Event::Request(Box::new(arrival)));
        }
    }

    /// Handles a request that reaches a node. The gate serves most clean strong reads of one key. All other requests go
    /// to the replica.
    pub(super) fn request(&mut self, arrival: Arrival) -> Result<(), Failure> {
        let (index, slot) = (arrival.node, arrival.origin.asked.chain);
        if !self.nodes[index].is_alive() {
            return Ok(());
        }
        self.note_asked(index, &arrival.origin);
        // A session may belong to an earlier history. Only the chain's task checks that.
        let is_bound = arrival.origin.asked.history.is_some() && arrival.origin.asked.floor.is_some();
        let Request::Read(Query::Key(key), ReadMode::Strong) = &arrival.request else {
            self.hand_over(arrival);
            return Ok(());
        };
        if is_bound {
            self.hand_over(arrival);
            return Ok(());
        }
        let node = &mut self.nodes[index];
        let stalls = self.setup.stalls > 0 && node.rng.chance(self.setup.stalls);
        let pause = if stalls { node.rng.between(SECOND / 100, 5 * SECOND / 2) } else { 0 };
        let gate = &node.slots[slot].gate;
        match gate.begin(&*node.store, key) {
            Ok(begun) => {
                // The read returns the state at this moment.
                let read = Stalled { begun, as_of: gate.watermark(), arrival };
                if stalls {
                    let event = Event::Leave { node: index, id: self.ids[index], read: Box::new(read) };
                    self.queue.push(self.now + pause, event);
                    return Ok(());
                }
                self.leave(index, self.ids[index], read)
            }
            Err(error) => self.not_local(arrival, error),
        }
    }

    pub(super) fn leave(&mut self, index: usize, id: MemberId, read: Stalled) -> Result<(), Failure> {
        let Stalled { begun, as_of, arrival } = read;
        let node = &self.nodes[index];
        if !node.is_alive() || node.id != id {
            return Ok(());
        }
        let gate = &node.slots[arrival.origin.asked.chain].gate;
        match gate.end(begun, || node.clock(self.now)) {
            Ok(held) => {
                let (slot, origin) = (arrival.origin.asked.chain, arrival.origin);
                self.counts.local_reads += 1;
                self.trace.line(self.now, |out| {
                    write!(out, "n{index} c{slot} shows client {} op {}: {held:?}", origin.client, origin.number)
                });
                let held = held.filter(|held| held.value.is_some());
                let chain_time = gate.chain_time(self.nodes[index].clock(self.now));
                let reply = Reply::Read(ReadReply { held, clean: true, way: ReadPath::Local, as_of, chain_time });
                self.note_served(index, &reply);
                self.check_reply(&origin, &reply);
                self.respond(origin, reply);
                Ok(())
            }
            Err(error) => self.not_local(arrival, error),
        }
    }

    fn not_local(&mut self, arrival: Arrival, error: NotLocal) -> Result<(), Failure> {
        if let NotLocal::Store(error) = error {
            return Err(Failure::new(Oracle::Halted, format!("the store of n{} failed a read: {error}", arrival.node)));
        }
        self.hand_over(arrival);
        Ok(())
    }

    fn hand_over(&mut self, arrival: Arrival) {
        let Arrival { origin, node: index, request, key, until } = arrival;
        let slot = origin.asked.chain;
        let floor = origin.asked.floor.filter(|_| origin.asked.tells_floor);
        let node = &self.nodes[index];
        let deadline = client::deadline(node.clock(self.now), self.now, until);
        let history = origin.asked.history;
        let caller = Caller::Client(origin);
        let input = match request {
            Request::Write(write) => Input::Write(WriteRequest { request: key, history, write, deadline, caller }),
            Request::Read(query, mode) => Input::Read(ReadRequest { query, mode, floor, history, deadline, caller }),
        };
        self.enqueue(index, Work { slot, input, flight: None });
    }

    pub(super) fn unanswered(&mut self, index: usize, number: u64, attempt: u32) {
        let waits = |pending: &Pending| pending.number == number && pending.attempts == attempt && pending.waits;
        if !self.clients[index].pending.as_ref().is_some_and(waits) {
            return;
        }
        if let Some(next) = self.clients[index].unanswered(self.nodes.len(), self.setup.mix.settled) {
            self.carry_on(index, next);
        }
    }

    pub(super) fn give_up(&mut self, index: usize, number: u64) {
        if self.clients[index].pending.as_ref().is_none_or(|pending| pending.number != number) {
            return;
        }
        if let Some(next) = self.clients[index].give_up() {
            self.carry_on(index, next);
        }
    }

    pub(super) fn carry_on(&mut self, index: usize, next: Next) {
        if let Next::Again(node, after) = next {
            if let Some(pending) = &mut self.clients[index].pending {
                pending.node = node;
                let event = Event::Retry { client: index, number: pending.number };
                self.queue.push(self.now + after, event);
            }
            return;
        }
        let Some(pending) = self.clients[index].pending.take() else { return };
        self.in_flight -= 1;
        self.trace.line(self.now, |out| write!(out, "client {index} op {}: {next:?}", pending.number));
        self.finish_operation(index, &pending, next);
        let pause = 1 + self.clients[index].rng.below(2 * self.setup.profile.delay);
        self.queue.push(self.now + pause, Event::Think(index));
    }
}
