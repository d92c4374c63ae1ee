//! Translates a run for the checker: each key is a register, and each write has a unique value.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::{
    Makers,
    actions::{changed, only_renews},
    clock::Clock,
    conflicting,
    lifetimes::{Lifetime, lifetimes},
    made, sights,
};
use crate::{
    Version,
    api::{Computed, Expected, Query, ReadMode, Reply, Step, Write, WriteReply},
    rpc::observer::book::{Ask, BookAnswer, BookEntry, NEVER},
    testing::history::{Answer, Call, Cut, History, Look, Operation, Value},
};

/// The history, and the key that each of its numbers represents.
pub(super) fn history(entries: &[(usize, &BookEntry)], makers: &Makers, clock: &Clock) -> (History, Vec<Bytes>) {
    let mut writer = RegisterWriter { makers: makers.clone(), ..RegisterWriter::default() };
    for ((key, _), index) in makers {
        writer.made.entry(*index).or_default().push(key.clone());
    }
    writer.acknowledged(entries, &shown(entries, makers));
    writer.uncertain.extend(writer.unshown.iter().map(|(key, _)| key.clone()));
    for (_, entry) in entries {
        let Ask::Write(write) = &entry.ask else { continue };
        if let Write::Script(script) = write {
            writer.left_out.extend(script.keys().cloned());
        }
        if entry.told == BookAnswer::Unknown {
            writer.uncertain.extend(changed(write, None));
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
    let clients: BTreeMap<usize, u32> = entries.iter().map(|(index, entry)| (*index, entry.client)).collect();
    for lifetime in lifetimes(entries, &writer.makers, &writer.unshown, clock) {
        let client = clients.get(&lifetime.entry).copied().unwrap_or_default();
        writer.may_go(&lifetime, client);
    }
    (writer.history, writer.keys)
}

/// The versions of keys that answers showed, also by the success of a compare-and-swap.
fn shown(entries: &[(usize, &BookEntry)], makers: &Makers) -> BTreeSet<(Bytes, Version)> {
    let applied: BTreeSet<usize> = makers.values().copied().collect();
    let mut shown = BTreeSet::new();
    for (index, entry) in entries {
        shown.extend(sights(entry).iter().map(|sight| (sight.key.clone(), sight.version)));
        if let Ask::Write(Write::CompareAndSwap { key, expected, .. }) = &entry.ask
            && (made(entry).is_some() || applied.contains(index))
        {
            shown.insert((key.clone(), *expected));
        }
    }
    shown
}

#[derive(Default)]
struct RegisterWriter {
    /// By key and version, the entry of the write that made it.
    makers: Makers,
    /// By entry of unknown outcome, the keys in which it made an observed version.
    made: BTreeMap<usize, Vec<Bytes>>,
    /// Keys whose expiry an acknowledged batch may have changed: no answer showed whether it did. And the batch.
    unshown: BTreeSet<(Bytes, usize)>,
    /// Keys that a write of unknown outcome, or such a renewal, may have changed in a version that no answer showed.
    uncertain: BTreeSet<Bytes>,
    /// Keys that scripts read or write: a register can't model a write that is applied in part.
    left_out: BTreeSet<Bytes>,
    numbers: BTreeMap<Bytes, u32>,
    keys: Vec<Bytes>,
    history: History,
}

impl RegisterWriter {
    /// Takes in the versions that acknowledged writes made.
    fn acknowledged(&mut self, entries: &[(usize, &BookEntry)], shown: &BTreeSet<(Bytes, Version)>) {
        for (index, entry) in entries {
            let (Ask::Write(write), Some(version)) = (&entry.ask, made(entry)) else { continue };
            for key in changed(write, Some(version)) {
                let at = (key, version);
                if matches!(write, Write::Batch(_)) && only_renews(write, &at.0) && !shown.contains(&at) {
                    self.unshown.insert((at.0, *index));
                } else {
                    self.makers.insert(at, *index);
                }
            }
        }
    }

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
        let (called, returned) = times(entry);
        self.history.operations.push(Operation { client: entry.client, key, called, returned, call, answer, batch });
    }

    /// Adds the end of a time to live. A version that no answer showed may have replaced the key's value and gone again,
    /// like a deletion.
    fn may_go(&mut self, lifetime: &Lifetime, client: u32) {
        if self.left_out.contains(&lifetime.key) {
            return;
        }
        let key = self.key(&lifetime.key);
        let call = lifetime.version.map_or(Call::Delete, |version| Call::Expire { version });
        // Just before the first answer that may show it.
        let called = spread(lifetime.from).saturating_sub(1);
        let answer = Answer::Unknown;
        self.history.operations.push(Operation { client, key, called, returned: called, call, answer, batch: 0 });
    }

    fn write(&mut self, index: usize, entry: &BookEntry, write: &Write) {
        match &entry.told {
            BookAnswer::Reply(Reply::Conflict { step, version, value, .. }) => {
                self.conflict(index, entry, write, (*step, *version, value.is_some()));
            }
            _ if matches!(write, Write::Script(_)) => {}
            BookAnswer::Reply(Reply::Committed(done)) => self.committed(index, entry, write, done),
            BookAnswer::Nothing(_) => {
                for key in changed(write, None) {
                    self.add(entry, &key, call(write, &key, name(index)), Answer::Refused, batch(write, index));
                }
            }
            _ => self.unknown(index, entry, write),
        }
    }

    fn conflict(&mut self, index: usize, entry: &BookEntry, write: &Write, told: (u32, Version, bool)) {
        let (step, version, has_value) = told;
        let Some(key) = conflicting(write, step) else { return };
        let seen = (version, self.value(key, version));
        let call = Call::CompareAndSwap { expected: expected(write, step, version), value: name(index) };
        let answer = match has_value {
            _ if version.is_none() => Answer::Conflict(None),
            true => Answer::Conflict(Some(seen)),
            false => Answer::Failed(version),
        };
        self.add(entry, key, call, answer, 0);
    }

    fn committed(&mut self, index: usize, entry: &BookEntry, write: &Write, done: &WriteReply) {
        if done.result == Computed::Changed(false) {
            // An expiry is always set, unless the key is absent.
            if let Write::Expire { key, ttl: Some(_), when: None } = write {
                self.add(entry, key, Call::Read, Answer::Found(None), 0);
            }
            return;
        }
        for key in changed(write, Some(done.version)) {
            let answer = match &done.result {
                Computed::Took(None) => Answer::Found(None),
                Computed::Took(Some((version, _))) | Computed::TookForgotten(version) => {
                    Answer::Took { version: done.version, found: (*version, self.value(&key, *version)) }
                }
                _ => Answer::Written(done.version),
            };
            if self.unshown.contains(&(key.clone(), index)) {
                continue;
            }
            let renewed = if let Write::Expire { .. } = write { self.renewed(&key, done.version) } else { None };
            let call = match renewed {
                Some(expected) => Call::CompareAndSwap { expected, value: name(index) },
                None => call(write, &key, name(index)),
            };
            self.add(entry, &key, call, answer, batch(write, index));
        }
    }

    /// The version that a renewal found, if that is certain: the key was present.
    fn renewed(&self, key: &Bytes, at: Version) -> Option<Version> {
        if self.uncertain.contains(key) {
            return None;
        }
        let before = self.makers.range((key.clone(), Version::NONE)..(key.clone(), at)).next_back();
        before.map(|((_, version), _)| *version)
    }

    fn unknown(&mut self, index: usize, entry: &BookEntry, write: &Write) {
        let made = self.made.get(&index).cloned().unwrap_or_default();
        let keys = match write {
            Write::PutSequential { .. } => made.clone(),
            write => changed(write, None),
        };
        for key in keys {
            // The parts of a batch are applied together, except for a renewal, which may do nothing.
            let is_part = !matches!(write, Write::Batch(_)) || !only_renews(write, &key) || made.contains(&key);
            if is_part {
                self.add(entry, &key, call(write, &key, name(index)), Answer::Unknown, batch(write, index));
            }
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
        let (client, (called, returned)) = (entry.client, times(entry));
        if let Some(floor) = floor {
            let look = |&(key, found): &(u32, Option<Version>)| Look { client, key, called, returned, floor, found };
            self.history.looks.extend(seen.iter().map(look));
        }
        if seen.len() > 1 && matches!(reply, Reply::Cut(_) | Reply::Page(_)) {
            self.history.cuts.push(Cut { client, called, returned, seen });
        }
    }
}

/// The times of a call and its answer.
fn times(entry: &BookEntry) -> (u64, u64) {
    (spread(entry.called), spread(entry.returned))
}

/// Moments that leave space for another one before each.
fn spread(moment: u64) -> u64 {
    if moment == NEVER { NEVER } else { 2 * moment }
}

fn batch(write: &Write, index: usize) -> u64 {
    if matches!(write, Write::Batch(_)) { name(index).0 } else { 0 }
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
        Write::Batch(steps) => match steps.iter().rfind(|step| is_set(step) && step.key() == key) {
            Some(Step::Delete { .. }) => Call::Delete,
            _ => Call::Put(value),
        },
        _ => Call::Put(value),
    }
}

/// Whether the step sets or deletes the value.
fn is_set(step: &Step) -> bool {
    !matches!(step, Step::Require { .. } | Step::Expire { .. })
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
