//! The steps of the world.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use artillery_proto::{
    MemberId, ReadMode, Timestamp,
    api::{Query, Reply, Write},
    control::{Configs, log::LogEntry},
    node::{CoordinatorOutput as Decision, NodeInput, NodeOutput as Says, ProposalFate},
    runner::{ChainOrder, LinkChange, ReadRequest, RunnerOutput, Turn, Word, WriteRequest},
    store::Held,
};
use bytes::Bytes;

use super::{
    Action, Health, KEY, World, link,
    member::{CHAIN, Node},
    moment, what_others_hear,
};
use crate::{
    bounds::NODES,
    history::{Outcome, READ},
};

type Received = Turn<ReadRequest<usize>, WriteRequest<usize>>;

/// The byte budget for updates on a link: enough for all updates of a run.
const ROOM: usize = 1 << 20;
/// The deadline of clients: after the end of every exploration.
const NEVER: Timestamp = Timestamp::from_nanos(1 << 50);

impl World {
    /// Performs one of the possible steps; see [`actions`](Self::actions).
    pub fn step(&mut self, action: Action) {
        match action {
            Action::Deliver { from, to } => self.deliver(from.into(), to.into()),
            Action::Renewal(node) => self.hear_renewal(node.into()),
            Action::Renewed(node) => self.hear_answer(node.into()),
            Action::Learn(node) => self.learn(node.into()),
            Action::Tick => self.tick(),
            Action::Write(node) => self.write(node.into()),
            Action::Read(node) => self.read(node.into()),
            Action::Crash(node) => self.fault(node.into(), Health::Crashed),
            Action::CutOff(node) => self.fault(node.into(), Health::CutOff),
            Action::Undialable(node) if usize::from(node) < NODES => self.close(node.into()),
            Action::Undialable(_) => self.close_leader(),
            Action::Elect => self.elect(),
            Action::Reorder(order) => self.reorder(order.into()),
        }
    }

    pub(super) fn elect(&mut self) {
        self.term += 1;
        self.tell(self.what_the_leader_hears());
    }

    fn reorder(&mut self, order: usize) {
        self.reorders += 1;
        let order = super::ORDERS[order].map(|at| self.nodes[at].id).to_vec();
        self.tell(NodeInput::Reorder { token: 0, chain: CHAIN, order });
    }

    fn deliver(&mut self, from: usize, to: usize) {
        let Some(frame) = self.links[link(from, to)].pop_front() else { return };
        let id = self.nodes[from].id;
        self.take_in(to, |turn| turn.frames.push((id, frame)));
        self.send(from);
    }

    /// Processes a turn of a node's chain, whose inputs `receive` adds.
    pub(super) fn take_in(&mut self, node: usize, receive: impl FnOnce(&mut Received)) {
        let clock = moment(self.now);
        let mut turn = Turn::default();
        receive(&mut turn);
        self.nodes[node].runner.take(|| clock, &mut turn, |_| None);
        self.settle(node);
        self.send(node);
    }

    /// Processes the outputs of a chain.
    fn settle(&mut self, node: usize) {
        while let Some(output) = self.nodes[node].runner.poll_output() {
            match output {
                RunnerOutput::Reply(which, reply) => self.answer(node, which, reply),
                RunnerOutput::Event(_) => {}
            }
        }
        while let Some(word) = self.nodes[node].runner.poll_word() {
            self.hand_in(node, NodeInput::Word { chain: CHAIN, word });
        }
    }

    /// Sends an input to a node and processes its outputs.
    pub(super) fn hand_in(&mut self, node: usize, input: NodeInput) {
        let clock = moment(self.now);
        self.nodes[node].decider.handle(clock, input);
        self.obey(node);
    }

    /// Processes the outputs of a node. None of these nodes ever leads, so the other outputs can be ignored.
    pub(super) fn obey(&mut self, node: usize) {
        while let Some(says) = self.nodes[node].decider.poll_output() {
            match says {
                Says::Order(_, order) => self.take_in(node, |turn| turn.orders.push(order)),
                Says::Lease(lease) => self.take_in(node, |turn| turn.lease = Some(lease)),
                _ => {}
            }
        }
    }

    /// Fills the links from a node to the others, up to the bound on frames in flight.
    fn send(&mut self, node: usize) {
        let clock = moment(self.now);
        for to in (0..NODES).filter(|&to| to != node) {
            if !self.nodes[node].dials() || !self.nodes[to].is_well() {
                continue;
            }
            let id = self.nodes[to].id;
            while self.links[link(node, to)].len() < self.bounds.in_flight {
                let runner = &mut self.nodes[node].runner;
                let frame = runner.poll_control(clock, id).or_else(|| runner.poll_updates(clock, id, ROOM));
                let Some(frame) = frame.or_else(|| runner.poll_snapshot(clock, id, ROOM)) else { break };
                self.links[link(node, to)].push_back(frame);
            }
        }
        // Reads at the gate between these two steps aren't modelled: the simulator covers them.
        self.nodes[node].runner.settle(|| clock);
        self.settle(node);
    }

    fn answer(&mut self, node: usize, which: usize, reply: Reply) {
        let outcome = match reply {
            Reply::Committed(_) => Outcome::Acknowledged,
            Reply::Read(read) => {
                self.seen.read_at = Some((node as u8, false));
                Outcome::Found(number(read.held.as_ref()))
            }
            Reply::Expired => Outcome::Unknown,
            _ => Outcome::Refused,
        };
        self.seen.acknowledged_after_change |= outcome == Outcome::Acknowledged && self.changes > 0;
        self.history.end(which, outcome);
    }

    fn write(&mut self, node: usize) {
        let which = self.history.writes();
        self.history.begin(which);
        let write = Write::put(Bytes::from_static(KEY), Bytes::from(vec![which as u8 + 1]));
        let write = WriteRequest { request: None, history: None, write, deadline: NEVER, caller: which };
        self.take_in(node, |turn| turn.writes.push(write));
    }

    /// Reads as a node does: at the gate if possible, otherwise through the replica.
    fn read(&mut self, node: usize) {
        self.history.begin(READ);
        let clock = moment(self.now);
        let Node { gate, store, .. } = &*self.nodes[node];
        if let Ok(held) = gate.read(&**store, KEY, || clock) {
            self.seen.read_at = Some((node as u8, true));
            self.history.end(READ, Outcome::Found(number(held.as_ref())));
            return;
        }
        let (query, mode) = (Query::Key(Bytes::from_static(KEY)), ReadMode::Strong);
        let read = ReadRequest { query, mode, floor: None, history: None, deadline: NEVER, caller: READ };
        self.take_in(node, |turn| turn.reads.push(read));
    }

    /// Drops all messages in flight from and to the node. A delivery before the fault is explored as a later fault. The
    /// node's leases are renewed until the fault.
    fn fault(&mut self, node: usize, health: Health) {
        self.faults += 1;
        self.nodes[node].health = health;
        self.renewals[node].clear();
        self.answers[node].clear();
        let id = self.nodes[node].id;
        for peer in (0..NODES).filter(|&peer| peer != node) {
            self.links[link(node, peer)].clear();
            self.links[link(peer, node)].clear();
            let other = self.nodes[peer].id;
            if self.nodes[node].works() {
                self.take_in(node, |turn| turn.links.push(LinkChange::Down(other)));
            }
            if self.nodes[peer].is_well() {
                self.take_in(peer, |turn| turn.links.push(LinkChange::Down(id)));
            }
        }
    }

    /// Drops all messages in flight to the node, and all later ones from others, which learn that the connection is
    /// down. The node's own messages, and the answers to them, arrive.
    fn close(&mut self, node: usize) {
        self.faults += 1;
        self.nodes[node].health = Health::Undialable;
        let id = self.nodes[node].id;
        for peer in (0..NODES).filter(|&peer| peer != node) {
            self.links[link(peer, node)].clear();
            self.take_in(peer, |turn| turn.links.push(LinkChange::Down(id)));
        }
    }

    /// From now on no renewal reaches the leader.
    fn close_leader(&mut self) {
        self.faults += 1;
        self.is_leader_undialable = true;
        self.renewals.iter_mut().for_each(VecDeque::clear);
    }

    fn tick(&mut self) {
        self.now += 1;
        let clock = moment(self.now);
        for node in (0..NODES).filter(|&node| self.nodes[node].works()).collect::<Vec<_>>() {
            if self.nodes[node].runner.next_tick().is_some_and(|at| at <= clock) {
                self.take_in(node, |_| {});
            }
            self.renew(node);
        }
        if self.bounds.undialable {
            // The leader's renewal to itself begins a round, whether or not another node reaches it.
            while let Some((to, _, _)) = self.leader.poll_renewal(clock, |_| None) {
                self.tell(NodeInput::Renewed { from: to, renewed: None });
            }
        }
        self.tell(NodeInput::Tick);
    }

    /// Requests a node's lease, unless its last renewal is still in flight.
    fn renew(&mut self, node: usize) {
        if !self.nodes[node].dials() || !self.renewals[node].is_empty() {
            return;
        }
        let clock = moment(self.now);
        while let Some((to, _, renewal)) = self.nodes[node].decider.poll_renewal(clock, |_| None) {
            if to == super::leader() && !self.is_leader_undialable {
                self.renewals[node].push_back(renewal);
            } else {
                self.hand_in(node, NodeInput::Renewed { from: to, renewed: None });
            }
        }
        self.obey(node);
        if !self.bounds.late_renewals {
            while !self.renewals[node].is_empty() {
                self.hear_renewal(node);
            }
            while !self.answers[node].is_empty() {
                self.hear_answer(node);
            }
        }
    }

    fn hear_renewal(&mut self, node: usize) {
        let Some(renewal) = self.renewals[node].pop_front() else { return };
        let from = self.nodes[node].id;
        self.tell(NodeInput::Renewal { from, renewal });
    }

    fn hear_answer(&mut self, node: usize) {
        let Some(renewed) = self.answers[node].pop_front() else { return };
        self.hand_in(node, NodeInput::Renewed { from: super::leader(), renewed: Some(renewed) });
    }

    fn learn(&mut self, node: usize) {
        self.hand_in(node, what_others_hear(self.configs.clone()));
    }

    /// Sends an input to the leader and processes its outputs. A quorum of the log answers immediately.
    fn tell(&mut self, told: NodeInput) {
        let mut inputs = vec![told];
        while let Some(told) = inputs.pop() {
            self.leader.handle(moment(self.now), told);
            while let Some(says) = self.leader.poll_output() {
                match says {
                    Says::Coordinator(Decision::Answer { to, renewed }) => {
                        if let Some(node) = self.index(to).filter(|&node| self.nodes[node].dials()) {
                            self.answers[node].push_back(renewed);
                        }
                    }
                    Says::Coordinator(Decision::Confirm { round, .. }) => {
                        inputs.push(NodeInput::Confirmed { round, leads: true, answered: self.answered() });
                    }
                    Says::Coordinator(Decision::Resign { .. }) => self.seen.gave_up = true,
                    Says::Coordinator(Decision::Append { term, at, change, why: _ }) => {
                        let entry = LogEntry { index: at, term, change };
                        inputs.extend(self.append(&entry));
                    }
                    // The leader has no chain, so its orders are treated as done immediately.
                    Says::Order(chain, ChainOrder::Enter { upto, .. } | ChainOrder::Expelled { upto, .. }) => {
                        inputs.push(NodeInput::Word { chain, word: Word::ActsBy(upto) });
                    }
                    // The log is kept outside the nodes of the cluster, and the operator doesn't wait for an answer.
                    _ => {}
                }
            }
        }
    }

    /// The nodes that answer messages of the log, if that matters within these bounds.
    fn answered(&self) -> BTreeMap<MemberId, Timestamp> {
        let answer = self.nodes.iter().filter(|node| self.bounds.undialable && node.is_well());
        answer.map(|node| (node.id, moment(self.now))).collect()
    }

    /// The log accepts an entry at its next index while the bounds allow changes.
    fn append(&mut self, entry: &LogEntry) -> [NodeInput; 2] {
        let at = entry.index;
        let mut configs = Configs::clone(&self.configs);
        let fate = match configs.apply(entry) {
            Ok(_) if self.changes < self.bounds.changes => {
                self.changes += 1;
                self.log.push(entry.clone());
                self.configs = Arc::new(configs);
                ProposalFate::Decided
            }
            _ => ProposalFate::Refused,
        };
        // Inputs are taken from the end, so the leader receives the log before the fate of the entry.
        [NodeInput::Appended { at, fate }, self.what_the_leader_hears()]
    }
}

/// The number of the write that created this version.
fn number(held: Option<&Held>) -> u8 {
    held.and_then(|held| held.value.as_ref()).and_then(|value| value.first().copied()).unwrap_or(0)
}
