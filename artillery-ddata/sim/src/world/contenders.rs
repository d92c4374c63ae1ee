//! Processes that contend for locks, and the resources that the locks protect. Processes pause, die, and are cut off
//! from all nodes. A resource accepts no token below one that it has accepted.

use std::fmt::Write as _;

use artillery_proto::{
    Version,
    api::Reply,
    runner::{ReadRequest, WriteRequest},
};

use super::{Event as WorldEvent, Phase, World};
use crate::{
    client::{Act, Process, Request, deadline},
    node::{Caller, Input, Work},
    oracle::{Failure, LockHolder, LockOracle, Oracle},
    scenario::{HEALED, SECOND},
};

const MILLI: u64 = SECOND / 1000;

/// Requests and answers per thousand that are lost until healing.
const LOST: u32 = 80;
/// Requests and answers per thousand that take long until healing.
const LATE: u32 = 100;
/// Critical requests and decisions of holders per thousand after which a process pauses until healing.
const PAUSED: u32 = 40;

#[derive(Debug)]
pub(crate) enum Event {
    // A process performs its due actions.
    Wake { process: usize, number: u64 },
    // A request reaches a node.
    Request { process: usize, attempt: u64, node: usize, request: Box<Request>, until: u64 },
    Answer { process: usize, attempt: u64, reply: Box<Reply> },
    // A process that held the lock just before writes to the resource.
    Use { process: usize, incarnation: u32, token: Version },
    // The write reaches the resource.
    Store { holder: LockHolder, lock: usize, token: Version },
    // A process pauses, dies or is cut off.
    Fault(usize),
}

impl Event {
    /// The process that must be running to handle the event.
    const fn process(&self) -> Option<usize> {
        match self {
            Self::Wake { process, .. } | Self::Answer { process, .. } | Self::Use { process, .. } => Some(*process),
            Self::Request { .. } | Self::Store { .. } | Self::Fault(_) => None,
        }
    }

    pub(super) const fn waits_for(&self) -> Option<usize> {
        if let Self::Request { node, .. } = self { Some(*node) } else { None }
    }
}

/// The processes, and the rules that they must follow.
#[derive(Debug, Default)]
pub(super) struct Contenders {
    processes: Vec<Process>,
    locks: Vec<LockOracle>,
}

impl Contenders {
    pub(super) fn new(seed: u64, setup: &crate::scenario::Setup) -> Self {
        let Some(locks) = &setup.locks else { return Self::default() };
        Self {
            processes: (0..locks.processes).map(|index| Process::new(seed, index, setup, locks)).collect(),
            locks: (0..locks.names).map(|_| LockOracle::default()).collect(),
        }
    }
}

impl World {
    pub(super) fn begin_contenders(&mut self) {
        for process in 0..self.contenders.processes.len() {
            self.contend_at(self.now + 1, Event::Wake { process, number: 0 });
            self.contend_at(self.now + SECOND, Event::Fault(process));
        }
    }

    fn contend_at(&mut self, at: u64, event: Event) {
        self.queue.push(at, WorldEvent::Contend(event));
    }

    pub(super) fn contend(&mut self, event: Event) -> Result<(), Failure> {
        if self.phase == Phase::End {
            return Ok(());
        }
        if let Some(process) = event.process() {
            let until = self.contenders.processes[process].paused_until;
            if self.now < until {
                self.contend_at(until, event);
                return Ok(());
            }
        }
        match event {
            Event::Wake { process, number } if self.contenders.processes[process].wake == number => {
                return self.drive(process);
            }
            Event::Answer { process, attempt, reply } => {
                self.contenders.processes[process].answered(self.now, attempt, *reply, &self.ids)?;
                return self.drive(process);
            }
            Event::Request { process, attempt, node, request, until } => {
                self.request_of_contender((process, attempt), node, *request, until);
            }
            Event::Use { process, incarnation, token } => self.use_resource(process, incarnation, token),
            Event::Store { holder, lock, token } => return self.store_at_resource(lock, holder, token),
            Event::Fault(process) => self.disturb_contender(process),
            Event::Wake { .. } => {}
        }
        Ok(())
    }

    /// Lets a process act, and checks the lock for which it contends.
    fn drive(&mut self, index: usize) -> Result<(), Failure> {
        let (now, nodes, retires) = (self.now, self.nodes.len(), self.phase != Phase::Work);
        let process = &mut self.contenders.processes[index];
        let lock = process.lock;
        for act in process.act(now, nodes, retires) {
            match act {
                Act::Send { attempt, node, request, until, is_critical } => {
                    self.trace.line(now, |out| write!(out, "contender {index} attempt {attempt} asks n{node}"));
                    if let Some(delay) = self.contender_delay(index) {
                        let request = Box::new(request);
                        let event = Event::Request { process: index, attempt, node, request, until };
                        self.contend_at(now + delay, event);
                    }
                    let process = &mut self.contenders.processes[index];
                    if is_critical && now < HEALED && process.rng.chance(PAUSED) {
                        self.pause_contender(index);
                    }
                }
                Act::Holds(version) => self.holds(index, version)?,
            }
        }
        self.has_one_holder(lock)?;
        self.begin_use(index);
        let process = &mut self.contenders.processes[index];
        process.wake += 1;
        let (at, number) = (process.next(now), process.wake);
        if at < u64::MAX {
            self.contend_at(at, Event::Wake { process: index, number });
        }
        Ok(())
    }

    /// The delay of a request or an answer. `None`: it is lost.
    fn contender_delay(&mut self, index: usize) -> Option<u64> {
        let now = self.now;
        let process = &mut self.contenders.processes[index];
        let delay = process.rng.below(2 * self.setup.profile.delay);
        let (is_lost, is_late) = (process.rng.chance(LOST), process.rng.chance(LATE));
        let more = process.rng.below(300 * MILLI);
        if now < process.cut_until || is_lost && now < HEALED {
            return None;
        }
        Some(delay + if is_late && now < HEALED { more } else { 0 })
    }

    fn request_of_contender(&mut self, caller: (usize, u64), index: usize, request: Request, until: u64) {
        let node = &self.nodes[index];
        if !node.is_alive() {
            return;
        }
        let deadline = deadline(node.clock(self.now), self.now, until);
        let slot = self.contenders.processes[caller.0].chain;
        let (floor, history, caller) = (None, None, Caller::Contender(caller.0, caller.1));
        let input = match request {
            Request::Write(write) => Input::Write(WriteRequest { request: None, history, write, deadline, caller }),
            Request::Read(query, mode) => Input::Read(ReadRequest { query, mode, floor, history, deadline, caller }),
        };
        self.enqueue(index, Work { slot, input, flight: None });
    }

    pub(super) fn answer_contender(&mut self, process: usize, attempt: u64, reply: Reply) {
        self.trace.line(self.now, |out| write!(out, "contender {process} attempt {attempt} gets {reply:?}"));
        if let Some(delay) = self.contender_delay(process) {
            let event = Event::Answer { process, attempt, reply: Box::new(reply) };
            self.contend_at(self.now + delay, event);
        }
    }

    /// Checks a process that begins to hold: no other one holds, its version is the highest yet, and every waiting
    /// process with a lower version may have lost its key.
    fn holds(&mut self, index: usize, version: Version) -> Result<(), Failure> {
        let (now, lock) = (self.now, self.contenders.processes[index].lock);
        self.trace.line(now, |out| write!(out, "contender {index} holds lock {lock} by {version}"));
        let others = self.contenders.processes.iter().enumerate();
        let mut passed = others.filter(|(other, process)| {
            *other != index
                && process.lock == lock
                && now >= process.paused_until
                && process.certain(now).is_some_and(|other| other < version)
        });
        if let Some((other, _)) = passed.next() {
            let what = format!("contender {index} holds lock {lock} by {version} although {other} precedes it");
            return Err(Failure::new(Oracle::Locks, what));
        }
        let incarnation = self.contenders.processes[index].incarnation;
        self.contenders.locks[lock].hold(LockHolder { process: index, incarnation }, version)
    }

    /// Checks that at most one process holds a lock, each by its own clock.
    fn has_one_holder(&self, lock: usize) -> Result<(), Failure> {
        let processes = self.contenders.processes.iter().enumerate();
        let holders = processes.filter(|(_, process)| process.lock == lock && process.is_held(self.now));
        let holders: Vec<_> = holders.map(|(index, process)| (index, process.machine.version())).collect();
        match holders.len() {
            0 | 1 => Ok(()),
            _ => Err(Failure::new(Oracle::Locks, format!("lock {lock} has the holders {holders:?}"))),
        }
    }

    /// A holder sometimes decides to write to the resource. It may pause between the decision and the write.
    fn begin_use(&mut self, index: usize) {
        let now = self.now;
        let process = &mut self.contenders.processes[index];
        let Some(token) = process.machine.version().filter(|_| process.is_held(now)) else { return };
        let after = process.rng.below(10 * MILLI);
        let incarnation = process.incarnation;
        self.contend_at(now + after, Event::Use { process: index, incarnation, token });
        let often = self.rate(PAUSED);
        if self.contenders.processes[index].rng.chance(often) {
            self.pause_contender(index);
        }
    }

    fn use_resource(&mut self, index: usize, incarnation: u32, token: Version) {
        let process = &mut self.contenders.processes[index];
        if process.incarnation != incarnation {
            return;
        }
        let longest = if process.rng.chance(100) { 500 * MILLI } else { 5 * MILLI };
        let delay = process.rng.below(longest);
        let (holder, lock) = (LockHolder { process: index, incarnation }, process.lock);
        self.contend_at(self.now + delay, Event::Store { holder, lock, token });
    }

    fn store_at_resource(&mut self, lock: usize, holder: LockHolder, token: Version) -> Result<(), Failure> {
        let process = &self.contenders.processes[holder.process];
        let holds = process.incarnation == holder.incarnation
            && process.machine.version() == Some(token)
            && process.is_held(self.now);
        let is_accepted = self.contenders.locks[lock].store(holder, token, holds)?;
        self.counts.locks.stored += u64::from(is_accepted);
        self.counts.locks.fenced += u64::from(!is_accepted);
        Ok(())
    }

    /// Few processes are disturbed after healing, and none at the end.
    fn rate(&self, permille: u32) -> u32 {
        match self.phase {
            _ if self.now < HEALED => permille,
            Phase::Work => permille / 10,
            _ => 0,
        }
    }

    fn disturb_contender(&mut self, index: usize) {
        let (now, often) = (self.now, self.rate(1000));
        let process = &mut self.contenders.processes[index];
        let next = now + process.rng.between(300, 5000) * MILLI;
        let (kind, length, happens) = (process.rng.below(10), process.rng.below(2 * SECOND), process.rng.chance(often));
        self.contend_at(next, Event::Fault(index));
        let process = &mut self.contenders.processes[index];
        match kind {
            _ if !happens || now < process.paused_until => {}
            0..4 => self.pause_contender(index),
            4..7 => {
                process.cut_until = now + length.max(process.ttl());
                process.counts.cuts += 1;
            }
            _ => {
                process.die(now, length / 4);
                self.trace.line(now, |out| write!(out, "contender {index} dies"));
                process.wake += 1;
                let number = process.wake;
                self.contend_at(now + 1, Event::Wake { process: index, number });
            }
        }
    }

    fn pause_contender(&mut self, index: usize) {
        let now = self.now;
        let process = &mut self.contenders.processes[index];
        let until = now + process.rng.between(process.ttl() / 5, 2 * process.ttl());
        process.pause(now, until.max(process.paused_until));
        self.trace.line(now, |out| write!(out, "contender {index} pauses until {until}"));
    }

    /// Checks that no contender still waits.
    pub(super) fn check_contenders(&self) -> Result<(), Failure> {
        let mut waiting = self.contenders.processes.iter().enumerate().filter(|(_, process)| process.waits());
        match waiting.next() {
            Some((index, process)) => {
                let what = format!("contender {index} never got lock {}: {:?}", process.lock, process.machine);
                Err(Failure::new(Oracle::Liveness, what))
            }
            None => Ok(()),
        }
    }

    pub(super) fn count_contenders(&mut self) {
        self.counts.locks.contenders = self.contenders.processes.len() as u64;
        for process in &self.contenders.processes {
            self.counts.locks.add(process.counts);
        }
    }
}
