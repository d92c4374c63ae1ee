//! Decides whether the calls and answers of a run are possible with a correct store.
//!
//! Two checks complement each other. The [checker](super::checker) treats every key as a versioned register, and checks
//! *when* versions were read. [`contents`] orders the writes of a key by version, tries a write of unknown outcome at
//! every possible position, and checks *what* was computed and read. It detects an append or increment that was applied
//! twice or not at all.

mod content;
mod contents;
mod passing;
mod points;
mod registers;
mod scripts;
mod search;

use std::collections::BTreeMap;

use bytes::Bytes;

use super::checker::{self, Budget};
use crate::{
    ChainId, Version,
    api::{Computed, Query, Reply, Step, Write},
    control::chain_of,
    rpc::observer::book::{Ask, BookAnswer, BookEntry, text},
};

/// The index of the entry whose write made a version of a key.
type Makers = BTreeMap<(Bytes, Version), usize>;

pub(super) fn judge(entries: &[BookEntry], chains: u32) -> Result<(), String> {
    for chain in (0..chains).map(ChainId) {
        let of_chain: Vec<(usize, &BookEntry)> =
            entries.iter().enumerate().filter(|(_, entry)| chain_of_entry(entry, chains) == Some(chain)).collect();
        let makers = contents::check(&of_chain)?;
        let (history, keys) = registers::history(&of_chain, &makers);
        let name = |key: u32| keys.get(key as usize).map_or_else(String::new, text);
        checker::check(&history, Budget::default())
            .map_err(|violation| format!("not linearizable, key {:?}: {violation}", name(violation.key)))?;
        let names = || keys.iter().enumerate().map(|(key, name)| format!("{key}: {:?}", text(name)));
        checker::check_more(&history)
            .map_err(|broken| format!("{broken}\nkeys: {}", names().collect::<Vec<_>>().join(", ")))?;
    }
    Ok(())
}

fn chain_of_entry(entry: &BookEntry, chains: u32) -> Option<ChainId> {
    let key = match &entry.ask {
        Ask::Write(write) => write.keys().next(),
        Ask::Read { query, .. } => query.keys().first(),
    };
    entry.chain.or_else(|| key.map(|key| chain_of(key, chains)))
}

/// The part of an answer about one key: a version, and its value if the answer contains it.
struct Sight<'a> {
    key: &'a Bytes,
    version: Version,
    value: Option<&'a Bytes>,
}

/// All versions of present keys that an answer shows.
fn sights(entry: &BookEntry) -> Vec<Sight<'_>> {
    let BookAnswer::Reply(reply) = &entry.told else { return Vec::new() };
    match (&entry.ask, reply) {
        (Ask::Read { query: Query::Key(key), .. }, Reply::Read(read)) => {
            let held = read.held.iter().filter(|held| held.value.is_some());
            held.map(|held| Sight { key, version: held.version, value: held.value.as_ref() }).collect()
        }
        (Ask::Read { query: Query::Keys(keys), .. }, Reply::Cut(cut)) => {
            let found = keys.iter().zip(&cut.found).filter_map(|(key, held)| Some((key, held.as_ref()?)));
            let found = found.filter(|(_, held)| held.value.is_some());
            found.map(|(key, held)| Sight { key, version: held.version, value: held.value.as_ref() }).collect()
        }
        (Ask::Read { .. }, Reply::Page(page)) => {
            let sight = |record: &'_ crate::store::ScanRecord| record.held.value.is_some();
            let records = page.records.iter().filter(|record| sight(record));
            records
                .map(|record| Sight {
                    key: &record.key,
                    version: record.held.version,
                    value: record.held.value.as_ref(),
                })
                .collect()
        }
        (Ask::Write(write), Reply::Conflict { step, version, value, .. }) if !version.is_none() => {
            let key = conflicting(write, *step);
            key.map(|key| Sight { key, version: *version, value: value.as_ref() }).into_iter().collect()
        }
        (Ask::Write(Write::GetDelete { key }), Reply::Committed(done)) => match &done.result {
            Computed::Took(Some((version, value))) => vec![Sight { key, version: *version, value: Some(value) }],
            Computed::TookForgotten(version) => vec![Sight { key, version: *version, value: None }],
            _ => Vec::new(),
        },
        (Ask::Write(Write::Script(script)), Reply::Committed(done)) => scripts::sights(script, done),
        _ => Vec::new(),
    }
}

fn conflicting(write: &Write, step: u32) -> Option<&Bytes> {
    match write {
        Write::Batch(steps) => steps.get(step as usize).map(Step::key),
        Write::Script(script) => script.require.get(step as usize).map(|requirement| &requirement.key),
        write => write.keys().next(),
    }
}

/// The keys that a write changes if it is applied, each once. A script may change fewer.
fn changed(write: &Write) -> Vec<&Bytes> {
    let keys: Vec<&Bytes> = match write {
        Write::Batch(steps) => {
            steps.iter().filter(|step| !matches!(step, Step::Require { .. })).map(Step::key).collect()
        }
        Write::Script(script) => scripts::changing(script).collect(),
        write => write.keys().collect(),
    };
    let mut distinct = Vec::new();
    for key in keys {
        if !distinct.contains(&key) {
            distinct.push(key);
        }
    }
    distinct
}

/// The version that an acknowledged write made. `None`: the write wasn't acknowledged, or it was a get-and-delete of an
/// absent key.
fn made(entry: &BookEntry) -> Option<Version> {
    match &entry.told {
        BookAnswer::Reply(Reply::Committed(done)) if done.result != Computed::Took(None) => Some(done.version),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
