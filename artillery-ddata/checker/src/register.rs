//! The history of one key, sorted by what each operation reveals about the register.
//!
//! Each value is written once, so a read identifies its write. A write of unknown outcome whose value was seen was
//! therefore applied, in the version that was seen. The operations are sorted into:
//!
//! - *writes* of known version: acknowledged or seen. All of them were applied, in the order of their versions. A
//!   deletion that returned a value expected, and saw, the version of that value;
//! - *sights* of a write: the reads and conflicts that found its value;
//! - *absences*: the reads and conflicts that found the key absent;
//! - *deletes* of unknown outcome: each may have been applied, in an unknown version;
//! - *expiries*: for each version, the earliest time from which its value may go by itself;
//! - *latent* puts and compare-and-swaps: their outcome is unknown, and no operation saw the value.
//!
//! Refused operations and reads without an answer are left out: they have no effect and reveal nothing.

use std::collections::BTreeMap;

use artillery_proto::Version;

use super::form::{seen, written};
use super::violation::{Kind, Violation};
use crate::history::{Answer, Call, Operation, Value};

/// The time of an answer that was never received.
pub(super) const NEVER: u64 = u64::MAX;

/// An operation that saw the state of the register without changing it.
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
    /// For each position, the earliest return at or after it. One element longer than the list.
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

    /// The earliest return at or after `position`.
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
    /// Whether the write set a value instead of deleting the key.
    pub(super) present: bool,
    /// The version that a compare-and-swap or a deletion with a result expected.
    pub(super) expected: Option<Version>,
    pub(super) sights: Sights,
    pub(super) operation: usize,
}

/// A put or compare-and-swap that may have been applied, but whose value and version no operation saw.
pub(super) struct Latent {
    pub(super) called: u64,
    pub(super) expected: Option<Version>,
}

pub(super) struct Register<'a> {
    pub(super) key: u32,
    pub(super) operations: &'a [Operation],
    /// In the order of their versions, which all differ.
    pub(super) writes: Vec<Write>,
    pub(super) absences: Sights,
    /// The times of the calls of deletes of unknown outcome, ascending.
    pub(super) deletes: Vec<u64>,
    /// In the order of their calls.
    pub(super) latent: Vec<Latent>,
    /// By version, the earliest call of an expiry: of several, at most one finds the version.
    expiries: BTreeMap<Version, u64>,
}

impl<'a> Register<'a> {
    /// Sorts the operations of one key, which are in the order of their calls.
    ///
    /// # Errors
    ///
    /// A contradiction that shows without ordering the operations, or from the order of a value's write and its sights.
    pub(super) fn new(key: u32, operations: &'a [Operation]) -> Result<Self, Violation> {
        let mut seers = seers(operations)?;
        let mut register = Self {
            key,
            operations,
            writes: Vec::new(),
            absences: Sights::default(),
            deletes: Vec::new(),
            latent: Vec::new(),
            expiries: BTreeMap::new(),
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
                (Call::Expire { version }, _) => {
                    register.expiries.entry(version).or_insert(operation.called);
                }
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

    /// The write of known version that made this version.
    pub(super) fn write_of(&self, version: Version) -> Option<&Write> {
        let position = self.writes.binary_search_by_key(&version, |write| write.version).ok()?;
        self.writes.get(position)
    }

    /// The time from which the value of this version may go by itself.
    pub(super) fn expiry(&self, version: Version) -> u64 {
        self.expiries.get(&version).copied().unwrap_or(NEVER)
    }

    /// The expiries of versions that no answer reported: only a latent write can have made such a version.
    pub(super) fn hidden_expiries(&self) -> impl Iterator<Item = (Version, u64)> + '_ {
        let expiries = self.expiries.iter().map(|(version, called)| (*version, *called));
        expiries.filter(|(version, _)| self.write_of(*version).is_none())
    }

    /// Adds a put, a compare-and-swap that didn't fail, or an acknowledged delete. The operations in `seers` saw its
    /// value; the compare-and-swaps in `failed` saw only a version.
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

    /// The write's operation; for a deletion that returned a value, also the write of that value; if the write's own
    /// answer doesn't report its version, also the first sight of the value.
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
    // Reported last, since a missing operation breaks this rule; see `rules::check`.
    match never_written {
        Some(seer) => Err(Violation::new(Kind::NeverWritten, *seer, [])),
        None => Ok(seers),
    }
}

/// Whether a compare-and-swap reports failure although it found the expected version.
fn is_false_conflict(operation: &Operation) -> bool {
    match (operation.call, operation.answer) {
        (Call::CompareAndSwap { expected, .. }, Answer::Conflict(found)) => {
            expected == found.map_or(Version::NONE, |(version, _)| version)
        }
        (Call::CompareAndSwap { expected, .. }, Answer::Failed(found)) => expected == found,
        _ => false,
    }
}
