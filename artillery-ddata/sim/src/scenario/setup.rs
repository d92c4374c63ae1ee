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

/// Everything on which a run depends, besides the random streams of its seed.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Nodes. Each is a member of every chain, unless the cluster is formed first.
    pub members: usize,
    /// Chains. Each has another node as its head.
    pub chains: usize,
    /// Clients.
    pub clients: usize,
    /// Clients of one application, which share its sessions.
    pub lanes: usize,
    /// Keys, shared by all chains.
    pub keys: Keys,
    /// The mode of the chains: which members serve strong reads.
    pub mode: Mode,
    /// The mix of operations.
    pub mix: Mix,
    /// Window of a head, in bytes.
    pub window: usize,
    /// Backlog, in bytes.
    pub backlog: usize,
    /// Bytes of updates that a joiner keeps beside a snapshot.
    pub joiner_buffer: usize,
    /// Bound on client sessions and their records, in bytes.
    pub session_bytes: usize,
    /// Bound on an answer of many entries, in bytes.
    pub answer: usize,
    /// Number of changes that one request of a watch examines.
    pub watch_steps: usize,
    /// Bytes of values that a head joins in one step.
    pub join: usize,
    /// How long an unused snapshot is kept.
    pub snapshot_age: Duration,
    /// Bytes that may be written while a snapshot is kept.
    pub snapshot_bytes: usize,
    /// The replica's heartbeat.
    pub heartbeat: Duration,
    /// How long a replica waits for an acknowledgement before it sends again.
    pub resend: Option<Duration>,
    /// Links between nodes.
    pub profile: Profile,
    /// The longest piece of an update in one frame, in bytes.
    pub chunk: usize,
    /// Longest padding of a value, in bytes.
    pub padding: u64,
    /// Shortest and longest patience of a client, in nanoseconds.
    pub patience: (u64, u64),
    /// Shortest and longest patience for one attempt, in nanoseconds.
    pub attempt: (u64, u64),
    /// How often an unanswered operation is retried. Then its client waits for the last attempt.
    pub retries: u32,
    /// For how many nanoseconds of each second clients work, as fast as they can. `None`: evenly, at a pace.
    pub bursts: Option<u64>,
    /// Factor of the number of operations that clients aim at.
    pub pace: u64,
    /// How many of a thousand reads go to one node, the same for all clients, which changes every second.
    pub favourite: u32,
    /// Whether reads in sessions carry their floor.
    pub floors: bool,
    /// How many of a thousand polls of a replica's messages are late.
    pub late_polls: u32,
    /// How many of a thousand turns are processed a while after they were received.
    pub late_turns: u32,
    /// Time that a node takes for an input, in nanoseconds.
    pub cost: u64,
    /// Time that a node takes for each record that it puts into its store, in nanoseconds. Its other tasks wait meanwhile.
    pub record_cost: u64,
    /// How long a turn of a chain may take.
    pub turn: Duration,
    /// Set if one member holds up its chain for long. Writes must be back soon.
    pub gray: Option<Gray>,
    /// Whether a node that is still kept away for an earlier gray failure may be missing from its chain after healing.
    pub excused: bool,
    /// Whether nothing fails. Then no client may get an unknown outcome.
    pub peaceful: bool,
    /// Most inputs that a node processes before it polls.
    pub batch: usize,
    /// Whether nodes hold leases that expire now and then.
    pub leases: bool,
    /// How many of a thousand local reads take long because their thread isn't run for a while. Also, how many of ten thousand
    /// times a member stalls after it has sent updates on and before it puts them into its store.
    pub stalls: u32,
    /// From when on everything must work, but for crashes. Later faults may only hit nodes that need not serve.
    pub healed: u64,
    /// When clients stop, if they did enough.
    pub stop: u64,
    /// Fewest operations.
    pub fewest: u64,
    /// Most operations.
    pub most: u64,
    /// Number of watchers of each chain.
    pub watchers: usize,
    /// Whether messages between nodes are encoded and decoded.
    pub wired: bool,
    /// How the cluster is formed. `None`: it exists from the start.
    pub founding: Option<FoundingSetup>,
    /// How its configuration changes. `None`: never.
    pub control: Option<ControlSetup>,
    /// The disks of the nodes. `None`: they have none.
    pub durable: Option<DiskSetup>,
    /// Where the power is lost, in a run that counts what disks do.
    pub power_cut: Option<PowerCut>,
    /// The planned faults.
    pub faults: Vec<Planned>,
    /// Whether all nodes are told to stop at the end.
    pub closes: bool,
    /// Whether a member crashes at the end.
    pub crash: Option<Planned>,
    /// How a resync is ended, in a run that watches one.
    pub boundary: Option<Boundary>,
    /// Whether to report the outcome of each operation.
    pub audited: bool,
    /// The guard taken out.
    pub guards: Guards,
}

impl Setup {
    /// How its configuration changes, in a scenario in which it does.
    pub(super) fn control_mut(&mut self) -> &mut ControlSetup {
        self.control.as_mut().expect("a scenario whose configuration changes")
    }
}

/// How a cluster is formed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FoundingSetup {
    /// The fewest founders that any node expects. Nodes that appear later become spares.
    pub expect: u16,
    /// The most founders that any node expects.
    pub most: u16,
    /// Members of each chain.
    pub replicas: u32,
}

/// How a cluster's configuration changes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ControlSetup {
    /// Number of founders. Further nodes are spares.
    pub founders: usize,
    /// Members of each chain.
    pub replicas: u32,
    /// The length of a lease.
    pub lease: Duration,
    /// How long a node may be silent before it is suspected.
    pub suspect: Duration,
    /// How long a member may hold up its chain before it is moved out.
    pub slow: Duration,
    /// Bound on the rate error of a clock, in millionths.
    pub drift: u32,
    /// Chance of an election without cause, in thousandths.
    pub whims: u32,
    /// How many of a thousand requests for a promotion are followed by a broken link to the joiner.
    pub cut_off: u32,
    /// How many of a thousand requests for a promotion are followed by an isolation of the member that made it.
    pub last_words: u32,
    /// How many of a thousand snapshots are disturbed, at the source or on the way.
    pub disturbed: u32,
    /// How many of a thousand times a chain learns very late what its node was told.
    pub lags: u32,
    /// Whether an operator restarts one node after the other.
    pub rolls: bool,
    /// Whether an operator founds another cluster wherever no member is heard.
    pub founds: bool,
    /// Whether most nodes that keep the log are lost, and an operator recovers the cluster from the rest.
    pub loses: bool,
    /// Whether all stores of a chain are lost, and an operator accepts it.
    pub accepts: bool,
    /// How many of the last nodes have no names: each of their lives is another node.
    pub unnamed: usize,
}
