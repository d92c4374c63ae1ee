//! Tracks which listed places are dialled: seeds, and places that other sources list without a node id. Does no I/O.
//!
//! All seeds share one quota. Every other source has its own, and all of them share a total. When a quota is used up, a
//! new place displaces the one of that quota that was mentioned least recently. A source cannot withdraw places of
//! another source.

use std::collections::BTreeMap;

use crate::discovery::{Candidate, Seed, Source};

const MAX_SEEDS: usize = 1024;

const MAX_PLACES_PER_SOURCE: usize = 256;

/// The expected maximum number of sources other than seeds. It bounds the total number of their places.
const MAX_SOURCES: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct PlaceKey {
    source: Source,
    host: Option<Seed>,
    addrs: Vec<std::net::SocketAddr>,
}

#[derive(Debug)]
pub(super) struct DialPlaces<T> {
    /// When each place was last mentioned, and its task.
    dialled: BTreeMap<PlaceKey, (u64, T)>,
    mentions: u64,
}

impl<T> Default for DialPlaces<T> {
    fn default() -> Self {
        Self { dialled: BTreeMap::new(), mentions: 0 }
    }
}

impl<T> DialPlaces<T> {
    /// Records a mention of the place. Returns whether dialling must start: the place is not dialled yet, or its task
    /// has finished.
    pub(super) fn must_begin(&mut self, candidate: &Candidate, is_finished: impl Fn(&T) -> bool) -> bool {
        self.mentions += 1;
        match self.dialled.get_mut(&key(candidate)) {
            Some((mentioned, task)) => {
                *mentioned = self.mentions;
                is_finished(task)
            }
            None => true,
        }
    }

    /// Records that `task` dials this place. Returns the tasks to abort.
    pub(super) fn insert(&mut self, candidate: Candidate, task: T) -> Vec<T> {
        let place = key(&candidate);
        let mut end = Vec::new();
        if let Some((_, former)) = self.dialled.remove(&place) {
            end.push(former);
        } else if let Some(oldest) = self.has_no_room(&place.source) {
            end.extend(self.dialled.remove(&oldest).map(|(_, task)| task));
        }
        self.dialled.insert(place, (self.mentions, task));
        end
    }

    /// Removes a place that its source has withdrawn. Returns the tasks to abort.
    pub(super) fn withdraw(&mut self, candidate: &Candidate) -> Vec<T> {
        self.dialled.remove(&key(candidate)).map(|(_, task)| task).into_iter().collect()
    }

    /// The place to displace if the source's quota, or the total of all sources other than seeds, is used up.
    fn has_no_room(&self, source: &Source) -> Option<PlaceKey> {
        let is_seed = |source: &Source| matches!(source, Source::Seed(_));
        // Each seed is a source with its own name, but together they form the operator's list and share one quota.
        // Other sources share a total quota too, since their names could be new each time.
        let is_same = |other: &Source| if is_seed(source) { is_seed(other) } else { other == source };
        let same = self.dialled.iter().filter(|(place, _)| is_same(&place.source));
        let others = self.dialled.iter().filter(|(place, _)| !is_seed(&place.source));
        let most = if is_seed(source) { MAX_SEEDS } else { MAX_PLACES_PER_SOURCE };
        let oldest = |(place, _): (&PlaceKey, _)| place.clone();
        if same.clone().count() >= most {
            return same.min_by_key(|(_, (mentioned, _))| *mentioned).map(oldest);
        }
        if !is_seed(source) && others.clone().count() >= MAX_PLACES_PER_SOURCE * MAX_SOURCES {
            return others.min_by_key(|(_, (mentioned, _))| *mentioned).map(oldest);
        }
        None
    }
}

fn key(candidate: &Candidate) -> PlaceKey {
    PlaceKey { source: candidate.source.clone(), host: candidate.host.clone(), addrs: candidate.addrs.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(source: &Source, n: usize) -> Candidate {
        let addr = std::net::SocketAddr::from(([10, 0, (n / 256) as u8, (n % 256) as u8], 7400));
        Candidate::new(source.clone(), None, vec![addr])
    }

    fn other(name: &str) -> Source {
        Source::Other(name.into())
    }

    fn dial(places: &mut DialPlaces<usize>, candidate: Candidate, task: usize) -> Option<Vec<usize>> {
        places.must_begin(&candidate, |_| false).then(|| places.insert(candidate, task))
    }

    #[test]
    fn a_place_is_dialled_once_until_it_is_withdrawn() {
        let mut places = DialPlaces::default();
        let one = place(&other("x"), 1);
        assert_eq!(dial(&mut places, one.clone(), 7), Some(vec![]));
        assert_eq!(dial(&mut places, one.clone(), 8), None);
        assert!(places.must_begin(&one, |&task| task == 7), "its task has ended");
        assert_eq!(places.withdraw(&one), [7]);
        assert_eq!(places.withdraw(&one), []);
        assert_eq!(dial(&mut places, one, 9), Some(vec![]));
    }

    #[test]
    fn a_source_withdraws_no_place_of_another_one() {
        let mut places = DialPlaces::default();
        let seed = place(&Source::Seed("10.0.0.1:7400".into()), 1);
        dial(&mut places, seed.clone(), 1);
        assert_eq!(places.withdraw(&place(&other("x"), 1)), []);
        assert_eq!(dial(&mut places, seed, 2), None);
    }

    #[test]
    fn a_source_with_a_thousand_places_loses_its_own_oldest_ones() {
        let mut places = DialPlaces::default();
        dial(&mut places, place(&other("y"), 0), 10_000);
        for n in 0..1000 {
            dial(&mut places, place(&other("x"), 0), 20_000);
            let end = dial(&mut places, place(&other("x"), n + 1), n + 1).unwrap();
            let expected = (n + 2).checked_sub(MAX_PLACES_PER_SOURCE + 1);
            assert_eq!(end, expected.map(|oldest| oldest + 1).into_iter().collect::<Vec<_>>(), "{n}");
        }
        assert_eq!(dial(&mut places, place(&other("x"), 0), 1), None, "it was mentioned again and again");
        assert_eq!(dial(&mut places, place(&other("y"), 0), 1), None);
    }

    #[test]
    fn new_names_of_sources_give_no_more_room() {
        let mut places = DialPlaces::default();
        let ended: usize = (0..10_000)
            .filter_map(|n| dial(&mut places, place(&other(&n.to_string()), 1), n))
            .map(|end| end.len())
            .sum();
        assert_eq!(10_000 - ended, MAX_PLACES_PER_SOURCE * MAX_SOURCES);
    }
}
