//! A run in the words of the checker: each key a register, each write a value of its own.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::{Makers, changed, conflicting, made, scripts, sights};
use crate::{
    Version,
    replica::{Committed, Computed, Expected, Query, ReadMode, Reply, Script, ScriptStep, Step, StepOutcome, Write},
    testing::{
        book::{Ask, Entry, Told},
        history::{Answer, Call, Cut, History, Look, Operation, Value},
    },
};

/// The history, and the key behind each of its numbers.
pub(super) fn history(entries: &[(usize, &Entry)], makers: &Makers) -> (History, Vec<Bytes>) {
    let mut writer = Writer { makers: makers.clone(), ..Writer::default() };
    for (index, entry) in entries {
        if let (Ask::Write(write), Some(version)) = (&entry.ask, made(entry)) {
            let made = changed(write).into_iter().map(|key| ((key.clone(), version), *index));
            writer.makers.extend(made);
        }
    }
    for (index, entry) in entries {
        // Their keys have numbers before their values are named.
        if let Ask::Write(Write::Script(script)) = &entry.ask {
            writer.scripts.insert(*index);
            for key in script.keys() {
                writer.key(key);
            }
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
struct Writer {
    /// Which write made a version of a key.
    makers: Makers,
    /// Which writes are scripts.
    scripts: BTreeSet<usize>,
    numbers: BTreeMap<Bytes, u32>,
    keys: Vec<Bytes>,
    history: History,
}

impl Writer {
    fn key(&mut self, key: &Bytes) -> u32 {
        let next = self.keys.len() as u32;
        let number = *self.numbers.entry(key.clone()).or_insert(next);
        if number == next {
            self.keys.push(key.clone());
        }
        number
    }

    /// The name of the value that a key had in this version; one that nobody wrote, if it is nobody's.
    fn value(&self, key: &Bytes, version: Version) -> Value {
        let nobody = u64::MAX - version.sequence.0;
        let Some(index) = self.makers.get(&(key.clone(), version)) else { return Value(nobody) };
        if self.scripts.contains(index) { self.part(*index, key) } else { name(*index) }
    }

    /// The value that a script wrote to one key: nobody knows whether it wrote to its others.
    fn part(&self, index: usize, key: &Bytes) -> Value {
        let number = self.numbers.get(key).map_or(u64::from(u32::MAX), |number| u64::from(*number));
        Value((number + 1) << 32 | name(index).0)
    }

    fn add(&mut self, entry: &Entry, key: &Bytes, call: Call, answer: Answer, batch: u64) {
        let key = self.key(key);
        let Entry { client, called, returned, .. } = *entry;
        self.history.operations.push(Operation { client, key, called, returned, call, answer, batch });
    }

    fn write(&mut self, index: usize, entry: &Entry, write: &Write) {
        if let Told::Reply(Reply::Conflict { step, version, value, .. }) = &entry.told {
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
        if let Write::Script(script) = write {
            return self.script(index, entry, script);
        }
        let batch = if matches!(write, Write::Batch(_)) { name(index).0 } else { 0 };
        for key in changed(write) {
            let call = call(write, key, name(index));
            let answer = match &entry.told {
                Told::Nothing(_) => Answer::Refused,
                Told::Reply(Reply::Committed(done)) => match &done.result {
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

    fn script(&mut self, index: usize, entry: &Entry, script: &Script) {
        let outcomes = match &entry.told {
            Told::Reply(Reply::Committed(Committed { version, result: Computed::Ran(outcomes), .. })) => {
                Some((*version, outcomes))
            }
            _ => None,
        };
        let Some((version, outcomes)) = outcomes else {
            let answer = if matches!(entry.told, Told::Nothing(_)) { Answer::Refused } else { Answer::Unknown };
            for key in changed(&Write::Script(script.clone())) {
                for is_put in scripts::ways(script, key) {
                    self.part_of(index, entry, key, is_put, answer);
                }
            }
            return;
        };
        // The last change of each key counts; what was seen before the first one, others had left there.
        let mut last: BTreeMap<&Bytes, bool> = BTreeMap::new();
        for (step, told) in scripts::done(script, outcomes) {
            let key = step.key();
            if let StepOutcome::Found(found) = told
                && !last.contains_key(key)
            {
                let found = found.as_ref().map(|(version, _)| (*version, self.value(key, *version)));
                self.add(entry, key, Call::Read, Answer::Found(found), 0);
            }
            match (step, told) {
                (ScriptStep::Get { .. } | ScriptStep::Length { .. }, _) => {}
                // What wasn't there wasn't deleted.
                (_, StepOutcome::Deleted(false) | StepOutcome::Found(None)) => {}
                (ScriptStep::Delete { .. } | ScriptStep::GetDelete { .. }, _) => drop(last.insert(key, false)),
                _ => drop(last.insert(key, true)),
            }
        }
        for (key, is_put) in last {
            self.part_of(index, entry, key, is_put, Answer::Written(version));
        }
    }

    /// What a script did to one key, perhaps: a put or a deletion.
    fn part_of(&mut self, index: usize, entry: &Entry, key: &Bytes, is_put: bool, answer: Answer) {
        self.key(key);
        let call = if is_put { Call::Put(self.part(index, key)) } else { Call::Delete };
        self.add(entry, key, call, answer, name(index).0);
    }

    fn read(&mut self, entry: &Entry, query: &Query, is_strong: bool, floor: Option<crate::Sequence>) {
        let Told::Reply(reply) = &entry.told else { return };
        let found: BTreeMap<&Bytes, Version> = sights(entry).iter().map(|sight| (sight.key, sight.version)).collect();
        // Of a page nobody knows which keys would have been there.
        let asked = query.keys().iter().chain(found.keys().filter(|_| query.keys().is_empty()).copied());
        let mut seen = Vec::new();
        for key in asked {
            let version = found.get(key).copied();
            if is_strong {
                let value = version.map(|version| (version, self.value(key, version)));
                self.add(entry, key, Call::Read, Answer::Found(value), 0);
            }
            seen.push((self.key(key), version));
        }
        let Entry { client, called, returned, .. } = *entry;
        if let Some(floor) = floor {
            let look = |&(key, found): &(u32, Option<Version>)| Look { client, key, called, returned, floor, found };
            self.history.looks.extend(seen.iter().map(look));
        }
        if seen.len() > 1 && matches!(reply, Reply::Cut(_) | Reply::Page(_)) {
            self.history.cuts.push(Cut { client, called, returned, seen });
        }
    }
}

/// The value that the write of this line wrote, wherever.
fn name(index: usize) -> Value {
    Value(index as u64 + 1)
}

/// A write of one key as the register knows it: what it computes doesn't matter here.
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

/// What the failed condition expected, where it found `version`.
fn expected(write: &Write, step: u32, version: Version) -> Version {
    match write {
        Write::CompareAndSwap { expected, .. } => *expected,
        Write::Batch(steps) => match steps.get(step as usize) {
            Some(Step::Require { expected: Expected::Version(expected), .. }) => *expected,
            // It was absent.
            Some(Step::Require { expected: Expected::Present, .. }) => Version::new(u64::MAX, u64::MAX),
            _ => Version::NONE,
        },
        Write::Script(script) => match script.require.get(step as usize).map(|requirement| requirement.expected) {
            Some(Expected::Version(expected)) => expected,
            Some(Expected::Present) => Version::new(u64::MAX, u64::MAX),
            _ => Version::NONE,
        },
        _ => version,
    }
}
