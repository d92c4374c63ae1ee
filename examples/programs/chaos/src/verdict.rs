//! The checker: whether the answers to clients can come from a store that executes one operation at a time.

use std::collections::{BTreeMap, BTreeSet};

use artillery_checker::{
    Budget, Kind, check, check_more,
    history::{Answer, Call, History, Operation, SeriesAnswer, SeriesCall, SeriesOperation, Value},
};
use artillery_ddata::Version;

use super::{
    book::{Family, Key, Line},
    door::{Ask, Reply},
    zones,
};

#[derive(Default)]
pub(super) struct Verdict {
    pub(super) keys: usize,
    pub(super) operations: usize,
    pub(super) wrong: Vec<Wrong>,
    /// Keys that the checker couldn't decide.
    pub(super) undecided: usize,
}

/// A history that no such store produces, or that the checker couldn't decide.
pub(super) struct Wrong {
    pub(super) what: String,
    /// The operations that were checked together, as JSON.
    pub(super) history: String,
}

impl Verdict {
    fn add(&mut self, history: &History, budget: Budget) {
        let found = check(history, budget);
        if let Err(violation) = found {
            self.undecided += usize::from(violation.kind == Kind::Undecided);
            self.note(history, violation.to_string());
        }
        if let Err(broken) = check_more(history) {
            self.note(history, broken.to_string());
        }
    }

    fn note(&mut self, history: &History, what: String) {
        let history = serde_json::to_string(history).unwrap_or_else(|error| error.to_string());
        self.wrong.push(Wrong { what, history });
    }
}

pub(super) fn judge(lines: &[Line], budget: Budget) -> Verdict {
    let mut keys: BTreeMap<Key, Vec<&Line>> = BTreeMap::new();
    lines.iter().for_each(|line| keys.entry(line.key).or_default().push(line));
    let mut verdict = Verdict { keys: keys.len(), operations: lines.len(), ..Verdict::default() };
    // Versions are unique within a chain: no two keys may share one.
    let mut versioned: BTreeMap<u32, Vec<Operation>> = BTreeMap::new();
    for (key, lines) in &keys {
        match key.family() {
            Family::Plain => verdict.add(&plain(lines, budget), budget),
            Family::Versioned => {
                let operations = lines.iter().filter_map(|line| operation(line, &|_| None));
                versioned.entry(key.generation()).or_default().extend(operations);
            }
            Family::Counter => verdict.add(&counter(lines), budget),
        }
    }
    versioned.into_values().for_each(|operations| verdict.add(&History::of(operations), budget));
    verdict
}

/// Answers for plain keys carry no versions, so one is assigned to each value. If no assignment fits, any is wrong:
/// versions in the order of the answers then make the violation easiest to read.
fn plain(lines: &[&Line], budget: Budget) -> History {
    let history = |versions: BTreeMap<u64, Version>| {
        let version = |value: u64| versions.get(&value).copied();
        History::of(lines.iter().filter_map(|line| operation(line, &version)).collect())
    };
    let best = history(zones::versions(lines.iter().copied()));
    match check(&best, budget) {
        Err(violation) if violation.kind != Kind::Undecided => history(zones::in_order(lines.iter().copied())),
        _ => best,
    }
}

/// Converts a line for the checker; `version` gives versions to values whose answers carried none.
fn operation(line: &Line, version: &dyn Fn(u64) -> Option<Version>) -> Option<Operation> {
    let call = match line.ask {
        Ask::Set(value) | Ask::Put(value) => Call::Put(Value(value)),
        Ask::Swap(expected, value) => Call::CompareAndSwap { expected, value: Value(value) },
        Ask::Delete => Call::Delete,
        Ask::Get | Ask::Look => Call::Read,
        Ask::Add | Ask::Count => return None,
    };
    let written = match line.ask {
        Ask::Set(value) | Ask::Put(value) | Ask::Swap(_, value) => version(value),
        _ => None,
    };
    let answer = match &line.reply {
        Reply::Written(told) => told.or(written).map_or(Answer::Unknown, Answer::Written),
        Reply::Conflict(version) => Answer::Failed(*version),
        Reply::Found(None) => Answer::Found(None),
        // Version 1.0 marks a value that no client wrote: the checker will report it.
        Reply::Found(Some((told, value))) => {
            let version = told.or(version(*value)).unwrap_or(Version::new(1, 0));
            Answer::Found(Some((version, Value(*value))))
        }
        Reply::Refused(_) => Answer::Refused,
        Reply::Counted(_) | Reply::Unknown | Reply::Odd(_) => Answer::Unknown,
    };
    let (client, key) = (line.client, line.key.0);
    Some(Operation { client, key, called: line.called, returned: line.returned, call, answer, batch: 0 })
}

/// The result of an increment serves as its version, since it identifies the increment.
fn counter(lines: &[&Line]) -> History {
    let version = |count: u64| if count == 0 { Version::NONE } else { Version::new(1, count) };
    let operation = |line: &&Line| {
        let call = match line.ask {
            Ask::Add => SeriesCall::Increment,
            _ => SeriesCall::Read,
        };
        let answer = match (&line.reply, call) {
            (Reply::Counted(count), SeriesCall::Increment) => {
                SeriesAnswer::Counted { version: version(*count), count: Some(*count) }
            }
            (Reply::Counted(count), _) => SeriesAnswer::Number(version(*count), *count),
            // A read without an answer proves nothing.
            _ if call == SeriesCall::Read => return None,
            (Reply::Refused(_), _) => SeriesAnswer::Refused,
            _ => SeriesAnswer::Unknown,
        };
        let (called, returned) = (line.called, line.returned);
        Some(SeriesOperation { client: line.client, key: line.key.0, called, returned, call, answer })
    };
    History { series: lines.iter().filter_map(operation).collect(), ..History::default() }
}

pub(super) fn odd(lines: &[Line]) -> BTreeSet<&str> {
    let odd = lines.iter().filter_map(|line| match &line.reply {
        Reply::Odd(what) => Some(what.as_str()),
        _ => None,
    });
    odd.collect()
}

#[cfg(test)]
mod tests;
