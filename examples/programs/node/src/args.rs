//! The command line of `node`.

use std::{net::SocketAddr, path::PathBuf};

use artillery_core::discovery::Seed;
use artillery_ddata::{ClusterId, Mode, config::SyncMode};
use artillery_programs::{
    args::{Bytes, LinkArgs, LogArgs, cluster_id, not_yet},
    secret::IdentityArgs,
};
use clap::{Parser, ValueEnum};

/// One node of an Artillery cluster.
///
/// Prints one line of JSON on standard output as soon as it can answer a strong read; everything else goes to standard
/// error. Stops cleanly on SIGINT and SIGTERM.
#[derive(Debug, Parser)]
#[command(name = "node", version)]
pub(super) struct NodeArgs {
    /// Name of the cluster
    #[arg(long, value_name = "NAME", default_value = "artillery")]
    pub(super) cluster: String,
    #[command(flatten)]
    pub(super) identity: IdentityArgs,
    #[command(flatten)]
    pub(super) link: LinkArgs,
    /// Stable name of this node (default: the one that --data keeps, else random)
    #[arg(long, value_name = "NAME")]
    pub(super) name: Option<String>,
    /// UDP address for QUIC (default: `[::]:0`, all addresses of this machine; without a secret `127.0.0.1:0`)
    #[arg(long, value_name = "ADDR")]
    pub(super) listen: Option<SocketAddr>,
    /// What others dial, if that differs: an address, or a host name as NAME:PORT, which is looked up again and again (default with
    /// --listen on all addresses: any of this machine's)
    #[arg(long, value_name = "ADDR")]
    pub(super) advertise: Option<Seed>,
    /// Form the cluster once so many nodes are seen, the largest number of any node; 1: also alone, if no other one is found
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(super) expect: u32,
    /// The cluster exists: found none, also if --data is empty, and wait for a node of the cluster
    #[arg(long)]
    pub(super) existing: bool,
    /// Where another node may be found, as HOST:PORT; repeatable
    #[arg(long = "seed", value_name = "HOST:PORT")]
    pub(super) seeds: Vec<Seed>,
    /// File with one HOST:PORT a line, read again when it changes
    #[arg(long, value_name = "FILE")]
    pub(super) seed_file: Option<PathBuf>,
    /// Host name whose addresses all are nodes, as HOST:PORT, looked up again and again
    #[arg(long, value_name = "HOST:PORT")]
    pub(super) seed_dns: Option<Seed>,
    /// Neither look for others by mDNS nor be found so
    #[arg(long)]
    pub(super) no_mdns: bool,
    /// The network interface for mDNS, whose addresses others dial if --listen is on all (default: loopback if --listen is
    /// loopback, else all)
    #[arg(long, value_name = "NAME")]
    pub(super) interface: Option<String>,
    /// Members per chain
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(super) replicas: u32,
    /// Fewest members that take writes
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) min_members: u32,
    /// Where strong reads are served
    #[arg(long, value_enum, default_value_t = ModeArg::Craq)]
    pub(super) mode: ModeArg,
    /// Length of a lease: a member that is gone is missed so long; settled when the cluster is formed
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub(super) lease_ms: u64,
    /// How wrong clocks may go, in millionths; settled when the cluster is formed
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub(super) drift_ppm: u32,
    /// How long a silent node is only suspected (default: half a lease); settled when the cluster is formed
    #[arg(long, value_name = "N")]
    pub(super) suspect_ms: Option<u64>,
    /// How long a living member may hold its chain up before it is moved out; settled when the cluster is formed
    #[arg(long, value_name = "N", default_value_t = 2000)]
    pub(super) slow_ms: u64,
    /// Threads: 1, which is best with one or two cores; 2, with the Redis and HTTP ports apart; each more is for chains
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(super) threads: u16,
    /// Bytes of updates that may be in flight
    #[arg(long, value_name = "BYTES", default_value = "64MiB")]
    pub(super) window_bytes: Bytes,
    /// Bytes of committed updates kept for members that lost some
    #[arg(long, value_name = "BYTES", default_value = "256MiB")]
    pub(super) backlog_bytes: Bytes,
    /// Bytes of each queue of requests and answers
    #[arg(long, value_name = "BYTES", default_value = "64MiB")]
    pub(super) queue_bytes: Bytes,
    /// The largest value, inclusive
    #[arg(long, value_name = "BYTES", default_value = "64MiB")]
    pub(super) max_value_bytes: Bytes,
    /// The most bytes of keys and values: at so many this node's chains only delete (default: no bound)
    #[arg(long, value_name = "BYTES")]
    pub(super) max_memory_bytes: Option<Bytes>,
    /// Keep the data in this directory, too, where the next start finds it (default: in memory alone)
    #[arg(long, value_name = "DIR")]
    pub(super) data: Option<PathBuf>,
    /// When a write counts as being on the disk
    #[arg(long, value_enum, default_value_t = SyncArg::Batch)]
    pub(super) sync: SyncArg,
    /// The most bytes of --data that the journal may take: near them this node's chains only delete (default: what the disk has)
    #[arg(long, value_name = "BYTES", requires = "data")]
    pub(super) max_disk_bytes: Option<Bytes>,
    /// When no member of a chain lives on, how long those that are back wait for the others
    #[arg(long, value_name = "N", default_value_t = 2000, requires = "data")]
    pub(super) reopen_ms: u64,
    /// On SIGTERM, leave for good. Without this a node with --data only stops for a while, and keeps its vote; a node
    /// without --data always leaves for good
    #[arg(long)]
    pub(super) leave_on_term: bool,
    /// If --data is damaged or can't be read, move it aside, as DIR.damaged-N, and begin with an empty one. If DIR can't be
    /// renamed, as a mount point, its contents are moved to DIR/damaged-N. With --expect above 1 it then creates no cluster, as
    /// with --existing
    #[arg(long, requires = "data")]
    pub(super) replace_damaged: bool,
    /// Address for the Redis protocol (default: off)
    #[arg(long, value_name = "ADDR")]
    pub(super) resp: Option<SocketAddr>,
    /// Address for /health, /ready, /metrics and /status over HTTP (default: off)
    #[arg(long, value_name = "ADDR")]
    pub(super) http: Option<SocketAddr>,
    /// File with the password that --resp wants by AUTH, and --http as `Authorization: Bearer PASSWORD`
    #[arg(long, value_name = "FILE")]
    pub(super) port_password_file: Option<PathBuf>,
    /// Let --resp and --http listen beyond loopback without a password
    #[arg(long)]
    pub(super) open: bool,
    /// These clusters were given up (`ctl found`): found the one that succeeds them, alone
    #[arg(long, value_name = "CLUSTER_ID,…", value_delimiter = ',', value_parser = cluster_id, conflicts_with = "join_after")]
    pub(super) found_after: Vec<ClusterId>,
    /// These clusters were given up (`ctl found`): join the one that succeeds them, and found none
    #[arg(long, value_name = "CLUSTER_ID,…", value_delimiter = ',', value_parser = cluster_id)]
    pub(super) join_after: Vec<ClusterId>,
    #[command(flatten)]
    pub(super) log: LogArgs,
    #[command(flatten)]
    _later: Later,
}

/// Where strong reads are served.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum ModeArg {
    /// At every member
    Craq,
    /// At the tail alone: the baseline of the graphs
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

/// When a write counts as being on the disk.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum SyncArg {
    /// Once it is synced, together with all others that came meanwhile: it survives a power cut of all nodes
    Batch,
    /// Once the kernel has it: it survives the end of all processes, not a power cut
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

/// What is planned; every one of these is refused.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Not yet")]
struct Later {
    /// Chains of the cluster; for now there is one
    #[arg(long, value_name = "N", value_parser = one)]
    chains: Option<u32>,
    /// For placement and nearest reads
    #[arg(long, value_name = "NAME", value_parser = not_yet)]
    datacenter: Option<String>,
    /// How long committed updates are kept
    #[arg(long, value_name = "N", value_parser = not_yet)]
    backlog_ms: Option<String>,
    /// Streams of a copy
    #[arg(long, value_name = "N", value_parser = not_yet)]
    sync_streams: Option<String>,
    /// Bytes per second of a copy
    #[arg(long, value_name = "BYTES", value_parser = not_yet)]
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
