//! The configuration log, as a trait.
//!
//! [`Configs`] interprets changes identically for every implementation; an implementation only keeps entries in one
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
pub use super::index::{LogIndex, Term};
use crate::{ChainConfig, Epoch, MemberId, Timestamp};

/// A boxed future, for object-safe traits.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The result of a proposal in flight.
pub type ProposalFuture<'a> = BoxFuture<'a, Result<(), AppendError>>;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ConfigChange {
    /// New configurations. Each is applied only if the configuration that it replaces is still current, the chain isn't
    /// over, and the new configuration has a serving member.
    Chains(Vec<ChainChange>),
    /// Incarnations that join the cluster, and incarnations that ended. A new incarnation of a node replaces the known
    /// one.
    Nodes {
        add: Vec<NodeInfo>,
        /// An incarnation that a configuration names is kept.
        remove: Vec<MemberId>,
    },
    /// A new configuration of a chain whose loss an operator has accepted: acknowledged updates may be missing. Earlier
    /// sessions and watches end.
    AcceptLoss(ChainChange),
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChainChange {
    /// The epoch of the configuration known to the proposer; 0 for the first configuration of a chain.
    pub replaces: Epoch,
    /// The new configuration, in the epoch after `replaces`.
    pub config: ChainConfig,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LogEntry {
    pub index: LogIndex,
    /// The term of the proposing leader; 0 for an entry of the cluster's formation.
    pub term: Term,
    /// The proposed change; [`Configs::apply`] decides whether it takes effect.
    pub change: ConfigChange,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// An entry, possibly this very change, has this index: read it and decide again.
    #[error("the index is taken: the log extends to {last}")]
    Taken {
        /// The last known entry.
        last: LogIndex,
    },
    /// This node doesn't lead, or leads in another term than that of the proposal.
    #[error("this node doesn't lead in that term")]
    NotLeading,
    /// The change may be in the log or not: read the log to find out.
    #[error("outcome unknown: {0}")]
    OutcomeUnknown(String),
    /// Nothing was appended.
    #[error(transparent)]
    Log(#[from] ConfigLogError),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigLogError {
    /// No majority of the voters can be reached.
    #[error("the configuration log has no quorum")]
    NoQuorum,
    /// The entry was compacted away: read from `first` on.
    #[error("the configuration log begins at {first}")]
    Compacted {
        /// The first entry that is still available.
        first: LogIndex,
    },
    /// The storage of the log failed.
    #[error("the configuration log failed: {0}")]
    Failed(String),
}

/// A sequence of entries that all nodes agree on. [`Configs`] and the [`Node`](crate::node::NodeMachine) interpret
/// them.
///
/// Implementations are checked by [`conformance`](super::conformance).
pub trait ConfigLog: Send + Sync + fmt::Debug + 'static {
    /// Appends `change` at `at` if no entry has that index yet and this node leads in exactly this term: a proposal is
    /// valid only in the term in which it was prepared (docs/DESIGN.md §5.2, trap 35).
    ///
    /// # Errors
    /// After any error except [`AppendError::OutcomeUnknown`], this call never appends the change.
    fn append(&self, term: Term, at: LogIndex, change: ConfigChange) -> ProposalFuture<'_>;

    /// The entry at `at`; `None` if this node hasn't applied it yet. If an entry is available, all later ones up to the
    /// last applied one are too.
    fn entry(&self, at: LogIndex) -> Result<Option<LogEntry>, ConfigLogError>;

    /// The last entry at some time after this call began. A quorum of the voters has confirmed that this node still led
    /// in `term` after the call began (read index).
    ///
    /// # Errors
    /// After any error, data read from the log may be stale.
    fn confirm(&self, term: Term) -> BoxFuture<'_, Result<LogIndex, ConfigLogError>>;

    /// The term in which this node leads, if it does. Leadership begins once an entry of that very term has been
    /// committed and applied here, and ends when this node learns of another leader (trap 14).
    fn leads(&self) -> Option<Term>;

    /// The leader, if known.
    fn leader(&self) -> Option<MemberId>;

    /// The configurations after the last entry applied here.
    fn configs(&self) -> Arc<Configs>;

    /// The known voters of the log's group; empty if the log is outside of the cluster.
    fn voters(&self) -> BTreeSet<MemberId>;

    /// Replaces the voters by these nodes, if this node leads in `term`. Their addresses must be in the log.
    fn set_voters(&self, term: Term, voters: BTreeSet<MemberId>) -> ProposalFuture<'_>;

    /// Per node: when this node sent the latest message of the log's group that was answered. Empty if the log is
    /// outside of the cluster.
    fn answered(&self) -> BTreeMap<MemberId, Timestamp> {
        BTreeMap::new()
    }

    /// Sets whether this node may lead; initially it may. A leader without permission resigns, so that another node is
    /// elected. A node without permission is no candidate, but votes. Once permitted again, it leads in a later term
    /// only.
    fn may_lead(&self, may: bool) {
        let _ = may;
    }

    /// Waits until [`leads`](Self::leads), [`leader`](Self::leader), [`configs`](Self::configs) and
    /// [`voters`](Self::voters) have changed more than `seen` times in total; returns the new total.
    fn changed(&self, seen: u64) -> BoxFuture<'_, u64>;
}

#[cfg(test)]
mod tests;
