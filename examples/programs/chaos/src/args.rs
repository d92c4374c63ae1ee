//! The command line of `chaos`.

use std::path::PathBuf;

use artillery_programs::args::LogArgs;
use clap::{CommandFactory, Parser, error::ErrorKind};

use super::fault::Kind;

/// Real nodes, real clients and real faults, and a judge of what the clients saw.
///
/// Starts nodes in network namespaces of its own, drives them with a Redis client and with the library's own, and meanwhile
/// kills, pauses, cuts off and slows them. Exit codes: 0 every promise was kept; 1 one was broken, or nobody can
/// tell; 2 bad arguments; 77 skipped, for want of root, of iproute2 or (with --teeth) of redis-server.
#[derive(Debug, Parser)]
#[command(name = "chaos", version)]
pub(super) struct ChaosArgs {
    /// How many nodes there are
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(3..=9))]
    pub(super) nodes: u32,
    /// Members of the chain; the other nodes are spares
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(2..=9))]
    pub(super) replicas: u32,
    /// How long faults go on
    #[arg(long, value_name = "S", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(super) seconds: u64,
    /// Which faults come in which order
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
    /// Give operators' orders too, also while a fault lasts: reorder, drain, SIGTERM and a start
    #[arg(long, conflicts_with = "teeth")]
    pub(super) orders: bool,
    /// Give each node a directory, which a restart finds again, and draw faults of directories too
    #[arg(long, conflicts_with = "teeth")]
    pub(super) data: bool,
    /// Restart all nodes so many times under load, instead of other faults, with the directories of some of them deleted
    #[arg(long, value_name = "N", requires = "data", conflicts_with_all = ["kinds", "orders", "seconds"])]
    pub(super) restarts: Option<u64>,
    /// In so many of the restarts the directories of a majority of the voters are deleted, and `ctl recover` follows
    #[arg(long, value_name = "N", requires = "restarts", default_value_t = 0)]
    pub(super) majorities: u64,
    /// The program `node` (default: the one beside this)
    #[arg(long, value_name = "PATH")]
    pub(super) node_binary: Option<PathBuf>,
    /// The program `ctl` (default: the one beside this)
    #[arg(long, value_name = "PATH")]
    pub(super) ctl_binary: Option<PathBuf>,
    /// Kinds of fault, separated by commas (default: all)
    #[arg(long, value_name = "KIND", value_enum, value_delimiter = ',')]
    pub(super) kinds: Vec<Kind>,
    /// Where the logs of the nodes go, and the histories of keys that are wrong (default: a directory that is removed
    /// when all was well)
    #[arg(long, value_name = "DIR")]
    pub(super) logs: Option<PathBuf>,
    /// Judge Redis servers that can't be linearizable instead, to show that this program would notice
    #[arg(long)]
    pub(super) teeth: bool,
    /// End with a summary in JSON, and tell the rest on standard error
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) log: LogArgs,
}

impl ChaosArgs {
    /// Whether faults of this kind may come.
    pub(super) fn draws(&self, kind: Kind) -> bool {
        self.restarts.is_none() && (self.kinds.is_empty() || self.kinds.contains(&kind))
    }

    /// Checks what the arguments mean together.
    pub(super) fn check(&self) -> Result<(), clap::Error> {
        match self.kinds.iter().find(|kind| kind.wants_directories() && !self.data) {
            Some(kind) => {
                Err(Self::command().error(ErrorKind::MissingRequiredArgument, format!("--kinds {kind} wants --data")))
            }
            None => Ok(()),
        }
    }
}
