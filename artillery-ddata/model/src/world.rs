//! The explored world: the real nodes and chains, with a minimal environment.

mod member;
mod part;
mod rules;
mod steps;

use std::{
    collections::{BTreeSet, VecDeque},
    fmt::Write,
    sync::Arc,
    time::Duration,
};

use artillery_proto::{
    ClusterId, Incarnation, MemberId, Mode, NodeId, Timestamp,
    control::{
        Bootstrap, ChainSettings, Configs, NodeInfo, Term, Timing,
        log::LogEntry,
        message::{Renewal, Renewed},
    },
    message::ChainFrame,
    node::{self, NodeMachine as Decider},
    runner::LinkChange,
};

pub use self::member::Health;
use self::{
    member::{Node, founder},
    part::{Part, fingerprint, hash_of},
};
use crate::{
    bounds::{Bounds, NODES},
    history::History,
};

/// A step of the clock.
pub(crate) const UNIT: Duration = Duration::from_millis(250);
pub(crate) const KEY: &[u8] = b"k";
/// The lease duration, in steps of the clock; the default duration.
const LEASE: u32 = 4;
/// How long a member may be silent, in steps of the clock. Longer than the default, because a coordinator that reads
/// its clock less than twice in that time is treated as paused.
const SUSPECT: u32 = 3;
/// How long a member may slow down its chain before it is moved out, in steps of the clock. In effect never: nothing is
/// slow here, and durations aren't part of a state.
const SLOW: u32 = 1_000_000;
/// Steps of the clock before the exploration begins: by then the first leader has waited, and all nodes hold leases.
const BEFORE: u64 = 8;

/// Other orders of the members, as indexes into the first order.
const ORDERS: [[usize; NODES]; 5] = [[0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

/// A step of the exploration.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// A node receives the oldest frame in flight from another node.
    Deliver {
        /// The sender.
        from: u8,
        /// The receiver.
        to: u8,
    },
    /// The coordinator receives the oldest renewal of a node.
    Renewal(u8),
    /// A node receives the oldest answer to its renewals.
    Renewed(u8),
    /// A node learns the newest configuration.
    Learn(u8),
    /// All clocks advance by one step.
    Tick,
    /// The client writes the next value at a node that considers itself the head.
    Write(u8),
    /// The client reads at a node.
    Read(u8),
    /// A node stops permanently.
    Crash(u8),
    /// A node loses contact with all other nodes, but not with its clients.
    CutOff(u8),
    /// The coordinator begins another term.
    Elect,
    /// No other node can dial this node any longer. The number after the last node denotes the leader.
    Undialable(u8),
    /// An operator requests one of the other orders of the members.
    Reorder(u8),
}

/// The whole state at one time.
#[derive(Clone, Debug)]
pub struct World {
    bounds: Bounds,
    now: u64,
    nodes: Vec<Part<Node>>,
    /// Keeps the log and decides, but serves nothing.
    leader: Part<Decider>,
    configs: Arc<Configs>,
    /// The entries that led from the first configurations to the current ones.
    log: Vec<LogEntry>,
    term: u64,
    is_leader_undialable: bool,
    /// Frames in flight, by sender and receiver.
    links: Vec<VecDeque<ChainFrame>>,
    renewals: Vec<VecDeque<Renewal>>,
    answers: Vec<VecDeque<Renewed>>,
    history: History,
    /// The milestones that this run has reached.
    seen: Seen,
    faults: u32,
    reorders: u32,
    changes: u32,
}

/// Milestones that some run should reach.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Seen {
    /// A write was acknowledged after a change of the configuration.
    pub(crate) acknowledged_after_change: bool,
    /// The node that served the read, and whether its gate did.
    pub(crate) read_at: Option<(u8, bool)>,
    /// The leader resigned, since no node could dial it.
    pub(crate) gave_up: bool,
}

fn moment(step: u64) -> Timestamp {
    // Some fields use 0 for "never", so no clock shows 0.
    Timestamp::ZERO + UNIT * (step as u32 + 100)
}

/// The leader: a process that keeps the log and serves nothing.
fn leader() -> MemberId {
    MemberId { node: NodeId::from_name("leader"), incarnation: Incarnation { store: 99, starts: 1 } }
}

impl World {
    /// A chain that is open at all members. All nodes hold leases, and no message is in flight.
    pub fn new(bounds: Bounds) -> Self {
        let settings = ChainSettings { chains: 1, replicas: NODES as u32, mode: Mode::Craq, min_members: 1 };
        let members = (0..NODES).map(founder).collect();
        let cluster = ClusterId(1);
        let timing = Timing { lease: UNIT * LEASE, suspect: UNIT * SUSPECT, slow: UNIT * SLOW, ..Timing::default() };
        let founding = Bootstrap { settings, timing, ..Bootstrap::new(cluster, "modelled", members) };
        let configs = Arc::new(Configs::of(&founding));
        let settings =
            node::CoordinatorSettings { cluster, replicas: NODES, tick: UNIT, ..node::CoordinatorSettings::default() };
        let node = |at| Part::new(Node::new(founder(at), configs.clone(), settings, &bounds));
        let mut nodes: Vec<_> = (0..NODES).map(node).collect();
        if let Some(config) = configs.iter().next() {
            // In the order of the chain, so that traces are easy to read.
            nodes.sort_by_key(|node| config.members.iter().position(|member| member.id == node.id));
        }
        let founder = NodeInfo { id: leader(), name: "leader".into(), addrs: Vec::new(), host: None };
        let guarded = node::CoordinatorSettings { guards: bounds.coordinator, ..settings };
        let decider = Decider::new(founder, configs.clone(), guarded);
        let mut new = Self {
            bounds,
            now: 0,
            nodes,
            leader: Part::new(decider),
            configs,
            log: Vec::new(),
            term: 0,
            is_leader_undialable: false,
            links: vec![VecDeque::new(); NODES * NODES],
            renewals: vec![VecDeque::new(); NODES],
            answers: vec![VecDeque::new(); NODES],
            history: History::default(),
            seen: Seen::default(),
            faults: 0,
            reorders: 0,
            changes: 0,
        };
        new.begin();
        new
    }

    fn begin(&mut self) {
        self.elect();
        for node in 0..NODES {
            let peers: Vec<_> = self.nodes.iter().map(|node| node.id).filter(|&id| id != self.nodes[node].id).collect();
            self.take_in(node, |turn| turn.links.extend(peers.into_iter().map(LinkChange::Up)));
            self.obey(node);
            self.hand_in(node, what_others_hear(self.configs.clone()));
        }
        for _ in 0..BEFORE {
            self.step(Action::Tick);
            while self.step_of_message() {}
        }
        // The setup may have appended entries; only later ones are counted.
        self.changes = 0;
    }

    fn step_of_message(&mut self) -> bool {
        let next = self.messages().next();
        next.into_iter().for_each(|action| self.step(action));
        next.is_some()
    }

    /// The frames, renewals and answers that can be received now.
    fn messages(&self) -> impl Iterator<Item = Action> + '_ {
        let nodes = 0..NODES as u8;
        let pairs = nodes.clone().flat_map(|from| (0..NODES as u8).map(move |to| (from, to)));
        let under_way = |&(from, to): &(u8, u8)| !self.links[link(from.into(), to.into())].is_empty();
        let frames = pairs.filter(under_way).map(|(from, to)| Action::Deliver { from, to });
        let renewals = nodes.clone().filter(|&node| !self.renewals[usize::from(node)].is_empty());
        let answers = nodes.filter(|&node| !self.answers[usize::from(node)].is_empty());
        frames.chain(renewals.map(Action::Renewal)).chain(answers.map(Action::Renewed))
    }

    /// The steps that are possible now.
    pub fn actions(&self, out: &mut Vec<Action>) {
        out.extend(self.messages());
        let nodes = || 0..NODES as u8;
        let node = |at: u8| &self.nodes[usize::from(at)];
        let news = |at: &u8| node(*at).is_well() && node(*at).decider.configs().applied() < self.configs.applied();
        out.extend(nodes().filter(news).map(Action::Learn));
        if self.now < BEFORE + self.bounds.ticks && self.time_counts() {
            out.push(Action::Tick);
        }
        if self.history.writes() < self.bounds.writes {
            out.extend(
                nodes().filter(|&at| node(at).works() && self.takes_itself_for_head(at.into())).map(Action::Write),
            );
        }
        if self.bounds.reads && !self.history.has_begun(crate::history::READ) {
            out.extend(nodes().filter(|&at| node(at).works()).map(Action::Read));
        }
        if self.faults < self.bounds.faults && self.bounds.undialable {
            out.extend((0..=NODES as u8).map(Action::Undialable));
        } else if self.faults < self.bounds.faults {
            out.extend(nodes().flat_map(|at| [Action::Crash(at), Action::CutOff(at)]));
        }
        if self.reorders < self.bounds.reorders {
            out.extend((0..ORDERS.len() as u8).map(Action::Reorder));
        }
        if self.term <= u64::from(self.bounds.elections) {
            out.push(Action::Elect);
        }
    }

    /// Whether the passage of time matters. While all nodes are well and renew at every step of the clock, a step only
    /// shifts all times by one: every step that is possible afterwards was possible before.
    fn time_counts(&self) -> bool {
        self.bounds.late_renewals || self.faults > 0 || self.reorders > 0 || self.term > 1
    }

    fn takes_itself_for_head(&self, node: usize) -> bool {
        let status = self.nodes[node].replica().status();
        status.config.is_some_and(|config| config.head() == Some(self.nodes[node].id))
    }

    /// A 64-bit hash of everything on which later steps depend.
    pub fn fingerprint(&self) -> u64 {
        // Names every field, so that a new field that is missing here doesn't compile.
        let Self {
            // Equal in all worlds that are compared.
            bounds: _,
            now,
            nodes,
            leader,
            // Follows from the log.
            configs: _,
            log,
            term,
            is_leader_undialable,
            links,
            renewals,
            answers,
            history,
            seen,
            faults,
            reorders,
            changes,
        } = self;
        let nodes: Vec<_> = nodes.iter().map(Part::fingerprint).collect();
        fingerprint(|out| {
            write!(
                out,
                "{:?}",
                (
                    now,
                    term,
                    is_leader_undialable,
                    faults,
                    reorders,
                    changes,
                    history,
                    seen,
                    nodes,
                    leader.fingerprint()
                )
            )?;
            // The whole log: replicas, lease clients and the coordinator only describe how much of it they know.
            write!(out, "{log:?}{:?}{renewals:?}{answers:?}", hash_of(links))
        })
    }

    fn what_the_leader_hears(&self) -> node::NodeInput {
        let voters = std::iter::once(leader()).chain(self.nodes.iter().take(2).map(|node| node.id));
        let voters = if self.bounds.undialable { voters.collect() } else { BTreeSet::new() };
        node::NodeInput::Log {
            leads: Some(Term(self.term)),
            leader: Some(leader()),
            configs: self.configs.clone(),
            voters,
        }
    }

    fn index(&self, id: MemberId) -> Option<usize> {
        self.nodes.iter().position(|node| node.id == id)
    }
}

/// The log input for a node that isn't the leader. For these nodes the log is kept outside the cluster.
fn what_others_hear(configs: Arc<Configs>) -> node::NodeInput {
    node::NodeInput::Log { leads: None, leader: Some(leader()), configs, voters: BTreeSet::new() }
}

fn link(from: usize, to: usize) -> usize {
    from * NODES + to
}
