//! The log of configurations: one trait, and its implementation without failover.
//!
//! What a change means is decided here, in [`Configs`], the same for every implementation; an implementation only
//! keeps entries in one order. Nothing in this module needs a runtime: [`LogStream`] is a futures stream where the
//! feature `net` is on, and can be polled by hand where it is not.

mod configs;
mod stream;

use std::{collections::BTreeSet, fmt, future::Future, pin::Pin, sync::Arc};

use serde::{Deserialize, Serialize};

pub use self::{
    configs::{Configs, OutOfOrder},
    stream::{Follow, LogStream, NextEntry},
};
use super::{Founder, Founding, first_configs};
use crate::{ChainConfig, Epoch, MemberId};

/// A future behind a pointer, as object-safe traits need it.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The place of an entry in the log. The first has 1; 0 means before all.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize)]
pub struct LogIndex(pub u64);

impl LogIndex {
    /// The place behind this one.
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for LogIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A term of leadership of those who keep the log. In each there is at most one leader; 0 means none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize)]
pub struct Term(pub u64);

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What is proposed to the log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Change {
    /// New configurations, each of which counts only while the one that it replaces is the present one.
    Chains(Vec<ChainChange>),
    /// Nodes that belong to the cluster from now on, in which lives, and lives that are over. A new life of a node takes
    /// the place of the one that was known.
    Nodes {
        /// Lives that came.
        add: Vec<Founder>,
        /// Lives that went. None that a configuration names goes.
        remove: Vec<MemberId>,
    },
}

/// A new configuration of one chain.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChainChange {
    /// The epoch of the configuration that the proposer knew; 0 for the first configuration of a chain.
    pub replaces: Epoch,
    /// What comes instead, in the epoch after that one.
    pub config: ChainConfig,
}

/// A change that has its place.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LogEntry {
    /// Its place.
    pub index: LogIndex,
    /// The term of the leader that proposed it; 0 for what a founding made.
    pub term: Term,
    /// What was proposed; whether it counts, [`Configs::apply`] says.
    pub change: Change,
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
    /// This log never changes: its chains have no failover.
    #[error("the configuration is static: it never changes")]
    ReadOnly,
    /// Nobody can say whether the change was taken: follow the log to find out.
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
    /// No majority of those who keep the log can be reached.
    #[error("the configuration log has no quorum")]
    NoQuorum,
    /// The entry is gone, what it made is part of a later one: follow from there.
    #[error("the configuration log begins at {first}")]
    Compacted {
        /// The first entry that is still there.
        first: LogIndex,
    },
    /// What keeps the log failed.
    #[error("the configuration log failed: {0}")]
    Failed(String),
}

/// Entries in one order that all nodes agree on. What they mean is decided above it, in [`Configs`] and in the
/// [`Node`](crate::node::Node).
///
/// Implementations are checked by [`conformance`](super::conformance).
pub trait ConfigLog: Send + Sync + fmt::Debug + 'static {
    /// Puts `change` at `at` if no entry has that place yet and this node leads in exactly this term: a proposal counts
    /// only in the term in which it was prepared (docs/DESIGN.md §5.2, trap 35).
    ///
    /// # Errors
    /// [`AppendError`]; all but [`AppendError::OutcomeUnknown`] mean that it was not appended and will not be.
    fn append(&self, term: Term, at: LogIndex, change: Change) -> BoxFuture<'_, Result<(), AppendError>>;

    /// All entries from `from` on, in order and without a gap, those to come too: the stream ends only with the log.
    /// `from` 0 means from the first.
    fn follow(&self, from: LogIndex) -> LogStream;

    /// The last entry at some moment after this call began, confirmed by a quorum of those who keep the log: this node
    /// still led in `term` after the call began (read index).
    ///
    /// # Errors
    /// [`ConfigLogError`]: then what was read from the log may be old.
    fn confirm(&self, term: Term) -> BoxFuture<'_, Result<LogIndex, ConfigLogError>>;

    /// The term in which this node leads, if it does: from when an entry of that very term has been committed, and
    /// applied here, until it learns of another leader (trap 14).
    fn leads(&self) -> Option<Term>;

    /// Who leads, as far as is known here.
    fn leader(&self) -> Option<MemberId>;

    /// What the entries applied here come to.
    fn configs(&self) -> Arc<Configs>;

    /// Those who keep the log, as far as is known here; empty if others do than the cluster's nodes.
    fn voters(&self) -> BTreeSet<MemberId>;

    /// Has the log kept by these nodes from now on, if this node leads in this term. Their addresses stand in the log.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    fn set_voters(&self, term: Term, voters: BTreeSet<MemberId>) -> BoxFuture<'_, Result<(), AppendError>>;

    /// Waits until what [`leads`](Self::leads), [`leader`](Self::leader), [`configs`](Self::configs) and
    /// [`voters`](Self::voters) say has changed more than `seen` times since the beginning; how often by now.
    fn changed(&self, seen: u64) -> BoxFuture<'_, u64>;

    /// Whether members need leases. Only where a configuration never changes they don't.
    fn needs_leases(&self) -> bool {
        true
    }
}

/// The configurations that a founding makes, for good: no failover, no leases, and a member that was restarted never
/// comes back.
#[derive(Clone, Debug)]
pub struct Static {
    entries: Vec<LogEntry>,
    configs: Arc<Configs>,
}

impl Static {
    /// The log of one entry: [`first_configs`].
    pub fn new(founding: &Founding) -> Self {
        let changes = first_configs(founding).into_iter().map(|config| ChainChange { replaces: Epoch(0), config });
        let entry = LogEntry { index: LogIndex(1), term: Term(0), change: Change::Chains(changes.collect()) };
        Self { entries: vec![entry], configs: Arc::new(Configs::of(founding)) }
    }
}

impl ConfigLog for Static {
    fn append(&self, _term: Term, _at: LogIndex, _change: Change) -> BoxFuture<'_, Result<(), AppendError>> {
        Box::pin(std::future::ready(Err(AppendError::ReadOnly)))
    }

    fn follow(&self, from: LogIndex) -> LogStream {
        LogStream::fixed(self.entries.iter().filter(|entry| entry.index >= from).cloned().collect())
    }

    fn confirm(&self, _term: Term) -> BoxFuture<'_, Result<LogIndex, ConfigLogError>> {
        Box::pin(std::future::ready(Ok(self.configs.applied())))
    }

    fn leads(&self) -> Option<Term> {
        None
    }

    fn leader(&self) -> Option<MemberId> {
        None
    }

    fn configs(&self) -> Arc<Configs> {
        self.configs.clone()
    }

    fn voters(&self) -> BTreeSet<MemberId> {
        BTreeSet::new()
    }

    fn set_voters(&self, _term: Term, _voters: BTreeSet<MemberId>) -> BoxFuture<'_, Result<(), AppendError>> {
        Box::pin(std::future::ready(Err(AppendError::ReadOnly)))
    }

    fn changed(&self, _seen: u64) -> BoxFuture<'_, u64> {
        Box::pin(std::future::pending())
    }

    fn needs_leases(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests;
