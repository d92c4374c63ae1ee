//! Settings of a node: plain data, checked as a whole.

use std::time::Duration;

pub use artillery_core::{config::TransportConfig, identity::Identity};

pub use artillery_proto::control::{ChainSettings, InvalidChainSettings, InvalidTiming, Timing};

use crate::types::update::MAX_KEY;

/// How a node finds its cluster, what it settles if it forms one, and how much memory it may take.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// Name of the cluster; nodes of another one are refused.
    pub cluster: String,
    /// The node's stable name. `None`: a random one.
    pub name: Option<String>,
    /// Form the cluster once so many nodes see each other, this one included.
    pub expect: u32,
    /// What is settled when the cluster is formed; where it exists already, what was settled then counts.
    pub chains: ChainSettings,
    /// Where to look for other nodes.
    pub discovery: DiscoveryConfig,
    /// Sockets and streams; its `listen` and `advertise` are the node's addresses.
    pub transport: TransportConfig,
    /// What the node may take up.
    pub limits: Limits,
    /// On which threads the node works.
    pub threads: Threads,
    /// How long a call waits unless it says otherwise.
    pub timeout: Duration,
    /// Whether the cluster's nodes keep a log of configurations, by which others take the place of members that are gone.
    /// Without it the configuration is the one that the founders made, for ever. The same at all nodes of a cluster.
    pub failover: bool,
    /// Leases, by which members serve strong reads alone. Settled when the cluster is formed, by the node that proposes it.
    pub lease: LeaseConfig,
    /// A member that was not heard of for so long is taken to be gone. Settled as [`lease`](Self::lease) is.
    pub suspect: Duration,
    /// A member that holds up its chain for so long, though it lives, is moved out until it keeps up. Settled as
    /// [`lease`](Self::lease) is.
    pub slow: Duration,
}

/// On which threads a node works.
///
/// Choose [`Own`](Self::Own) if the application's tasks may keep a thread for long, or if it uses a runtime of several threads: a
/// wake-up of another core costs a node more than most of what it does. Choose [`Shared`](Self::Shared) if the application
/// runs on one thread and does little but calls of this node: then a write wakes no other thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Threads {
    /// Those of the runtime in which the node is started.
    Shared,
    /// Threads of its own: one for its sockets and all that goes over them, and so many for its chains, 256 at most. With 0 the
    /// chains share the first one, which is best where a node has one or two cores.
    Own {
        /// More than there are chains are not used.
        chains: usize,
    },
}

/// A node with fewer cores has no thread apart for its chains.
const CORES_FOR_CHAINS: usize = 4;
const MAX_CHAIN_THREADS: usize = 256;

impl Default for Threads {
    /// Threads of its own, as this machine's cores allow: with four or more, all but one of them for chains.
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let chains = if cores < CORES_FOR_CHAINS { 0 } else { (cores - 1).min(MAX_CHAIN_THREADS) };
        Self::Own { chains }
    }
}

/// How leases run.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LeaseConfig {
    /// How long each is; it is renewed four times in that time. A member that is gone is missed so long.
    pub duration: Duration,
    /// By how much the clocks of two nodes may differ in rate, in millionths.
    pub drift_ppm: u32,
}

/// Where to look for other nodes.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DiscoveryConfig {
    /// Whether to announce this node by multicast DNS and to look for others so.
    pub mdns: bool,
    /// The network interface for it, by name. `None`: loopback if the node listens there, otherwise all.
    pub interface: Option<String>,
    /// The UDP port of multicast DNS. Another than 5353 keeps to itself, which tests want.
    pub mdns_port: Option<u16>,
    /// Addresses or host names with ports, looked up at every dial.
    pub seeds: Vec<String>,
}

/// Bounds, in bytes.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Limits {
    /// Updates above the watermark that a head takes in; past it, writers wait until their deadline.
    pub window_bytes: usize,
    /// Committed updates kept for members that lost some.
    pub backlog_bytes: usize,
    /// The largest value, inclusive.
    pub max_value_bytes: usize,
    /// Each queue of requests and answers: of a chain, reads, small writes and large writes that wait for it, and watches that wait for
    /// changes; of the connections of all clients together, and once more of those of all nodes, reads until they are answered,
    /// watches, writes that are handed on or wait in line, large requests, and answers to reads and to writes that wait to be sent: of each of them one
    /// connection may have a quarter. Past it, callers wait until their deadline, or are told [`Busy`](crate::Refusal::Busy). What is
    /// larger than a queue, or a connection's part, has that to itself.
    pub queue_bytes: usize,
    /// Client sessions and the records by which their retries are known, of each chain: past it the session that was used
    /// the longest time ago is evicted, and its retries are told so. A session may have a quarter of it. The same at all
    /// nodes of a cluster.
    pub sessions_bytes: usize,
}

impl Default for Config {
    fn default() -> Self {
        let Timing { lease, drift_ppm, suspect, slow } = Timing::default();
        Self {
            cluster: "artillery".to_owned(),
            name: None,
            expect: 3,
            chains: ChainSettings::default(),
            discovery: DiscoveryConfig { mdns: true, interface: None, mdns_port: None, seeds: Vec::new() },
            transport: TransportConfig::default(),
            limits: Limits {
                window_bytes: 64 << 20,
                backlog_bytes: 256 << 20,
                max_value_bytes: 64 << 20,
                queue_bytes: 64 << 20,
                sessions_bytes: 16 << 20,
            },
            threads: Threads::default(),
            timeout: Duration::from_secs(5),
            failover: true,
            lease: LeaseConfig { duration: lease, drift_ppm },
            suspect,
            slow,
        }
    }
}

/// A setting that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct ConfigProblem {
    /// The path of the setting, as `limits.window_bytes`.
    pub field: String,
    /// What is wrong with it.
    pub problem: String,
}

/// The most nodes that a cluster can be made to wait for.
const MAX_EXPECT: u32 = 1000;

/// Room for some sessions, and in a quarter of it for some records with the values that they took away.
const MIN_SESSIONS: usize = 64 << 10;

impl Config {
    /// The times that a cluster goes by if this node proposes it.
    pub(crate) fn timing(&self) -> Timing {
        let LeaseConfig { duration, drift_ppm } = self.lease;
        Timing { lease: duration, drift_ppm, suspect: self.suspect, slow: self.slow }
    }

    /// Checks every setting.
    ///
    /// # Errors
    /// All problems, each with its field.
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
        for error in self.timing().problems() {
            problem(error.field(), error.to_string());
        }
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }
}

/// Room for the header of a frame that carries values as large as the largest one together: of an answer to thousands of keys, or to a
/// script of as many steps.
const FRAME_OVERHEAD: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid() {
        assert_eq!(Config::default().validate(), Ok(()));
    }

    #[test]
    fn every_problem_has_its_field() {
        let mut config = Config { cluster: String::new(), expect: 0, timeout: Duration::ZERO, ..Config::default() };
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
