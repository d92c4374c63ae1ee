//! What became of the search for others.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::watch;

use crate::{discovery::Source, error::ConnectError, id::NodeId};

/// A seed, and how it stands with it.
#[derive(Debug, Clone, PartialEq, Eq)]
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
pub(super) struct Board {
    seeds: watch::Sender<Vec<SeedStatus>>,
    sources: Mutex<Sources>,
}

#[derive(Debug, Default)]
struct Sources {
    by_node: BTreeMap<NodeId, Source>,
    /// Somebody has been a member beside us.
    met: bool,
}

/// Nodes whose source is remembered.
const MAX_SOURCES: usize = 4096;

impl Board {
    pub(super) fn new(seeds: impl Iterator<Item = String>) -> Self {
        let seeds = seeds.map(|seed| SeedStatus { seed, state: SeedState::Trying { last: None } }).collect();
        Self { seeds: watch::Sender::new(seeds), sources: Mutex::default() }
    }

    fn sources(&self) -> MutexGuard<'_, Sources> {
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
