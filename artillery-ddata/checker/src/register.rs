//! The history of one key, sorted by what each operation shows about the register.
//!
//! A read identifies its write, since each value is written once. So a write of unknown outcome whose value was seen was
//! applied, in the version that was seen. After this step there are:
//!
//! - *writes* whose version is known: acknowledged or seen. All of them were applied, in the order of their versions. A
//!   deletion that returned a value expected, and saw, the version of that value;
//! - *sights* of a write: the reads and conflicts that found its value;
//! - *absences*: the reads and conflicts that found the key absent;
//! - *deletes* of unknown outcome, each of which may have been applied, with an unknown version;
//! - *latent* puts and compare-and-swaps: outcome unknown, and no operation saw the value.
//!
//! Left out are refused operations and reads without an answer: they say nothing and change nothing.

use std::collections::BTreeMap;

use artillery_proto::Version;

use super::form::{seen, written};
use super::violation::{Kind, Violation};
use crate::history::{Answer, Call, Operation, Value};

/// The time of an answer that never came.
pub(super) const NEVER: u64 = u64::MAX;

/// An operation that saw the state of the register and left it as it was.
#[derive(Clone, Copy)]
pub(super) struct Sight {
    pub(super) called: u64,
    pub(super) returned: u64,
    pub(super) operation: usize,
}

/// Operations that saw the same state, in the order of their calls.
#[derive(Default)]
pub(super) struct Sights {
    list: Vec<Sight>,
    /// At each position the earliest return from there on. One element longer than the list.
    earliest: Vec<u64>,
}

impl Sights {
    fn new(list: Vec<Sight>) -> Self {
        let mut earliest = vec![NEVER; list.len() + 1];
        for (position, sight) in list.iter().enumerate().rev() {
            earliest[position] = earliest[position + 1].min(sight.returned);
        }
        Self { list, earliest }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Sight> {
        self.list.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn get(&self, position: usize) -> Option<&Sight> {
        self.list.get(position)
    }

    /// The earliest return from `position` on.
    pub(super) fn earliest(&self, position: usize) -> u64 {
        self.earliest.get(position).copied().unwrap_or(NEVER)
    }
}

/// A write that was certainly applied, and its version.
pub(super) struct Write {
    pub(super) version: Version,
    pub(super) called: u64,
    /// [`NEVER`] if only its sights show that it was applied.
    pub(super) returned: u64,
    /// Whether the write left a value rather than a deleted key.
    pub(super) present: bool,
    /// The version that a compare-and-swap expected.
    pub(super) expected: Option<Version>,
    pub(super) sights: Sights,
    pub(super) operation: usize,
}

/// A put or compare-and-swap that may have been applied, whose version and value no operation saw.
pub(super) struct Latent {
    pub(super) called: u64,
    pub(super) expected: Option<Version>,
}

/// All that is known about one key.
pub(super) struct Register<'a> {
    pub(super) key: u32,
    pub(super) operations: &'a [Operation],
    /// In the order of their versions, which all differ.
    pub(super) writes: Vec<Write>,
    pub(super) absences: Sights,
    /// When each delete of unknown outcome was called, ascending.
    pub(super) deletes: Vec<u64>,
    /// In the order of their calls.
    pub(super) latent: Vec<Latent>,
}

impl<'a> Register<'a> {
    /// Sorts the operations of one key, given in the order of their calls.
    ///
    /// # Errors
    ///
    /// A contradiction that shows without any order of operations, or only with that of a value's write and its sights.
    pub(super) fn new(key: u32, operations: &'a [Operation]) -> Result<Self, Violation> {
        let mut seers = seers(operations)?;
        let mut register = Self {
            key,
            operations,
            writes: Vec::new(),
            absences: Sights::default(),
            deletes: Vec::new(),
            latent: Vec::new(),
        };
        let mut absences = Vec::new();
        let failed = |(position, operation): (usize, &Operation)| match operation.answer {
            Answer::Failed(version) if !version.is_none() => Some((version, position)),
            _ => None,
        };
        let failed: Vec<(Version, usize)> = operations.iter().enumerate().filter_map(failed).collect();
        for (position, operation) in operations.iter().enumerate() {
            match (operation.call, operation.answer) {
                (_, Answer::Found(None) | Answer::Conflict(None) | Answer::Failed(Version::NONE)) => {
                    absences.push(sight(operations, position));
                }
                (_, Answer::Refused | Answer::Found(_) | Answer::Conflict(_) | Answer::Failed(_)) | (Call::Read, _) => {
                }
                (Call::Delete | Call::GetDelete, Answer::Unknown) => register.deletes.push(operation.called),
                _ => register.take_in(position, seers.remove(&position).unwrap_or_default(), &failed),
            }
        }
        register.absences = Sights::new(absences);
        register.writes.sort_by_key(|write| write.version);
        for pair in register.writes.windows(2) {
            if pair[0].version == pair[1].version {
                return Err(register.violation(Kind::VersionReused, &pair[1], [&pair[0]]));
            }
        }
        Ok(register)
    }

    /// Adds a put, a compare-and-swap that did not fail or an acknowledged delete, with the operations that saw its value
    /// (`seers`). The compare-and-swaps in `failed` saw only its version.
    fn take_in(&mut self, position: usize, mut seers: Vec<usize>, failed: &[(Version, usize)]) {
        let operation = &self.operations[position];
        let expected = match (operation.call, operation.answer) {
            (Call::CompareAndSwap { expected, .. }, _) => Some(expected),
            (_, Answer::Took { found: (expected, _), .. }) => Some(expected),
            _ => None,
        };
        let version = match operation.answer {
            Answer::Written(version) | Answer::Took { version, .. } => Some(version),
            _ => seers.first().and_then(|seer| seen(&self.operations[*seer])).map(|(version, _)| version),
        };
        let Some(version) = version else {
            return self.latent.push(Latent { called: operation.called, expected });
        };
        let present = matches!(operation.call, Call::Put(_) | Call::CompareAndSwap { .. });
        if present {
            seers.extend(failed.iter().filter(|(seen, _)| *seen == version).map(|(_, position)| position));
            seers.sort_unstable();
        }
        self.writes.push(Write {
            version,
            called: operation.called,
            returned: if operation.answer == Answer::Unknown { NEVER } else { operation.returned },
            present,
            expected,
            sights: Sights::new(seers.into_iter().map(|seer| sight(self.operations, seer)).collect()),
            operation: position,
        });
    }

    /// The write's operation. If it is a deletion that returned a value, also the write of that value. If its answer does not
    /// report its version, also the first sight of it.
    pub(super) fn evidence(&self, write: &Write) -> impl Iterator<Item = Operation> + use<> {
        let operation = self.operations[write.operation];
        let (seer, taken) = match operation.answer {
            Answer::Unknown => {
                let tells = |sight: &&Sight| seen(&self.operations[sight.operation]).is_some();
                (write.sights.iter().filter(tells).min_by_key(|sight| sight.returned), None)
            }
            Answer::Took { found: (_, value), .. } => (None, Some(value)),
            _ => (None, None),
        };
        let seer = seer.map(|sight| self.operations[sight.operation]);
        let writer =
            taken.and_then(|value| self.operations.iter().find(|other| written(other) == Some(value)).copied());
        [operation].into_iter().chain(seer).chain(writer)
    }

    /// A contradiction between `write` and `others`.
    pub(super) fn violation<'w>(
        &self,
        kind: Kind,
        write: &Write,
        others: impl IntoIterator<Item = &'w Write>,
    ) -> Violation {
        let mut evidence: Vec<Operation> = self.evidence(write).collect();
        evidence.extend(others.into_iter().flat_map(|other| self.evidence(other)));
        Violation::new(kind, self.operations[write.operation], evidence)
    }
}

fn sight(operations: &[Operation], position: usize) -> Sight {
    Sight { called: operations[position].called, returned: operations[position].returned, operation: position }
}

/// The operations that saw the value of each write, in the order of their calls.
fn seers(operations: &[Operation]) -> Result<BTreeMap<usize, Vec<usize>>, Violation> {
    let writers: BTreeMap<Value, usize> = operations
        .iter()
        .enumerate()
        .filter_map(|(position, operation)| Some((written(operation)?, position)))
        .collect();
    let mut seers: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let mut never_written = None;
    for (position, seer) in operations.iter().enumerate() {
        if is_false_conflict(seer) {
            return Err(Violation::new(Kind::FalseConflict, *seer, []));
        }
        let Some((version, value)) = seen(seer) else { continue };
        let Some(writer) = writers.get(&value) else {
            never_written = never_written.or(Some(seer));
            continue;
        };
        let write = &operations[*writer];
        let others = seers.entry(*writer).or_default();
        let first = others.first().map(|first| operations[*first]);
        let kind = match write.answer {
            Answer::Refused => Some(Kind::RefusedSeen),
            Answer::Conflict(_) | Answer::Failed(_) => Some(Kind::FailedSwapSeen),
            _ if seer.returned < write.called => Some(Kind::FromTheFuture),
            Answer::Written(known) => (known != version).then_some(Kind::TwoVersions),
            _ => first.is_some_and(|first| seen(&first) != Some((version, value))).then_some(Kind::TwoVersions),
        };
        if let Some(kind) = kind {
            let first = first.filter(|_| kind == Kind::TwoVersions && write.answer == Answer::Unknown);
            return Err(Violation::new(kind, *seer, [*write].into_iter().chain(first)));
        }
        others.push(position);
    }
    // Checked last, since a missing operation is what breaks this rule; see `rules::check`.
    match never_written {
        Some(seer) => Err(Violation::new(Kind::NeverWritten, *seer, [])),
        None => Ok(seers),
    }
}

/// Whether a compare-and-swap reports that it failed although it found what it expected.
fn is_false_conflict(operation: &Operation) -> bool {
    match (operation.call, operation.answer) {
        (Call::CompareAndSwap { expected, .. }, Answer::Conflict(found)) => {
            expected == found.map_or(Version::NONE, |(version, _)| version)
        }
        (Call::CompareAndSwap { expected, .. }, Answer::Failed(found)) => expected == found,
        _ => false,
    }
}
