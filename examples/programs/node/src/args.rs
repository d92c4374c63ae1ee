//! The command line of a node.

use std::{net::SocketAddr, path::PathBuf};

use artillery_core::discovery::Seed;
use artillery_ddata::{ClusterId, Mode, config::SyncMode};
use artillery_programs::{
    args::{Bytes, LinkArgs, LogArgs, cluster_id, not_yet},
    secret::IdentityArgs,
};
use clap::{Parser, ValueEnum};

const IDENTITY: &str = "Identity";
const CLUSTER: &str = "Cluster";
const NETWORK: &str = "Network";
const DATA: &str = "Data";
const SERVING: &str = "Redis and HTTP ports";
const LIMITS: &str = "Limits";

const AFTER_HELP: &str = "\
Examples:
  Three nodes on this machine, in three terminals, with the development secret:
    {name} --cluster shop
  One node of three machines that find each other by mDNS:
    {name} --cluster shop --secret-file secret
  A node that keeps its data on disk, where mDNS doesn't reach, of a cluster that exists:
    {name} --cluster shop --secret-file secret --seed db-1.example:7400 --data /var/lib/shop --existing
  A cluster of one node, for redis-cli and a browser:
    {name} --expect 1 --resp 127.0.0.1:6379 --http 127.0.0.1:7480

Exit codes:
  0  stopped by SIGINT or SIGTERM
  1  failed; the last line on standard error states the reason
  2  bad arguments";

/// Run one node of an Artillery cluster
///
/// Prints one line of JSON on standard output as soon as it can answer a strong read; all other output goes to standard
/// error. Stops cleanly on SIGINT and SIGTERM.
#[derive(Debug, Parser)]
#[command(name = "artillery-node", version, after_help = AFTER_HELP)]
pub(super) struct NodeArgs {
    /// Number of threads: 1, best with one or two cores; 2, with the Redis and HTTP ports on their own thread; further
    /// ones run chains
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(super) threads: u16,
    #[command(flatten)]
    pub(super) log: LogArgs,
    #[command(flatten)]
    pub(super) identity: IdentityArgs,
    /// Stable name of this node (default: the name kept in --data, otherwise random)
    #[arg(long, value_name = "NAME", help_heading = IDENTITY)]
    pub(super) name: Option<String>,
    /// Name of the cluster
    #[arg(long, value_name = "NAME", default_value = "artillery", help_heading = CLUSTER)]
    pub(super) cluster: String,
    /// Wait for this many nodes before forming a new cluster (the largest value of all nodes applies); with 1, a node
    /// that finds no other forms one alone
    #[arg(long, value_name = "N", default_value_t = 3, help_heading = CLUSTER)]
    pub(super) expect: u32,
    /// The cluster exists: never form a new one, even if --data is empty, but wait for a node of the cluster
    #[arg(long, help_heading = CLUSTER)]
    pub(super) existing: bool,
    /// Members per chain
    #[arg(long, value_name = "N", default_value_t = 3, help_heading = CLUSTER)]
    pub(super) replicas: u32,
    /// Minimum number of serving members for accepting writes
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = CLUSTER)]
    pub(super) min_members: u32,
    /// Members that serve strong reads
    #[arg(long, value_enum, default_value_t = ModeArg::Craq, help_heading = CLUSTER)]
    pub(super) mode: ModeArg,
    /// Length of a lease: how long writes stall after a member dies; fixed when the cluster forms
    #[arg(long, value_name = "N", default_value_t = 1000, help_heading = CLUSTER)]
    pub(super) lease_ms: u64,
    /// Maximum clock drift between nodes, in parts per million; fixed when the cluster forms
    #[arg(long, value_name = "N", default_value_t = 10_000, help_heading = CLUSTER)]
    pub(super) drift_ppm: u32,
    /// How long an unresponsive node is suspected before it is considered dead (default: half a lease); fixed when the
    /// cluster forms
    #[arg(long, value_name = "N", help_heading = CLUSTER)]
    pub(super) suspect_ms: Option<u64>,
    /// How long a live member may hold up its chain before it is moved out; fixed when the cluster forms
    #[arg(long, value_name = "N", default_value_t = 2000, help_heading = CLUSTER)]
    pub(super) slow_ms: u64,
    /// On SIGTERM, leave the cluster permanently. Without this flag a node with --data stops temporarily and keeps its
    /// vote; a node without --data always leaves permanently
    #[arg(long, help_heading = CLUSTER)]
    pub(super) leave_on_term: bool,
    /// These clusters were abandoned by an operator's order: create their successor, alone
    #[arg(long, value_name = "CLUSTER_ID,…", value_delimiter = ',', value_parser = cluster_id, conflicts_with = "join_after", help_heading = CLUSTER)]
    pub(super) found_after: Vec<ClusterId>,
    /// These clusters were abandoned by an operator's order: join their successor, and create no cluster
    #[arg(long, value_name = "CLUSTER_ID,…", value_delimiter = ',', value_parser = cluster_id, help_heading = CLUSTER)]
    pub(super) join_after: Vec<ClusterId>,
    /// UDP address for QUIC (default: `[::]:0`, all addresses of this machine; without a secret `127.0.0.1:0`)
    #[arg(long, value_name = "ADDR", help_heading = NETWORK)]
    pub(super) listen: Option<SocketAddr>,
    /// Address that other nodes dial, if it differs from --listen: IP:PORT, or NAME:PORT, which is resolved again at
    /// each dial (default with --listen on all addresses: any address of this machine)
    #[arg(long, value_name = "ADDR", help_heading = NETWORK)]
    pub(super) advertise: Option<Seed>,
    /// Address of another node, as HOST:PORT; repeatable
    #[arg(long = "seed", value_name = "HOST:PORT", help_heading = NETWORK)]
    pub(super) seeds: Vec<Seed>,
    /// File with one HOST:PORT per line, read again when it changes
    #[arg(long, value_name = "FILE", help_heading = NETWORK)]
    pub(super) seed_file: Option<PathBuf>,
    /// Host name that resolves to the addresses of nodes, as HOST:PORT; resolved again periodically
    #[arg(long, value_name = "HOST:PORT", help_heading = NETWORK)]
    pub(super) seed_dns: Option<Seed>,
    /// Don't use mDNS for discovery or announcement
    #[arg(long, help_heading = NETWORK)]
    pub(super) no_mdns: bool,
    /// Network interface for mDNS, and for the address that others dial if --listen is on all addresses (default:
    /// loopback if --listen is loopback, otherwise all)
    #[arg(long, value_name = "NAME", help_heading = NETWORK)]
    pub(super) interface: Option<String>,
    #[command(flatten, next_help_heading = NETWORK)]
    pub(super) link: LinkArgs,
    /// Store the data in this directory, so that it survives a restart (default: in memory only)
    #[arg(long, value_name = "DIR", help_heading = DATA)]
    pub(super) data: Option<PathBuf>,
    /// When a write is considered durable
    #[arg(long, value_enum, default_value_t = SyncArg::Batch, help_heading = DATA)]
    pub(super) sync: SyncArg,
    /// Maximum bytes of the journal in --data: near this limit only deletes are accepted (default: limited by the disk)
    #[arg(long, value_name = "BYTES", requires = "data", help_heading = DATA)]
    pub(super) max_disk_bytes: Option<Bytes>,
    /// After all members of a chain were down, how many milliseconds the restarted ones wait for the others
    #[arg(long, value_name = "N", default_value_t = 2000, requires = "data", help_heading = DATA)]
    pub(super) reopen_ms: u64,
    /// If --data is damaged or unreadable, move it aside as DIR.damaged-N, and start with an empty one. If DIR can't be
    /// renamed, for example because it is a mount point, move its contents to DIR/damaged-N. With --expect above 1 the
    /// node then creates no cluster, as with --existing
    #[arg(long, requires = "data", help_heading = DATA)]
    pub(super) replace_damaged: bool,
    /// Address for the Redis protocol (default: off)
    #[arg(long, value_name = "ADDR", help_heading = SERVING)]
    pub(super) resp: Option<SocketAddr>,
    /// Address for HTTP: a status page for browsers at /, and /health, /ready, /metrics and /status (default: off)
    #[arg(long, value_name = "ADDR", help_heading = SERVING)]
    pub(super) http: Option<SocketAddr>,
    /// File with the password that clients of --resp send by AUTH, and clients of --http as `Authorization: Bearer
    /// PASSWORD`; browsers prompt for it, and accept any user
    #[arg(long, value_name = "FILE", help_heading = SERVING)]
    pub(super) port_password_file: Option<PathBuf>,
    /// Let --resp and --http listen beyond loopback without a password
    #[arg(long, help_heading = SERVING)]
    pub(super) open: bool,
    /// Let FLUSHALL and FLUSHDB of --resp delete all keys
    #[arg(long, requires = "resp", help_heading = SERVING)]
    pub(super) allow_flush: bool,
    /// Maximum bytes of updates in flight in each chain
    #[arg(long, value_name = "BYTES", default_value = "64MiB", help_heading = LIMITS)]
    pub(super) window_bytes: Bytes,
    /// Bytes of committed updates that each chain keeps for members that missed some
    #[arg(long, value_name = "BYTES", default_value = "256MiB", help_heading = LIMITS)]
    pub(super) backlog_bytes: Bytes,
    /// Capacity in bytes of each queue of requests and answers
    #[arg(long, value_name = "BYTES", default_value = "64MiB", help_heading = LIMITS)]
    pub(super) queue_bytes: Bytes,
    /// Maximum size of a value, inclusive
    #[arg(long, value_name = "BYTES", default_value = "64MiB", help_heading = LIMITS)]
    pub(super) max_value_bytes: Bytes,
    /// Maximum bytes of keys and values in memory: at this limit only deletes are accepted (default: unlimited)
    #[arg(long, value_name = "BYTES", help_heading = LIMITS)]
    pub(super) max_memory_bytes: Option<Bytes>,
    #[command(flatten)]
    _later: Later,
}

/// Members that serve strong reads.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum ModeArg {
    /// Every member
    Craq,
    /// Only the tail: the baseline of the graphs
    Cr,
}

impl From<ModeArg> for Mode {
    fn from(mode: ModeArg) -> Self {
        match mode {
            ModeArg::Craq => Self::Craq,
            ModeArg::Cr => Self::Classic,
        }
    }
}

/// When a write is considered durable.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum SyncArg {
    /// Once it is synced, in a group with concurrent writes: it survives a power loss of all nodes
    Batch,
    /// Once the kernel has it: it survives the end of all processes, but not a power loss
    Never,
}

impl From<SyncArg> for SyncMode {
    fn from(sync: SyncArg) -> Self {
        match sync {
            SyncArg::Batch => Self::Batch,
            SyncArg::Never => Self::Never,
        }
    }
}

/// Planned flags, hidden from the help. Any value that would need the planned feature is refused.
#[derive(Debug, clap::Args)]
struct Later {
    /// Number of chains of the cluster; currently only 1
    #[arg(long, value_name = "N", value_parser = one, hide = true)]
    chains: Option<u32>,
    /// Datacenter of this node, for placement and nearest reads
    #[arg(long, value_name = "NAME", value_parser = not_yet, hide = true)]
    datacenter: Option<String>,
    /// How long committed updates are kept
    #[arg(long, value_name = "N", value_parser = not_yet, hide = true)]
    backlog_ms: Option<String>,
    /// Number of streams of a copy
    #[arg(long, value_name = "N", value_parser = not_yet, hide = true)]
    sync_streams: Option<String>,
    /// Maximum bytes per second of a copy
    #[arg(long, value_name = "BYTES", value_parser = not_yet, hide = true)]
    sync_rate: Option<String>,
}

fn one(text: &str) -> Result<u32, String> {
    match text.parse::<u32>() {
        Ok(1) => Ok(1),
        Ok(0) => Err("at least 1".to_owned()),
        Ok(_) => Err("more than one chain: not yet".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        NodeArgs::command().debug_assert();
    }

    #[test]
    fn planned_flags_are_refused() {
        let flags = ["--datacenter=a"];
        let more = ["--backlog-ms=1", "--sync-streams=1", "--sync-rate=1"];
        for flag in flags.into_iter().chain(more).chain(["--chains=2"]) {
            let error = NodeArgs::try_parse_from(["node", flag]).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            let text = error.to_string();
            let name = flag.split('=').next().unwrap();
            assert!(text.contains("not yet") && text.contains(name), "{flag}: {text}");
        }
    }
}
