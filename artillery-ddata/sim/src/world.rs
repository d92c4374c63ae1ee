//! A whole cluster and its clients, driven by one seed on virtual time in one thread.

mod answers;
mod boundary;
mod clients;
mod contenders;
mod control;
mod counts;
mod disks;
mod end;
mod event;
mod faults;
mod followers;
mod founding;
mod plays;
mod power_cut;
mod ready;
mod records;
mod recovery;
mod reopening;
mod service;
mod steps;
mod walks;
mod watches;

use std::{collections::BTreeSet, sync::Arc};

pub(crate) use self::event::{Addressed, Arrival, Event, Phase};
pub use self::{
    boundary::{Boundary, ResyncCounts, ResyncEnd},
    counts::{Counts, DiskEvents, LockCounts, Served},
    power_cut::{PowerCounts, PowerCut},
};
use self::{
    contenders::Contenders,
    control::{Control, Loss},
    followers::CopyKeeper,
    founding::Founders,
    reopening::Lacking,
    service::Service,
    watches::Watcher,
};
use artillery_proto::{
    ChainConfig, ChainId, ChainMember, ClusterId, Epoch, MemberId, Role, Timestamp,
    control::log::LogIndex,
    disk::simulated::{DiskCounts, SimulatedDisk},
    runner::{ChainOrder, Lease},
};

use crate::{
    client::{Client, Standing},
    disk::new_disk,
    faults::Fault,
    history::{History, Value},
    network::Network,
    node::{Input, Node, Work},
    oracle::{ChainOracle, Failure, Oracle},
    queue::Queue,
    rng::{Concern, Rng},
    scenario::{HEALED, LAST, SECOND, Scenario, Setup},
    trace::Trace,
};

/// The result of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// Counts of events.
    pub counts: Counts,
    /// The violation that ended the run, if there was one.
    pub failure: Option<Failure>,
    /// The outcome of each operation, if [`Setup::audited`] requested it.
    pub served: Vec<Served>,
    /// The trace, if it was requested.
    pub trace: Option<String>,
}

/// Limit on the events of a run. No correct run needs as many, so a run that reaches it is stuck.
const EVENTS: u64 = 5_000_000;

/// A cluster with its clients, network, disks and oracles.
pub struct World {
    setup: Setup,
    now: u64,
    queue: Queue<Event>,
    nodes: Vec<Node>,
    ids: Vec<MemberId>,
    configs: Vec<Arc<ChainConfig>>,
    clients: Vec<Client>,
    network: Network,
    notices: Rng,
    oracles: Vec<ChainOracle>,
    /// The nodes of each chain from head to tail. Empty until the cluster has formed, and always if configurations
    /// change.
    orders: Vec<Vec<usize>>,
    founding: Option<Founders>,
    phase: Phase,
    active: Vec<bool>,
    /// The events that each paused node handles when it resumes.
    held: Vec<Vec<Event>>,
    /// The faults of each play while it is in progress.
    plays: Vec<Vec<Fault>>,
    /// Whether clients sent too few requests after healing to show which nodes serve.
    unasked: bool,
    served: BTreeSet<usize>,
    strikes: Vec<Fault>,
    next_value: u64,
    last_moment: u64,
    /// One history per chain, since sequences are numbered per chain.
    histories: Vec<History>,
    /// By application and chain.
    standings: Vec<Vec<Standing>>,
    watchers: Vec<Watcher>,
    contenders: Contenders,
    followers: Vec<CopyKeeper>,
    claim: Option<Failure>,
    audit: Vec<Served>,
    in_flight: u64,
    slow_steps: u64,
    slow_syncs: u64,
    crashes: u64,
    restarts: u64,
    pauses: u64,
    isolations: u64,
    undialable: u64,
    young: u64,
    orders_done: u64,
    drains: u64,
    leaves: u64,
    rolls: u64,
    foundings: u64,
    meetings: u64,
    /// Whether the cluster has given way to another one. Then the run ends without its final checks.
    gave_way: bool,
    disasters: u64,
    recoveries: u64,
    accepted: u64,
    loss: Option<Loss>,
    outages: u64,
    halts: u64,
    failed: BTreeSet<MemberId>,
    service: Service,
    control: Option<Control>,
    /// The disk of each node; empty if nodes have no disks.
    disks: Vec<SimulatedDisk>,
    disk_rng: Rng,
    /// The operation counts of the disks that each node has replaced.
    replaced: Vec<DiskCounts>,
    copies: Vec<Option<(u64, SimulatedDisk)>>,
    /// The nodes that run on a backup of their directory.
    restored: BTreeSet<usize>,
    /// Incarnations whose disks may be missing data that they held.
    lacking: Lacking,
    trace: Trace,
    counts: Counts,
}

impl World {
    /// The world of `setup` and `seed`. Records a trace if `traced`.
    pub fn new(seed: u64, setup: Setup, traced: bool) -> Self {
        let mut disk_rng = Rng::new(seed, Concern::Disks);
        let disks: Vec<_> =
            setup.durable.iter().flat_map(|_| 0..setup.members).map(|_| new_disk(disk_rng.draw())).collect();
        let starts: Vec<_> = disks.iter().map(|disk| (disk, disks::draw_mode(&mut disk_rng, &setup))).collect();
        let (nodes, lost) = power_cut::first_nodes(seed, &setup, &starts);
        let ids: Vec<MemberId> = nodes.iter().map(|node| node.id).collect();
        let clients = (0..setup.clients)
            .map(|index| Client::new(seed, index, &setup.keys, setup.members, setup.mix.writers))
            .collect();
        let faults = setup.faults.len() + usize::from(setup.crash.is_some());
        let mut world = Self {
            now: 0,
            queue: Queue::default(),
            configs: (0..setup.chains).map(|chain| config(&setup, &ids, chain)).collect(),
            ids,
            clients,
            network: Network::new(seed, setup.members, setup.clients, setup.profile),
            notices: Rng::new(seed, Concern::Notices),
            oracles: (0..setup.chains).map(|_| ChainOracle::new(setup.members)).collect(),
            orders: vec![Vec::new(); setup.chains],
            founding: setup.founding.map(|founding| Founders::new(seed, founding, &setup)),
            phase: Phase::Work,
            active: vec![false; faults],
            held: nodes.iter().map(|_| Vec::new()).collect(),
            plays: vec![Vec::new(); faults],
            unasked: false,
            served: BTreeSet::new(),
            strikes: Vec::new(),
            next_value: 0,
            last_moment: 0,
            histories: vec![History::default(); setup.chains],
            standings: vec![vec![Standing::default(); setup.chains]; setup.clients.div_ceil(setup.lanes)],
            watchers: (0..setup.watchers * setup.chains)
                .map(|index| Watcher::new(seed, index, index % setup.chains))
                .collect(),
            contenders: Contenders::new(seed, &setup),
            followers: (0..setup.followers * setup.chains)
                .map(|index| CopyKeeper::new(seed, index, index % setup.chains, setup.guards))
                .collect(),
            claim: None,
            audit: Vec::new(),
            in_flight: 0,
            slow_steps: 0,
            slow_syncs: 0,
            crashes: 0,
            restarts: 0,
            pauses: 0,
            isolations: 0,
            undialable: 0,
            young: 0,
            orders_done: 0,
            drains: 0,
            leaves: 0,
            rolls: 0,
            foundings: 0,
            meetings: 0,
            gave_way: false,
            disasters: 0,
            recoveries: 0,
            accepted: 0,
            loss: None,
            outages: 0,
            halts: 0,
            failed: BTreeSet::new(),
            service: Service::default(),
            control: None,
            copies: vec![None; disks.len()],
            restored: BTreeSet::new(),
            lacking: Lacking::default(),
            replaced: vec![DiskCounts::default(); disks.len()],
            disks,
            disk_rng,
            trace: Trace::new(traced),
            counts: Counts { planned: faults as u64, power: PowerCounts::begin(lost), ..Counts::default() },
            nodes,
            setup,
        };
        (0..world.nodes.len()).for_each(|index| world.note_life(index));
        if let Some(control) = world.setup.control.as_ref().filter(|_| world.setup.founding.is_none()) {
            world.control = Some(Control::new(seed, control, &world.setup, &world.nodes));
        }
        world.begin();
        world
    }

    /// Runs `scenario` with `seed` to its end.
    pub fn run_scenario(scenario: Scenario, seed: u64, setup: Setup, traced: bool) -> Outcome {
        let mut world = Self::new(seed, setup, traced);
        world.trace.line(0, |out| {
            use std::fmt::Write as _;
            write!(out, "scenario {} seed {seed}", scenario.name())
        });
        world.run()
    }

    /// Runs the world to its end, checking every step.
    pub fn run(mut self) -> Outcome {
        let failure = self.go().err();
        self.finish(failure)
    }

    fn go(&mut self) -> Result<(), Failure> {
        while self.phase != Phase::End {
            self.happen()?;
            self.watch_power();
            self.check_recovery()?;
            self.watch_boundary();
        }
        if self.lacking.is_over() || self.gave_way || self.is_given_up() {
            return Ok(());
        }
        self.check_end()?;
        if self.setup.closes { self.close_down() } else { Ok(()) }
    }

    fn happen(&mut self) -> Result<(), Failure> {
        let Some((now, event)) = self.queue.pop() else {
            return Err(Failure::new(Oracle::Progress, "no event is left before the end of the run"));
        };
        self.now = now;
        self.counts.events += 1;
        if self.counts.events > EVENTS {
            return Err(Failure::new(Oracle::Progress, format!("no end after {EVENTS} events")));
        }
        self.handle(event)
    }

    fn begin(&mut self) {
        if self.control.is_some() {
            self.set_clocks();
            self.begin_control();
        } else if self.founding.is_some() {
            self.begin_founding();
        } else {
            self.begin_founded();
        }
        let plan = self.setup.faults.iter().chain(self.setup.crash.as_ref());
        for (index, planned) in plan.enumerate() {
            self.queue.push(planned.start, Event::Fault { index, begins: true });
            if planned.end < u64::MAX {
                self.queue.push(planned.end, Event::Fault { index, begins: false });
            }
        }
        self.queue.push(self.setup.stop, Event::Phase(Phase::Quiet));
    }

    fn begin_founded(&mut self) {
        let nodes = self.nodes.len();
        self.orders = (0..self.setup.chains).map(|chain| (0..nodes).map(|at| (at + chain) % nodes).collect()).collect();
        for node in 0..nodes {
            for slot in 0..self.setup.chains {
                let at = self.notices.below(50_000_000);
                self.queue.push(at, Event::Enter { node, slot });
            }
            self.queue.push(0, Event::Lease(node));
            for peer in 0..node {
                self.set_connection(node, peer, true);
            }
        }
        self.begin_clients();
    }

    fn begin_clients(&mut self) {
        for client in 0..self.clients.len() {
            let at = self.now + self.clients[client].rng.below(100_000_000);
            self.queue.push(at, Event::Think(client));
        }
        for watcher in 0..self.watchers.len() {
            self.queue.push(self.now + 1, Event::Watch { watcher, attempt: 0 });
        }
        self.begin_contenders();
        self.begin_followers();
    }

    fn handle(&mut self, event: Event) -> Result<(), Failure> {
        let Some(event) = self.unless_paused(event).and_then(|event| self.unless_busy(event)) else { return Ok(()) };
        match event {
            Event::Step(node) => return self.step(node),
            Event::Take(node) => return self.take(node),
            Event::Poll(node) => return self.poll(node),
            Event::Synced { node, id } => return self.synced(node, id),
            Event::CatchUp(node) => return self.catch_up(node),
            Event::Request(arrival) => return self.request(*arrival),
            Event::Reply(origin, reply) => return self.reply(origin, *reply),
            Event::GiveUp { client, number } => self.give_up(client, number),
            Event::Unanswered { client, number, attempt } => self.unanswered(client, number, attempt),
            Event::Watch { watcher, attempt } => self.watch(watcher, attempt),
            Event::AskForChanges { watcher, attempt, node } => self.ask_for_changes(watcher, attempt, node),
            Event::Changes { watcher, attempt, reply } => return self.changes(watcher, attempt, *reply),
            Event::Contend(event) => return self.contend(event),
            Event::Follow(event) => return self.follow(event),
            Event::Founding(event) => return self.founding_event(event),
            Event::Control(event) => return self.control_event(event),
            Event::Tick { node, slot, number } => self.tick(node, slot, number),
            Event::Land { from, to, flight, frame } => self.land(from, to, flight, frame),
            Event::Notice { node, peer, generation, connected } => self.notice(node, peer, generation, connected),
            Event::Young(node) => self.live_young(node),
            Event::Enter { node, slot } => {
                let (config, history, upto) = (self.configs[slot].clone(), ClusterId(1), LogIndex(1));
                let input = Input::Order(ChainOrder::Enter { config, history, upto });
                self.enqueue(node, Work { slot, input, flight: None });
            }
            Event::Lease(node) => self.lease(node),
            Event::Think(client) => self.think(client),
            Event::Retry { client, number } => self.retry(client, number),
            Event::Fault { index, begins } => self.fault(index, begins),
            Event::Boundary { end, source, joiner, over } => self.boundary(end, source, joiner, over),
            Event::Strike { fault, begins } => self.struck(fault, begins),
            Event::Leave { node, id, read } => return self.leave(node, id, *read),
            Event::Phase(phase) => self.enter_phase(phase),
        }
        Ok(())
    }

    fn lease(&mut self, node: usize) {
        let now = self.now;
        let rng = &mut self.nodes[node].rng;
        let length = rng.between(100_000_000, 1_500_000_000);
        let pause = length / 2 + rng.below(length);
        let until = if self.setup.leases && now < HEALED {
            self.queue.push(now + pause, Event::Lease(node));
            self.nodes[node].clock(now + length)
        } else {
            Timestamp::MAX
        };
        for slot in 0..self.setup.chains {
            let lease = Lease { until, asked: self.nodes[node].clock(now), stretch: 0 };
            self.enqueue(node, Work { slot, input: Input::Lease(lease), flight: None });
        }
    }

    fn enter_phase(&mut self, phase: Phase) {
        match phase {
            Phase::Quiet if self.counts.operations < self.setup.fewest && self.now < LAST => {
                self.queue.push(self.now + SECOND, Event::Phase(Phase::Quiet));
                return;
            }
            // A power cut has postponed the quiet phase.
            Phase::Quiet if self.now < self.setup.stop => {
                self.queue.push(self.setup.stop, Event::Phase(Phase::Quiet));
                return;
            }
            Phase::Quiet => self.queue.push(self.now + self.setup.patience.1 + SECOND, Event::Phase(Phase::Verify)),
            Phase::Verify => {
                self.write_script();
                self.queue.push(self.now + SECOND, Event::Phase(Phase::Drain));
            }
            Phase::Drain if !self.script_done() && self.now < 2 * LAST => {
                self.queue.push(self.now + SECOND, Event::Phase(Phase::Drain));
                return;
            }
            // Where members lose leases, an attempt may wait until its deadline although a later one was answered.
            Phase::Drain if self.control.is_some() => {
                self.queue.push(self.now + self.setup.patience.1 + SECOND, Event::Phase(Phase::End));
            }
            Phase::Drain => self.queue.push(self.now + SECOND, Event::Phase(Phase::End)),
            Phase::End | Phase::Work => {}
        }
        if phase == Phase::Quiet {
            self.count_disk_operations();
        }
        self.phase = phase;
    }

    /// A unique timestamp for the history.
    fn moment(&mut self) -> u64 {
        self.last_moment = self.now.max(self.last_moment + 1);
        self.last_moment
    }

    fn fresh_value(&mut self) -> Value {
        self.next_value += 1;
        Value(self.next_value)
    }
}

fn config(setup: &Setup, ids: &[MemberId], chain: usize) -> Arc<ChainConfig> {
    let members =
        (0..ids.len()).map(|place| ChainMember { id: ids[(place + chain) % ids.len()], role: Role::Serving }).collect();
    Arc::new(ChainConfig {
        chain: ChainId(chain as u32),
        epoch: Epoch(1),
        index: 1,
        mode: setup.mode,
        min_members: 1,
        members,
    })
}
