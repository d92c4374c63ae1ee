//! The command line of `ctl`.

use std::{path::PathBuf, time::Duration};

use artillery_ddata::{ClusterId, Frontier, ReadMode, RequestId, Version, kv::HashKey};
use artillery_programs::args::{Bytes, LogArgs, cluster_id, duration};
use clap::{Parser, Subcommand};

use crate::{
    find::{ACCESS, FindArgs},
    lock::{HoldArgs, RunHeldArgs},
};

const OUTPUT: &str = "Output";

const AFTER_HELP: &str = "\
Examples:
  {name} --cluster shop status --watch
  {name} --cluster shop put greeting hello
  {name} --cluster shop get greeting --read eventual
  {name} --cluster shop put session/7 ann --ttl 30m
  {name} --secret-file secret --seed db-1.example:7400 --no-mdns --json scan user/
  {name} --cluster shop lock nightly -- ./report.sh
  {name} --cluster shop load --clients 64 --seconds 5 --reads 90 --check
  {name} check /var/lib/shop

Exit codes:
  0  done
  1  failed, or the key is absent
  2  bad arguments
  3  the outcome of a write or an order is unknown: `{name} outcome` settles a write, `{name} status` shows the effect of an order
  4  conflict: the condition of a write did not hold
`lock` and `elect` exit with the code of their command, or 128 and the number of the signal that ended it.

Not yet: rereplicate, restore";

/// Inspect an Artillery cluster and work with its data
#[derive(Debug, Parser)]
#[command(name = "artillery-ctl", version, after_help = AFTER_HELP)]
pub(super) struct CtlArgs {
    #[command(flatten)]
    pub(super) find: FindArgs,
    /// Timeout in milliseconds for finding the cluster, and for each call after that
    #[arg(long, value_name = "MS", default_value_t = 5000, global = true, value_parser = clap::value_parser!(u64).range(1..), help_heading = ACCESS)]
    pub(super) timeout: u64,
    /// Print JSON, one object per line
    #[arg(long, global = true, help_heading = OUTPUT)]
    pub(super) json: bool,
    #[command(flatten, next_help_heading = OUTPUT)]
    pub(super) log: LogArgs,
    #[command(subcommand)]
    pub(super) command: Command,
}

/// Commands that are planned but not implemented.
pub(super) const LATER: [&str; 2] = ["rereplicate", "restore"];

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Show chains, members and counters
    Status {
        /// Update continuously until q is pressed; without a terminal print one line per change, with --json an object
        /// every second
        #[arg(long)]
        watch: bool,
    },
    /// Print the value of a key, followed by a newline
    Get {
        /// The key
        key: String,
        /// Read mode: strong, chain, eventual or bounded:VERSIONS,MS
        #[arg(long, value_name = "MODE", default_value = "strong", value_parser = read_mode)]
        read: ReadMode,
    },
    /// Set the value of a key
    Put {
        /// The key
        key: String,
        /// The value
        #[arg(allow_negative_numbers = true)]
        value: String,
        /// Let the key expire after this time, such as 250ms, 90s, 5m, 12h or 7d (default: it does not expire)
        #[arg(long, value_name = "DURATION", value_parser = duration)]
        ttl: Option<Duration>,
    },
    /// Print how long a key will stay, in milliseconds, or `none` if it does not expire
    Ttl {
        /// The key
        key: String,
        /// Let the key expire after this time from now on, such as 250ms, 90s, 5m, 12h or 7d
        #[arg(long, value_name = "DURATION", value_parser = duration, conflicts_with = "persist")]
        set: Option<Duration>,
        /// Remove the expiry of the key
        #[arg(long)]
        persist: bool,
    },
    /// Delete a key
    Del {
        /// The key
        key: String,
    },
    /// Set the value of a key if its current version matches; 0.0 means that it must be absent
    Cas {
        /// The key
        key: String,
        /// The expected version, EPOCH.SEQUENCE
        version: Version,
        /// The value
        #[arg(allow_negative_numbers = true)]
        value: String,
    },
    /// Add to a decimal number and print the result; an absent key is treated as 0
    Incr {
        /// The key
        key: String,
        /// The number to add
        #[arg(default_value_t = 1, allow_negative_numbers = true)]
        by: i64,
    },
    /// Append to a value and print the new length in bytes; an absent key is treated as empty
    Append {
        /// The key
        key: String,
        /// The text to append
        #[arg(allow_negative_numbers = true)]
        value: String,
    },
    /// Print the keys with a prefix, in order; with --json also their values
    Scan {
        /// The prefix
        #[arg(default_value = "")]
        prefix: String,
    },
    /// Have every member read its data at one point of the history, and compare the sums; exit code 1 if they differ
    Digest {
        /// Only keys with this prefix
        #[arg(default_value = "")]
        prefix: String,
        /// Key of the hash, 32 hexadecimal digits, to compare with an earlier digest (default: a random one)
        #[arg(long, value_name = "HEX")]
        hash_key: Option<HashKey>,
    },
    /// Back up all data into a new file, at one point of the history, while writes continue; then check the file
    Snapshot {
        /// The file, which must not exist; - writes to standard output, and checks nothing
        file: PathBuf,
    },
    /// Print each key with a prefix when it changes, until stopped; with --json also the new value
    Watch {
        /// The prefix
        #[arg(default_value = "")]
        prefix: String,
        /// Start after this position, taken from a change printed with --json (default: from now on)
        #[arg(long, value_name = "POSITION")]
        from: Option<Frontier>,
    },
    /// Report the outcome of a write, and settle it permanently: if it has not been applied yet, it never will be
    Outcome {
        /// The request id, as printed by --json or in an error
        request: RequestId,
    },
    /// Have a node leave its chains, and wait until it has; it keeps forwarding requests
    Drain {
        /// Name or id of the node
        node: String,
    },
    /// Change the order of the serving members of a chain
    Reorder {
        /// Number of the chain
        chain: u32,
        /// Names or ids of all serving members, head first
        #[arg(required = true)]
        nodes: Vec<String>,
    },
    /// Reopen a chain from the best surviving store, when none of its last members comes back
    Reopen {
        /// Number of the chain; updates that no surviving store holds are lost
        #[arg(long, value_name = "CHAIN", required = true)]
        accept_loss: u32,
    },
    /// Continue with the best surviving history, when most voters of the configuration log are lost permanently
    Recover {
        /// The cluster's id, as `status` shows it; updates that only lost nodes hold will be missing
        #[arg(long, value_name = "CLUSTER_ID", required = true, value_parser = cluster_id)]
        accept_loss: ClusterId,
    },
    /// Form a new, empty cluster of the running nodes, when no node that ever held data survives
    #[command(name = "create-anew", alias = "found")]
    CreateAnew {
        /// The id of the cluster to abandon, as `status` shows it: all of its data is lost
        #[arg(long, value_name = "CLUSTER_ID", required = true, value_parser = cluster_id)]
        accept_loss: ClusterId,
    },
    /// Abandon one of two clusters of the same name that have met: its nodes join the other one, and its data is lost
    GiveUp {
        /// The id of the cluster to abandon, as its nodes log it and `status` shows it; ask a node of this cluster
        /// (--seed)
        #[arg(long, value_name = "CLUSTER_ID", required = true, value_parser = cluster_id)]
        accept_loss: ClusterId,
    },
    /// Read the whole directory of a node that isn't running, or a backup, and report the contents; exit code 1 if it is
    /// damaged, with file and offset
    Check {
        /// The directory given to `node --data`, or the file of a `snapshot`; it is not modified
        path: PathBuf,
        /// Key of the hash of a backup's digest, 32 hexadecimal digits, to compare it with that of `digest` (default: a
        /// random one)
        #[arg(long, value_name = "HEX")]
        hash_key: Option<HashKey>,
    },
    /// Run a command while holding a lock; exit code 1 if the lock is lost, before which the command is stopped
    Lock {
        #[command(flatten)]
        hold: HoldArgs,
    },
    /// Run a command while leading an election; exit code 1 if the leadership is lost, before which the command is
    /// stopped
    Elect {
        #[command(flatten)]
        hold: HoldArgs,
        /// The value that the leader publishes, for example its address
        #[arg(long, value_name = "TEXT", default_value = "")]
        value: String,
    },
    /// Started by `lock` and `elect`
    #[command(hide = true)]
    RunHeld(RunHeldArgs),
    /// Generate load on the cluster and measure it
    Load(LoadArgs),
    #[command(external_subcommand)]
    Other(Vec<String>),
}

/// The flags of `load`.
#[derive(Debug, clap::Args)]
pub(super) struct LoadArgs {
    /// Number of concurrent clients
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub(super) clients: u64,
    /// Duration in seconds
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(super) seconds: u64,
    /// Size of the values; with --check they are at least as long as the data that identifies them
    #[arg(long, value_name = "BYTES", default_value = "100")]
    pub(super) value_bytes: Bytes,
    /// Percentage of operations that are reads
    #[arg(long, value_name = "PERCENT", default_value_t = 90, value_parser = clap::value_parser!(u64).range(0..=100))]
    pub(super) reads: u64,
    /// Number of keys
    #[arg(long, value_name = "K", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub(super) keys: u64,
    /// Read mode: strong, chain, eventual or bounded:VERSIONS,MS
    #[arg(long, value_name = "MODE", default_value = "strong", value_parser = read_mode)]
    pub(super) read: ReadMode,
    /// Operations in flight per client
    #[arg(long, value_name = "P", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub(super) pipeline: u64,
    /// Operations per second of all clients together (default: unlimited)
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
        _ => bounded(text).ok_or_else(|| "expected strong, chain, eventual or bounded:VERSIONS,MS".to_owned()),
    }
}

/// The name of a read mode, as in `--read` but without the bounds.
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
        assert!(LATER.iter().all(|command| AFTER_HELP.contains(command)));
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
