//! What must hold of a history before anything can be said about its keys, and what spans keys.

use std::collections::BTreeMap;

use artillery_ddata::Version;

use super::Versions;
use super::violation::{Kind, Violation};
use crate::history::{Answer, Call, Operation, Value};

/// Checks the form, that values are written once, and that no version is found under two keys; returns the versions.
pub(super) fn check(operations: &[Operation]) -> Result<Versions, Violation> {
    let mut writers: BTreeMap<Value, Operation> = BTreeMap::new();
    let mut versions: BTreeMap<Version, Operation> = BTreeMap::new();
    for operation in operations {
        if !is_sound(operation) {
            return Err(Violation::new(Kind::Malformed, *operation, []));
        }
        if let Some(value) = written(operation)
            && let Some(other) = writers.insert(value, *operation)
        {
            return Err(Violation::new(Kind::Malformed, *operation, [other]));
        }
        if let Some(version) = told(operation) {
            let first = *versions.entry(version).or_insert(*operation);
            if first.key != operation.key {
                return Err(Violation::new(Kind::VersionReused, *operation, [first]));
            }
        }
    }
    Ok(versions.into_iter().map(|(version, operation)| (version, operation.key)).collect())
}

/// The value that an operation writes if it is applied.
pub(super) fn written(operation: &Operation) -> Option<Value> {
    match operation.call {
        Call::Put(value) | Call::CompareAndSwap { value, .. } => Some(value),
        Call::Delete | Call::Read => None,
    }
}

/// The value, with its version, that an operation saw.
pub(super) fn seen(operation: &Operation) -> Option<(Version, Value)> {
    match operation.answer {
        Answer::Found(seen) | Answer::Conflict(seen) => seen,
        Answer::Written(_) | Answer::Refused | Answer::Unknown => None,
    }
}

/// The version that an answer tells: of what was written or of what was seen.
pub(super) fn told(operation: &Operation) -> Option<Version> {
    match operation.answer {
        Answer::Written(version) => Some(version),
        _ => seen(operation).map(|(version, _)| version),
    }
}

fn is_sound(operation: &Operation) -> bool {
    let fits = matches!(
        (operation.call, operation.answer),
        (_, Answer::Refused | Answer::Unknown)
            | (Call::Read, Answer::Found(_))
            | (Call::CompareAndSwap { .. }, Answer::Conflict(_))
            | (Call::Put(_) | Call::Delete | Call::CompareAndSwap { .. }, Answer::Written(_))
    );
    let ordered = operation.answer == Answer::Unknown || operation.called <= operation.returned;
    fits && ordered && told(operation) != Some(Version::NONE)
}
