//! Resolves a write at the head against the newest versions: conditions are checked, and appends and increments become
//! full values.

mod draft;
mod script;

use bytes::Bytes;
use smallvec::SmallVec;

use draft::{Drafts, Joins};

use crate::{
    Version,
    api::{Expected, GroupOutcome, Step, Write, bytes_of},
    store::{Held, StoreError},
    types::update::{KeyChange, MAX_KEY, RequestFailure, RequestOutcome},
};

/// The maximum number of steps in a batch or script.
pub(super) const MAX_STEPS: usize = 4096;

#[derive(Clone, Hash, Debug, Default)]
pub(super) struct Resolved {
    pub(super) changes: SmallVec<[KeyChange; 1]>,
    joins: Joins,
    pub(super) outcome: RequestOutcome,
    pub(super) seen: WriteResult,
}

/// The part of an answer that the write's record doesn't hold. Only callers that wait for the commit receive it.
#[derive(Clone, Hash, Debug, Default)]
pub(super) enum WriteResult {
    #[default]
    Nothing,
    /// The version that failed a condition or was deleted, with its whole value.
    Held(Held),
    Results(Vec<GroupOutcome>),
}

impl WriteResult {
    fn of(held: Option<Held>) -> Self {
        held.map_or(Self::Nothing, Self::Held)
    }

    pub(super) fn results(&self) -> usize {
        if let Self::Results(outcomes) = self { bytes_of(outcomes) } else { 0 }
    }

    pub(super) fn value(&self) -> Option<Bytes> {
        if let Self::Held(held) = self { held.value.clone() } else { None }
    }
}

/// The parameters for resolving a write, except for the newest versions.
#[derive(Clone, Copy, Hash, Debug)]
pub(super) struct Terms {
    pub(super) at: Version,
    /// The largest value, and the largest sum of the values in a script's results, in bytes.
    pub(super) limit: usize,
    /// The largest sum of the values of the write's update, in bytes.
    pub(super) most: usize,
    /// For a mutant: keeps the steps of a failed group before the failing one.
    pub(super) keeps_failed_groups: bool,
}

impl Resolved {
    fn change(key: Bytes, value: Option<Bytes>, outcome: RequestOutcome) -> Self {
        Self { changes: smallvec::smallvec![KeyChange { key, value }], outcome, ..Self::default() }
    }

    fn failed(failure: RequestFailure) -> Self {
        Self { outcome: RequestOutcome::Failed(failure), ..Self::default() }
    }

    /// The changes of the drafts, or a failure if their values exceed `most` bytes.
    fn made(drafts: Drafts<impl ReadKey>, most: usize, outcome: RequestOutcome, seen: WriteResult) -> Self {
        match drafts.finish(most) {
            Ok((changes, joins)) => Self { changes, joins, outcome, seen },
            Err(len) => Self::failed(RequestFailure::UpdateTooLarge(len as u64)),
        }
    }

    /// Assembles up to `bytes` bytes of its values. Returns whether all values are assembled.
    pub(super) fn join_some(&mut self, bytes: usize) -> bool {
        self.joins.is_empty() || self.joins.step(bytes, &mut self.changes)
    }
}

/// Reads the newest version of a key; a tombstone is `None`.
pub(super) trait ReadKey: Fn(&Bytes) -> Result<Option<Held>, StoreError> {}

impl<R: Fn(&Bytes) -> Result<Option<Held>, StoreError>> ReadKey for R {}

/// Resolves `write` against the versions that `read` returns. Keys must have at most [`MAX_KEY`] bytes.
pub(super) fn resolve(write: Write, terms: Terms, read: impl ReadKey) -> Result<Resolved, StoreError> {
    debug_assert!(write.keys().all(|key| key.len() <= MAX_KEY));
    Ok(match write {
        Write::Put { key, value } => Resolved::change(key, Some(value), RequestOutcome::Done),
        Write::Delete { key } => Resolved::change(key, None, RequestOutcome::Done),
        Write::CompareAndSwap { key, expected, value } => {
            let newest = read(&key)?;
            let version = version_of(&newest);
            if version == expected {
                Resolved::change(key, value, RequestOutcome::Done)
            } else {
                Resolved {
                    outcome: RequestOutcome::Conflict(version),
                    seen: WriteResult::of(newest),
                    ..Resolved::default()
                }
            }
        }
        Write::Append { key, value } => {
            let before = read(&key)?.and_then(|held| held.value).unwrap_or_default();
            let length = before.len() + value.len();
            if length > terms.limit {
                return Ok(Resolved::failed(RequestFailure::TooLarge(length as u64)));
            }
            let (value, joins) =
                if before.is_empty() { (value, Joins::default()) } else { Joins::of_one(before, value) };
            Resolved { joins, ..Resolved::change(key, Some(value), RequestOutcome::Length(length as u64)) }
        }
        Write::Increment { key, by } => match incremented(read(&key)?.and_then(|held| held.value), by) {
            Ok(number) => Resolved::change(key, Some(decimal(number)), RequestOutcome::Number(number)),
            Err(failure) => Resolved::failed(failure),
        },
        Write::GetDelete { key } => match read(&key)? {
            None => Resolved { outcome: RequestOutcome::Took(Version::NONE), ..Resolved::default() },
            Some(held) => {
                let outcome = RequestOutcome::Took(held.version);
                Resolved { seen: WriteResult::Held(held), ..Resolved::change(key, None, outcome) }
            }
        },
        Write::Batch(steps) => batch(steps, terms, read)?,
        Write::Script(steps) => script::script(steps, terms, read)?,
        Write::OpenSession => Resolved::default(),
        Write::Resolve => Resolved { outcome: RequestOutcome::Barred, ..Resolved::default() },
    })
}

fn batch(steps: Vec<Step>, terms: Terms, read: impl ReadKey) -> Result<Resolved, StoreError> {
    // Check all requirements against the versions before the batch, including requirements that follow other steps.
    for (at, step) in steps.iter().enumerate() {
        let Step::Require { key, expected } = step else { continue };
        let newest = read(key)?;
        let version = version_of(&newest);
        if !holds(*expected, version) {
            let outcome = RequestOutcome::Unmet { step: at as u32, version };
            return Ok(Resolved { outcome, seen: WriteResult::of(newest), ..Resolved::default() });
        }
    }
    // Only the last change of each key is kept.
    let mut drafts = Drafts::new(terms.limit, read);
    for step in steps {
        let done = match step {
            Step::Require { .. } => Ok(()),
            Step::Put { key, value } => {
                drafts.set(key, Some(value));
                Ok(())
            }
            Step::Delete { key } => {
                drafts.set(key, None);
                Ok(())
            }
            Step::Append { key, value } => drafts.append(key, value)?.map(drop),
            Step::Increment { key, by } => drafts.increment(key, by)?.map(drop),
        };
        if let Err(failure) = done {
            return Ok(Resolved::failed(failure));
        }
    }
    Ok(Resolved::made(drafts, terms.most, RequestOutcome::Done, WriteResult::Nothing))
}

fn version_of(held: &Option<Held>) -> Version {
    held.as_ref().map_or(Version::NONE, |held| held.version)
}

fn holds(expected: Expected, version: Version) -> bool {
    match expected {
        Expected::Absent => version.is_none(),
        Expected::Present => !version.is_none(),
        Expected::Version(wanted) => version == wanted,
    }
}

fn incremented(before: Option<Bytes>, by: i64) -> Result<i64, RequestFailure> {
    let before = match &before {
        None => 0,
        Some(bytes) => parse(bytes).ok_or(RequestFailure::NotANumber)?,
    };
    before.checked_add(by).ok_or(RequestFailure::Overflow)
}

/// Parses a number in its only decimal form, which [`decimal`] writes: no sign except `-`, no leading zeros.
fn parse(bytes: &[u8]) -> Option<i64> {
    let number: i64 = std::str::from_utf8(bytes).ok()?.parse().ok()?;
    (decimal(number) == bytes).then_some(number)
}

fn decimal(number: i64) -> Bytes {
    number.to_string().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn b(text: &str) -> Bytes {
        Bytes::copy_from_slice(text.as_bytes())
    }

    /// `number` is "41", `text` is "abc", all others are absent.
    pub(super) fn read(key: &Bytes) -> Result<Option<Held>, StoreError> {
        let held = |sequence, value| Held { version: Version::new(1, sequence), value: Some(b(value)) };
        Ok(match &key[..] {
            b"number" => Some(held(1, "41")),
            b"text" => Some(held(2, "abc")),
            _ => None,
        })
    }

    const TERMS: Terms = Terms { at: Version::new(1, 9), limit: 8, most: 24, keeps_failed_groups: false };

    fn resolved(write: Write) -> (Vec<(Bytes, Option<Bytes>)>, RequestOutcome) {
        let mut resolved = resolve(write, TERMS, read).unwrap();
        resolved.join_some(usize::MAX);
        (resolved.changes.into_iter().map(|change| (change.key, change.value)).collect(), resolved.outcome)
    }

    #[test]
    fn numbers_are_counted_in_decimal() {
        let by = |key, by| resolved(Write::Increment { key: b(key), by });
        assert_eq!(by("number", 1), (vec![(b("number"), Some(b("42")))], RequestOutcome::Number(42)));
        assert_eq!(by("new", -5), (vec![(b("new"), Some(b("-5")))], RequestOutcome::Number(-5)));
        assert_eq!(by("text", 1), (vec![], RequestOutcome::Failed(RequestFailure::NotANumber)));
        assert_eq!(by("number", i64::MAX), (vec![], RequestOutcome::Failed(RequestFailure::Overflow)));
        for odd in ["", "+1", "01", "-0", " 1", "1 ", "9223372036854775808", "1.0"] {
            assert_eq!(parse(odd.as_bytes()), None, "{odd:?}");
        }
        assert_eq!(parse(i64::MIN.to_string().as_bytes()), Some(i64::MIN));
    }

    #[test]
    fn appends_stop_at_the_limit() {
        let append = |key, value| resolved(Write::Append { key: b(key), value: b(value) });
        assert_eq!(append("text", "de"), (vec![(b("text"), Some(b("abcde")))], RequestOutcome::Length(5)));
        assert_eq!(append("new", ""), (vec![(b("new"), Some(b("")))], RequestOutcome::Length(0)));
        assert_eq!(append("text", "123456"), (vec![], RequestOutcome::Failed(RequestFailure::TooLarge(9))));
    }

    #[test]
    fn what_is_taken_is_seen() {
        let taken = resolve(Write::GetDelete { key: b("text") }, TERMS, read).unwrap();
        assert_eq!(taken.outcome, RequestOutcome::Took(Version::new(1, 2)));
        assert_eq!(taken.seen.value(), Some(b("abc")));
        assert_eq!(taken.changes[0].value, None);
        let absent = resolve(Write::GetDelete { key: b("new") }, TERMS, read).unwrap();
        assert_eq!((absent.outcome, absent.changes.len()), (RequestOutcome::Took(Version::NONE), 0));
        assert!(matches!(absent.seen, WriteResult::Nothing));
    }

    #[test]
    fn a_batch_is_all_or_nothing_and_sees_itself() {
        let batch = vec![
            Step::Put { key: b("number"), value: b("7") },
            Step::Increment { key: b("number"), by: 1 },
            Step::Append { key: b("text"), value: b("d") },
            Step::Append { key: b("text"), value: b("e") },
            Step::Put { key: b("new"), value: b("x") },
            Step::Delete { key: b("new") },
            Step::Require { key: b("number"), expected: Expected::Version(Version::new(1, 1)) },
        ];
        let expected = vec![(b("new"), None), (b("number"), Some(b("8"))), (b("text"), Some(b("abcde")))];
        assert_eq!(resolved(Write::Batch(batch.clone())), (expected, RequestOutcome::Done));

        let mut unmet = batch.clone();
        unmet.push(Step::Require { key: b("text"), expected: Expected::Absent });
        assert_eq!(
            resolved(Write::Batch(unmet)),
            (vec![], RequestOutcome::Unmet { step: 7, version: Version::new(1, 2) })
        );
        let mut unmet = batch.clone();
        unmet.push(Step::Require { key: b("new"), expected: Expected::Present });
        assert_eq!(resolved(Write::Batch(unmet)), (vec![], RequestOutcome::Unmet { step: 7, version: Version::NONE }));
        let mut failing = batch;
        failing.push(Step::Increment { key: b("text"), by: 1 });
        assert_eq!(resolved(Write::Batch(failing)), (vec![], RequestOutcome::Failed(RequestFailure::NotANumber)));
    }
}
