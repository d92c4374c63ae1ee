//! The form of a history, which is checked before any key, and rules across keys.

use std::collections::{BTreeMap, BTreeSet};

use artillery_proto::Version;

use super::register::NEVER;
use super::violation::{Kind, Violation};
use crate::history::{Answer, Call, Operation, Value};

/// Checks the form, and that each value is written once and each version reported under one key, unless the operations
/// belong to one batch. Returns the versions.
pub(super) fn check(operations: &[Operation]) -> Result<Versions, Violation> {
    let mut writers: BTreeMap<Value, Operation> = BTreeMap::new();
    let mut batches: BTreeSet<(Value, u32)> = BTreeSet::new();
    for operation in operations {
        if !is_sound(operation) {
            return Err(Violation::new(Kind::Malformed, *operation, []));
        }
        let Some(value) = written(operation) else { continue };
        let first = *writers.entry(value).or_insert(*operation);
        let is_part = operation.batch != 0 && operation.batch == first.batch;
        if !batches.insert((value, operation.key)) || (first != *operation && !is_part) {
            return Err(Violation::new(Kind::Malformed, *operation, [first]));
        }
    }
    let batch = |operation: &Operation| {
        let writer = seen(operation).and_then(|(_, value)| writers.get(&value));
        writer.map_or(operation.batch, |writer| writer.batch)
    };
    let mut told_first: BTreeMap<Version, Operation> = BTreeMap::new();
    let mut versions = Versions::default();
    for operation in operations {
        let Some(version) = told(operation) else { continue };
        let first = *told_first.entry(version).or_insert(*operation);
        if first.key != operation.key && (batch(&first) == 0 || batch(&first) != batch(operation)) {
            return Err(Violation::new(Kind::VersionReused, *operation, [first]));
        }
        versions.add(version, operation.key);
    }
    Ok(versions)
}

#[derive(Default)]
pub(super) struct Versions(BTreeMap<Version, BTreeSet<u32>>);

impl Versions {
    fn add(&mut self, version: Version, key: u32) {
        self.0.entry(version).or_default().insert(key);
    }

    /// Whether a version was reported under other keys but not under this one.
    pub(super) fn is_foreign(&self, version: Version, key: u32) -> bool {
        self.0.get(&version).is_some_and(|keys| !keys.contains(&key))
    }
}

/// Batches are atomic: once one of their values has been seen, all of them have been written, with that version. Fills
/// in these answers.
pub(super) fn complete(operations: &[Operation]) -> Vec<Operation> {
    let mut shown: BTreeMap<Value, (Version, u64)> = BTreeMap::new();
    for operation in operations {
        if let Some((version, value)) = seen(operation) {
            let first = shown.entry(value).or_insert((version, NEVER));
            first.1 = first.1.min(operation.returned);
        }
    }
    let completed = |operation: &Operation| match written(operation).and_then(|value| shown.get(&value)) {
        Some((version, by)) if operation.batch != 0 && operation.answer == Answer::Unknown => {
            Operation { answer: Answer::Written(*version), returned: operation.called.max(*by), ..*operation }
        }
        _ => *operation,
    };
    operations.iter().map(completed).collect()
}

/// The value that an operation writes if it is applied.
pub(super) fn written(operation: &Operation) -> Option<Value> {
    match operation.call {
        Call::Put(value) | Call::CompareAndSwap { value, .. } => Some(value),
        Call::Delete | Call::GetDelete | Call::Read | Call::Expire { .. } => None,
    }
}

/// The value that an operation saw, with its version.
pub(super) fn seen(operation: &Operation) -> Option<(Version, Value)> {
    match operation.answer {
        Answer::Found(seen) | Answer::Conflict(seen) => seen,
        Answer::Took { found, .. } => Some(found),
        Answer::Written(_) | Answer::Failed(_) | Answer::Refused | Answer::Unknown => None,
    }
}

/// The version in an answer: of the value that was written or seen.
pub(super) fn told(operation: &Operation) -> Option<Version> {
    match operation.answer {
        Answer::Written(version) | Answer::Took { version, .. } => Some(version),
        _ => seen(operation).map(|(version, _)| version),
    }
}

fn is_sound(operation: &Operation) -> bool {
    if let Call::Expire { version } = operation.call {
        return operation.answer == Answer::Unknown && !version.is_none();
    }
    let fits = matches!(
        (operation.call, operation.answer),
        (_, Answer::Refused | Answer::Unknown)
            | (Call::Read, Answer::Found(_))
            | (Call::GetDelete, Answer::Found(None) | Answer::Took { .. })
            | (Call::CompareAndSwap { .. }, Answer::Conflict(_) | Answer::Failed(_))
            | (Call::Put(_) | Call::Delete | Call::CompareAndSwap { .. }, Answer::Written(_))
    );
    let ordered = operation.answer == Answer::Unknown || operation.called <= operation.returned;
    fits && ordered && told(operation) != Some(Version::NONE)
}
