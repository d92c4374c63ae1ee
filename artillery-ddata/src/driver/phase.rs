//! The phases of a node's life cycle.

use std::path::PathBuf;

use artillery_core::{ClusterId, SeedState, SeedStatus};

use crate::Place;

/// These texts include the operator's next step.
const LEFT_BEHIND: &str = "the cluster was recovered without this node: start it again to join as a new member, with an empty directory if it has one";

const FOUNDS: &str = "an operator gave the cluster up: this node's next incarnation founds the one that succeeds it";

const SUCCEEDED: &str = "the cluster was given up for another one: start the node again to join that";
const UNFORMED: &str = "most of the nodes that had agreed to form a cluster with it are silent: start it again";

const ROLLED_BACK: &str =
    "the directory of this node is an older copy, or a second one: start the node with an empty directory";

const NAME_TAKEN: &str = "another process with this node's name is running: give each node its own name";

const DISK_FAILED: &str = "the disk of this node failed";

const LOG_FAILED: &str = "the configuration log of this node failed: start the node again";

#[derive(Debug, Clone)]
pub(crate) enum NodePhase {
    /// The node belongs to no cluster yet.
    Seeking,
    /// The node belongs to a cluster, but can't answer yet.
    Formed,
    Ready(Ready),
    /// The node will never be ready.
    Failed(NeverReady),
    Stopped(Stopped),
}

impl NodePhase {
    pub(crate) fn is_ready(&self) -> bool {
        matches!(self, Self::Ready(_))
    }

    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Self::Failed(_) | Self::Stopped(_))
    }
}

/// A node that can answer a strong read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ready {
    /// The node's place in the first chain that it serves.
    pub role: Place,
    /// The cluster that it belongs to.
    pub cluster: ClusterId,
}

impl Ready {
    pub(crate) fn new(role: Place, cluster: ClusterId) -> Self {
        Self { role, cluster }
    }
}

/// Why a node will never be ready.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NeverReady {
    /// Every seed that the node was given refused it, and it never was a member.
    #[error("every seed refused this node: {0}")]
    Refused(String),
    /// The node was stopped first.
    #[error("the node was stopped")]
    Stopped,
    /// The cluster was recovered without it.
    #[error("{LEFT_BEHIND}")]
    LeftBehind,
    /// The local part of the configuration log failed.
    #[error("{LOG_FAILED}")]
    LogFailed,
    /// The node's disk failed.
    #[error("{DISK_FAILED}")]
    DiskFailed,
    /// The node's directory is an older copy of itself, or a second one.
    #[error("{ROLLED_BACK}")]
    RolledBack,
    /// An operator abandoned the cluster. The node's next incarnation creates the cluster that succeeds it.
    #[error("{FOUNDS}")]
    Founds,
    /// Another cluster succeeds the node's own, whose data it didn't have.
    #[error("{SUCCEEDED}")]
    Succeeded,
    /// The node's directory was checked, and can't be loaded.
    #[error("{why}")]
    NotLoaded {
        /// The directory.
        dir: PathBuf,
        /// Whether it is damaged.
        is_damaged: bool,
        /// Why, in words.
        why: String,
    },
    /// Another living process has the node's name.
    #[error("{NAME_TAKEN}")]
    NameTaken,
    /// Most of the nodes with which this one had agreed to form a cluster are silent. The node's next incarnation is free.
    #[error("{UNFORMED}")]
    Unformed,
    /// A replica of the node stopped serving.
    #[error("a chain stopped serving: {0}")]
    Halted(String),
}

impl NeverReady {
    pub(crate) fn refused(seeds: &[SeedStatus]) -> Self {
        let said = seeds.iter().map(|seed| match &seed.state {
            SeedState::Refused { reason, .. } => format!("{}: {reason}", seed.seed),
            other => format!("{}: {other:?}", seed.seed),
        });
        Self::Refused(said.collect::<Vec<_>>().join("; "))
    }
}

/// Why a node has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stopped {
    /// The node was asked to leave.
    Left,
    /// The node was asked to stop.
    ShutDown,
    /// The node's last handle was dropped.
    Dropped,
    /// A later incarnation of the same node was met.
    Superseded,
    /// Another living process has the node's name: the other nodes know that one, and refuse this one.
    NameTaken,
    /// The cluster was recovered without this node, whose history has ended. The next incarnation joins as a new member; one
    /// with the same directory stops again, and the directory stays as it is, until an operator moves it aside.
    LeftBehind,
    /// The local part of the configuration log failed: the node can no longer take part in its cluster.
    LogFailed,
    /// The node's disk failed. Its content is unknown to this process; the next one reads it.
    DiskFailed,
    /// The node's directory is an older copy of itself, or a second one: it has forgotten what it promised.
    RolledBack,
    /// An operator abandoned the cluster. The node's next incarnation creates the cluster that succeeds it
    /// ([`NodeBuilder::found_after`](crate::NodeBuilder::found_after)).
    Founds,
    /// Another cluster succeeds the node's own, whose data it didn't have. The node's next incarnation joins that
    /// ([`NodeBuilder::join_after`](crate::NodeBuilder::join_after)).
    Succeeded,
    /// Most of the nodes with which this one had agreed to form a cluster are silent: the next incarnation is free.
    Unformed,
}

impl std::fmt::Display for Stopped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Left => "it left its cluster",
            Self::ShutDown => "it was shut down",
            Self::Dropped => "its last handle was dropped",
            Self::Superseded => "a later incarnation of this node was met",
            Self::NameTaken => NAME_TAKEN,
            Self::LeftBehind => LEFT_BEHIND,
            Self::LogFailed => LOG_FAILED,
            Self::DiskFailed => DISK_FAILED,
            Self::RolledBack => ROLLED_BACK,
            Self::Founds => FOUNDS,
            Self::Succeeded => SUCCEEDED,
            Self::Unformed => UNFORMED,
        })
    }
}
