//! Puts the writes of each key into the order of their versions, and computes what must have been there.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::{Makers, points::KnownKey, search::Search, sights};
use crate::rpc::observer::book::{Ask, BookEntry};

/// Explanations of single keys that are looked at before a run counts as not decided.
const TRIES: usize = 100_000;

/// Checks all keys; tells which hidden writes made the versions that were seen.
///
/// What explains one key may be wrong for another that the same write changed. Then it is explained in another way.
pub(super) fn check(entries: &[(usize, &BookEntry)]) -> Result<Makers, String> {
    let known: Vec<_> = keys(entries).into_iter().map(|key| KnownKey::of(key, entries)).collect::<Result<_, _>>()?;
    for key in &known {
        // By itself: what nothing explains is to be told of the key where it was seen.
        let mut search = Search::new(key, Makers::new());
        search.next().ok_or_else(|| search.why())?;
    }
    together(&known)
}

/// One explanation for each key, such that a write made one version, wherever it was seen.
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

fn keys<'a>(entries: &[(usize, &'a BookEntry)]) -> BTreeSet<&'a Bytes> {
    let mut keys = BTreeSet::new();
    for (_, entry) in entries {
        keys.extend(sights(entry).iter().map(|sight| sight.key));
        if let Ask::Write(write) = &entry.ask {
            keys.extend(write.keys());
        }
    }
    keys
}
