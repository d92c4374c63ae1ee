//! The phases of a node's life cycle.

use std::path::PathBuf;

use artillery_core::{ClusterId, SeedState, SeedStatus};

use crate::Place;

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
    /// The node's place in the first chain in which it isn't a spare; a spare, if there is none.
    pub place: Place,
    /// The node's cluster.
    pub cluster: ClusterId,
}

impl Ready {
    pub(crate) fn new(place: Place, cluster: ClusterId) -> Self {
        Self { place, cluster }
    }
}

/// Why a node will never be ready.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NeverReady {
    /// Every seed of the node refused it before it was ready.
    #[error("every seed refused this node: {0}")]
    Refused(String),
    /// The node was stopped, before or after it was ready, for a reason that has no variant here.
    #[error("the node was stopped")]
    Stopped,
    /// The cluster was recovered without the node.
    #[error("{}", Stopped::LeftBehind)]
    LeftBehind,
    /// The local part of the configuration log failed, or the configurations couldn't be written to the node's
    /// directory.
    #[error("{}", Stopped::LogFailed)]
    LogFailed,
    /// The node's disk failed, or the thread that writes to it panicked.
    #[error("{}", Stopped::DiskFailed)]
    DiskFailed,
    /// The node's directory is an older copy of itself, or a second one.
    #[error("{}", Stopped::RolledBack)]
    RolledBack,
    /// An operator retired the cluster. The node's next incarnation creates the cluster that succeeds it.
    #[error("{}", Stopped::Retired)]
    Retired,
    /// Another cluster succeeds the node's own, or the node's own gave way to another one of the same name.
    #[error("{}", Stopped::Superseded)]
    Superseded,
    /// The node's directory can't be loaded.
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
    #[error("{}", Stopped::NameTaken)]
    NameTaken,
    /// Most of the nodes with which this one had agreed to form a cluster are silent. The node's next incarnation may
    /// form or join another cluster.
    #[error("{}", Stopped::Unformed)]
    Unformed,
    /// A chain permanently stopped serving at the node before the node was ready, the configuration log couldn't be
    /// started, or the thread that loads the directory couldn't be started or panicked.
    #[error("a chain stopped serving: {0}")]
    Halted(String),
}

impl NeverReady {
    pub(crate) fn refused(seeds: &[SeedStatus]) -> Self {
        let reasons = seeds.iter().map(|seed| match &seed.state {
            SeedState::Refused { reason, .. } => format!("{}: {reason}", seed.seed),
            other => format!("{}: {other:?}", seed.seed),
        });
        Self::Refused(reasons.collect::<Vec<_>>().join("; "))
    }
}

/// Why a node has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stopped {
    /// The node left its cluster permanently ([`Node::leave`](crate::Node::leave)).
    Left,
    /// The node was shut down gracefully ([`Node::shutdown`](crate::Node::shutdown)).
    ShutDown,
    /// The node was stopped without a message to other nodes ([`Node::abort`](crate::Node::abort)).
    Aborted,
    /// The node's last handle was dropped.
    Dropped,
    /// The node was restarted while this incarnation was running, and the later incarnation was met.
    Restarted,
    /// Another living process has the node's name: the other nodes know that process, and refuse this node.
    NameTaken,
    /// The cluster was recovered without this node. The next incarnation joins as a new member, unless it has the same
    /// directory: then it stops again, until an operator moves the directory aside.
    LeftBehind,
    /// The local part of the configuration log failed, or the configurations couldn't be written to the node's
    /// directory: the node can no longer take part in its cluster.
    LogFailed,
    /// The node's disk failed, or the thread that writes to it panicked. This process no longer knows the contents of
    /// the disk; the next one reads them.
    DiskFailed,
    /// The node's directory is an older copy of itself, or a second one: the node's latest promises are missing in it.
    RolledBack,
    /// An operator retired the cluster. The node's next incarnation creates the cluster that succeeds it
    /// ([`NodeBuilder::create_after`](crate::NodeBuilder::create_after)).
    Retired,
    /// Another cluster succeeds the node's own, or the node's own gave way to another one of the same name. The node's
    /// next incarnation joins the other cluster
    /// ([`NodeBuilder::join_after`](crate::NodeBuilder::join_after)).
    Superseded,
    /// Most of the nodes with which this one had agreed to form a cluster are silent. The node's next incarnation may
    /// form or join another cluster.
    Unformed,
}

impl std::fmt::Display for Stopped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Left => "it left its cluster",
            Self::ShutDown => "it was shut down",
            Self::Aborted => "it was aborted",
            Self::Dropped => "its last handle was dropped",
            Self::Restarted => "a later incarnation of this node was met",
            Self::NameTaken => "another process with this node's name is running: give each node its own name",
            Self::LeftBehind => "the cluster was recovered without this node: start it again to join as a new member, with an empty directory if it has one",
            Self::LogFailed => "the configuration log of this node failed: start the node again",
            Self::DiskFailed => "the disk of this node failed",
            Self::RolledBack => "the directory of this node is an older copy, or a second one: start the node with an empty directory",
            Self::Retired => "an operator retired the cluster: this node's next incarnation creates its successor",
            Self::Superseded => "the cluster gave way to another one: start the node again to join that",
            Self::Unformed => "most of the nodes that had agreed to form a cluster with it are silent: start it again",
        })
    }
}
