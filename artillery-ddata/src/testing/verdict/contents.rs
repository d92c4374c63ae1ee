//! Orders the writes of each key by version, and computes what the key must have contained.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::{Makers, clock::Clock, keys_of, points::KnownKey, search::Search};
use crate::rpc::observer::book::BookEntry;

/// The number of explanations of single keys that are tried, in addition to one per key, before a run is undecided.
const TRIES: usize = 100_000;

/// Checks all keys. Returns the hidden writes that made observed versions.
///
/// An explanation of one key may contradict another key that the same write changed. Then the next one is tried.
pub(super) fn check(entries: &[(usize, &BookEntry)], clock: &Clock) -> Result<Makers, String> {
    let known = keys(entries).into_iter().map(|key| KnownKey::of(key, entries, clock));
    let known: Vec<_> = known.collect::<Result<_, _>>()?;
    for key in &known {
        // Check each key alone first, so that an error names the key with the contradiction.
        let mut search = Search::new(key, Makers::new());
        search.next().ok_or_else(|| search.why())?;
    }
    together(&known)
}

/// Finds one explanation for each key, such that each write made the same version of all its keys.
fn together(keys: &[KnownKey<'_>]) -> Result<Makers, String> {
    let mut makers = Makers::new();
    let mut searches: Vec<Search<'_>> = Vec::new();
    let mut why = String::new();
    for _ in 0..TRIES + keys.len() {
        let Some(key) = keys.get(searches.len()) else { return Ok(makers) };
        searches.push(Search::new(key, makers));
        makers = loop {
            let Some(search) = searches.last_mut() else { return Err(why) };
            match search.next() {
                Some(makers) => break makers,
                None => why = search.why(),
            }
            searches.pop();
        };
    }
    Err(format!("not decided, too many writes of unknown outcome: {why}"))
}

/// The keys that were written or seen.
fn keys(entries: &[(usize, &BookEntry)]) -> BTreeSet<Bytes> {
    entries.iter().flat_map(|(_, entry)| keys_of(entry)).collect()
}
