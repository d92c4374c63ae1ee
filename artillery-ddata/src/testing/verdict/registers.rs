//! Translates a run for the checker: each key is a register, and each write has a unique value.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::{Makers, changed, conflicting, made, sights};
use crate::{
    Version,
    api::{Computed, Expected, Query, ReadMode, Reply, Step, Write},
    rpc::observer::book::{Ask, BookAnswer, BookEntry},
    testing::history::{Answer, Call, Cut, History, Look, Operation, Value},
};

/// The history, and the key that each of its numbers represents.
pub(super) fn history(entries: &[(usize, &BookEntry)], makers: &Makers) -> (History, Vec<Bytes>) {
    let mut writer = RegisterWriter { makers: makers.clone(), ..RegisterWriter::default() };
    for (index, entry) in entries {
        if let (Ask::Write(write), Some(version)) = (&entry.ask, made(entry)) {
            let made = changed(write).into_iter().map(|key| ((key.clone(), version), *index));
            writer.makers.extend(made);
        }
    }
    for (_, entry) in entries {
        if let Ask::Write(Write::Script(script)) = &entry.ask {
            writer.left_out.extend(script.keys().cloned());
        }
    }
    for (index, entry) in entries {
        match &entry.ask {
            Ask::Write(write) => writer.write(*index, entry, write),
            Ask::Read { query, mode, floor } => {
                let is_strong = matches!(mode, ReadMode::Strong | ReadMode::ThroughChain);
                writer.read(entry, query, is_strong, *floor);
            }
        }
    }
    (writer.history, writer.keys)
}

#[derive(Default)]
struct RegisterWriter {
    /// By key and version, the entry of the write that made it.
    makers: Makers,
    /// Keys that scripts read or write: a register can't model a write that is applied in part.
    left_out: BTreeSet<Bytes>,
    numbers: BTreeMap<Bytes, u32>,
    keys: Vec<Bytes>,
    history: History,
}

impl RegisterWriter {
    fn key(&mut self, key: &Bytes) -> u32 {
        let next = self.keys.len() as u32;
        let number = *self.numbers.entry(key.clone()).or_insert(next);
        if number == next {
            self.keys.push(key.clone());
        }
        number
    }

    /// The register's value at this version of a key. If no known write made the version, a value that no write has.
    fn value(&self, key: &Bytes, version: Version) -> Value {
        let nobody = u64::MAX - version.sequence.0;
        Value(self.makers.get(&(key.clone(), version)).map_or(nobody, |index| name(*index).0))
    }

    fn add(&mut self, entry: &BookEntry, key: &Bytes, call: Call, answer: Answer, batch: u64) {
        if self.left_out.contains(key) {
            return;
        }
        let key = self.key(key);
        let BookEntry { client, called, returned, .. } = *entry;
        self.history.operations.push(Operation { client, key, called, returned, call, answer, batch });
    }

    fn write(&mut self, index: usize, entry: &BookEntry, write: &Write) {
        if let BookAnswer::Reply(Reply::Conflict { step, version, value, .. }) = &entry.told {
            let Some(key) = conflicting(write, *step) else { return };
            let seen = (*version, self.value(key, *version));
            let call = Call::CompareAndSwap { expected: expected(write, *step, *version), value: name(index) };
            let answer = match value {
                _ if version.is_none() => Answer::Conflict(None),
                Some(_) => Answer::Conflict(Some(seen)),
                None => Answer::Failed(*version),
            };
            return self.add(entry, key, call, answer, 0);
        }
        if let Write::Script(_) = write {
            return;
        }
        let batch = if matches!(write, Write::Batch(_)) { name(index).0 } else { 0 };
        for key in changed(write) {
            let call = call(write, key, name(index));
            let answer = match &entry.told {
                BookAnswer::Nothing(_) => Answer::Refused,
                BookAnswer::Reply(Reply::Committed(done)) => match &done.result {
                    Computed::Took(None) => Answer::Found(None),
                    Computed::Took(Some((version, _))) | Computed::TookForgotten(version) => {
                        Answer::Took { version: done.version, found: (*version, self.value(key, *version)) }
                    }
                    _ => Answer::Written(done.version),
                },
                _ => Answer::Unknown,
            };
            self.add(entry, key, call, answer, batch);
        }
    }

    fn read(&mut self, entry: &BookEntry, query: &Query, is_strong: bool, floor: Option<crate::Sequence>) {
        let BookAnswer::Reply(reply) = &entry.told else { return };
        let found: BTreeMap<&Bytes, Version> = sights(entry).iter().map(|sight| (sight.key, sight.version)).collect();
        // A page doesn't list the absent keys, so only the keys that it shows are checked.
        let asked = query.keys().iter().chain(found.keys().filter(|_| query.keys().is_empty()).copied());
        let mut seen = Vec::new();
        for key in asked {
            if self.left_out.contains(key) {
                continue;
            }
            let version = found.get(key).copied();
            if is_strong {
                let value = version.map(|version| (version, self.value(key, version)));
                self.add(entry, key, Call::Read, Answer::Found(value), 0);
            }
            seen.push((self.key(key), version));
        }
        let BookEntry { client, called, returned, .. } = *entry;
        if let Some(floor) = floor {
            let look = |&(key, found): &(u32, Option<Version>)| Look { client, key, called, returned, floor, found };
            self.history.looks.extend(seen.iter().map(look));
        }
        if seen.len() > 1 && matches!(reply, Reply::Cut(_) | Reply::Page(_)) {
            self.history.cuts.push(Cut { client, called, returned, seen });
        }
    }
}

/// The value that the write of this entry wrote to all of its keys.
fn name(index: usize) -> Value {
    Value(index as u64 + 1)
}

/// A write of one key as the register models it, which ignores the computed result.
fn call(write: &Write, key: &Bytes, value: Value) -> Call {
    match write {
        Write::Delete { .. } | Write::CompareAndSwap { value: None, .. } => Call::Delete,
        Write::GetDelete { .. } => Call::GetDelete,
        Write::CompareAndSwap { expected, .. } => Call::CompareAndSwap { expected: *expected, value },
        Write::Batch(steps) => match steps.iter().rfind(|step| is_change(step) && step.key() == key) {
            Some(Step::Delete { .. }) => Call::Delete,
            _ => Call::Put(value),
        },
        _ => Call::Put(value),
    }
}

fn is_change(step: &Step) -> bool {
    !matches!(step, Step::Require { .. })
}

/// The version that the failed condition expected, when it found `version`.
fn expected(write: &Write, step: u32, version: Version) -> Version {
    match write {
        Write::CompareAndSwap { expected, .. } => *expected,
        Write::Batch(steps) => match steps.get(step as usize) {
            Some(Step::Require { expected: Expected::Version(expected), .. }) => *expected,
            // The key was absent: represent "present" by a version that never exists.
            Some(Step::Require { expected: Expected::Present, .. }) => Version::new(u64::MAX, u64::MAX),
            _ => Version::NONE,
        },
        Write::Script(script) => match script.require.get(step as usize).map(|requirement| &requirement.expected) {
            Some(Expected::Version(expected)) => *expected,
            Some(Expected::Present) => Version::new(u64::MAX, u64::MAX),
            _ => Version::NONE,
        },
        _ => version,
    }
}
