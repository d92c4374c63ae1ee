//! The command line of `chaos`.

use std::path::PathBuf;

use artillery_programs::args::LogArgs;
use clap::{CommandFactory, Parser, error::ErrorKind};

use super::fault::Kind;

/// Run real nodes and clients under faults, and check what the clients saw
///
/// Starts nodes in network namespaces of its own and drives them with a Redis client and with the library's own client,
/// while it kills, pauses, isolates and slows them. Exit codes: 0 every promise was kept; 1 a promise was broken, or
/// the check could not decide; 2 bad arguments; 77 skipped, because root, iproute2 or (with --teeth) redis-server is
/// missing.
#[derive(Debug, Parser)]
#[command(name = "chaos", version)]
pub(super) struct ChaosArgs {
    /// Number of nodes
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(3..=9))]
    pub(super) nodes: u32,
    /// Members of the chain; the other nodes are spares
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(2..=9))]
    pub(super) replicas: u32,
    /// Inject faults for this many seconds
    #[arg(long, value_name = "S", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(super) seconds: u64,
    /// Seed that determines the faults and their order
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
    /// Also give an operator's orders, even during faults: reorder, drain, SIGTERM followed by a start
    #[arg(long, conflicts_with = "teeth")]
    pub(super) orders: bool,
    /// Give each node a data directory, which survives restarts, and add faults of directories
    #[arg(long, conflicts_with = "teeth")]
    pub(super) data: bool,
    /// Instead of other faults, restart all nodes N times under load, deleting the directories of some of them
    #[arg(long, value_name = "N", requires = "data", conflicts_with_all = ["kinds", "orders", "seconds"])]
    pub(super) restarts: Option<u64>,
    /// In N of the restarts, delete the directories of a majority of the voters, then run `ctl recover`
    #[arg(long, value_name = "N", requires = "restarts", default_value_t = 0)]
    pub(super) majorities: u64,
    /// Path of the program `node` (default: next to this program)
    #[arg(long, value_name = "PATH")]
    pub(super) node_binary: Option<PathBuf>,
    /// Path of the program `ctl` (default: next to this program)
    #[arg(long, value_name = "PATH")]
    pub(super) ctl_binary: Option<PathBuf>,
    /// Kinds of fault, separated by commas (default: all)
    #[arg(long, value_name = "KIND", value_enum, value_delimiter = ',')]
    pub(super) kinds: Vec<Kind>,
    /// Directory for the logs of the nodes and for histories of keys that failed the check (default: a temporary
    /// directory, removed if all was well)
    #[arg(long, value_name = "DIR")]
    pub(super) logs: Option<PathBuf>,
    /// Check Redis servers that can't be linearizable instead, to show that this program detects violations
    #[arg(long)]
    pub(super) teeth: bool,
    /// Print a summary in JSON at the end, and everything else on standard error
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) log: LogArgs,
}

impl ChaosArgs {
    /// Whether faults of this kind may be drawn.
    pub(super) fn draws(&self, kind: Kind) -> bool {
        self.restarts.is_none() && (self.kinds.is_empty() || self.kinds.contains(&kind))
    }

    /// Checks constraints between arguments.
    pub(super) fn check(&self) -> Result<(), clap::Error> {
        match self.kinds.iter().find(|kind| kind.wants_directories() && !self.data) {
            Some(kind) => {
                Err(Self::command().error(ErrorKind::MissingRequiredArgument, format!("--kinds {kind} needs --data")))
            }
            None => Ok(()),
        }
    }
}
