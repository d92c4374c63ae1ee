//! Locations of nodes.

use std::{future::poll_fn, sync::Arc};

use artillery_core::internal::watch;
use artillery_core::{
    discovery::{Candidate, Discovery, Seed},
    internal::discovery::contained,
};
use tokio::task::JoinSet;

/// Locations that may lead to the cluster: seeds, and those found by sources while the client runs. Clones share one
/// list. No location is trusted: a node must prove its identity.
#[derive(Debug, Clone)]
pub struct Candidates {
    list: Arc<watch::Sender<Places>>,
}

#[derive(Debug, Default)]
pub(crate) struct Places {
    added: Vec<Seed>,
    found: Vec<Seed>,
}

/// The most locations that can be added, far above any sensible use.
const MAX: usize = 1024;

/// The most locations found by sources. Sources are not trusted, and could report locations endlessly.
const MAX_FOUND: usize = 256;

impl Default for Candidates {
    fn default() -> Self {
        Self { list: Arc::new(watch::Sender::new(Places::default())) }
    }
}

impl Candidates {
    /// Creates an empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a location: an address or a host name. Does nothing if the list has it already, or has 1,024 added
    /// locations.
    pub fn add(&self, place: impl Into<Seed>) {
        let place = place.into();
        self.list.send_if_modified(|list| {
            let new = list.added.len() < MAX && !list.added.contains(&place);
            if new {
                list.added.push(place);
            }
            new
        });
    }

    /// Removes a location that was added. Locations found by sources stay.
    pub fn remove(&self, place: &Seed) {
        self.list.send_if_modified(|list| {
            let before = list.added.len();
            list.added.retain(|known| known != place);
            list.added.len() != before
        });
    }

    /// All locations without repetitions: the added ones in order, then those found by sources.
    pub fn all(&self) -> Vec<Seed> {
        let list = self.list.borrow();
        let found = list.found.iter().filter(|place| !list.added.contains(place));
        list.added.iter().chain(found).cloned().collect()
    }

    /// Handles a source's report that a node was found or has left. If there are too many locations, drops the one
    /// found longest ago.
    fn on_found(&self, candidate: &Candidate) {
        let places = candidate.addrs.iter().copied().map(Seed::from).chain(candidate.host.clone());
        for place in places {
            self.list.send_if_modified(|list| {
                let known = list.found.iter().position(|known| *known == place);
                match (known, candidate.gone) {
                    (Some(at), true) => drop(list.found.remove(at)),
                    (None, false) => {
                        if list.found.len() >= MAX_FOUND {
                            list.found.remove(0);
                        }
                        list.found.push(place.clone());
                    }
                    _ => return false,
                }
                true
            });
        }
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Places> {
        self.list.subscribe()
    }
}

/// Sources that add to a list of candidates, until this is dropped.
#[derive(Debug, Default)]
pub(crate) struct SourceTasks {
    _tasks: JoinSet<()>,
}

impl SourceTasks {
    pub(crate) fn begin(sources: &[Arc<dyn Discovery>], candidates: &Candidates) -> Self {
        let mut tasks = JoinSet::new();
        for source in sources {
            let (mut found, candidates) = (contained(source.clone()), candidates.clone());
            tasks.spawn(async move {
                while let Some(candidate) = poll_fn(|context| found.as_mut().poll_next(context)).await {
                    candidates.on_found(&candidate);
                }
            });
        }
        Self { _tasks: tasks }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use artillery_core::discovery::Source;

    use super::*;

    fn candidate(n: usize) -> Candidate {
        let addr = SocketAddr::from(([10, 0, (n / 256) as u8, (n % 256) as u8], 7400));
        Candidate::new(Source::Mdns, None, vec![addr])
    }

    #[test]
    fn what_is_gone_makes_room_and_what_was_added_stays() {
        let candidates = Candidates::new();
        let seed: Seed = "10.0.0.0:7400".parse().unwrap();
        candidates.add(seed.clone());
        (0..1000).for_each(|n| candidates.on_found(&candidate(n)));
        let all = candidates.all();
        assert_eq!((all.len(), &all[0]), (1 + MAX_FOUND, &seed));
        assert_eq!(all.last(), candidate(999).addrs.first().copied().map(Seed::from).as_ref(), "the newest stay");
        (0..1000).for_each(|n| candidates.on_found(&candidate(n).withdrawn()));
        assert_eq!(candidates.all(), std::slice::from_ref(&seed));
        candidates.remove(&seed);
        assert_eq!(candidates.all(), []);
    }

    #[test]
    fn names_stay_names() {
        let candidates = Candidates::new();
        let name: Seed = "db.example:7400".parse().unwrap();
        candidates.on_found(&Candidate::at(Source::File("nodes".into()), &name));
        candidates.add(name.clone());
        candidates.add(name.clone());
        assert_eq!(candidates.all(), [name]);
    }
}
