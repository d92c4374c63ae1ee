//! The setup of a run.

use std::time::Duration;

use artillery_proto::{Mode, guards::Guards};

use super::Gray;
use crate::{
    client::{Keys, Mix},
    disk::DiskSetup,
    faults::Planned,
    network::Profile,
    world::{Boundary, PowerCut},
};

/// Everything that determines a run, besides its seed.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Number of nodes. Each is a member of every chain, unless the cluster forms first or has a control half.
    pub members: usize,
    /// Number of chains. Without a control half each has a different head.
    pub chains: usize,
    /// Number of clients.
    pub clients: usize,
    /// Number of clients per application, which share its sessions.
    pub lanes: usize,
    /// The keys of all chains.
    pub keys: Keys,
    /// The chains' mode, which determines the members that serve strong reads.
    pub mode: Mode,
    /// The mix of operations.
    pub mix: Mix,
    /// Window of a head, in bytes.
    pub window: usize,
    /// Backlog of updates kept for resends, in bytes.
    pub backlog: usize,
    /// Bytes of updates that a joiner buffers during a snapshot.
    pub joiner_buffer: usize,
    /// Bound on the session table, in bytes.
    pub session_bytes: usize,
    /// Bound on an answer of many entries, in bytes.
    pub answer: usize,
    /// Number of changes that one watch request may examine.
    pub watch_steps: usize,
    /// Bytes of a value that a head concatenates per step.
    pub join: usize,
    /// How long an unused snapshot is kept.
    pub snapshot_age: Duration,
    /// Bytes that may be written before an open snapshot fails.
    pub snapshot_bytes: usize,
    /// Interval of a replica's heartbeats.
    pub heartbeat: Duration,
    /// How long a replica waits for an acknowledgement before it resends. `None`: it never resends.
    pub resend: Option<Duration>,
    /// Links between nodes.
    pub profile: Profile,
    /// Maximum size of a piece of an update in one frame, in bytes.
    pub chunk: usize,
    /// Maximum padding of a value, in bytes.
    pub padding: u64,
    /// Bounds on the time that a client waits for an operation, in nanoseconds.
    pub patience: (u64, u64),
    /// Bounds on the time that a client waits for one attempt, in nanoseconds.
    pub attempt: (u64, u64),
    /// Maximum number of retries of an unanswered operation. After the last one, its client only waits for the answer.
    pub retries: u32,
    /// Nanoseconds at the start of each second in which clients send without pausing. `None`: at a steady pace.
    pub bursts: Option<u64>,
    /// Factor on the number of operations that clients aim at.
    pub pace: u64,
    /// Reads per thousand that go to one node, which is the same for all clients and changes every second.
    pub favourite: u32,
    /// Whether reads in sessions carry the session's floor.
    pub floors: bool,
    /// Polls per thousand of a replica's messages that are late.
    pub late_polls: u32,
    /// Turns per thousand that are processed with a delay after receipt.
    pub late_turns: u32,
    /// Time that a node needs per input, in nanoseconds.
    pub cost: u64,
    /// Time that a node needs per record put into its store, in nanoseconds. Its other tasks wait.
    pub record_cost: u64,
    /// Maximum duration of a chain's turn.
    pub turn: Duration,
    /// The longest time to live of the clients' own keys, in milliseconds. `None`: no key expires.
    pub longest_ttl: Option<u64>,
    /// The processes that contend for locks. `None`: none do.
    pub locks: Option<LockSetup>,
    /// The interval in which one member holds up its chain, if it does. Writes must recover soon.
    pub gray: Option<Gray>,
    /// Whether a node that is kept out for a gray failure may be missing from its chain after healing.
    pub excused: bool,
    /// Whether nothing fails, so that no client may get an unknown outcome.
    pub peaceful: bool,
    /// Maximum number of inputs that a node processes before it polls.
    pub batch: usize,
    /// Whether leases expire now and then.
    pub leases: bool,
    /// Local reads per thousand that stall. Members stall a tenth as often between forwarding and storing updates.
    pub stalls: u32,
    /// From this time on everything must work, except for crashes. Later faults only affect nodes that need not serve.
    pub healed: u64,
    /// When clients stop if they have done enough.
    pub stop: u64,
    /// Minimum number of operations.
    pub fewest: u64,
    /// Maximum number of operations.
    pub most: u64,
    /// Number of watchers of each chain.
    pub watchers: usize,
    /// Number of copies that are kept of each chain.
    pub followers: usize,
    /// Whether frames between nodes are encoded and decoded.
    pub wired: bool,
    /// How the cluster forms. `None`: it exists from the start.
    pub founding: Option<FoundingSetup>,
    /// How configurations change. `None`: they never do.
    pub control: Option<ControlSetup>,
    /// The disks of the nodes. `None`: nodes have no disks.
    pub durable: Option<DiskSetup>,
    /// The power cut of a run in which disk operations are counted.
    pub power_cut: Option<PowerCut>,
    /// The planned faults.
    pub faults: Vec<Planned>,
    /// Whether all nodes are asked to stop at the end.
    pub closes: bool,
    /// The crash of a member at the end, if there is one.
    pub crash: Option<Planned>,
    /// The interruption of a resync, in a run that watches one.
    pub boundary: Option<Boundary>,
    /// Whether the run returns the outcome of each operation.
    pub audited: bool,
    /// The guards in force.
    pub guards: Guards,
}

impl Setup {
    /// Bound on the rate error of a clock, in millionths.
    pub fn drift(&self) -> u32 {
        self.control.map_or(0, |control| control.drift)
    }

    pub(super) fn control_mut(&mut self) -> &mut ControlSetup {
        self.control.as_mut().expect("a scenario whose configuration changes")
    }
}

impl ControlSetup {
    /// The maximum drift between a fast clock and a slow one, plus a margin, in millionths.
    pub const fn drift_ppm(&self) -> u32 {
        2 * self.drift + 2 * self.drift / 10 + 200
    }
}

/// The processes that contend for locks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockSetup {
    /// Number of processes.
    pub processes: usize,
    /// Number of locks.
    pub names: usize,
    /// The longest time to live of a key, in milliseconds.
    pub longest_ttl: u64,
    /// How far the clocks of two nodes may differ in rate, in millionths, as routings state it.
    pub drift_ppm: u32,
}

/// The formation of a cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FoundingSetup {
    /// The smallest number of founders that any node expects. Nodes that appear later become spares.
    pub expect: u16,
    /// The largest number of founders that any node expects.
    pub most: u16,
    /// Members of each chain.
    pub replicas: u32,
}

/// The changes of a cluster's configurations.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ControlSetup {
    /// Number of founders. Other nodes are spares.
    pub founders: usize,
    /// Members of each chain.
    pub replicas: u32,
    /// Duration of a lease.
    pub lease: Duration,
    /// How long a node may be silent before it is suspected.
    pub suspect: Duration,
    /// How long a member may hold up its chain before it is moved out.
    pub slow: Duration,
    /// Bound on the rate error of a clock, in millionths.
    pub drift: u32,
    /// Chance of an election without cause, in thousandths, at each check of the leader.
    pub whims: u32,
    /// Requests for a promotion, per thousand, after which the link to the joiner breaks.
    pub cut_off: u32,
    /// Requests for a promotion, per thousand, after which the requesting member is isolated.
    pub last_words: u32,
    /// Snapshots per thousand that are disturbed, at the source or on the link.
    pub disturbed: u32,
    /// Orders and leases per thousand that reach a chain very late.
    pub lags: u32,
    /// Whether an operator restarts nodes one after the other.
    pub rolls: bool,
    /// Whether an operator creates another cluster wherever no member can be reached.
    pub founds: bool,
    /// Whether another cluster of the same name and secret is met.
    pub meets: bool,
    /// Whether most voters of the log are lost, and an operator recovers the cluster from the rest.
    pub loses: bool,
    /// Whether all stores of a chain are lost, and an operator accepts the loss.
    pub accepts: bool,
    /// How many of the last nodes have no names: each of their incarnations is another node.
    pub unnamed: usize,
}
