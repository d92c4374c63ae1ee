//! The settings of a node: plain data, checked by [`Config::validate`].

use std::{path::PathBuf, time::Duration};

pub use artillery_core::{
    config::{Congestion, TransportConfig},
    identity::Identity,
};

pub use artillery_proto::journal::SyncMode;

pub use artillery_proto::control::{
    ChainSettings, InvalidChainSettings, InvalidTiming, Timing, formation::InvalidFormation,
};

use artillery_core::discovery::Seed;

use crate::types::update::MAX_KEY;

/// How a node finds its cluster, what it proposes if it forms one, and how much memory it may use.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// The cluster's name (`artillery`). Nodes of a cluster with another name are refused.
    pub cluster: String,
    /// The node's stable name. `None`: the one that its directory keeps ([`data`](Self::data)), or a random one.
    pub name: Option<String>,
    /// The number of nodes, this one included, that must see each other before they form the cluster (3). If nodes expect different
    /// numbers, the largest counts. With 1 a node that finds no other one within some seconds forms the cluster alone, and others
    /// join it later.
    pub expect: u32,
    /// The cluster exists (no): a node without a store creates none, and waits for a node of the cluster. With it, nodes whose
    /// volumes are all missing don't create an empty cluster.
    pub existing: bool,
    /// The chains that the node proposes when the cluster is formed. A cluster that is formed already keeps its own.
    pub chains: ChainSettings,
    /// How to find other nodes.
    pub discovery: DiscoveryConfig,
    /// Sockets and streams. Its `listen` and `advertise` are the node's addresses.
    pub transport: TransportConfig,
    /// A host name of this node, as `HOST:PORT`. The node advertises the addresses that the name has now, and the name is in the
    /// cluster's log, where clients find it: they look it up when all addresses that they know are silent. `None`: none.
    pub advertise_name: Option<String>,
    /// Bounds on the memory that the node uses.
    pub limits: Limits,
    /// The threads that the node works on.
    pub threads: Threads,
    /// The timeout of a call that sets none (5 s).
    pub timeout: Duration,
    /// Whether the cluster's nodes keep a configuration log, by which spares take the place of dead members (yes).
    /// Without it the configuration stays for ever as it was formed. Must be the same at all nodes of a cluster.
    pub failover: bool,
    /// Leases, under which members serve strong reads from their own state. The node that proposes the cluster fixes
    /// them for all nodes.
    pub lease: LeaseConfig,
    /// A member unheard for so long is suspected to be dead. Fixed as [`lease`](Self::lease) is.
    pub suspect: Duration,
    /// A live member that stalls its chain for so long is moved out, until it keeps up. Fixed as [`lease`](Self::lease)
    /// is.
    pub slow: Duration,
    /// Where the node keeps its data on disk. `None`: in memory alone (the default). All nodes of a cluster keep it on disk, or
    /// none does.
    pub data: Option<DataConfig>,
}

/// What a node keeps on disk. All data is in memory too, where it is read.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DataConfig {
    /// The directory. It is made if it isn't there, and belongs to this node for good: it keeps the node's name.
    pub dir: PathBuf,
    /// When a write counts as being on the disk.
    pub sync: SyncMode,
    /// So many bytes of updates may stand in the journal beside the data before it is made shorter (256 MiB).
    pub room_bytes: u64,
    /// The disk is considered full when this number of bytes is left in addition to the space for a checkpoint: then members only
    /// delete. A quarter of them is in a file, so that other programs can't take it. `None`: 64 MiB, and at most an eighth of the
    /// file system or of [`max_disk_bytes`](Self::max_disk_bytes).
    pub reserve_bytes: Option<u64>,
    /// The disk counts as full, too, when the journal comes so near to this length in bytes. `None`: only the disk's own size
    /// matters.
    pub max_disk_bytes: Option<u64>,
    /// When no member of a chain lives on, the stores that are back wait for the others for so long, after the leases of before
    /// (2 s). Any one whole store has everything; the others join it later, as new members. What counts is the setting of the
    /// node that leads the configuration log then. Unlike the cluster's times ([`Config::lease`]) it may differ between nodes,
    /// and each start may change it: no answer depends on it.
    pub reopen: Duration,
}

impl DataConfig {
    /// A directory, synced with each batch of writes.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            sync: SyncMode::Batch,
            room_bytes: 256 << 20,
            reserve_bytes: None,
            max_disk_bytes: None,
            reopen: Duration::from_secs(2),
        }
    }

    /// The reserve on a disk of `disk` bytes, if none is given. On a small disk 64 MiB would leave little or nothing for data.
    pub(crate) fn default_reserve(disk: u64) -> u64 {
        (disk / 8).min(64 << 20)
    }
}

/// The threads that a node works on.
///
/// Choose [`Own`](Self::Own) if the application's tasks may keep a thread busy for long, or if its runtime has several
/// threads: a wake-up of another core costs a node more than most of its work. Choose [`Shared`](Self::Shared) if the
/// application runs on one thread and does little but call this node: then a write wakes no other thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Threads {
    /// The threads of the runtime in which the node is started.
    Shared,
    /// Threads of its own: one for its sockets and all traffic over them, and others for its chains.
    Own {
        /// The number of threads for chains, at most 256; more than there are chains are not used. With 0 the chains
        /// share the thread of the sockets, which is best where a node has one or two cores.
        chains: usize,
    },
}

/// On a machine with fewer cores, a node's chains share the thread of its sockets by default.
const CORES_FOR_CHAINS: usize = 4;
const MAX_CHAIN_THREADS: usize = 256;
/// A chain that waits longer for a store waits for an operator.
const MAX_REOPEN: Duration = Duration::from_secs(3600);

impl Default for Threads {
    /// [`Own`](Self::Own) threads, by this machine's cores: with four or more cores, all but one are for chains; with
    /// fewer, none is.
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let chains = if cores < CORES_FOR_CHAINS { 0 } else { (cores - 1).min(MAX_CHAIN_THREADS) };
        Self::Own { chains }
    }
}

/// The times of leases.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LeaseConfig {
    /// How long a lease runs; a node renews it four times in that time. A dead member is removed only when its lease is
    /// certainly out.
    pub duration: Duration,
    /// The largest difference between the rates of two nodes' clocks, in millionths.
    pub drift_ppm: u32,
}

/// How to find other nodes.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DiscoveryConfig {
    /// Whether to announce this node by multicast DNS, and to find others by it.
    pub mdns: bool,
    /// The network interface for multicast DNS, by name. `None`: loopback if the node listens there, otherwise all. A node that
    /// listens on all addresses advertises those of these interfaces.
    pub interface: Option<String>,
    /// The UDP port of multicast DNS. `None`: 5353. Another port separates a test from other programs.
    pub mdns_port: Option<u16>,
    /// Addresses or host names of nodes, each with its port. Host names are resolved at every dial.
    pub seeds: Vec<String>,
}

/// Bounds on a node's memory, in bytes.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Limits {
    /// Updates above the watermark that a head accepts (64 MiB). Past it, writers wait until their deadline.
    pub window_bytes: usize,
    /// Committed updates that are kept for members that missed some (256 MiB).
    pub backlog_bytes: usize,
    /// The largest value, inclusive (64 MiB).
    pub max_value_bytes: usize,
    /// Each queue of requests and answers (64 MiB). Past it, callers wait until their deadline, or get
    /// [`Busy`](crate::Refusal::Busy). An item larger than a queue, or than a connection's share, has that to itself.
    ///
    /// A chain has a queue for each of: reads, small writes, large writes, and watches that wait for changes. The
    /// connections of all clients together have a queue for each of: reads that aren't answered yet, watches, forwarded
    /// writes, writes that wait in line, large requests, answers to reads that wait to be sent, and answers to writes
    /// that do. The connections of all nodes have the same queues once more. One connection may have a quarter of each.
    pub queue_bytes: usize,
    /// The client sessions of each chain, with the records by which retries are recognized (16 MiB). Past it, the least
    /// recently used session is evicted, and its retries are told so. One session may have a quarter. Must be the same
    /// at all nodes of a cluster.
    pub sessions_bytes: usize,
    /// Keys and values of all chains that the node holds (no bound). At that many bytes its chains add no values until some
    /// are deleted ([`MemoryFull`](crate::Refusal::MemoryFull)). What is under way then is still taken in, a window of each
    /// chain at most; and a node that joins, or starts again with its directory, takes in all that there is. Nodes may
    /// differ: the first one that is full counts.
    pub max_memory_bytes: Option<u64>,
}

impl Default for Config {
    fn default() -> Self {
        let Timing { lease, drift_ppm, suspect, slow } = Timing::default();
        Self {
            cluster: "artillery".to_owned(),
            name: None,
            expect: 3,
            existing: false,
            chains: ChainSettings::default(),
            discovery: DiscoveryConfig { mdns: true, interface: None, mdns_port: None, seeds: Vec::new() },
            transport: TransportConfig::default(),
            advertise_name: None,
            limits: Limits {
                window_bytes: 64 << 20,
                backlog_bytes: 256 << 20,
                max_value_bytes: 64 << 20,
                queue_bytes: 64 << 20,
                sessions_bytes: 16 << 20,
                max_memory_bytes: None,
            },
            threads: Threads::default(),
            timeout: Duration::from_secs(5),
            failover: true,
            lease: LeaseConfig { duration: lease, drift_ppm },
            suspect,
            slow,
            data: None,
        }
    }
}

/// A setting that can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct ConfigProblem {
    /// The path of the setting, such as `limits.window_bytes`.
    pub field: String,
    /// What is wrong with it.
    pub problem: String,
}

/// The most nodes that a formation can wait for.
const MAX_EXPECT: u32 = 1000;

/// Room for some sessions; a quarter of it, one session's share, has room for some records with the values that
/// get-and-delete took.
const MIN_SESSIONS: usize = 64 << 10;

impl Config {
    /// The times of the cluster, if this node proposes it.
    pub(crate) fn timing(&self) -> Timing {
        let LeaseConfig { duration, drift_ppm } = self.lease;
        Timing { lease: duration, drift_ppm, suspect: self.suspect, slow: self.slow }
    }

    /// Checks every setting.
    ///
    /// # Errors
    /// All problems, each with its setting.
    pub fn validate(&self) -> Result<(), Vec<ConfigProblem>> {
        let mut problems = Vec::new();
        let mut problem =
            |field: &str, problem: String| problems.push(ConfigProblem { field: field.to_owned(), problem });
        if self.cluster.is_empty() || self.cluster.len() > 63 {
            problem("cluster", "must have 1 to 63 bytes".to_owned());
        }
        if self.expect == 0 || self.expect > MAX_EXPECT {
            problem("expect", format!("must be from 1 to {MAX_EXPECT}"));
        }
        if let Err(error) = self.chains.validate() {
            problem("chains", error.to_string());
        }
        if let Err(errors) = self.transport.validate() {
            for error in errors {
                problem(&format!("transport.{}", error.field), error.problem);
            }
        }
        match self.advertise_name.as_deref().map(str::parse::<Seed>) {
            Some(Err(error)) => problem("advertise_name", error.to_string()),
            Some(Ok(seed)) if seed.host().is_none() => problem("advertise_name", "must be a host name".to_owned()),
            _ => {}
        }
        let largest_frame = self.limits.max_value_bytes.saturating_add(2 * MAX_KEY + FRAME_OVERHEAD);
        if largest_frame > self.transport.max_frame_bytes {
            problem(
                "limits.max_value_bytes",
                "such a value, keys and headers don't fit transport.max_frame_bytes".into(),
            );
        }
        if self.limits.window_bytes == 0 {
            problem("limits.window_bytes", "must not be zero".to_owned());
        }
        if self.limits.queue_bytes == 0 {
            problem("limits.queue_bytes", "must not be zero".to_owned());
        }
        if self.limits.sessions_bytes < MIN_SESSIONS {
            problem("limits.sessions_bytes", format!("must be at least {MIN_SESSIONS}"));
        }
        if matches!(self.threads, Threads::Own { chains } if chains > MAX_CHAIN_THREADS) {
            problem("threads.chains", format!("must be at most {MAX_CHAIN_THREADS}"));
        }
        if self.timeout.is_zero() {
            problem("timeout", "must not be zero".to_owned());
        }
        if self.data.is_some() && !self.failover {
            problem("data", "a cluster without failover keeps nothing on disk".to_owned());
        }
        if self.data.as_ref().is_some_and(|data| data.room_bytes == 0) {
            problem("data.room_bytes", "must not be zero".to_owned());
        }
        if self.data.as_ref().is_some_and(|data| data.reopen > MAX_REOPEN) {
            problem("data.reopen", format!("must be at most {MAX_REOPEN:?}"));
        }
        for error in self.timing().problems() {
            problem(error.field(), error.to_string());
        }
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }
}

/// Room for a frame's header, beside values that together are as long as the largest value: enough for the answer to
/// thousands of keys, or to a script of as many steps.
const FRAME_OVERHEAD: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_is_a_share_of_a_small_disk() {
        let reserve = |disk: u64| DataConfig::default_reserve(disk << 20) >> 20;
        assert_eq!([0, 96, 512, 1000, 1 << 20].map(reserve), [0, 12, 64, 64, 64]);
        assert_eq!(DataConfig::default_reserve(u64::MAX), 64 << 20);
    }

    #[test]
    fn defaults_are_valid() {
        assert_eq!(Config::default().validate(), Ok(()));
    }

    #[test]
    fn each_problem_names_its_setting() {
        let mut config = Config { cluster: String::new(), expect: 0, timeout: Duration::ZERO, ..Config::default() };
        config.advertise_name = Some("db-1".into());
        config.chains.min_members = 9;
        config.transport.max_udp_payload = 1;
        config.limits.window_bytes = 0;
        config.limits.queue_bytes = 0;
        config.limits.max_value_bytes = usize::MAX;
        config.limits.sessions_bytes = MIN_SESSIONS - 1;
        config.threads = Threads::Own { chains: MAX_CHAIN_THREADS + 1 };
        config.slow = Duration::ZERO;
        config.lease = LeaseConfig { duration: Duration::MAX, drift_ppm: u32::MAX };
        let fields: Vec<_> = config.validate().unwrap_err().into_iter().map(|problem| problem.field).collect();
        let expected = [
            "cluster",
            "expect",
            "chains",
            "transport.max_udp_payload",
            "advertise_name",
            "limits.max_value_bytes",
            "limits.window_bytes",
            "limits.queue_bytes",
            "limits.sessions_bytes",
            "threads.chains",
            "timeout",
            "lease.duration",
            "lease.drift_ppm",
            "suspect",
            "slow",
        ];
        assert_eq!(fields, expected);
    }
}
