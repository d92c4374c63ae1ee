//! What clients do, and what their answers are held against.

use std::fmt::Write as _;

use artillery_ddata::{
    Sequence,
    replica::{Input, NotLocal, Query, Read, ReadMode, Refusal, Reply, Token, Way},
    store::Held,
};

use super::{Arrival, Event, Phase, World};
use crate::{
    client::{self, Ask, Next, Pending, Request, key_bytes},
    history::{Answer, Call, Operation},
    node::{Origin, Work},
    oracle::{Failure, Oracle},
    scenario::{CRASHES, HEALED, OPERATIONS, SECOND, STOP},
};

/// Operations that clients aim at, so that enough are done when time is up.
const AIM: u64 = OPERATIONS + OPERATIONS / 5;

impl World {
    /// A client begins its next operation.
    pub(super) fn think(&mut self, index: usize) {
        if self.clients[index].pending.is_some() {
            return;
        }
        if let Some((node, key, mode)) = self.clients[index].script.pop_front() {
            self.start(index, Ask::Read(mode), key, node);
            return;
        }
        if self.phase != Phase::Work {
            return;
        }
        // All clients pause when they are ahead of their schedule, and hurry together when they are behind.
        if self.counts.operations > AIM * self.now / STOP {
            let after = self.clients[index].rng.below(600_000_000);
            self.queue.push(self.now + after, Event::Think(index));
            return;
        }
        let value = self.fresh_value();
        let (ask, key, mut node) = self.clients[index].choose(&self.setup.mix, self.nodes.len(), value);
        if matches!(ask, Ask::Read(_)) && self.clients[index].rng.chance(500) {
            // Everybody's favourite for a while, so that reads meet there.
            node = (self.now / SECOND) as usize % self.nodes.len();
        }
        self.start(index, ask, key, node);
    }

    /// A refused operation is tried again, if its client still waits.
    pub(super) fn retry(&mut self, index: usize, number: u64) {
        if self.clients[index].pending.as_ref().is_some_and(|pending| pending.number == number) {
            self.attempt(index);
        }
    }

    fn start(&mut self, index: usize, ask: Ask, key: u32, node: usize) {
        let called = self.moment();
        let (shortest, longest) = self.setup.patience;
        let client = &mut self.clients[index];
        client.begun += 1;
        let number = client.begun;
        let until = self.now + client.rng.between(shortest, longest);
        let padding = client.rng.between(0, self.setup.padding) as usize;
        let request = client::request(ask, key, padding);
        client.pending = Some(Pending {
            number,
            ask,
            key,
            request,
            called,
            since: self.now,
            until,
            attempts: 0,
            node,
            unanswered: false,
        });
        self.counts.operations += 1;
        self.counts.healed += u64::from(self.is_measured(self.now));
        self.trace.line(self.now, |out| write!(out, "client {index} op {number}: {ask:?} key {key}"));
        self.queue.push(until, Event::GiveUp { client: index, number });
        self.attempt(index);
    }

    /// Whether an operation begun then is to be served: all has healed, and nobody crashes before its client gives up.
    fn is_measured(&self, since: u64) -> bool {
        since >= HEALED && (self.setup.crash.is_none() || since + self.setup.patience.1 < CRASHES)
    }

    fn attempt(&mut self, index: usize) {
        let delay = self.network.client_delay(index);
        let Some(pending) = &mut self.clients[index].pending else { return };
        pending.attempts += 1;
        pending.unanswered = true;
        let Pending { number, attempts: attempt, ask, key, node, until, .. } = *pending;
        let request = pending.request.clone();
        self.trace.line(self.now, |out| {
            write!(out, "client {index} op {number} asks n{node}{}", if delay.is_none() { ", lost" } else { "" })
        });
        if let Some(delay) = delay {
            let origin = Origin { client: index, number, attempt, ask, key };
            self.queue.push(self.now + delay, Event::Request(Box::new(Arrival { origin, node, request, until })));
        }
    }

    /// A request reaches a node: a clean read is served at once, everything else goes to the replica.
    pub(super) fn request(&mut self, arrival: Arrival) -> Result<(), Failure> {
        let Arrival { origin, node: index, request, until } = arrival;
        if !self.nodes[index].is_alive() {
            return Ok(());
        }
        let slot = origin.key as usize % self.setup.chains;
        if let Request::Read(key, ReadMode::Strong) = &request {
            let node = &self.nodes[index];
            let now = node.clock(self.now);
            match node.slots[slot].gate.read(&*node.store, key, || now) {
                Ok(held) => {
                    self.counts.local_reads += 1;
                    self.trace.line(self.now, |out| {
                        write!(out, "n{index} c{slot} shows client {} op {}: {held:?}", origin.client, origin.number)
                    });
                    let as_of = node.slots[slot].gate.watermark();
                    let reply = Reply::Read(Read { held, clean: true, way: Way::Local, as_of });
                    self.check_reply(slot, &origin, &reply);
                    self.respond(origin, reply);
                    return Ok(());
                }
                Err(NotLocal::Store(error)) => {
                    return Err(Failure::new(Oracle::Halted, format!("the store of n{index} failed: {error}")));
                }
                Err(_) => {}
            }
        }
        let node = &mut self.nodes[index];
        let deadline = client::deadline(node.clock(self.now), self.now, until);
        let wall_clock = node.wall_clock(self.now);
        let token = node.owe(origin);
        let input = match request {
            Request::Write(write) => Input::Write { token, request: None, write, deadline, wall_clock },
            Request::Read(key, mode) => Input::Read { token, query: Query::Key(key), mode, floor: None, deadline },
        };
        self.enqueue(index, Work { slot, input, flight: None });
        Ok(())
    }

    /// A replica answers a request.
    pub(super) fn answer(&mut self, index: usize, slot: usize, token: Token, reply: Reply) -> Result<(), Failure> {
        let Some(origin) = self.nodes[index].owed.remove(&token) else {
            return Err(Failure::new(Oracle::Answers, format!("n{index} answers {token:?} without being asked")));
        };
        self.trace.line(self.now, |out| {
            write!(out, "n{index} c{slot} answers client {} op {}: {reply:?}", origin.client, origin.number)
        });
        self.counts.busy += u64::from(reply == Reply::Refused(Refusal::Busy));
        self.check_reply(slot, &origin, &reply);
        self.respond(origin, reply);
        Ok(())
    }

    /// Holds an answer against what the tail has committed. What is wrong is kept for the end, so that the history can
    /// show it too.
    fn check_reply(&mut self, slot: usize, origin: &Origin, reply: &Reply) {
        let oracle = &self.oracles[slot];
        let key = key_bytes(origin.key);
        let ahead = |what: &str, sequence: Sequence| {
            let committed = oracle.committed_up_to();
            let claim = format!("{what} {sequence} was answered, the tail has committed up to {committed}");
            if sequence > committed { Err(Failure::new(Oracle::Claims, claim)) } else { Ok(()) }
        };
        let checked = match reply {
            Reply::Read(Read { held: Some(Held { version, value }), clean, .. }) => {
                let committed = *clean || origin.ask != Ask::Read(ReadMode::Eventual);
                oracle.check_claim(&key, *version, value.as_ref(), committed)
            }
            Reply::Committed(committed) => ahead("write", committed.version.sequence),
            Reply::Conflict { at, .. } => ahead("conflict", at.sequence),
            _ => Ok(()),
        };
        if let Err(failure) = checked
            && self.claim.is_none()
        {
            self.trace.line(self.now, |out| write!(out, "claim: {failure}"));
            self.claim = Some(failure);
        }
    }

    fn respond(&mut self, origin: Origin, reply: Reply) {
        if let Some(delay) = self.network.client_delay(origin.client) {
            self.queue.push(self.now + delay, Event::Reply(origin, reply));
        }
    }

    /// A reply reaches its client, if that still waits for it.
    pub(super) fn reply(&mut self, origin: Origin, reply: Reply) -> Result<(), Failure> {
        let Origin { client: index, number, attempt, .. } = origin;
        let waits = |pending: &Pending| pending.number == number && pending.attempts == attempt && pending.unanswered;
        if !self.clients[index].pending.as_ref().is_some_and(waits) {
            return Ok(());
        }
        let next = self.clients[index].reply(reply, &self.ids)?;
        self.carry_on(index, next)
    }

    /// A client's patience is at its end.
    pub(super) fn give_up(&mut self, index: usize, number: u64) -> Result<(), Failure> {
        if self.clients[index].pending.as_ref().is_none_or(|pending| pending.number != number) {
            return Ok(());
        }
        let next = self.clients[index].give_up();
        self.carry_on(index, next)
    }

    fn carry_on(&mut self, index: usize, next: Next) -> Result<(), Failure> {
        if let Next::Again(node, after) = next {
            if let Some(pending) = &mut self.clients[index].pending {
                pending.node = node;
                let event = Event::Retry { client: index, number: pending.number };
                self.queue.push(self.now + after, event);
            }
            return Ok(());
        }
        let Some(pending) = self.clients[index].pending.take() else { return Ok(()) };
        self.trace.line(self.now, |out| write!(out, "client {index} op {}: {next:?}", pending.number));
        let served = match next {
            Next::Done(answer) => self.record(index, &pending, answer),
            Next::Seen { .. } => true,
            _ => false,
        };
        self.counts.unanswered += u64::from(!served && next != Next::Done(Answer::Refused));
        self.counts.healed_refused += u64::from(!served && self.is_measured(pending.since));
        let pause = 1 + self.clients[index].rng.below(2 * self.setup.profile.delay);
        self.queue.push(self.now + pause, Event::Think(index));
        Ok(())
    }

    /// Adds a finished operation to the history; says whether it was served.
    fn record(&mut self, index: usize, pending: &Pending, answer: Answer) -> bool {
        let call = match pending.ask {
            Ask::Write(call) => call,
            Ask::Read(_) => Call::Read,
        };
        let returned = self.moment();
        let (client, key, called) = (index as u32, pending.key, pending.called);
        self.operations.push(Operation { client, key, called, returned, call, answer });
        match answer {
            Answer::Written(_) => self.counts.acknowledged += 1,
            Answer::Conflict(_) => self.counts.conflicts += 1,
            Answer::Refused => self.counts.refused += 1,
            Answer::Found(_) | Answer::Unknown => {}
        }
        !matches!(answer, Answer::Refused | Answer::Unknown)
    }
}
