//! Restarts a node in the same process with its original flags, and with the flags that the reason for the restart
//! requires.

use std::{
    env,
    ffi::{OsStr, OsString},
};

use artillery_ddata::ClusterId;
use artillery_programs::exit::Failure;

use crate::{args::NodeArgs, system};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Again {
    /// The node creates the successor of its cluster.
    Creates,
    Joins,
    Anew {
        /// Whether the node must not create a cluster.
        existing: bool,
    },
}

const FLAGS: [&str; 2] = ["--found-after", "--join-after"];
const EXISTING: &str = "--existing";

/// Whether a node with a damaged directory must assume that other nodes hold its cluster. Without this check, nodes
/// whose disks all fail at once would immediately bootstrap an empty cluster.
pub(super) fn knows_a_cluster(args: &NodeArgs) -> bool {
    args.expect > 1
}

impl Again {
    fn flag(self) -> Option<&'static str> {
        match self {
            Self::Creates => Some(FLAGS[0]),
            Self::Joins => Some(FLAGS[1]),
            Self::Anew { .. } => None,
        }
    }

    /// Restarts the program. Returns only on failure, with an error that asks the operator to start the node.
    pub(super) fn begin(self, lineage: &[ClusterId]) -> Failure {
        let named = lineage.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let args = self.args(env::args_os().skip(1), &named);
        let error = replace(&args);
        let with = self.flag().map_or_else(String::new, |flag| format!(" with {flag} {named}"));
        Failure::failed(format!("could not restart, start the node{with} again: {error}"))
    }

    /// The flags for the restart: the flags of this process, in which a new list of abandoned clusters replaces an
    /// earlier one. [`Again::Anew`] may add `--existing` instead.
    fn args(self, args: impl Iterator<Item = OsString>, named: &str) -> Vec<OsString> {
        let Some(flag) = self.flag() else {
            let mut args: Vec<_> = args.collect();
            if self == (Self::Anew { existing: true }) && !args.iter().any(|arg| arg == EXISTING) {
                args.push(EXISTING.into());
            }
            return args;
        };
        let mut kept = Vec::new();
        let mut args = args;
        while let Some(arg) = args.next() {
            let is_flag = |flag: &&str| arg == OsStr::new(flag);
            let is_whole = |flag: &&str| arg.as_encoded_bytes().starts_with(format!("{flag}=").as_bytes());
            if FLAGS.iter().any(is_flag) {
                args.next();
            } else if !FLAGS.iter().any(is_whole) {
                kept.push(arg);
            }
        }
        kept.extend([flag.into(), named.into()]);
        kept
    }
}

/// Replaces this process with a new run of the program, so that supervisors don't see it end.
fn replace(args: &[OsString]) -> std::io::Error {
    // If the program was replaced on disk, `current_exe` may name a file that no longer exists.
    let named = env::args_os().next().map(std::path::PathBuf::from);
    let program = env::current_exe().ok().filter(|path| path.exists()).or(named);
    match program {
        Some(program) => system::replace(std::process::Command::new(program).args(args)),
        None => std::io::Error::from(std::io::ErrorKind::NotFound),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restart_keeps_flags_and_replaces_the_lineage() {
        let args = |again: Again, args: &[&str]| {
            let args = again.args(args.iter().map(OsString::from), "7,8");
            args.into_iter().map(|arg| arg.into_string().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(args(Again::Creates, &["--name", "a"]), ["--name", "a", "--found-after", "7,8"]);
        let before = ["--join-after", "7", "--name", "a", "--found-after=6", "--no-mdns"];
        assert_eq!(args(Again::Joins, &before), ["--name", "a", "--no-mdns", "--join-after", "7,8"]);
        assert_eq!(args(Again::Anew { existing: false }, &before), before);
        for before in [&["--name", "a"][..], &["--name", "a", "--existing"]] {
            assert_eq!(args(Again::Anew { existing: true }, before), ["--name", "a", "--existing"]);
        }
    }
}
