//! How far a node has come.

use artillery_core::{ClusterId, SeedState, SeedStatus};

use crate::Place;

/// What to do about it, too.
const LEFT_BEHIND: &str = "the cluster was recovered without this node: start it again to join as a new member";

const FOUNDS: &str = "an operator gave the cluster up: the next life of this node founds the one that succeeds it";

const SUCCEEDED: &str = "the cluster was given up for another one: start the node again to join that";

const LOG_FAILED: &str = "what keeps the configuration log failed: start the node again";

#[derive(Debug, Clone)]
pub(crate) enum NodePhase {
    /// It belongs to no cluster yet.
    Seeking,
    /// It belongs to one, but can't answer yet.
    Formed,
    Ready(Ready),
    /// It will never belong to one.
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
    /// What it is, in the first chain that it serves.
    pub role: Place,
    /// The formation that it belongs to.
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
    /// Every seed that it was given refused it, and it never was a member.
    #[error("every seed refused this node: {0}")]
    Refused(String),
    /// It was stopped first.
    #[error("the node was stopped")]
    Stopped,
    /// The cluster was recovered without it.
    #[error("{LEFT_BEHIND}")]
    LeftBehind,
    /// What keeps the configuration log here failed.
    #[error("{LOG_FAILED}")]
    LogFailed,
    /// An operator gave its cluster up, and the next life of this node founds the one that succeeds it.
    #[error("{FOUNDS}")]
    Founds,
    /// Another cluster succeeds its own, and it held nothing.
    #[error("{SUCCEEDED}")]
    Succeeded,
    /// Its replica stopped serving.
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
    /// It was asked to leave.
    Left,
    /// It was asked to stop.
    ShutDown,
    /// Its last handle was dropped.
    Dropped,
    /// A later life of the same node was met.
    Superseded,
    /// The cluster was recovered without this node, whose history is over: its next life joins as a new member.
    LeftBehind,
    /// What keeps the configuration log here has failed: the node can't take part in its cluster any more.
    LogFailed,
    /// An operator gave its cluster up: its next life is to found the one that succeeds it
    /// ([`NodeBuilder::found_after`](crate::NodeBuilder::found_after)).
    Founds,
    /// Another cluster succeeds its own, of which it held nothing: its next life is to join that
    /// ([`NodeBuilder::join_after`](crate::NodeBuilder::join_after)).
    Succeeded,
}

impl std::fmt::Display for Stopped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Left => "it left its cluster",
            Self::ShutDown => "it was shut down",
            Self::Dropped => "its last handle was dropped",
            Self::Superseded => "a later life of this node was met",
            Self::LeftBehind => LEFT_BEHIND,
            Self::LogFailed => LOG_FAILED,
            Self::Founds => FOUNDS,
            Self::Succeeded => SUCCEEDED,
        })
    }
}
