//! Orders the writes of each key by version, and computes what the key must have contained.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::{Makers, clock::Clock, keys_of, points::KnownKey, search::Search};
use crate::rpc::observer::book::BookEntry;

/// The number of explanations of single keys that are tried, in addition to one per key, before a run is undecided.
const TRIES: usize = 100_000;

/// The number of complete explanations that may be refused before a run is reported as impossible.
const REFUSALS: usize = 64;

/// Checks all keys. An explanation states which hidden writes made observed versions, and `accept` checks whether the
/// times of the calls permit it.
///
/// An explanation of one key may contradict another key that the same write changed, or the times of calls: two writes of
/// unknown outcome may have the same effect on a key. Then the next one is tried.
pub(super) fn check(
    entries: &[(usize, &BookEntry)],
    clock: &Clock,
    accept: impl Fn(&Makers) -> Result<(), String>,
) -> Result<(), String> {
    let known = keys(entries).into_iter().map(|key| KnownKey::of(key, entries, clock));
    let known: Vec<_> = known.collect::<Result<_, _>>()?;
    for key in &known {
        // Check each key alone first, so that an error names the key with the contradiction.
        let mut search = Search::new(key, Makers::new());
        search.next().ok_or_else(|| search.why())?;
    }
    together(&known, accept)
}

/// Finds one explanation for each key, such that each write made the same version of all its keys, and all of them are
/// accepted together.
fn together(keys: &[KnownKey<'_>], accept: impl Fn(&Makers) -> Result<(), String>) -> Result<(), String> {
    let mut makers = Makers::new();
    let mut searches: Vec<Search<'_>> = Vec::new();
    let (mut why, mut refused) = (String::new(), Vec::new());
    for _ in 0..TRIES + keys.len() {
        match keys.get(searches.len()) {
            Some(key) => searches.push(Search::new(key, makers)),
            None => match accept(&makers) {
                Ok(()) => return Ok(()),
                Err(reason) => refused.push(reason),
            },
        }
        makers = loop {
            let search = searches.last_mut().filter(|_| refused.len() < REFUSALS);
            let Some(search) = search else { return Err(refused.into_iter().next().unwrap_or(why)) };
            match search.next() {
                Some(makers) => break makers,
                None => why = search.why(),
            }
            searches.pop();
        };
    }
    let undecided = || format!("not decided, too many writes of unknown outcome: {why}");
    Err(refused.into_iter().next().unwrap_or_else(undecided))
}

/// The keys that were written or seen.
fn keys(entries: &[(usize, &BookEntry)]) -> BTreeSet<Bytes> {
    entries.iter().flat_map(|(_, entry)| keys_of(entry)).collect()
}
