//! The formation of a cluster, before there are chains: nodes start in any order, meet, restart, and agree.

use std::{collections::BTreeSet, fmt::Write as _, sync::Arc};

use artillery_proto::{
    ClusterId, MemberId, Timestamp,
    control::{
        Bootstrap, ChainSettings, NodeInfo, Timing,
        formation::{
            Formation, FormationInput, FormationMessage, FormationOutput, FormationSettings, FounderCandidate,
        },
        log::LogIndex,
        placement::first_configs,
    },
    runner::ChainOrder,
};

use super::{World, control::Control};
use crate::{
    network::Flight,
    node::{Input as WorkInput, Work},
    oracle::{ChainOracle, Failure, Oracle},
    rng::{Concern, Rng},
    scenario::{FoundingSetup, HEALED, SECOND, Setup},
};

#[derive(Debug)]
pub(crate) enum Event {
    Start(usize),
    // A node discovers the current incarnation of a peer.
    Meet { node: usize, peer: usize },
    // A node learns that an incarnation of a peer has ended.
    Lose { node: usize, peer: MemberId },
    Message { from: usize, to: usize, ends: [MemberId; 2], flight: Flight, message: Box<FormationMessage> },
    Tick { node: usize, number: u64 },
    // The deadline for forming a cluster.
    Due,
}

/// The formation state machines of the nodes, and observations of them.
#[derive(Debug)]
pub(super) struct Founders {
    seed: u64,
    rng: Rng,
    settings: FormationSettings,
    expects: Vec<u16>,
    machines: Vec<Option<Formation>>,
    /// For each node, the newest known incarnation of each peer.
    met: Vec<Vec<Option<MemberId>>>,
    ticks: Vec<(Option<u64>, u64)>,
    lives: Vec<u64>,
    settled: Vec<Option<ClusterId>>,
    formed: Vec<Arc<Bootstrap>>,
    ready: bool,
}

impl Founders {
    pub(super) fn new(seed: u64, founding: FoundingSetup, setup: &Setup) -> Self {
        let chains = ChainSettings {
            chains: setup.chains as u32,
            replicas: founding.replicas,
            mode: setup.mode,
            min_members: 1,
        };
        let mut rng = Rng::new(seed, Concern::Formation);
        let mut expects = vec![founding.expect; setup.members];
        if founding.most > founding.expect {
            let (least, most) = (u64::from(founding.expect), u64::from(founding.most));
            expects.fill_with(|| rng.between(least, most) as u16);
        }
        Self {
            seed,
            rng,
            expects,
            settings: FormationSettings {
                timing: setup.control.map_or_else(Timing::default, |control| control.timing()),
                guards: setup.guards,
                ..FormationSettings::new("simulated", founding.expect, chains)
            },
            machines: (0..setup.members).map(|_| None).collect(),
            met: vec![vec![None; setup.members]; setup.members],
            ticks: vec![(None, 0); setup.members],
            lives: vec![0; setup.members],
            settled: vec![None; setup.members],
            formed: Vec::new(),
            ready: false,
        }
    }

    pub(super) fn founder(index: usize, id: MemberId) -> NodeInfo {
        NodeInfo { id, name: format!("n{index}"), addrs: Vec::new(), host: None }
    }
}

impl World {
    pub(super) fn begin_founding(&mut self) {
        for index in 0..self.nodes.len() {
            self.nodes[index].down = true;
            self.nodes[index].opened = None;
            let Some(founders) = &mut self.founding else { return };
            let at = founders.rng.below(3 * SECOND);
            self.queue.push(at, super::Event::Founding(Event::Start(index)));
        }
        self.queue.push(HEALED + 5 * SECOND, super::Event::Founding(Event::Due));
    }

    pub(super) fn founding_event(&mut self, event: Event) -> Result<(), Failure> {
        match event {
            Event::Start(node) => self.start_life(node),
            Event::Meet { node, peer } => self.meet(node, peer),
            Event::Lose { node, peer } => self.tell(node, FormationInput::Gone(peer)),
            Event::Message { from, to, ends, flight, message } => self.deliver(from, to, ends, flight, *message),
            Event::Tick { node, number } => {
                let Some(founders) = &mut self.founding else { return Ok(()) };
                if founders.ticks[node].1 != number {
                    return Ok(());
                }
                founders.ticks[node].0 = None;
                self.tell(node, FormationInput::Tick)
            }
            Event::Due => match &self.founding {
                Some(founders) if !founders.ready => Err(Failure::new(Oracle::Progress, "no cluster formed in time")),
                _ => Ok(()),
            },
        }
    }

    /// Stops a node if the cluster has not formed yet. Later its place would stay empty, since configurations do not
    /// change without a control half.
    pub(super) fn stop(&mut self, index: usize) {
        let Some(founders) = &mut self.founding else { return };
        if founders.ready || !self.nodes[index].is_alive() {
            return;
        }
        founders.machines[index] = None;
        founders.settled[index] = None;
        let id = self.ids[index];
        self.restarts += 1;
        self.end_life(index);
        let Some(founders) = &mut self.founding else { return };
        for node in 0..self.nodes.len() {
            if founders.rng.chance(500) {
                let at = self.now + founders.rng.below(SECOND);
                self.queue.push(at, super::Event::Founding(Event::Lose { node, peer: id }));
            }
        }
    }

    pub(super) fn restart(&mut self, index: usize) {
        if self.nodes[index].down {
            self.queue.push(self.now, super::Event::Founding(Event::Start(index)));
        }
    }

    fn start_life(&mut self, index: usize) -> Result<(), Failure> {
        let Some(founders) = &mut self.founding else { return Ok(()) };
        // The cluster formed after this start was scheduled: a further incarnation would have no place in it.
        if founders.ready || !self.nodes[index].down {
            return Ok(());
        }
        founders.lives[index] += 1;
        let life = founders.lives[index];
        let seed = founders.seed;
        let id = match self.renew_node(seed, index, life) {
            Ok(id) => id,
            Err(error) => return self.not_opened(index, &error),
        };
        let known = self.kept_founding(index).map(Arc::new);
        let Some(founders) = &mut self.founding else { return Ok(()) };
        let seed = u128::from(founders.rng.below(u64::MAX)) << 64 | u128::from(founders.rng.below(u64::MAX));
        // Nodes are started with differing times. The members of a cluster use the times agreed at formation.
        let own = founders.settings.timing;
        let timing = if self.setup.control.is_some() { own } else { Timing { drift_ppm: index as u32, ..own } };
        let settings = FormationSettings { timing, expect: founders.expects[index], ..founders.settings.clone() };
        let me = Founders::founder(index, id);
        let machine = match &known {
            Some(founding) => Formation::member(me, settings, founding.clone()),
            None => Formation::new(me, settings, seed),
        };
        let machine = machine.map_err(|error| Failure::new(Oracle::Formation, error.to_string()))?;
        founders.machines[index] = Some(machine);
        founders.met[index].fill(None);
        founders.ticks[index] = (None, founders.ticks[index].1 + 1);
        self.trace.line(self.now, |out| write!(out, "n{index} starts incarnation {life}"));
        if self.setup.control.is_none() {
            self.queue.push(self.now, super::Event::Lease(index));
        }
        self.reconnect(index);
        self.introduce(index);
        self.schedule_founding_tick(index);
        match known {
            Some(founding) => self.settle_node(index, founding),
            None => Ok(()),
        }
    }

    /// The founding record on the node's disk, if it belongs to a cluster.
    fn kept_founding(&self, index: usize) -> Option<Bootstrap> {
        self.nodes[index].opened.as_ref().and_then(|opened| opened.control.look(|record| record.founding.clone()))
    }

    /// Schedules the mutual discovery of a node and all others, with a separate delay per direction.
    fn introduce(&mut self, index: usize) {
        let Some(founders) = &mut self.founding else { return };
        for peer in (0..self.nodes.len()).filter(|&peer| peer != index) {
            for (node, peer) in [(index, peer), (peer, index)] {
                let at = self.now + founders.rng.between(1_000_000, 800_000_000);
                self.queue.push(at, super::Event::Founding(Event::Meet { node, peer }));
            }
        }
    }

    fn meet(&mut self, node: usize, peer: usize) -> Result<(), Failure> {
        if !self.nodes[node].is_alive() || !self.nodes[peer].is_alive() {
            return Ok(());
        }
        let id = self.ids[peer];
        self.met_life(node, peer, id)?;
        let Some(founders) = &self.founding else { return Ok(()) };
        let cluster = founders.machines[peer].as_ref().and_then(|machine| Some(machine.founding()?.cluster));
        self.tell(node, FormationInput::Seen(FounderCandidate { founder: Founders::founder(peer, id), cluster }))
    }

    /// Records evidence of an incarnation of a peer. Its earlier incarnations are over.
    fn met_life(&mut self, node: usize, peer: usize, id: MemberId) -> Result<(), Failure> {
        let Some(founders) = &mut self.founding else { return Ok(()) };
        let met = &mut founders.met[node][peer];
        let before = *met;
        *met = before.max(Some(id));
        match before.filter(|&before| before < id) {
            Some(before) => self.tell(node, FormationInput::Replaced(before)),
            None => Ok(()),
        }
    }

    fn deliver(
        &mut self,
        from: usize,
        to: usize,
        ends: [MemberId; 2],
        flight: Flight,
        message: FormationMessage,
    ) -> Result<(), Failure> {
        let [sender, receiver] = ends;
        if !self.network.arrives(from, to, flight) || self.ids[to] != receiver || !self.nodes[to].is_alive() {
            return Ok(());
        }
        let Some(founders) = &self.founding else { return Ok(()) };
        if founders.met[to][from].is_some_and(|met| met > sender) {
            // The sender's incarnation is known to have ended, so its messages are dropped.
            return Ok(());
        }
        self.met_life(to, from, sender)?;
        self.tell(to, FormationInput::Receive { from: sender, message })
    }

    fn tell(&mut self, node: usize, input: FormationInput) -> Result<(), Failure> {
        if !self.nodes[node].is_alive() {
            return Ok(());
        }
        let clock = self.nodes[node].clock(self.now);
        self.trace.line(self.now, |out| write!(out, "n{node} formation {input:?}"));
        self.handle_founding(node, clock, input);
        // A proposal may name incarnations that this node knows to have ended.
        for id in self.outlived(node) {
            self.handle_founding(node, clock, FormationInput::Replaced(id));
        }
        loop {
            let Some(founders) = &mut self.founding else { return Ok(()) };
            let Some(output) = founders.machines[node].as_mut().and_then(Formation::poll_output) else { break };
            match output {
                FormationOutput::Send { to, message } => self.send_founding(node, to, message),
                FormationOutput::Formed(founding) | FormationOutput::Joined(founding) => {
                    self.settle_node(node, founding)?
                }
                FormationOutput::Stuck => {
                    self.stop(node);
                    self.queue.push(self.now + SECOND, super::Event::Founding(Event::Start(node)));
                    return Ok(());
                }
            }
        }
        self.schedule_founding_tick(node);
        Ok(())
    }

    fn handle_founding(&mut self, node: usize, clock: Timestamp, input: FormationInput) {
        let Some(founders) = &mut self.founding else { return };
        if let Some(machine) = &mut founders.machines[node] {
            machine.handle(clock, input);
        }
    }

    fn outlived(&self, node: usize) -> Vec<MemberId> {
        let Some(founders) = &self.founding else { return Vec::new() };
        let Some(machine) = &founders.machines[node] else { return Vec::new() };
        let newer = |id: MemberId| founders.met[node].iter().flatten().any(|met| met.node == id.node && *met > id);
        machine.named().filter(|&id| newer(id)).collect()
    }

    fn send_founding(&mut self, from: usize, to: MemberId, message: FormationMessage) {
        let Some(index) = self.ids.iter().position(|id| id.node == to.node) else { return };
        self.trace.line(self.now, |out| write!(out, "n{from} formation sends n{index} {message:?}"));
        let message = Box::new(message);
        for flight in self.beside(from, index, false) {
            let message = message.clone();
            let event = Event::Message { from, to: index, ends: [self.ids[from], to], flight, message };
            self.queue.push(flight.at, super::Event::Founding(event));
        }
    }

    fn schedule_founding_tick(&mut self, node: usize) {
        let Some(founders) = &mut self.founding else { return };
        let wanted = founders.machines[node].as_ref().and_then(Formation::next_tick);
        let wanted = wanted.map(|at| self.nodes[node].moment(at).max(self.now));
        if founders.ticks[node].0 == wanted {
            return;
        }
        founders.ticks[node] = (wanted, founders.ticks[node].1 + 1);
        if let Some(at) = wanted {
            let number = founders.ticks[node].1;
            self.queue.push(at, super::Event::Founding(Event::Tick { node, number }));
        }
    }

    /// Settles a node in its cluster. Without a control half, it enters the chains that name it.
    fn settle_node(&mut self, index: usize, founding: Arc<Bootstrap>) -> Result<(), Failure> {
        self.trace.line(self.now, |out| write!(out, "n{index} belongs to {}", founding.cluster));
        self.check_founding(&founding)?;
        if !self.keep_founding(index, &founding) {
            return Ok(());
        }
        let me = self.ids[index];
        for config in first_configs(&founding) {
            if config.role(me).is_some() && self.setup.control.is_none() {
                let slot = config.chain.0 as usize;
                let (config, history, upto) = (Arc::new(config), founding.cluster, LogIndex(1));
                let input = WorkInput::Order(ChainOrder::Enter { config, history, upto });
                self.enqueue(index, Work { slot, input, flight: None });
            }
        }
        let Some(founders) = &mut self.founding else { return Ok(()) };
        founders.settled[index] = Some(founding.cluster);
        if !founders.formed.iter().any(|known| known.cluster == founding.cluster) {
            founders.formed.push(founding.clone());
        }
        if founding.members.iter().any(|founder| !self.is_left(founder.id)) {
            self.restart_all("a founder is lost");
        } else {
            self.introduce(index);
            self.check_ready(&founding);
        }
        Ok(())
    }

    /// Checks that enough nodes form a cluster, and that no second one forms while a majority of the first one's
    /// founders survives.
    fn check_founding(&self, founding: &Arc<Bootstrap>) -> Result<(), Failure> {
        let Some(founders) = &self.founding else { return Ok(()) };
        let fail = |what: String| Err(Failure::new(Oracle::Formation, what));
        let lives: BTreeSet<MemberId> = founding.members.iter().map(|founder| founder.id).collect();
        let named = self.ids.iter().zip(&founders.expects).filter(|(id, _)| lives.contains(id));
        let expected = named.map(|(_, &expected)| expected).max().unwrap_or_default().max(founders.settings.expect);
        if lives.len() < usize::from(expected) {
            return fail(format!("{} was formed by {} of {expected} expected nodes", founding.cluster, lives.len()));
        }
        for other in &founders.formed {
            if other.cluster == founding.cluster {
                if other != founding {
                    return fail(format!("{} was formed in two ways", founding.cluster));
                }
                continue;
            }
            let lives = |id: MemberId| self.ids.contains(&id) || self.has_kept(id, other.cluster);
            let living = other.members.iter().filter(|founder| lives(founder.id)).count();
            if living >= other.majority() {
                let ClusterId(id) = other.cluster;
                return fail(format!("{} was formed although {id:032x} survives", founding.cluster));
            }
        }
        Ok(())
    }

    /// Whether the store of a founder survives: in the same incarnation or, on a disk, in a later one.
    fn is_left(&self, id: MemberId) -> bool {
        self.ids.iter().any(|&other| if self.disks.is_empty() { other == id } else { other.shares_store(id) })
    }

    /// Whether a disk still holds the store of this founder as a member of this cluster.
    fn has_kept(&self, id: MemberId, cluster: ClusterId) -> bool {
        let at = self.ids.iter().position(|other| other.shares_store(id));
        at.and_then(|at| self.kept_founding(at)).is_some_and(|founding| founding.cluster == cluster)
    }

    /// The operator restarts all nodes: either a founder restarted during formation and lost its place, or others
    /// formed a second cluster whose nodes would reject the clients of this one. Disks are emptied, since no client has
    /// written anything yet.
    fn restart_all(&mut self, why: &str) {
        self.trace.line(self.now, |out| write!(out, "{why}: all nodes restart"));
        for index in 0..self.nodes.len() {
            self.stop(index);
            self.drop_disk(index);
            let Some(founders) = &mut self.founding else { return };
            let at = self.now + founders.rng.between(1, SECOND);
            self.queue.push(at, super::Event::Founding(Event::Start(index)));
        }
    }

    fn check_ready(&mut self, founding: &Bootstrap) {
        let Some(founders) = &mut self.founding else { return };
        if founders.ready || !founders.settled.iter().all(Option::is_some) {
            return;
        }
        if founders.settled.iter().any(|&settled| settled != Some(founding.cluster)) {
            return self.restart_all("some belong to a cluster that has lost most of its founders");
        }
        founders.ready = true;
        if self.setup.control.is_some() {
            let (seed, lives) = (founders.seed, founders.lives.clone());
            self.control = Control::formed(seed, &self.setup, &self.nodes, &lives, founding.clone());
            self.trace.line(self.now, |out| write!(out, "all nodes belong to the cluster"));
            return self.begin_control();
        }
        for config in first_configs(founding) {
            let chain = config.chain.0 as usize;
            let at = |id: MemberId| self.ids.iter().position(|&known| known == id);
            self.orders[chain] = config.serving().filter_map(at).collect();
            self.oracles[chain] = ChainOracle::new(self.orders[chain].len());
        }
        self.trace.line(self.now, |out| write!(out, "all nodes belong to the cluster"));
        self.begin_clients();
    }
}
