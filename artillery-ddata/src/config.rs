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
///
/// Here and in the parts of a `Config`, values in parentheses are the defaults.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// The cluster's name (`artillery`). Nodes of a cluster with another name are refused.
    pub cluster: String,
    /// The node's stable name. `None`: the name stored in its directory ([`data`](Self::data)), or a random one. A node
    /// with certificates has the name in its certificate, and ignores this one. A directory that holds a store, but no
    /// name, needs this one.
    pub name: Option<String>,
    /// The number of nodes, including this one, that must see each other before they form the cluster (3). If nodes
    /// expect different numbers, the largest is used. With 1, a node that finds no other node within a few seconds
    /// (about ten while a seed hasn't answered) forms the cluster alone, and others join it later.
    pub expect: u32,
    /// Whether the cluster already exists (no). If so, a node without a directory, or whose directory names no cluster,
    /// waits for a node of that cluster and never forms one. This prevents an empty cluster when the volumes of all
    /// nodes are missing.
    pub existing: bool,
    /// The chains that the node proposes when it forms the cluster. Nodes with different ones form no cluster together.
    /// Once the cluster is formed, only the limit on [`Threads::Own`] depends on them.
    pub chains: ChainSettings,
    /// How to find other nodes.
    pub discovery: DiscoveryConfig,
    /// Sockets and streams ([`TransportConfig::default`]). Its `listen` and `advertise` are the node's addresses.
    pub transport: TransportConfig,
    /// A host name of this node, as `HOST:PORT`. The node advertises the current addresses of that name. Clients learn
    /// the name from the cluster's log, and also try it when they reach no node. `None`: no name.
    pub advertise_name: Option<String>,
    /// Bounds on the memory that the node uses.
    pub limits: Limits,
    /// Whether the node runs on threads of its own ([`Threads::default`]).
    pub threads: Threads,
    /// The timeout of a call that sets none (5 s).
    pub timeout: Duration,
    /// Whether spares replace dead members (yes). If so, the nodes keep a configuration log. Otherwise the
    /// configuration never changes after formation. Must be the same at all nodes of a cluster.
    pub failover: bool,
    /// Leases, under which members serve strong reads from their own state. The node that proposes the cluster fixes
    /// these times for all nodes.
    pub lease: LeaseConfig,
    /// A member that is silent for this long is suspected to be dead (500 ms). Fixed like [`lease`](Self::lease).
    pub suspect: Duration,
    /// A live member that stalls its chain for this long is moved out (2 s) until it keeps up. Fixed like
    /// [`lease`](Self::lease).
    pub slow: Duration,
    /// Where the node keeps its data on disk. `None`: in memory only (the default). Either all nodes of a cluster keep
    /// data on disk, or none do.
    pub data: Option<DataConfig>,
}

/// Storage of a node's data on disk. All data is in memory as well, and read from there.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DataConfig {
    /// The directory. It is created if missing, and belongs to this node permanently: it stores the node's name.
    pub dir: PathBuf,
    /// When writes are synced to the disk ([`SyncMode::Batch`]).
    pub sync: SyncMode,
    /// The bytes of updates that the journal may hold in addition to the data itself before it is shortened (256 MiB),
    /// in equal shares for the chains. A chain whose data is larger than its share may hold as many bytes of updates as
    /// of data.
    pub room_bytes: u64,
    /// The disk is treated as full when only this many bytes are free in addition to the space for the next checkpoint
    /// of every chain: members then accept only deletes. A quarter of the reserve is held in a file, so that other
    /// programs can't use it. `None`: 64 MiB, but at most an eighth of the file system or of
    /// [`max_disk_bytes`](Self::max_disk_bytes).
    pub reserve_bytes: Option<u64>,
    /// The space for the journal in bytes. Its unused part is treated as the free space of the disk, if the disk has
    /// more. So near this limit members accept only deletes. `None`: only the free space of the disk matters.
    pub max_disk_bytes: Option<u64>,
    /// When no member of a chain survives, how long a returned store waits for the others (2 s). Such a store must be
    /// complete, synced and at least at the highest known watermark. Without such a store, the chain waits for the
    /// stores of all its last members. Stores that return later join as new members. When an operator accepts a loss,
    /// each of these members must also have been silent for this time after its lease. The setting of the node that
    /// leads the configuration log applies. It may differ between nodes and between starts, since no answer depends on
    /// it.
    pub reopen: Duration,
}

impl DataConfig {
    /// Keeps the data in `dir`, with the default settings.
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

    /// The reserve on a disk of `disk` bytes, if none is set. On a small disk 64 MiB would leave little or nothing for
    /// data.
    pub(crate) fn default_reserve(disk: u64) -> u64 {
        (disk / 8).min(64 << 20)
    }
}

/// Which threads run a node.
///
/// Choose [`Own`](Self::Own) if the application's tasks may block a thread for long, or if its runtime has several
/// threads: waking another core costs more than most of a node's work. Choose [`Shared`](Self::Shared) if the
/// application runs on one thread and does little but call this node: then a write wakes no other thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Threads {
    /// The threads of the runtime in which the node is started.
    Shared,
    /// The node's own threads: one for its sockets and all network traffic, and others for its chains.
    Own {
        /// The number of threads for chains, at most 256 and at most this node's [`Config::chains`], even if the
        /// cluster was formed with more chains. With 0 the chains share the socket thread, which is best for a node
        /// with one or two cores.
        chains: usize,
    },
}

/// Minimum number of cores for separate chain threads by default.
const CORES_FOR_CHAINS: usize = 4;
const MAX_CHAIN_THREADS: usize = 256;
/// The maximum of [`DataConfig::reopen`]. A longer wait needs the decision of an operator.
const MAX_REOPEN: Duration = Duration::from_secs(3600);

impl Default for Threads {
    /// [`Own`](Self::Own) threads. With four or more cores, one thread for each core but one may run chains, up to 256;
    /// with fewer, chains share the socket thread.
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let chains = if cores < CORES_FOR_CHAINS { 0 } else { (cores - 1).min(MAX_CHAIN_THREADS) };
        Self::Own { chains }
    }
}

/// How long a lease lasts, and how much the nodes' clock rates may differ.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LeaseConfig {
    /// The duration of a lease (1 s), which a node renews four times in that time. A dead member is removed only once
    /// its lease has certainly expired.
    pub duration: Duration,
    /// The largest difference between the clock rates of two nodes, in parts per million (10,000).
    pub drift_ppm: u32,
}

/// How to find other nodes.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DiscoveryConfig {
    /// Whether to announce this node by multicast DNS, and to discover others by it (yes).
    pub mdns: bool,
    /// The network interface for multicast DNS, by name. `None`: loopback if the node listens there, otherwise all. A
    /// node that listens on all addresses advertises the addresses of these interfaces.
    pub interface: Option<String>,
    /// The UDP port for multicast DNS. `None`: 5353. Another port isolates a test from other programs.
    pub mdns_port: Option<u16>,
    /// Addresses or host names of nodes, each with its port (none). Host names are resolved at every dial.
    pub seeds: Vec<String>,
}

/// Bounds on a node's memory, in bytes.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes of updates above the watermark, and of results that wait for their commit, that the head of each chain
    /// accepts (64 MiB). The last accepted write may exceed them. Beyond that, writers wait until their deadline.
    pub window_bytes: usize,
    /// Bytes of committed updates that each chain keeps for members that missed some (256 MiB).
    pub backlog_bytes: usize,
    /// The largest value, inclusive (64 MiB).
    pub max_value_bytes: usize,
    /// The size of each queue of requests and answers (64 MiB). When it is full, callers wait until their deadline, or
    /// get [`Busy`](crate::Refusal::Busy). An item larger than a queue, or than a connection's share, occupies it
    /// alone.
    ///
    /// Each chain has queues for reads, small writes, large writes, and watches that wait for changes. The client
    /// connections share queues for unanswered reads, watches, forwarded writes, waiting writes, large requests, unsent
    /// small answers to reads, and unsent small answers to writes. The node connections share another set of the same
    /// queues. A single connection may use a quarter of each. Large answers have another limit, of four frames of the
    /// largest size.
    pub queue_bytes: usize,
    /// Client sessions of each chain, including the records that identify retries (16 MiB). When it is full, the least
    /// recently used session is evicted, and retries in it fail. A single session may use a quarter. Must be the same
    /// at all nodes of a cluster.
    pub sessions_bytes: usize,
    /// Keys and values of all chains at the node (unlimited). At this limit its chains accept no values until some are
    /// deleted ([`MemoryFull`](crate::Refusal::MemoryFull)). Updates already in flight are still applied, at most one
    /// window per chain; and a node that joins, or restarts with its directory, loads everything. Nodes may have
    /// different limits; one full member is enough for its chain to refuse values.
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

/// An invalid setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct ConfigProblem {
    /// The path of the setting, such as `limits.window_bytes`.
    pub field: String,
    /// The description of the problem, such as "must not be zero".
    pub problem: String,
}

const MAX_EXPECT: u32 = 1000;

/// Enough for several sessions. A quarter of it, one session's share, holds several records with values that
/// get-and-delete returned.
const MIN_SESSIONS: usize = 64 << 10;

impl Config {
    pub(crate) fn timing(&self) -> Timing {
        let LeaseConfig { duration, drift_ppm } = self.lease;
        Timing { lease: duration, drift_ppm, suspect: self.suspect, slow: self.slow }
    }

    /// Checks most settings. Some are checked only when the node starts.
    ///
    /// # Errors
    /// Every problem found, with its setting.
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
                "a value of this size, with keys and headers, doesn't fit transport.max_frame_bytes".into(),
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

/// Allowance for a frame's header in addition to values of the maximum total size: enough for the answer to thousands
/// of keys, or to a script of as many steps.
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
