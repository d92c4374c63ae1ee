//! What became of the search for others.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::watch;

use crate::{discovery::Source, error::ConnectError, id::NodeId};

/// A seed, and how it stands with it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SeedStatus {
    /// The seed as it was given.
    pub seed: String,
    /// How it stands.
    pub state: SeedState,
}

/// How it stands with a seed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SeedState {
    /// Nobody has answered yet.
    Trying {
        /// Why the last try failed, if there was one.
        last: Option<String>,
    },
    /// Who answered refused this node, or was refused by it.
    Refused {
        /// Who it was.
        addr: SocketAddr,
        /// What was said.
        reason: ConnectError,
    },
    /// A member answered.
    Met(NodeId),
    /// It is this node.
    Itself,
}

/// The seeds' states, and the sources of nodes.
#[derive(Debug)]
pub(super) struct DiscoveryRecord {
    seeds: watch::Sender<Vec<SeedStatus>>,
    sources: Mutex<NodeSources>,
}

#[derive(Debug, Default)]
struct NodeSources {
    by_node: BTreeMap<NodeId, Source>,
    /// Addresses that a warning was given for.
    warned: BTreeSet<SocketAddr>,
    /// Somebody has been a member beside us.
    met: bool,
}

/// Nodes whose source is remembered.
const MAX_SOURCES: usize = 4096;

/// Addresses that a warning may be given for.
const MAX_WARNED: usize = 1024;

impl DiscoveryRecord {
    pub(super) fn new(seeds: impl Iterator<Item = String>) -> Self {
        let seeds = seeds.map(|seed| SeedStatus { seed, state: SeedState::Trying { last: None } }).collect();
        Self { seeds: watch::Sender::new(seeds), sources: Mutex::default() }
    }

    fn sources(&self) -> MutexGuard<'_, NodeSources> {
        // No code that holds it can panic halfway through a change.
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn seeds(&self) -> Vec<SeedStatus> {
        self.seeds.borrow().clone()
    }

    /// Notes how it stands with `seed`; whether that is news.
    pub(super) fn note(&self, seed: &str, state: &SeedState) -> bool {
        self.seeds.send_if_modified(|seeds| {
            let Some(known) = seeds.iter_mut().find(|known| known.seed == seed) else { return false };
            let news = known.state != *state;
            known.state = state.clone();
            news
        })
    }

    pub(super) fn found(&self, node: NodeId, source: &Source) {
        let mut sources = self.sources();
        if sources.by_node.len() < MAX_SOURCES {
            sources.by_node.entry(node).or_insert_with(|| source.clone());
        }
    }

    pub(super) fn found_by(&self, node: NodeId) -> Option<Source> {
        self.sources().by_node.get(&node).cloned()
    }

    /// Whether a warning about `addr` is due: one is enough, whether it dialled or was dialled, and however often.
    pub(super) fn warns_of(&self, addr: SocketAddr) -> bool {
        let mut sources = self.sources();
        sources.warned.len() < MAX_WARNED && sources.warned.insert(addr)
    }

    /// Somebody is let in, or has let us in.
    pub(super) fn met(&self) {
        self.sources().met = true;
    }

    pub(super) async fn refused_by_all(&self) -> Vec<SeedStatus> {
        let refused = |status: &SeedStatus| matches!(status.state, SeedState::Refused { .. });
        let mut seeds = self.seeds.subscribe();
        loop {
            let now = seeds.borrow_and_update().clone();
            if !now.is_empty() && now.iter().all(refused) && !self.sources().met {
                return now;
            }
            // The sender lives as long as this does.
            if seeds.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Refusal;

    fn record() -> DiscoveryRecord {
        DiscoveryRecord::new(["x:1".to_owned(), "y:2".to_owned()].into_iter())
    }

    fn refused() -> SeedState {
        SeedState::Refused { addr: ([127, 0, 0, 1], 1).into(), reason: ConnectError::Refused(Refusal::Busy) }
    }

    async fn is_refused(record: &DiscoveryRecord) -> bool {
        tokio::select! {
            biased;
            _ = record.refused_by_all() => true,
            () = std::future::ready(()) => false,
        }
    }

    #[tokio::test]
    async fn all_seeds_have_to_refuse() {
        let record = record();
        assert!(record.note("x:1", &refused()));
        assert!(!record.note("x:1", &refused()), "told once");
        assert!(!is_refused(&record).await);
        record.note("y:2", &refused());
        assert!(is_refused(&record).await);
        record.note("y:2", &SeedState::Trying { last: None });
        assert!(!is_refused(&record).await);
    }

    #[tokio::test]
    async fn who_has_met_a_member_is_not_refused() {
        let record = record();
        record.met();
        record.note("x:1", &refused());
        record.note("y:2", &refused());
        assert!(!is_refused(&record).await);
    }

    #[tokio::test]
    async fn without_seeds_nobody_refuses() {
        assert!(!is_refused(&DiscoveryRecord::new(std::iter::empty())).await);
    }

    #[test]
    fn one_warning_is_enough() {
        let record = record();
        let addr = |port| SocketAddr::from(([127, 0, 0, 1], port));
        assert_eq!([1, 1, 2].map(|port| record.warns_of(addr(port))), [true, false, true]);
    }
}
