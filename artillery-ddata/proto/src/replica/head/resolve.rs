//! Resolves a write at the head against the newest versions: conditions are checked, and appends and increments become
//! full values.

mod draft;
mod script;

use bytes::Bytes;
use smallvec::SmallVec;

use draft::{Drafts, End, Joins};

use crate::{
    Expiry, Version,
    api::{Expected, ExpireIf, GroupOutcome, Step, Ttl, Write, bytes_of, sequential_key},
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
    /// The stamp of the update.
    pub(super) stamp: u64,
    /// The largest value, and the largest sum of the values in a script's results, in bytes.
    pub(super) limit: usize,
    /// The largest sum of the values of the write's update, in bytes.
    pub(super) most: usize,
    /// For a mutant: keeps the steps of a failed group before the failing one.
    pub(super) keeps_failed_groups: bool,
}

impl Resolved {
    fn change(key: Bytes, value: Option<Bytes>, outcome: RequestOutcome) -> Self {
        Self { changes: smallvec::smallvec![KeyChange::new(key, value)], outcome, ..Self::default() }
    }

    fn set(key: Bytes, value: Bytes, expires: Option<Expiry>, outcome: RequestOutcome) -> Self {
        let change = KeyChange::new(key, Some(value)).expiring(expires);
        Self { changes: smallvec::smallvec![change], outcome, ..Self::default() }
    }

    fn failed(failure: RequestFailure) -> Self {
        Self { outcome: RequestOutcome::Failed(failure), ..Self::default() }
    }

    /// The changes of the drafts, or a failure if their values are too large for one update.
    fn made(drafts: Drafts<impl ReadKey>, outcome: RequestOutcome, seen: WriteResult) -> Self {
        match drafts.finish() {
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
        Write::Put { key, value, ttl } => {
            let before = if matches!(ttl, Ttl::Usual | Ttl::Set(_)) { None } else { read(&key)? };
            Resolved::set(key, value, clearing(ttl, before.as_ref(), terms.stamp), RequestOutcome::Done)
        }
        Write::Delete { key } => Resolved::change(key, None, RequestOutcome::Done),
        Write::CompareAndSwap { key, expected, value, ttl } => {
            let newest = read(&key)?;
            let version = version_of(&newest);
            if version == expected {
                match value {
                    Some(value) => {
                        let expires = clearing(ttl, newest.as_ref(), terms.stamp);
                        Resolved::set(key, value, expires, RequestOutcome::Done)
                    }
                    None => Resolved::change(key, None, RequestOutcome::Done),
                }
            } else {
                Resolved {
                    outcome: RequestOutcome::Conflict(version),
                    seen: WriteResult::of(newest),
                    ..Resolved::default()
                }
            }
        }
        Write::Append { key, value, ttl } => {
            let before = read(&key)?;
            extended(key, before, |before| (before, value), ttl, terms)
        }
        Write::Prepend { key, value, ttl } => {
            let before = read(&key)?;
            extended(key, before, |before| (value, before), ttl, terms)
        }
        Write::Increment { key, by, ttl } => {
            let before = read(&key)?;
            let expires = keeping(ttl, before.as_ref(), terms.stamp);
            match incremented(before.and_then(|held| held.value), by) {
                Ok(number) => Resolved::set(key, decimal(number), expires, RequestOutcome::Number(number)),
                Err(failure) => Resolved::failed(failure),
            }
        }
        Write::Expire { key, ttl, when } => {
            let expires = ttl.map(|ttl| Expiry::after(terms.stamp, ttl));
            let changes = read(&key)?.is_some_and(|held| may_expire(when, held.expires, expires));
            let change = changes.then(|| KeyChange::renewal(key, expires));
            let changes = RequestOutcome::Changed(changes);
            Resolved { changes: change.into_iter().collect(), outcome: changes, ..Resolved::default() }
        }
        Write::PutSequential { prefix, value, ttl } => {
            let key = sequential_key(&prefix, terms.at);
            Resolved::set(key, value, clearing(ttl, None, terms.stamp), RequestOutcome::Done)
        }
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
        if !holds(expected, version, newest.as_ref().and_then(|held| held.value.as_ref())) {
            let outcome = RequestOutcome::Unmet { step: at as u32, version };
            return Ok(Resolved { outcome, seen: WriteResult::of(newest), ..Resolved::default() });
        }
    }
    // Only the last change of each key is kept.
    let mut drafts = Drafts::new(terms, read);
    for step in steps {
        let done = match step {
            Step::Require { .. } => Ok(()),
            Step::Put { key, value, ttl } => {
                drafts.set(key, value, ttl)?;
                Ok(())
            }
            Step::Delete { key } => {
                drafts.delete(key);
                Ok(())
            }
            Step::Append { key, value, ttl } => drafts.extend(key, value, End::Back, ttl)?.map(drop),
            Step::Prepend { key, value, ttl } => drafts.extend(key, value, End::Front, ttl)?.map(drop),
            Step::Increment { key, by, ttl } => drafts.increment(key, by, ttl)?.map(drop),
            Step::Expire { key, ttl, when } => {
                drafts.expire(key, ttl, when)?;
                Ok(())
            }
        };
        if let Err(failure) = done {
            return Ok(Resolved::failed(failure));
        }
    }
    Ok(Resolved::made(drafts, RequestOutcome::Done, WriteResult::Nothing))
}

fn version_of(held: &Option<Held>) -> Version {
    held.as_ref().map_or(Version::NONE, |held| held.version)
}

/// Whether a condition holds for a key with this version and value; `None`: it is absent.
fn holds(expected: &Expected, version: Version, value: Option<&Bytes>) -> bool {
    match expected {
        Expected::Absent => version.is_none(),
        Expected::Present => !version.is_none(),
        Expected::Version(wanted) => version == *wanted,
        Expected::Value(wanted) => value == Some(wanted),
        Expected::NotValue(other) => value != Some(other),
    }
}

/// The expiry of a value that replaces `before`.
fn clearing(ttl: Ttl, before: Option<&Held>, stamp: u64) -> Option<Expiry> {
    let ttl = if ttl == Ttl::Usual { None } else { Some(ttl) };
    ttl.and_then(|ttl| keeping(ttl, before, stamp))
}

/// The expiry of a value that changes `before`.
fn keeping(ttl: Ttl, before: Option<&Held>, stamp: u64) -> Option<Expiry> {
    match (ttl, before) {
        (Ttl::Set(ttl), _) | (Ttl::IfNew(ttl), None) => Some(Expiry::after(stamp, ttl)),
        (_, before) => before.and_then(|held| held.expires),
    }
}

/// Whether a key's expiry is replaced. `None`: never, which is later than any other.
fn may_expire(when: Option<ExpireIf>, before: Option<Expiry>, new: Option<Expiry>) -> bool {
    let is_later = |a: Option<Expiry>, b: Option<Expiry>| b.is_some_and(|b| a.is_none_or(|a| a > b));
    match when {
        None => before.is_some() || new.is_some(),
        Some(ExpireIf::Unset) => before.is_none() && new.is_some(),
        Some(ExpireIf::Set) => before.is_some(),
        Some(ExpireIf::Later) => is_later(new, before),
        Some(ExpireIf::Sooner) => is_later(before, new),
        Some(ExpireIf::SetAndSooner) => before.is_some() && is_later(before, new),
    }
}

/// The value and the new bytes, in the order that `order` gives them.
fn extended(
    key: Bytes,
    before: Option<Held>,
    order: impl FnOnce(Bytes) -> (Bytes, Bytes),
    ttl: Ttl,
    terms: Terms,
) -> Resolved {
    let expires = keeping(ttl, before.as_ref(), terms.stamp);
    let (front, back) = order(before.and_then(|held| held.value).unwrap_or_default());
    let length = front.len() + back.len();
    if length > terms.limit {
        return Resolved::failed(RequestFailure::TooLarge(length as u64));
    }
    let (value, joins) = match (front.is_empty(), back.is_empty()) {
        (true, _) => (back, Joins::default()),
        (_, true) => (front, Joins::default()),
        _ => Joins::of_one(front, back),
    };
    Resolved { joins, ..Resolved::set(key, value, expires, RequestOutcome::Length(length as u64)) }
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
        let held = |sequence, value| Held::new(Version::new(1, sequence), Some(b(value)));
        Ok(match &key[..] {
            b"number" => Some(held(1, "41")),
            b"text" => Some(held(2, "abc")),
            _ => None,
        })
    }

    const TERMS: Terms = Terms { at: Version::new(1, 9), stamp: 1000, limit: 8, most: 24, keeps_failed_groups: false };

    fn resolved(write: Write) -> (Vec<(Bytes, Option<Bytes>)>, RequestOutcome) {
        let mut resolved = resolve(write, TERMS, read).unwrap();
        resolved.join_some(usize::MAX);
        (resolved.changes.into_iter().map(|change| (change.key, change.value)).collect(), resolved.outcome)
    }

    #[test]
    fn numbers_are_counted_in_decimal() {
        let by = |key, by| resolved(Write::increment(b(key), by));
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
        let append = |key, value| resolved(Write::append(b(key), b(value)));
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
            Step::put(b("number"), b("7")),
            Step::increment(b("number"), 1),
            Step::append(b("text"), b("d")),
            Step::append(b("text"), b("e")),
            Step::put(b("new"), b("x")),
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
        failing.push(Step::increment(b("text"), 1));
        assert_eq!(resolved(Write::Batch(failing)), (vec![], RequestOutcome::Failed(RequestFailure::NotANumber)));
    }
}
