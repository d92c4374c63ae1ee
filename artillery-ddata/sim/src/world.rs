//! A whole cluster and its clients on virtual time, in one thread, from one seed.

mod answers;
mod clients;
mod end;
mod founding;
mod records;
mod steps;
mod watches;

use std::sync::Arc;

use self::{founding::Founders, watches::Watcher};
use artillery_ddata::{
    ChainConfig, ChainId, ChainMember, Epoch, MemberId, Role, Timestamp,
    replica::{Input, Reply},
    update::RequestKey,
    wire::message::ChainFrame,
};

use crate::{
    client::{Client, Request, Standing},
    faults::{Fault, Kind},
    history::{History, Value},
    network::{Flight, Network},
    node::{Node, Origin, QUICK, Work},
    oracle::{ChainOracle, Failure, Oracle},
    queue::Queue,
    rng::{Concern, Rng},
    scenario::{HEALED, LAST, OPERATIONS, SECOND, STOP, Scenario, Setup},
    trace::Trace,
};

/// What is going to happen.
#[derive(Debug)]
pub(crate) enum Event {
    /// A node takes in what waits for it.
    Step(usize),
    /// Messages are taken from a node's replicas.
    Poll(usize),
    /// A replica wanted a tick.
    Tick { node: usize, slot: usize, number: u64 },
    /// A copy of a frame arrives.
    Land { from: usize, to: usize, flight: Flight, frame: Option<Box<Addressed>> },
    /// A node notices the state of a connection.
    Notice { node: usize, peer: usize, generation: u64, connected: bool },
    /// A node learns the configuration of a chain.
    Enter { node: usize, slot: usize },
    /// A node's lease is renewed.
    Lease(usize),
    /// A client's request reaches a node.
    Request(Box<Arrival>),
    /// A reply reaches a client.
    Reply(Origin, Box<Reply>),
    /// A client begins something.
    Think(usize),
    /// A client tries again.
    Retry { client: usize, number: u64 },
    /// A client waited long enough for an attempt.
    Unanswered { client: usize, number: u64, attempt: u32 },
    /// A client stops waiting.
    GiveUp { client: usize, number: u64 },
    /// A watcher asks for changes, or asks again.
    Watch { watcher: usize, attempt: u64 },
    /// Its question reaches a node.
    AskForChanges { watcher: usize, attempt: u64, node: usize },
    /// An answer to it comes back.
    Changes { watcher: usize, attempt: u64, reply: Box<Reply> },
    /// Something of the forming of the cluster.
    Founding(founding::Event),
    /// The fault with this index begins or ends.
    Fault { index: usize, begins: bool },
    /// The run enters its next part.
    Phase(Phase),
}

/// A frame, and the lives of the nodes that it is from and for.
pub(crate) type Addressed = ([MemberId; 2], ChainFrame);

/// A client's request on its way to a node.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) origin: Origin,
    pub(crate) node: usize,
    pub(crate) request: Request,
    pub(crate) key: Option<RequestKey>,
    /// When the client stops waiting.
    pub(crate) until: u64,
}

/// Parts of a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Phase {
    /// Clients work, things fail.
    Work,
    /// Clients begin nothing more.
    Quiet,
    /// Everything is read once more at every node.
    Verify,
    /// What nobody waits for any longer comes to its end.
    Drain,
    /// Nothing is left to do.
    End,
}

/// What happened in a run, in numbers.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Virtual nanoseconds.
    pub virtual_nanos: u64,
    /// Events handled.
    pub events: u64,
    /// Operations that clients began.
    pub operations: u64,
    /// Operations that ended in a refusal.
    pub refused: u64,
    /// Operations that ended without an answer.
    pub unanswered: u64,
    /// Operations begun after healing and before anybody crashed.
    pub healed: u64,
    /// Those of them that were refused or not answered.
    pub healed_refused: u64,
    /// Writes acknowledged.
    pub acknowledged: u64,
    /// Compare-and-swaps whose condition failed.
    pub conflicts: u64,
    /// Reads served without the replica.
    pub local_reads: u64,
    /// Reads served after a version query.
    pub dirty_reads: u64,
    /// Reads that shared another one's version query.
    pub shared_queries: u64,
    /// Operations that were under way at the same time, at most.
    pub in_flight: u64,
    /// Version queries that were sent.
    pub version_queries: u64,
    /// Attempts after one that wasn't answered.
    pub retries: u64,
    /// Retries of one operation, at most.
    pub most_retries: u64,
    /// Bytes of the table of sessions, at most.
    pub session_bytes: u64,
    /// Answered writes that were asked for once more.
    pub duplicates: u64,
    /// Attempts refused because their session was evicted.
    pub expired_sessions: u64,
    /// Attempts refused because a window was full.
    pub busy: u64,
    /// Changes that watchers were shown.
    pub watched: u64,
    /// Times that a watcher was told that it had fallen behind.
    pub fell_behind: u64,
    /// Faults planned in this seed.
    pub planned: u64,
    /// Faults by kind that had an effect.
    pub faults: [u64; Kind::ALL.len()],
}

/// How a run ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// What happened.
    pub counts: Counts,
    /// What was wrong, if anything was.
    pub failure: Option<Failure>,
    /// The story, if it was wanted.
    pub trace: Option<String>,
}

/// More events than any run needs: time stands still.
const EVENTS: u64 = 5_000_000;

/// A world.
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
    /// The nodes of each chain from head to tail; empty until the cluster is formed.
    orders: Vec<Vec<usize>>,
    founding: Option<Founders>,
    phase: Phase,
    active: Vec<bool>,
    next_value: u64,
    last_moment: u64,
    /// By chain: sequences are numbers of one chain.
    histories: Vec<History>,
    /// By application and chain.
    standings: Vec<Vec<Standing>>,
    watchers: Vec<Watcher>,
    claim: Option<Failure>,
    in_flight: u64,
    slow_steps: u64,
    crashes: u64,
    restarts: u64,
    trace: Trace,
    counts: Counts,
}

impl World {
    /// The world of `setup` as `seed` makes it; its story is kept if `traced`.
    pub fn new(seed: u64, setup: Setup, traced: bool) -> Self {
        let nodes: Vec<Node> = (0..setup.members).map(|index| Node::new(seed, index, 1, &setup)).collect();
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
            next_value: 0,
            last_moment: 0,
            histories: vec![History::default(); setup.chains],
            standings: vec![vec![Standing::default(); setup.chains]; setup.clients.div_ceil(setup.lanes)],
            watchers: (0..setup.watchers * setup.chains)
                .map(|index| Watcher::new(seed, index, index % setup.chains))
                .collect(),
            claim: None,
            in_flight: 0,
            slow_steps: 0,
            crashes: 0,
            restarts: 0,
            trace: Trace::new(traced),
            counts: Counts { planned: faults as u64, ..Counts::default() },
            nodes,
            setup,
        };
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

    /// Runs to the end.
    pub fn run(mut self) -> Outcome {
        let failure = self.go().err();
        self.finish(failure)
    }

    fn go(&mut self) -> Result<(), Failure> {
        while self.phase != Phase::End {
            let Some((now, event)) = self.queue.pop() else {
                return Err(Failure::new(Oracle::Progress, "nothing is left to happen"));
            };
            self.now = now;
            self.counts.events += 1;
            if self.counts.events > EVENTS {
                return Err(Failure::new(Oracle::Progress, format!("more than {EVENTS} events: time stands still")));
            }
            self.handle(event)?;
        }
        self.check_end()
    }

    fn begin(&mut self) {
        if self.founding.is_some() {
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
        self.queue.push(STOP, Event::Phase(Phase::Quiet));
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
    }

    fn handle(&mut self, event: Event) -> Result<(), Failure> {
        match event {
            Event::Step(node) => return self.step(node),
            Event::Poll(node) => return self.poll(node),
            Event::Request(arrival) => return self.request(*arrival),
            Event::Reply(origin, reply) => return self.reply(origin, *reply),
            Event::GiveUp { client, number } => self.give_up(client, number),
            Event::Unanswered { client, number, attempt } => self.unanswered(client, number, attempt),
            Event::Watch { watcher, attempt } => self.watch(watcher, attempt),
            Event::AskForChanges { watcher, attempt, node } => self.ask_for_changes(watcher, attempt, node),
            Event::Changes { watcher, attempt, reply } => return self.changes(watcher, attempt, *reply),
            Event::Founding(event) => return self.founding_event(event),
            Event::Tick { node, slot, number } => self.tick(node, slot, number),
            Event::Land { from, to, flight, frame } => self.land(from, to, flight, frame),
            Event::Notice { node, peer, generation, connected } => self.notice(node, peer, generation, connected),
            Event::Enter { node, slot } => {
                let input = Input::Enter(self.configs[slot].clone());
                self.enqueue(node, Work { slot, input, flight: None });
            }
            Event::Lease(node) => self.lease(node),
            Event::Think(client) => self.think(client),
            Event::Retry { client, number } => self.retry(client, number),
            Event::Fault { index, begins } => self.fault(index, begins),
            Event::Phase(phase) => self.enter_phase(phase),
        }
        Ok(())
    }

    fn planned(&self, index: usize) -> Fault {
        let plan = &self.setup.faults;
        plan.get(index).or(self.setup.crash.as_ref()).map_or(Fault::Loss(0), |planned| planned.fault)
    }

    fn fault(&mut self, index: usize, begins: bool) {
        use std::fmt::Write as _;
        let fault = self.planned(index);
        if matches!(fault, Fault::Crash(_)) && self.counts.operations < OPERATIONS && self.now < LAST / 2 {
            // Not before the clients have done most of what they are to do.
            self.queue.push(self.now + SECOND, Event::Fault { index, begins });
            return;
        }
        self.trace.line(self.now, |out| write!(out, "{} {fault}", if begins { "begin" } else { "end" }));
        self.active[index] = begins;
        let active: Vec<Fault> =
            (0..self.active.len()).filter(|&at| self.active[at]).map(|at| self.planned(at)).collect();
        self.network.set_faults(active.iter().copied());
        for (index, node) in self.nodes.iter_mut().enumerate() {
            node.cost = active.iter().fold(QUICK, |cost, fault| match fault {
                Fault::Slow(slow, nanos) if *slow == index => cost.max(*nanos),
                _ => cost,
            });
        }
        match fault {
            Fault::Break(a, b) if a != b => {
                self.set_connection(a, b, !self.is_broken(a, b));
            }
            Fault::Crash(node) if begins => self.crash(node),
            Fault::Restart(node) if begins => self.stop(node),
            Fault::Restart(node) => self.restart(node),
            _ => {}
        }
    }

    /// Whether a fault keeps `a` and `b` from being connected.
    fn is_broken(&self, a: usize, b: usize) -> bool {
        let pair = |fault: Fault| matches!(fault, Fault::Break(c, d) if (c, d) == (a, b) || (d, c) == (a, b));
        (0..self.active.len()).any(|at| self.active[at] && pair(self.planned(at)))
    }

    fn crash(&mut self, node: usize) {
        self.crashes += 1;
        self.nodes[node].crashed = true;
        self.disconnect(node);
    }

    fn disconnect(&mut self, node: usize) {
        self.nodes[node].inbox.clear();
        for peer in 0..self.nodes.len() {
            if peer != node {
                self.set_connection(node, peer, false);
            }
        }
    }

    /// Breaks or makes a connection; each side notices in its own time.
    fn set_connection(&mut self, a: usize, b: usize, up: bool) {
        let up = up && self.nodes[a].is_alive() && self.nodes[b].is_alive();
        let Some(generation) = self.network.set_up(a, b, up) else { return };
        for (node, peer) in [(a, b), (b, a)] {
            let late = self.notices.chance(200);
            let after = self.notices.below(if late { 400_000_000 } else { 30_000_000 });
            self.queue.push(self.now + after, Event::Notice { node, peer, generation, connected: up });
        }
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
            self.enqueue(node, Work { slot, input: Input::Lease(until), flight: None });
        }
    }

    fn enter_phase(&mut self, phase: Phase) {
        match phase {
            Phase::Quiet if self.counts.operations < OPERATIONS && self.now < LAST => {
                self.queue.push(self.now + SECOND, Event::Phase(Phase::Quiet));
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
            Phase::Drain => self.queue.push(self.now + SECOND, Event::Phase(Phase::End)),
            Phase::End | Phase::Work => {}
        }
        self.phase = phase;
    }

    /// A moment that no two operations share.
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
