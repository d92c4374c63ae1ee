//! What a run depends on, besides its seed.

use std::time::Duration;

use artillery_proto::{Mode, guards::Guards};

use super::Gray;
use crate::{
    client::{Keys, Mix},
    faults::Planned,
    network::Profile,
    world::Boundary,
};

/// All that a run depends on, besides the seed's streams.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Nodes. Each is a member of every chain, unless the cluster is formed first.
    pub members: usize,
    /// Chains; each begins at another node.
    pub chains: usize,
    /// Clients.
    pub clients: usize,
    /// So many of them are one application and share its sessions.
    pub lanes: usize,
    /// Keys, shared by all chains.
    pub keys: Keys,
    /// Where strong reads are served.
    pub mode: Mode,
    /// What clients ask for.
    pub mix: Mix,
    /// Window of a head, in bytes.
    pub window: usize,
    /// Backlog, in bytes.
    pub backlog: usize,
    /// Bytes of updates that a joiner keeps beside a snapshot.
    pub joiner_buffer: usize,
    /// What client sessions and their records may take up, in bytes.
    pub session_bytes: usize,
    /// What an answer of many entries holds, in bytes.
    pub answer: usize,
    /// How many changes are looked at for one question of a watch.
    pub watch_steps: usize,
    /// How many bytes of values a head puts together in one go.
    pub join: usize,
    /// How long a snapshot is kept that nobody asks for.
    pub snapshot_age: Duration,
    /// How much may be written while a snapshot is kept, in bytes.
    pub snapshot_bytes: usize,
    /// The replica's heartbeat.
    pub heartbeat: Duration,
    /// After how long a replica sends again what isn't acknowledged.
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
    /// How often an operation that isn't answered is tried again; then its client waits for the last attempt.
    pub retries: u32,
    /// For how many nanoseconds of each second clients work, as fast as they can; `None`: evenly, at a pace.
    pub bursts: Option<u64>,
    /// How many times as many operations as usual clients aim at.
    pub pace: u64,
    /// How many of a thousand reads go to the node that is everybody's favourite for a second.
    pub favourite: u32,
    /// Whether reads in sessions tell their floor.
    pub floors: bool,
    /// How many of a thousand polls of a replica's messages are late.
    pub late_polls: u32,
    /// How many of a thousand turns are taken in a while after they were received.
    pub late_turns: u32,
    /// Nanoseconds that a node takes over an input.
    pub cost: u64,
    /// One member holds its chain up for long: writes are to be back soon.
    pub gray: Option<Gray>,
    /// Whether who is kept away for what it did before needn't be a member after healing.
    pub excused: bool,
    /// Nothing fails: nobody is to be told of an unknown outcome.
    pub peaceful: bool,
    /// Most inputs that a node takes in before it polls.
    pub batch: usize,
    /// Whether nodes hold leases that run out now and then.
    pub leases: bool,
    /// How many of a thousand local reads take long, because their thread isn't run for a while; and of ten thousand times
    /// that a member hands on what it hasn't put into its store.
    pub stalls: u32,
    /// From when on all is to be well but for crashes: what still fails is somebody's who needn't serve.
    pub healed: u64,
    /// When clients stop, if they did enough.
    pub stop: u64,
    /// Operations at least.
    pub fewest: u64,
    /// Operations at most.
    pub most: u64,
    /// Clients that watch the changes of a chain, for each of them.
    pub watchers: usize,
    /// Whether what nodes say to each other goes through bytes.
    pub wired: bool,
    /// How the cluster is formed; `None`: it is there from the start.
    pub founding: Option<FoundingSetup>,
    /// How its configuration changes; `None`: never.
    pub control: Option<ControlSetup>,
    /// What goes wrong.
    pub faults: Vec<Planned>,
    /// Whether all nodes are told to stop at the end.
    pub closes: bool,
    /// Whether a member crashes at the end.
    pub crash: Option<Planned>,
    /// How a resync is ended, if one is to be watched.
    pub boundary: Option<Boundary>,
    /// Whether to tell what became of each operation.
    pub audited: bool,
    /// The guard taken out.
    pub guards: Guards,
}

/// How a cluster is formed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FoundingSetup {
    /// Founders; further nodes become spares.
    pub expect: u16,
    /// Members of each chain.
    pub replicas: u32,
}

/// How a cluster's configuration changes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ControlSetup {
    /// Founders; further nodes are spares.
    pub founders: usize,
    /// Members of each chain.
    pub replicas: u32,
    /// How long a lease runs.
    pub lease: Duration,
    /// After how long a silent node is suspected.
    pub suspect: Duration,
    /// A member that holds its chain up for so long is moved out.
    pub slow: Duration,
    /// By how many millionths a clock may be fast or slow.
    pub drift: u32,
    /// How many of a thousand times there is an election for no reason.
    pub whims: u32,
    /// How many of a thousand wishes for a promotion are followed by a broken link to the joiner.
    pub cut_off: u32,
    /// How many of a thousand of them are the last thing that is heard of who wishes, for a while.
    pub last_words: u32,
    /// How many of a thousand snapshots are disturbed, at the source or on their way.
    pub disturbed: u32,
    /// How many of a thousand times a chain hears very late of what its node is told.
    pub lags: u32,
    /// Whether an operator restarts one node after the other.
    pub rolls: bool,
    /// Whether an operator founds another cluster wherever no member is heard.
    pub founds: bool,
    /// Whether most of those that keep the log are lost, and an operator has what is left go on.
    pub loses: bool,
}
