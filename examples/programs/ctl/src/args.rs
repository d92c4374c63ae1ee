//! The command line of `ctl`.

use std::{path::PathBuf, time::Duration};

use artillery_ddata::{ClusterId, Frontier, ReadMode, RequestId, Version};
use artillery_programs::args::{Bytes, LogArgs, cluster_id};
use clap::{Parser, Subcommand};

use crate::find::FindArgs;

/// Looks at an Artillery cluster and works with its data.
///
/// Exit codes: 0 done, 1 failed or key not found, 2 bad arguments, 3 outcome unknown, 4 conflict.
#[derive(Debug, Parser)]
#[command(name = "ctl", version, after_help = LATER_HELP)]
pub(super) struct CtlArgs {
    #[command(flatten)]
    pub(super) find: FindArgs,
    /// Milliseconds that finding the cluster may take, and each call after that
    #[arg(long, value_name = "MS", default_value_t = 5000, global = true, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) timeout: u64,
    /// Print JSON, one object per line
    #[arg(long, global = true)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) log: LogArgs,
    #[command(subcommand)]
    pub(super) command: Command,
}

/// Commands that are planned and not implemented.
pub(super) const LATER: [&str; 4] = ["rereplicate", "digest", "snapshot", "restore"];

const LATER_HELP: &str = "Not yet: rereplicate, digest, snapshot, restore";

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Chains, members and counters
    Status {
        /// Draw it live, until q is pressed; where there is no terminal print what changes; with --json every second
        #[arg(long)]
        watch: bool,
    },
    /// Print the value of a key, and a newline
    Get {
        /// The key
        key: String,
        /// How it may be served: strong, chain, eventual or bounded:VERSIONS,MS
        #[arg(long, value_name = "MODE", default_value = "strong", value_parser = read_mode)]
        read: ReadMode,
    },
    /// Give a key a value
    Put {
        /// The key
        key: String,
        /// The value
        #[arg(allow_negative_numbers = true)]
        value: String,
    },
    /// Make a key absent
    Del {
        /// The key
        key: String,
    },
    /// Give a key a value if its version is the one given; 0.0: if it is absent
    Cas {
        /// The key
        key: String,
        /// Its version, EPOCH.SEQUENCE
        version: Version,
        /// The value
        #[arg(allow_negative_numbers = true)]
        value: String,
    },
    /// Add to a decimal number, and print it; an absent key counts as 0
    Incr {
        /// The key
        key: String,
        /// How much
        #[arg(default_value_t = 1, allow_negative_numbers = true)]
        by: i64,
    },
    /// Append to a value, and print its length in bytes; an absent key counts as empty
    Append {
        /// The key
        key: String,
        /// What is appended
        #[arg(allow_negative_numbers = true)]
        value: String,
    },
    /// Print the keys that begin with a prefix, in order; with --json their values too
    Scan {
        /// The prefix
        #[arg(default_value = "")]
        prefix: String,
    },
    /// Print each key that begins with a prefix whenever it changes, until stopped; with --json its new value too
    Watch {
        /// The prefix
        #[arg(default_value = "")]
        prefix: String,
        /// Changes behind this position, as --json told it with an earlier change (default: from now on)
        #[arg(long, value_name = "POSITION")]
        from: Option<Frontier>,
    },
    /// Say what became of a write, and settle it for ever: what wasn't applied by now never will be
    Outcome {
        /// Its request id, as --json or an error said it
        request: RequestId,
    },
    /// Have a node leave its chains, and wait until it has; it goes on handing requests on
    Drain {
        /// Its name, or its id
        node: String,
    },
    /// Have the serving members of a chain stand in another order
    Reorder {
        /// The number of the chain
        chain: u32,
        /// All of its serving members by name or id, head first
        #[arg(required = true)]
        nodes: Vec<String>,
    },
    /// Open a chain again from the best store that is left, when no store comes back of those that served it last
    Reopen {
        /// The number of the chain: what no store has any more is lost
        #[arg(long, value_name = "CHAIN", required = true)]
        accept_loss: u32,
    },
    /// Go on with the best of what is left, when most of the nodes that keep the configuration are lost for good
    Recover {
        /// The cluster's id, as `status` shows it: what its lost nodes have acknowledged meanwhile may be missing
        #[arg(long, value_name = "CLUSTER_ID", required = true, value_parser = cluster_id)]
        accept_loss: ClusterId,
    },
    /// Form a new, empty cluster of the nodes that are there, when no life of a node is left that ever served
    Found {
        /// The id of the cluster that is given up, as `status` shows it: all that it held is lost
        #[arg(long, value_name = "CLUSTER_ID", required = true, value_parser = cluster_id)]
        accept_loss: ClusterId,
    },
    /// Of two clusters of one name that have met, give the named one up: its nodes join the other one, and what it holds is lost
    GiveUp {
        /// Its id, as its nodes log it and `status` shows it; ask a node of this cluster (--seed)
        #[arg(long, value_name = "CLUSTER_ID", required = true, value_parser = cluster_id)]
        accept_loss: ClusterId,
    },
    /// Read the whole directory of a node that isn't running, and say what it holds; 1: damaged, with the file and the place
    Check {
        /// The directory, as `node --data` has it; nothing in it is written
        dir: PathBuf,
    },
    /// Drive the cluster, and measure
    Load(LoadArgs),
    #[command(external_subcommand)]
    Other(Vec<String>),
}

/// What `load` does.
#[derive(Debug, clap::Args)]
pub(super) struct LoadArgs {
    /// Clients that work at the same time
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub(super) clients: u64,
    /// How long
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(super) seconds: u64,
    /// Size of the values; with --check they are at least as long as what they are checked by
    #[arg(long, value_name = "BYTES", default_value = "100")]
    pub(super) value_bytes: Bytes,
    /// How many of a hundred operations are reads
    #[arg(long, value_name = "PERCENT", default_value_t = 90, value_parser = clap::value_parser!(u64).range(0..=100))]
    pub(super) reads: u64,
    /// How many keys there are
    #[arg(long, value_name = "K", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub(super) keys: u64,
    /// How reads may be served: strong, chain, eventual or bounded:VERSIONS,MS
    #[arg(long, value_name = "MODE", default_value = "strong", value_parser = read_mode)]
    pub(super) read: ReadMode,
    /// Operations that each client has in flight
    #[arg(long, value_name = "P", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub(super) pipeline: u64,
    /// Operations per second, of all clients together (default: as many as possible)
    #[arg(long, value_name = "OPS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) rate: Option<u64>,
    /// Verify that every value read belongs to its key and was written, and that strong reads are not stale
    #[arg(long)]
    pub(super) check: bool,
}

fn read_mode(text: &str) -> Result<ReadMode, String> {
    match text {
        "strong" => Ok(ReadMode::Strong),
        "chain" => Ok(ReadMode::ThroughChain),
        "eventual" => Ok(ReadMode::Eventual),
        _ => bounded(text).ok_or_else(|| "strong, chain, eventual or bounded:VERSIONS,MS".to_owned()),
    }
}

/// Its name, as it is asked for.
pub(super) fn word(mode: ReadMode) -> &'static str {
    match mode {
        ReadMode::Strong => "strong",
        ReadMode::ThroughChain => "chain",
        ReadMode::Eventual => "eventual",
        ReadMode::Bounded { .. } => "bounded",
        _ => "another",
    }
}

fn bounded(text: &str) -> Option<ReadMode> {
    let (versions, ms) = text.strip_prefix("bounded:")?.split_once(',')?;
    Some(ReadMode::Bounded { versions: versions.parse().ok()?, age: Duration::from_millis(ms.parse().ok()?) })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        CtlArgs::command().debug_assert();
    }

    #[test]
    fn planned_commands_are_listed() {
        assert!(LATER.iter().all(|command| LATER_HELP.contains(command)));
    }

    #[test]
    fn bounds_are_two_numbers() {
        let age = Duration::from_millis(250);
        assert_eq!(read_mode("bounded:10,250"), Ok(ReadMode::Bounded { versions: 10, age }));
        for bad in ["bounded", "bounded:", "bounded:1", "bounded:1,x", "bounded:-1,2", "strongly"] {
            assert!(read_mode(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn shared_flags_stand_anywhere() {
        let before = ["ctl", "--json", "--seed", "[::1]:1", "--timeout", "7", "get", "k"];
        let behind = ["ctl", "get", "k", "--json", "--seed", "[::1]:1", "--timeout", "7"];
        for words in [before, behind] {
            let args = CtlArgs::parse_from(words);
            assert!(args.json && args.timeout == 7 && args.find.seeds.len() == 1);
        }
    }
}
