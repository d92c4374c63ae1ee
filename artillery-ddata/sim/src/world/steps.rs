//! The steps of nodes: receiving inputs, processing turns, sending messages.

use std::{fmt::Write as _, time::Duration};

use artillery_proto::{
    MemberId, Timestamp,
    message::{ChainFrame, ChainMessage},
    replica::{Halt, ReplicaEvent},
    runner::{ChainRunner, LinkChange, RunnerOutput},
    types::update::Update,
};

use super::{Addressed, Event, World};
use crate::{
    network::Flight,
    node::{Caller, Input, Pending, Received, Work, is_part},
    oracle::{Failure, Oracle},
    scenario::{HEALED, SECOND},
    trace::{Brief, name},
    wire,
};

/// Size of a frame without its updates, in bytes.
const FRAME: usize = 64;

impl World {
    pub(super) fn enqueue(&mut self, node: usize, work: Work) {
        let node_index = node;
        let node = &mut self.nodes[node];
        if !node.is_alive() {
            return;
        }
        node.inbox.push_back(work);
        if !node.scheduled {
            node.scheduled = true;
            let at = node.ready_at.max(self.now + node.cost);
            self.queue.push(at, Event::Step(node_index));
        }
    }

    /// A node receives queued inputs. It may process them only after a delay.
    pub(super) fn step(&mut self, index: usize) -> Result<(), Failure> {
        if !self.nodes[index].is_alive() || self.nodes[index].pending.is_some() {
            return Ok(());
        }
        let slow = self.nodes[index].cost > self.setup.cost;
        self.slow_steps += u64::from(slow);
        let most = if slow { 1 } else { 1 + self.nodes[index].rng.index(self.setup.batch) };
        let (mut turns, mut flights) = (std::mem::take(&mut self.nodes[index].rest), Vec::new());
        let most = if turns.is_empty() { most } else { 0 };
        if most == 0 {
            self.receive_orders(index, &mut turns, &mut flights);
        }
        let shares = self.setup.record_cost > 0;
        for _ in 0..most {
            if !self.nodes[index].inbox.front().is_some_and(|work| has_room(&turns, work, shares)) {
                break;
            }
            let Some(work) = self.nodes[index].inbox.pop_front() else { break };
            self.receive(index, work, &mut turns, &mut flights);
        }
        let lags = self.tasks_lag();
        let node = &mut self.nodes[index];
        node.pending = Some(Pending { turns, reading: node.clock(self.now), flights });
        if lags && node.rng.chance(self.setup.late_turns) {
            let longest = if node.rng.chance(100) { SECOND / 5 } else { SECOND / 200 };
            let after = node.rng.below(longest);
            self.queue.push(self.now + after, Event::Take(index));
            return Ok(());
        }
        self.take(index)
    }

    /// Whether tasks of a node may be scheduled late. Runs that measure times exclude that.
    pub(super) fn tasks_lag(&self) -> bool {
        self.now < HEALED && !self.setup.peaceful && self.setup.gray.is_none()
    }

    /// While a turn is still being processed, only inputs with priority are received, for its next part.
    fn receive_orders(&mut self, index: usize, turns: &mut Vec<(usize, Received)>, flights: &mut Vec<(usize, Flight)>) {
        for work in std::mem::take(&mut self.nodes[index].inbox) {
            if work.input.goes_first() {
                self.receive(index, work, turns, flights);
            } else {
                self.nodes[index].inbox.push_back(work);
            }
        }
    }

    /// Postpones the event if its node is busy with a turn. The node's own next turn follows other postponed events.
    pub(super) fn unless_busy(&mut self, event: Event) -> Option<Event> {
        let Some(node) = event.waits_for().filter(|&node| self.nodes[node].busy_until > self.now) else {
            return Some(event);
        };
        let works = matches!(event, Event::Step(_) | Event::Take(_) | Event::Poll(_) | Event::CatchUp(_));
        self.queue.push(self.nodes[node].busy_until + u64::from(works), event);
        None
    }

    fn receive(
        &mut self,
        index: usize,
        work: Work,
        turns: &mut Vec<(usize, Received)>,
        flights: &mut Vec<(usize, Flight)>,
    ) {
        self.tell_what_comes(index, &work);
        let Work { slot, input, flight } = work;
        flights.extend(flight);
        let at = turns.iter().position(|(known, _)| *known == slot).unwrap_or_else(|| {
            turns.push((slot, Received::default()));
            turns.len() - 1
        });
        let turn = &mut turns[at].1;
        match input {
            Input::Lease(lease) => turn.lease = Some(lease),
            Input::Link(link) => turn.links.push(link),
            Input::Order(order) => turn.orders.push(order),
            Input::Frame(from, frame) => turn.frames.push((from, frame)),
            Input::Read(read) => turn.reads.push(read),
            Input::Write(write) => turn.writes.push(write),
            Input::Tick => self.nodes[index].slots[slot].tick_queued = false,
            Input::Durable(upto) => turn.durable = turn.durable.max(Some(upto)),
            Input::Checkpoint => turn.checkpoint = true,
        }
    }

    /// The chains of a node process the received turns, with the clock reading taken at receipt.
    pub(super) fn take(&mut self, index: usize) -> Result<(), Failure> {
        let Some(Pending { turns, reading, flights }) = self.nodes[index].pending.take() else { return Ok(()) };
        if !self.nodes[index].is_alive() {
            return Ok(());
        }
        self.nodes[index].read_at = self.nodes[index].moment(reading);
        let store = self.nodes[index].failing.clone();
        let (begun, record_cost) = (store.puts(), self.setup.record_cost);
        let spent = || (store.puts() - begun) * record_cost;
        let mut rest = Vec::new();
        for (slot, mut turn) in turns {
            let node = &mut self.nodes[index];
            let now = node.clock(self.now);
            turn.disk_full = node.opened.as_ref().is_some_and(|opened| opened.journal.is_full());
            let read = std::cell::Cell::new(Some(reading));
            let clock = || read.take().unwrap_or_else(|| now + Duration::from_nanos(spent()));
            if !node.slots[slot].runner.take(clock, &mut turn, |_| None) {
                rest.push((slot, turn));
            }
            if self.control.is_some() {
                // Observe now: a committed update may leave a small backlog before the step ends.
                self.observe(index, slot)?;
            }
        }
        flights.into_iter().for_each(|(from, flight)| self.release(from, index, flight));
        self.put_off(index);
        let node = &mut self.nodes[index];
        (node.rest, node.busy_until) = (rest, self.now + spent());
        node.scheduled = !(node.inbox.is_empty() && node.rest.is_empty());
        if node.scheduled {
            self.queue.push(node.ready_at.max(self.now + node.cost), Event::Step(index));
        }
        self.settle(index)?;
        let late = self.nodes[index].rng.chance(self.setup.late_polls);
        let after = self.nodes[index].rng.below(2 * self.setup.profile.delay);
        if self.nodes[index].poll_scheduled {
            Ok(())
        } else if late {
            self.nodes[index].poll_scheduled = true;
            self.queue.push(self.now + after, Event::Poll(index));
            Ok(())
        } else {
            self.send_all(index)
        }
    }

    pub(super) fn poll(&mut self, index: usize) -> Result<(), Failure> {
        self.nodes[index].poll_scheduled = false;
        if !self.nodes[index].is_alive() {
            return Ok(());
        }
        self.send_all(index)
    }

    /// Schedules the deferred work of chains for after their messages are sent. The task may be preempted in between.
    fn put_off(&mut self, index: usize) {
        let (now, stalls) = (self.now, self.setup.stalls);
        let node = &mut self.nodes[index];
        if !node.slots.iter().any(|slot| slot.runner.is_behind()) {
            return;
        }
        let stalls = stalls > 0 && now < HEALED && node.rng.chance(stalls / 10);
        let pause = if stalls { node.rng.between(SECOND / 1000, SECOND / 20) } else { 0 };
        node.ready_at = now + pause;
        self.queue.push(node.ready_at + 2 * node.cost, Event::CatchUp(index));
    }

    pub(super) fn catch_up(&mut self, index: usize) -> Result<(), Failure> {
        if !self.nodes[index].is_alive() {
            return Ok(());
        }
        let node = &mut self.nodes[index];
        let now = node.clock(self.now);
        let mut orders = false;
        for slot in &mut node.slots {
            let last =
                |runner: &ChainRunner<Caller>| runner.replica().history().next_back().map(|update| update.version);
            let before = last(&slot.runner);
            slot.runner.settle(|| now);
            orders |= last(&slot.runner) != before;
        }
        // A joiner clears its store in several steps, and a head joins large values in several steps.
        self.put_off(index);
        self.settle(index)?;
        if orders { self.send_all(index) } else { Ok(()) }
    }

    fn tell_what_comes(&mut self, index: usize, Work { slot, input, .. }: &Work) {
        let ids = &self.ids;
        self.trace.line(self.now, |out| {
            write!(out, "n{index} c{slot} ")?;
            match input {
                Input::Frame(from, frame) => write!(out, "receive {}: {}", name(ids, *from), Brief(frame)),
                Input::Link(LinkChange::Up(peer)) => write!(out, "connected {}", name(ids, *peer)),
                Input::Link(LinkChange::Down(peer)) => write!(out, "disconnected {}", name(ids, *peer)),
                other => write!(out, "{other:?}"),
            }
        });
    }

    fn release(&mut self, from: usize, to: usize, flight: Flight) {
        self.network.release(from, to, flight);
        let sender = &mut self.nodes[from];
        if sender.peers[to].full && !sender.poll_scheduled {
            sender.peers[to].full = false;
            sender.poll_scheduled = true;
            self.queue.push(self.now, Event::Poll(from));
        }
    }

    /// Checks the replicas, executes their outputs, and schedules their ticks.
    pub(super) fn settle(&mut self, index: usize) -> Result<(), Failure> {
        for slot in 0..self.nodes[index].slots.len() {
            self.observe(index, slot)?;
            while let Some(output) = self.nodes[index].slots[slot].runner.poll_output() {
                match output {
                    RunnerOutput::Reply(caller, reply) => self.answer(index, slot, caller, reply)?,
                    RunnerOutput::Event(event) => self.event(index, slot, &event)?,
                }
            }
            while let Some(word) = self.nodes[index].slots[slot].runner.poll_word() {
                self.chain_says(index, slot, word);
            }
            self.schedule_tick(index, slot);
        }
        self.write_journal(index);
        Ok(())
    }

    fn observe(&mut self, index: usize, slot: usize) -> Result<(), Failure> {
        let replica = self.nodes[index].slots[slot].runner.replica();
        let mut status = replica.unmeasured_status();
        if self.nodes[index].fails && status.halted.is_some() {
            if self.setup.durable.is_none() {
                return Ok(());
            }
            // The updates that it committed earlier in this step are on its disk.
            status.halted = None;
        }
        if self.control.is_some() {
            self.note_loss(index, slot);
            if self.is_of_lost_past(index, slot, &status) {
                return Ok(());
            }
            let replica = self.nodes[index].slots[slot].runner.replica();
            let times = [self.nodes[index].read_at.min(self.now), self.now];
            let who = (index, self.ids[index]);
            self.oracles[slot].observe_life(times, who, &status, replica.history())?;
        } else if let Some(place) = self.place(index, slot) {
            self.oracles[slot].observe(place, &status, replica.history())?;
        } else {
            return Ok(());
        }
        self.check_durable(index, slot, &status)?;
        self.oracles[slot].check_table(&status, self.setup.session_bytes)?;
        self.counts.session_bytes = self.counts.session_bytes.max(status.sessions.bytes as u64);
        if let Some(twice) = self.oracles[slot].take_twice() {
            self.claim(twice);
        }
        Ok(())
    }

    pub(super) fn place(&self, index: usize, slot: usize) -> Option<usize> {
        self.orders[slot].iter().position(|&node| node == index)
    }

    fn event(&mut self, index: usize, slot: usize, event: &ReplicaEvent) -> Result<(), Failure> {
        self.trace.line(self.now, |out| write!(out, "n{index} c{slot} event {event:?}"));
        match event {
            ReplicaEvent::Halted(_) if self.nodes[index].fails => {
                self.halts += 1;
                Ok(())
            }
            // A store that holds lost committed updates drops nothing on its own: its operator must remove it.
            ReplicaEvent::Halted(Halt::DropCommitted { .. }) if self.has_lost(slot) => {
                self.rolled_back(index);
                Ok(())
            }
            ReplicaEvent::Halted(halt) => {
                Err(Failure::new(Oracle::Halted, format!("n{index} of chain {slot} halted: {halt} ({halt:?})")))
            }
            ReplicaEvent::Rereplicating(so_far) if so_far.left == 0 => {
                self.counts.disks.rereplicated(so_far);
                Ok(())
            }
            ReplicaEvent::Resynced { .. } => {
                self.counts.resync.through += 1;
                Ok(())
            }
            ReplicaEvent::Resyncing => {
                self.counts.resync.begun += 1;
                self.disturb(index, slot);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn schedule_tick(&mut self, index: usize, slot_index: usize) {
        let now = self.now;
        let node = &mut self.nodes[index];
        let wanted = node.slots[slot_index].runner.next_tick().filter(|&at| at != Timestamp::MAX);
        let wanted = wanted.map(|at| node.moment(at).max(now));
        let slot = &mut node.slots[slot_index];
        if slot.tick_queued || slot.tick == wanted {
            return;
        }
        slot.tick = wanted;
        slot.tick_number += 1;
        if let Some(at) = wanted {
            let number = slot.tick_number;
            self.queue.push(at, Event::Tick { node: index, slot: slot_index, number });
        }
    }

    pub(super) fn tick(&mut self, index: usize, slot_index: usize, number: u64) {
        let slot = &mut self.nodes[index].slots[slot_index];
        if slot.tick_number == number {
            slot.tick = None;
            slot.tick_queued = true;
            self.enqueue(index, Work { slot: slot_index, input: Input::Tick, flight: None });
        }
    }

    pub(super) fn send_all(&mut self, index: usize) -> Result<(), Failure> {
        let clock = self.nodes[index].clock(self.now);
        for slot in 0..self.nodes[index].slots.len() {
            for peer in 0..self.nodes.len() {
                let to = self.ids[peer];
                if peer == index || !self.nodes[index].peers[peer].connected {
                    continue;
                }
                if let Some(frame) = self.nodes[index].slots[slot].runner.poll_control(clock, to) {
                    self.send(index, peer, frame)?;
                }
                loop {
                    let room = self.network.room(index, peer);
                    self.nodes[index].peers[peer].full = room == 0;
                    if room == 0 {
                        break;
                    }
                    let runner = &mut self.nodes[index].slots[slot].runner;
                    let frame = runner.poll_updates(clock, to, room).or_else(|| runner.poll_snapshot(clock, to, room));
                    let Some(frame) = frame else { break };
                    self.send(index, peer, frame)?;
                }
            }
        }
        self.settle(index)?;
        for slot in &mut self.nodes[index].slots {
            slot.runner.settle_in_time(|| clock);
        }
        self.settle(index)
    }

    fn send(&mut self, from: usize, to: usize, frame: ChainFrame) -> Result<(), Failure> {
        let frame = if self.setup.wired { wire::carry(&frame)? } else { frame };
        let bytes = match &frame.message {
            ChainMessage::Updates(updates) => FRAME + updates.updates.iter().map(Update::cost).sum::<usize>(),
            ChainMessage::Chunk(chunk) => FRAME + chunk.bytes.len(),
            ChainMessage::Snapshot(_) | ChainMessage::Control(_) | ChainMessage::Durable(_) | ChainMessage::Full(_) => {
                FRAME
            }
        };
        self.note_frame(from, to, &frame.message);
        let generation = self.nodes[from].peers[to].generation;
        let (flight, copy) = self.network.send(self.now, from, to, generation, bytes);
        let lost = flight.lost;
        self.trace.line(self.now, |out| {
            write!(out, "n{from} {} n{to} {}", if lost { "loses to" } else { "sends" }, Brief(&frame))
        });
        let ends = [self.ids[from], self.ids[to]];
        let frame = Box::new((ends, frame));
        if let Some(copy) = copy {
            self.queue.push(copy.at, Event::Land { from, to, flight: copy, frame: Some(frame.clone()) });
        }
        let frame = (!flight.lost).then_some(frame);
        self.queue.push(flight.at, Event::Land { from, to, flight, frame });
        Ok(())
    }

    pub(super) fn land(&mut self, from: usize, to: usize, flight: Flight, frame: Option<Box<Addressed>>) {
        // A connection joins two incarnations: frames from or to another incarnation are dropped.
        let same = |[sender, receiver]: [MemberId; 2]| sender == self.ids[from] && receiver == self.ids[to];
        match frame.filter(|frame| same(frame.0) && self.network.arrives(from, to, flight)) {
            Some(frame) => {
                let slot = frame.1.chain.0 as usize;
                let input = Input::Frame(self.ids[from], frame.1);
                self.enqueue(to, Work { slot, input, flight: Some((from, flight)) });
            }
            None => self.release(from, to, flight),
        }
    }

    pub(super) fn notice(&mut self, index: usize, peer: usize, generation: u64, connected: bool) {
        let view = &mut self.nodes[index].peers[peer];
        if generation <= view.generation {
            return;
        }
        view.generation = generation;
        view.connected = connected;
        let id = self.ids[peer];
        if connected {
            self.meets(index, id);
        }
        for slot in 0..self.setup.chains {
            let input = Input::Link(if connected { LinkChange::Up(id) } else { LinkChange::Down(id) });
            self.enqueue(index, Work { slot, input, flight: None });
        }
    }
}

/// Whether the turn being received can include this input. If `shares`, a turn may include several snapshot parts.
fn has_room(turns: &[(usize, Received)], work: &Work, shares: bool) -> bool {
    let other = |turn: &Received| !shares || !turn.frames.iter().all(|(_, frame)| is_part(frame));
    let full = |turn: &Received| {
        (!turn.frames.is_empty() && (other(turn) || !work.input.is_part())) || !turn.writes.is_empty()
    };
    !work.input.adds() || !turns.iter().any(|(slot, turn)| *slot == work.slot && full(turn))
}
