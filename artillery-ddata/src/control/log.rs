//! The log of configurations: one trait, and its implementation without failover.
//!
//! What a change means is decided here, in [`Configs`], the same for every implementation; an implementation only
//! keeps entries in one order. Nothing in this module needs a runtime: [`LogStream`] is a futures stream where the
//! feature `net` is on, and can be polled by hand where it is not.

mod stream;

use std::{collections::BTreeMap, fmt, future::Future, pin::Pin};

use serde::{Deserialize, Serialize};

pub use self::stream::{Follow, LogStream, NextEntry};
use super::{Founding, first_configs};
use crate::{ChainConfig, ChainId, Epoch};

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

/// What is proposed to the log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Change {
    /// New configurations, each of which counts only while the one that it replaces is the present one.
    Chains(Vec<ChainChange>),
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

/// Entries in one order that all nodes agree on. What they mean is decided above it, in [`Configs`].
///
/// Implementations are checked by [`conformance`](super::conformance).
pub trait ConfigLog: Send + Sync + fmt::Debug + 'static {
    /// Puts `change` at `at` if no entry has that place yet.
    ///
    /// # Errors
    /// [`AppendError`]; all but [`AppendError::OutcomeUnknown`] mean that it was not appended and will not be.
    fn append(&self, at: LogIndex, change: Change) -> BoxFuture<'_, Result<(), AppendError>>;

    /// All entries from `from` on, in order and without a gap, those to come too: the stream ends only with the log.
    /// `from` 0 means from the first.
    fn follow(&self, from: LogIndex) -> LogStream;

    /// The last entry at some moment after this call began, confirmed by whoever keeps the log.
    ///
    /// # Errors
    /// [`ConfigLogError`]: then what was read from the log may be old.
    fn confirm(&self) -> BoxFuture<'_, Result<LogIndex, ConfigLogError>>;

    /// Whether members need leases. Only where a configuration never changes they don't.
    fn needs_leases(&self) -> bool {
        true
    }
}

/// The present configuration of each chain, as the entries up to some index make it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Configs {
    applied: LogIndex,
    chains: BTreeMap<ChainId, ChainConfig>,
}

impl Configs {
    /// The last entry applied.
    pub fn applied(&self) -> LogIndex {
        self.applied
    }

    /// The present configuration of `chain`.
    pub fn get(&self, chain: ChainId) -> Option<&ChainConfig> {
        self.chains.get(&chain)
    }

    /// All present configurations, by chain.
    pub fn iter(&self) -> impl Iterator<Item = &ChainConfig> {
        self.chains.values()
    }

    /// Applies the next entry and returns the configurations that it made; those that it names for another epoch
    /// than the present one came too late and change nothing. Entries that were applied before are ignored.
    ///
    /// The new epoch and index are settled here, whatever the proposal says of them: so no epoch is ever given twice.
    ///
    /// # Errors
    /// [`OutOfOrder`]: an entry is missing before this one. Nothing was changed.
    pub fn apply(&mut self, entry: &LogEntry) -> Result<Vec<ChainConfig>, OutOfOrder> {
        if entry.index <= self.applied {
            return Ok(Vec::new());
        }
        if entry.index != self.applied.next() {
            return Err(OutOfOrder { expected: self.applied.next(), found: entry.index });
        }
        self.applied = entry.index;
        let Change::Chains(changes) = &entry.change;
        Ok(changes.iter().filter_map(|change| self.take(change)).collect())
    }

    fn take(&mut self, change: &ChainChange) -> Option<ChainConfig> {
        let chain = change.config.chain;
        let present = self.chains.get(&chain).map_or(Epoch(0), |config| config.epoch);
        if change.replaces != present || change.config.serving().next().is_none() {
            return None;
        }
        let config = ChainConfig { epoch: Epoch(present.0 + 1), index: self.applied.0, ..change.config.clone() };
        self.chains.insert(chain, config.clone());
        Some(config)
    }
}

/// An entry is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("entry {found} of the configuration log came, {expected} is the next")]
pub struct OutOfOrder {
    /// The next entry.
    pub expected: LogIndex,
    /// The one that came.
    pub found: LogIndex,
}

/// The configurations that a founding makes, for good: no failover, no leases, and a member that was restarted never
/// comes back.
#[derive(Clone, Debug)]
pub struct Static {
    entries: Vec<LogEntry>,
}

impl Static {
    /// The log of one entry: [`first_configs`].
    pub fn new(founding: &Founding) -> Self {
        let changes = first_configs(founding).into_iter().map(|config| ChainChange { replaces: Epoch(0), config });
        Self { entries: vec![LogEntry { index: LogIndex(1), change: Change::Chains(changes.collect()) }] }
    }

    /// What the log says, now and for ever.
    pub fn configs(&self) -> Configs {
        let mut configs = Configs::default();
        for entry in &self.entries {
            // Contiguous from 1 on, as made in `new`.
            let _ = configs.apply(entry);
        }
        configs
    }
}

impl ConfigLog for Static {
    fn append(&self, _at: LogIndex, _change: Change) -> BoxFuture<'_, Result<(), AppendError>> {
        Box::pin(std::future::ready(Err(AppendError::ReadOnly)))
    }

    fn follow(&self, from: LogIndex) -> LogStream {
        LogStream::fixed(self.entries.iter().filter(|entry| entry.index >= from).cloned().collect())
    }

    fn confirm(&self) -> BoxFuture<'_, Result<LogIndex, ConfigLogError>> {
        let last = self.entries.last().map_or(LogIndex::default(), |entry| entry.index);
        Box::pin(std::future::ready(Ok(last)))
    }

    fn needs_leases(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests;
