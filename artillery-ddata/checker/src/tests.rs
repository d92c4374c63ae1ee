//! Histories known to be good or bad, and comparisons with an exhaustive check.

mod bad;
mod brute;
mod good;
mod large;
mod random;
mod series;
mod shrinking;

use artillery_proto::Version;

use super::{Budget, Kind, Violation, check, shortest, shrink, verdict};
use crate::history::{Answer, Call, History, Operation, Value};

/// An operation on key 7, by a client with no other operation.
fn op(called: u64, returned: u64, call: Call, answer: Answer) -> Operation {
    Operation { client: u32::try_from(called).unwrap_or(u32::MAX), key: 7, called, returned, call, answer, batch: 0 }
}

fn put(called: u64, returned: u64, value: u64, answer: Answer) -> Operation {
    op(called, returned, Call::Put(Value(value)), answer)
}

fn delete(called: u64, returned: u64, answer: Answer) -> Operation {
    op(called, returned, Call::Delete, answer)
}

/// A compare-and-swap. `expected` is the sequence of a version, 0 for an absent key.
fn swap(called: u64, returned: u64, expected: u64, value: u64, answer: Answer) -> Operation {
    op(called, returned, Call::CompareAndSwap { expected: version(expected), value: Value(value) }, answer)
}

/// The value of the version with this sequence may go from this time.
fn expiry(called: u64, sequence: u64) -> Operation {
    op(called, called, Call::Expire { version: version(sequence) }, UNKNOWN)
}

fn read(called: u64, returned: u64, answer: Answer) -> Operation {
    op(called, returned, Call::Read, answer)
}

fn version(sequence: u64) -> Version {
    if sequence == 0 { Version::NONE } else { Version::new(1, sequence) }
}

fn written(sequence: u64) -> Answer {
    Answer::Written(version(sequence))
}

fn found(sequence: u64, value: u64) -> Answer {
    Answer::Found(Some((version(sequence), Value(value))))
}

fn conflict(sequence: u64, value: u64) -> Answer {
    Answer::Conflict(Some((version(sequence), Value(value))))
}

const ABSENT: Answer = Answer::Found(None);
const CONFLICT_ABSENT: Answer = Answer::Conflict(None);
const REFUSED: Answer = Answer::Refused;
const UNKNOWN: Answer = Answer::Unknown;

fn history(operations: impl IntoIterator<Item = Operation>) -> History {
    History::of(operations.into_iter().collect())
}

fn checked(operations: &[Operation]) -> Result<(), Violation> {
    check(&history(operations.iter().copied()), Budget::default()).map(drop)
}
