//! A deterministic network of members, with one queue of packets in flight and one clock.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    time::Duration,
};

use bytes::Bytes;
use rand::RngExt;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

use crate::{
    Incarnation, MemberId, NodeId, Timestamp,
    config::SwimSettings,
    membership::{LocalMember, MemberState, Swim, SwimEvent, SwimOutput, SwimPeer},
};

/// The id of `node` in an incarnation. Incarnations count from 1.
pub(super) fn member(node: usize, incarnation: u64) -> MemberId {
    let store = u128::from(incarnation) * 100 + node as u128;
    MemberId { node: NodeId::from_name(&name(node)), incarnation: Incarnation { store, starts: 1 } }
}

pub(super) fn name(node: usize) -> String {
    format!("node-{node}")
}

pub(super) fn addr(node: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, node as u8], 7400))
}

pub(super) fn local(node: usize, incarnation: u64) -> LocalMember {
    LocalMember {
        id: member(node, incarnation),
        name: name(node),
        addr: addr(node),
        payload: Bytes::from(format!("role={node}")),
        started_at_ms: 1_000_000 * incarnation,
    }
}

pub(super) type Entry = (Timestamp, usize, SwimEvent);

pub(super) struct Network {
    pub(super) now: Timestamp,
    pub(super) nodes: Vec<Swim>,
    /// Inactive nodes: killed or paused.
    pub(super) asleep: BTreeSet<usize>,
    /// Directions in which packets are lost.
    pub(super) cut: BTreeSet<(usize, usize)>,
    pub(super) loss_percent: u32,
    pub(super) log: Vec<Entry>,
    pub(super) largest: usize,
    in_flight: BTreeMap<(Timestamp, u64), (usize, MemberId, MemberId, Bytes)>,
    sent: u64,
    rng: ChaCha8Rng,
    settings: SwimSettings,
    seed: u64,
}

impl Network {
    pub(super) fn new(count: usize, settings: SwimSettings, seed: u64) -> Self {
        let nodes = (0..count).map(|node| Swim::new(local(node, 1), settings.clone(), seed + node as u64).unwrap());
        Self {
            now: Timestamp::from_nanos(1_000_000_000),
            nodes: nodes.collect(),
            asleep: BTreeSet::new(),
            cut: BTreeSet::new(),
            loss_percent: 0,
            log: Vec::new(),
            largest: 0,
            in_flight: BTreeMap::new(),
            sent: 0,
            rng: ChaCha8Rng::seed_from_u64(seed),
            settings,
            seed,
        }
    }

    /// A network whose members know each other.
    pub(super) fn met(count: usize, settings: SwimSettings, seed: u64) -> Self {
        let mut network = Self::new(count, settings, seed);
        network.introduce_all();
        network.run_until("all meet", Duration::from_secs(5), |network| network.all_see_all(MemberState::Alive));
        network.log.clear();
        network
    }

    pub(super) fn introduce_all(&mut self) {
        for node in 1..self.nodes.len() {
            self.announce(node, 0);
        }
    }

    pub(super) fn announce(&mut self, node: usize, to: usize) {
        let peer = self.nodes[to].local().peer();
        self.nodes[node].announce_to(self.now, peer);
        self.drain(node);
    }

    pub(super) fn restart(&mut self, node: usize, local: LocalMember) {
        self.asleep.remove(&node);
        self.nodes[node] = Swim::new(local, self.settings.clone(), self.seed + 1000 + node as u64).unwrap();
    }

    pub(super) fn part(&mut self, left: &[usize], right: &[usize]) {
        for &a in left {
            for &b in right {
                self.cut.extend([(a, b), (b, a)]);
            }
        }
    }

    /// How `node` sees the current incarnation of `other`.
    pub(super) fn sees(&self, node: usize, other: usize) -> Option<MemberState> {
        let id = self.nodes[other].local().id;
        self.nodes[node].members().iter().find(|member| member.id == id).map(|member| member.state)
    }

    pub(super) fn all_see(&self, other: usize, state: MemberState) -> bool {
        let all = 0..self.nodes.len();
        all.filter(|node| *node != other && !self.asleep.contains(node))
            .all(|node| self.sees(node, other) == Some(state))
    }

    pub(super) fn all_see_all(&self, state: MemberState) -> bool {
        (0..self.nodes.len()).all(|other| self.all_see(other, state))
    }

    /// The kinds of events at `node` about the node `other`.
    pub(super) fn told(&self, node: usize, other: usize) -> Vec<&'static str> {
        let id = NodeId::from_name(&name(other));
        let about = |event: &SwimEvent| subject(event).node == id;
        self.log.iter().filter(|(_, at, event)| *at == node && about(event)).map(|(_, _, event)| kind(event)).collect()
    }

    pub(super) fn count(&self, wanted: &str) -> usize {
        self.log.iter().filter(|(_, _, event)| kind(event) == wanted).count()
    }

    pub(super) fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        while self.step(end) {}
        self.now = end;
    }

    pub(super) fn run_until(&mut self, what: &str, limit: Duration, done: impl Fn(&Self) -> bool) -> Duration {
        let (start, end) = (self.now, self.now + limit);
        while !done(self) {
            assert!(self.step(end), "not within {limit:?}: {what}\n{:#?}", self.log);
        }
        self.now - start
    }

    /// Performs the next step that is due by `end`. `false` if there is none.
    fn step(&mut self, end: Timestamp) -> bool {
        let awake = (0..self.nodes.len()).filter(|node| !self.asleep.contains(node));
        let timer = awake.filter_map(|node| self.nodes[node].next_timer().map(|at| (at.max(self.now), node))).min();
        let arrival = self.in_flight.first_key_value().map(|((at, _), _)| *at);
        match (timer, arrival) {
            (_, Some(at)) if at <= end && timer.is_none_or(|(timer, _)| at <= timer) => {
                self.now = at;
                self.deliver();
            }
            (Some((at, node)), _) if at <= end => {
                self.now = at;
                self.nodes[node].tick(self.now);
                self.drain(node);
            }
            _ => return false,
        }
        true
    }

    fn deliver(&mut self) {
        let Some((_, (node, from, to, bytes))) = self.in_flight.pop_first() else { return };
        // As with a connection, a packet can reach only the process that it was sent to.
        if self.asleep.contains(&node) || self.nodes[node].local().id != to {
            return;
        }
        self.nodes[node].handle_packet(self.now, from, &bytes).unwrap();
        self.drain(node);
    }

    pub(super) fn drain(&mut self, node: usize) {
        while let Some(output) = self.nodes[node].poll_output() {
            match output {
                SwimOutput::Event(event) => self.log.push((self.now, node, event)),
                SwimOutput::Packet { to, bytes } => self.send(node, to, bytes),
            }
        }
    }

    fn send(&mut self, node: usize, to: SwimPeer, bytes: Bytes) {
        assert!(bytes.len() <= self.settings.max_packet);
        self.largest = self.largest.max(bytes.len());
        let Some(target) = (0..self.nodes.len()).find(|node| addr(*node) == to.addr) else { return };
        let delay = Duration::from_micros(self.rng.random_range(100..2_000));
        let lost = self.rng.random_range(0..100) < self.loss_percent;
        if !lost && !self.cut.contains(&(node, target)) {
            self.sent += 1;
            let from = self.nodes[node].local().id;
            self.in_flight.insert((self.now + delay, self.sent), (target, from, to.id, bytes));
        }
    }
}

fn subject(event: &SwimEvent) -> MemberId {
    match event {
        SwimEvent::Joined(m)
        | SwimEvent::Up(m)
        | SwimEvent::Suspect(m)
        | SwimEvent::Down(m)
        | SwimEvent::Left(m)
        | SwimEvent::Payload(m) => m.id,
        SwimEvent::Superseded { by } => *by,
    }
}

pub(super) fn kind(event: &SwimEvent) -> &'static str {
    match event {
        SwimEvent::Joined(_) => "joined",
        SwimEvent::Up(_) => "up",
        SwimEvent::Suspect(_) => "suspect",
        SwimEvent::Down(_) => "down",
        SwimEvent::Left(_) => "left",
        SwimEvent::Payload(_) => "payload",
        SwimEvent::Superseded { .. } => "superseded",
    }
}
