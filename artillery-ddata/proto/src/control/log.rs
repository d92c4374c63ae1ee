//! The log of configurations, as a trait.
//!
//! [`Configs`] decides what a change means, the same for every implementation; an implementation only keeps entries in one
//! order. Nothing in this module needs a runtime.

mod configs;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
};

use serde::{Deserialize, Serialize};

pub use self::configs::{AcceptedLoss, Configs, OutOfOrder};
use super::NodeInfo;
use crate::{ChainConfig, Epoch, MemberId, Timestamp};

/// A future behind a pointer, as object-safe traits need it.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A proposal under way: it ends with whether the log has taken it.
pub type ProposalFuture<'a> = BoxFuture<'a, Result<(), AppendError>>;

/// The index of an entry in the log. The first entry has 1; 0 means before all entries.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize)]
pub struct LogIndex(pub u64);

impl LogIndex {
    /// The index after this one.
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for LogIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A term of leadership in the log's group. In each there is at most one leader; 0 means no term.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize)]
pub struct Term(pub u64);

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A change that is proposed to the log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ConfigChange {
    /// New configurations, each of which counts only while the one that it replaces is the present one.
    Chains(Vec<ChainChange>),
    /// Incarnations that belong to the cluster from now on, and incarnations that are over. A new incarnation of a node
    /// replaces the known one.
    Nodes {
        /// Incarnations that came.
        add: Vec<NodeInfo>,
        /// Incarnations that went. One that a configuration names stays.
        remove: Vec<MemberId>,
    },
    /// A new configuration of a chain of which an operator has accepted a loss: what was acknowledged may be missing. Sessions and
    /// watches of before don't go on.
    AcceptLoss(ChainChange),
}

/// A new configuration of one chain.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChainChange {
    /// The epoch of the configuration that the proposer knew; 0 for the first configuration of a chain.
    pub replaces: Epoch,
    /// The new configuration, in the epoch after that one.
    pub config: ChainConfig,
}

/// A change with its place in the log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LogEntry {
    /// Its place.
    pub index: LogIndex,
    /// The term of the leader that proposed it; 0 for an entry made by the founding.
    pub term: Term,
    /// The proposed change; [`Configs::apply`] decides whether it counts.
    pub change: ConfigChange,
}

/// A change was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// Another entry has the place: read it and decide anew.
    #[error("the log goes on to {last}: the place was taken")]
    Taken {
        /// The last entry known.
        last: LogIndex,
    },
    /// This node doesn't lead, or leads in another term than the one in which the proposal was prepared.
    #[error("this node doesn't lead in that term")]
    NotLeading,
    /// The change may be in the log or not: read the log to find out.
    #[error("outcome unknown: {0}")]
    OutcomeUnknown(String),
    /// Nothing was appended.
    #[error(transparent)]
    Log(#[from] ConfigLogError),
}

/// The log can't be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigLogError {
    /// No majority of the voters can be reached.
    #[error("the configuration log has no quorum")]
    NoQuorum,
    /// The entry was compacted into a later one: read from there.
    #[error("the configuration log begins at {first}")]
    Compacted {
        /// The first entry that is still there.
        first: LogIndex,
    },
    /// The storage of the log failed.
    #[error("the configuration log failed: {0}")]
    Failed(String),
}

/// Entries in one order that all nodes agree on. [`Configs`] and the [`Node`](crate::node::NodeMachine) decide what they mean.
///
/// Implementations are checked by [`conformance`](super::conformance).
pub trait ConfigLog: Send + Sync + fmt::Debug + 'static {
    /// Puts `change` at `at` if no entry has that place yet and this node leads in exactly this term: a proposal counts
    /// only in the term in which it was prepared (docs/DESIGN.md §5.2, trap 35).
    ///
    /// # Errors
    /// [`AppendError`]; all but [`AppendError::OutcomeUnknown`] mean that this call never appends the change.
    fn append(&self, term: Term, at: LogIndex, change: ConfigChange) -> ProposalFuture<'_>;

    /// The entry at `at`; `None` if this node hasn't applied it yet. All entries behind one that is still there are there too.
    ///
    /// # Errors
    /// [`ConfigLogError::Compacted`].
    fn entry(&self, at: LogIndex) -> Result<Option<LogEntry>, ConfigLogError>;

    /// The last entry at some moment after this call began. A quorum of the voters has confirmed that this node still led in
    /// `term` after the call began (read index).
    ///
    /// # Errors
    /// [`ConfigLogError`]: what was read from the log may be old.
    fn confirm(&self, term: Term) -> BoxFuture<'_, Result<LogIndex, ConfigLogError>>;

    /// The term in which this node leads, if it does. It leads once an entry of that very term has been committed, and
    /// applied here, until it learns of another leader (trap 14).
    fn leads(&self) -> Option<Term>;

    /// The leader, as far as is known here.
    fn leader(&self) -> Option<MemberId>;

    /// The configurations after the last entry applied here.
    fn configs(&self) -> Arc<Configs>;

    /// The voters of the log's group, as far as is known here; empty if the log is kept outside of the cluster.
    fn voters(&self) -> BTreeSet<MemberId>;

    /// Replaces the voters by these nodes, if this node leads in `term`. Their addresses stand in the log.
    ///
    /// # Errors
    /// Those of [`append`](Self::append).
    fn set_voters(&self, term: Term, voters: BTreeSet<MemberId>) -> ProposalFuture<'_>;

    /// For each node that this one has sent messages of the log's group, when it sent the latest one that was answered. Empty if
    /// the log is kept outside of the cluster.
    fn answered(&self) -> BTreeMap<MemberId, Timestamp> {
        BTreeMap::new()
    }

    /// Whether this node may lead; at first it may. A leader that may not gives its leadership up, so that another node is
    /// elected. A node that may not stands in no election, and votes in each. Once it may again, it leads in another term only.
    fn may_lead(&self, may: bool) {
        let _ = may;
    }

    /// Waits until [`leads`](Self::leads), [`leader`](Self::leader), [`configs`](Self::configs) or
    /// [`voters`](Self::voters) has changed more than `seen` times in all; returns how often by now.
    fn changed(&self, seen: u64) -> BoxFuture<'_, u64>;
}

#[cfg(test)]
mod tests;
