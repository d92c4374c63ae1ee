//! Decides whether the calls and answers of a run are possible with a correct store.
//!
//! Two checks complement each other. The [checker](super::checker) treats every key as a versioned register, and checks
//! *when* versions were read. [`contents`] orders the writes of a key by version, tries a write of unknown outcome at
//! every possible position, and checks *what* was computed and read. It detects an append or increment that was applied
//! twice or not at all.
//!
//! A key with a time to live may go by itself, at any time after it, but not before (docs/adr/0031-chain-time.md). The
//! [`clock`] translates lengths of chain time to moments of the book. [`contents`] knows the expiry of a key as well as
//! its value. For the checker, [`lifetimes`] states for each version when it may go. If that isn't certain, each states
//! the earliest possible time.

mod actions;
mod clock;
mod content;
mod contents;
mod lifetimes;
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
    api::{Computed, Query, Reply, Step, Write, sequential_key},
    control::chain_of,
    rpc::observer::book::{Ask, BookAnswer, BookEntry, text},
};

/// The index of the entry whose write made a version of a key.
type Makers = BTreeMap<(Bytes, Version), usize>;

pub(super) fn judge(entries: &[BookEntry], chains: u32) -> Result<(), String> {
    for chain in (0..chains).map(ChainId) {
        let of_chain: Vec<(usize, &BookEntry)> =
            entries.iter().enumerate().filter(|(_, entry)| chain_of_entry(entry, chains) == Some(chain)).collect();
        let clock = clock::Clock::of(&of_chain);
        contents::check(&of_chain, &clock, |makers| registers(&of_chain, makers, &clock))?;
    }
    Ok(())
}

/// Checks a chain's keys as registers, if `makers` made the observed versions.
fn registers(entries: &[(usize, &BookEntry)], makers: &Makers, clock: &clock::Clock) -> Result<(), String> {
    let (history, keys) = registers::history(entries, makers, clock);
    let name = |key: u32| keys.get(key as usize).map_or_else(String::new, text);
    checker::check(&history, Budget::default())
        .map_err(|violation| format!("not linearizable, key {:?}: {violation}", name(violation.key)))?;
    let names = || keys.iter().enumerate().map(|(key, name)| format!("{key}: {:?}", text(name)));
    checker::check_more(&history)
        .map_err(|broken| format!("{broken}\nkeys: {}", names().collect::<Vec<_>>().join(", ")))
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

/// The keys that an entry asks for or shows. The key of a sequential put of unknown outcome isn't known.
pub(super) fn keys_of(entry: &BookEntry) -> Vec<Bytes> {
    let asked: Vec<Bytes> = match (&entry.ask, &entry.told) {
        (Ask::Write(Write::PutSequential { prefix, .. }), BookAnswer::Reply(Reply::Committed(done))) => {
            vec![sequential_key(prefix, done.version)]
        }
        (Ask::Write(Write::PutSequential { .. }), _) => Vec::new(),
        (Ask::Write(write), _) => write.keys().cloned().collect(),
        (Ask::Read { query, .. }, _) => query.keys().to_vec(),
    };
    asked.into_iter().chain(sights(entry).iter().map(|sight| sight.key.clone())).collect()
}

/// The version that an acknowledged write made. `None`: the write wasn't acknowledged, or it certainly changed nothing.
fn made(entry: &BookEntry) -> Option<Version> {
    match &entry.told {
        BookAnswer::Reply(Reply::Committed(done)) => match done.result {
            Computed::Took(None) | Computed::Changed(false) => None,
            _ => Some(done.version),
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests;
