//! Commands that run consecutively in one update: pipelined writes, and transactions.

use std::{slice::Iter, time::Duration};

use artillery_ddata::{
    Batch, Error, Kv, Script, Version,
    error::Unknown,
    kv::{Expected, ExpireIf, Group, GroupFailure, GroupOutcome, RequestFailure, StepOutcome, Versioned},
};
use bytes::Bytes;

use super::{
    expiry::Expires,
    failure::{FLOAT, NO_SUCH_KEY, NOT_AN_INTEGER, NOT_FINITE, OVERFLOW, TOO_LONG, told},
    read::{Found, Read, What},
    reply::Reply,
    write::{SetAnswer, When, Write, conflict_with, count, is_applied},
};

/// Executes writes in order, in one update. Returns the answer to each.
pub(super) async fn make(kv: &Kv, writes: &[Write]) -> Vec<Reply> {
    if writes.iter().all(Write::is_plain) {
        let reply = make_plain(kv, writes).await.unwrap_or_else(|error| told(&error));
        return vec![reply; writes.len()];
    }
    let script = writes.iter().flat_map(of_write).collect::<Script>();
    match kv.run(script).await {
        Ok(done) => {
            let mut results = Results { version: done.version, outcomes: done.result.iter() };
            writes.iter().map(|write| results.of_write(write)).collect()
        }
        Err(error) => match error.into_conflict() {
            // Can't happen: the script as a whole has no conditions.
            Ok(conflict) => vec![conflict_with(conflict.version()); writes.len()],
            Err(error) => writes.iter().map(|write| without_results(write, &error)).collect(),
        },
    }
}

/// Executes plain writes in order, in one update. Returns their common answer.
pub(super) async fn make_plain<'a>(kv: &Kv, writes: impl IntoIterator<Item = &'a Write>) -> Result<Reply, Error> {
    let mut puts = Vec::new();
    for write in writes {
        match write {
            Write::Set { key, value, expires, .. } => puts.push((key, value, *expires)),
            Write::SetMany { pairs, .. } => {
                puts.extend(pairs.iter().map(|(key, value)| (key, value, Expires::Never)));
            }
            _ => {}
        }
    }
    if let [(key, value, expires)] = puts[..] {
        return expires.of_call(kv.put(key, value.clone())).await.map(|_| Reply::OK);
    }
    let put = |batch: Batch, (key, value, expires): (&Bytes, &Bytes, Expires)| {
        expires.of_batch(batch.put(key, value.clone()))
    };
    let batch = puts.into_iter().fold(Batch::new(), put);
    // The batch has no conditions, so it can't conflict.
    is_applied(kv.write(batch).await).map(|_| Reply::OK)
}

/// The answer to a write whose script failed. If the script certainly ran and only its results are lost, an
/// unconditional write has been applied.
fn without_results(write: &Write, error: &Error) -> Reply {
    match error {
        Error::OutcomeUnknown { reason: Unknown::ResultsLost(_), .. } if write.is_plain() => Reply::OK,
        error => told(error),
    }
}

/// The steps of a read: one group, which never fails.
pub(super) fn of_read(read: &Read) -> Group {
    let step = if let What::Left(_) = read.what { Group::expires_in } else { Group::get };
    read.keys.iter().fold(Group::new(), step)
}

/// The steps of a write, in groups that fail independently.
pub(super) fn of_write(write: &Write) -> Vec<Group> {
    let group = Group::new();
    match write {
        Write::Set { key, value, when, answer, expires } => {
            let put = expires.of_group(required(group, key, when).put(key, value.clone()));
            let put = if expires.is_over() { put.delete(key) } else { put };
            if *answer == SetAnswer::Old { vec![Group::new().get(key), put] } else { vec![put] }
        }
        Write::SetMany { pairs, absent } => {
            let group = match absent {
                true => pairs.iter().fold(group, |group, (key, _)| group.require(key, Expected::Absent)),
                false => group,
            };
            vec![pairs.iter().fold(group, |group, (key, value)| group.put(key, value.clone()))]
        }
        Write::Delete(keys) => vec![keys.iter().fold(group, Group::delete)],
        Write::Take(key) => vec![group.get_delete(key)],
        Write::Append { key, value } => vec![group.append(key, value.clone())],
        Write::Add { key, by } => vec![group.increment(key, *by)],
        Write::Swap { key, expected, value } => {
            let expected = if expected.is_none() { Expected::Absent } else { Expected::Version(*expected) };
            vec![group.require(key, expected).put(key, value.clone())]
        }
        Write::Expire { key, ms, when } => vec![expiring(group, key, *ms, *when)],
        Write::GetExpire { key, ms } => vec![expiring(group.get(key), key, *ms, None)],
        Write::DeleteIf { key, when } => vec![required(group, key, when).delete(key)],
        Write::AddFloat { key, by } => vec![group.increment_float(key, by.clone())],
        Write::SetRange { key, offset, value } => vec![group.set_range(key, *offset, value.clone())],
        Write::Rename { from, to, absent } => {
            let group = group.require(from, Expected::Present);
            vec![match absent {
                _ if from == to => group.length(from),
                true => group.require(to, Expected::Absent).copy(from, to).delete(from),
                false => group.copy(from, to).delete(from),
            }]
        }
        Write::Copy { from, to, replace } => {
            let group = if *replace { group } else { group.require(to, Expected::Absent) };
            vec![group.copy(from, to)]
        }
    }
}

fn required(group: Group, key: &Bytes, when: &When) -> Group {
    if let Some(expected) = when.expected() { group.require(key, expected) } else { group }
}

fn expiring(group: Group, key: &Bytes, ms: Option<u64>, when: Option<ExpireIf>) -> Group {
    match ms {
        Some(ms) => group.expire(key, Duration::from_millis(ms), when),
        None => group.persist(key),
    }
}

/// The results of a script, group by group, in the order of its commands.
pub(super) struct Results<'a> {
    pub(super) version: Version,
    pub(super) outcomes: Iter<'a, GroupOutcome>,
}

impl Results<'_> {
    pub(super) fn of_read(&mut self, read: &Read) -> Reply {
        match self.outcomes.next() {
            Some(Ok(steps)) => match (read.what, steps.as_slice()) {
                (What::Left(unit), [StepOutcome::ExpiresIn(left)]) => {
                    unit.answer(left.map(|left| left.map(Duration::from_millis)))
                }
                _ => read.answer(&steps.iter().map(found).collect::<Vec<Found>>(), false),
            },
            other => failed(other),
        }
    }

    pub(super) fn of_write(&mut self, write: &Write) -> Reply {
        let old = match write {
            Write::Set { answer: SetAnswer::Old, .. } => Some(self.value()),
            _ => None,
        };
        let outcome = self.outcomes.next();
        if let Some(old) = old {
            return Reply::found(old);
        }
        match (write, outcome) {
            (Write::Set { answer, .. }, Some(Err(GroupFailure::Unmet { .. }))) => answer.of(false),
            (Write::Set { answer, .. }, Some(Ok(_))) => answer.of(true),
            (Write::SetMany { absent: true, .. }, Some(Err(GroupFailure::Unmet { .. }))) => Reply::flag(false),
            (Write::SetMany { absent: true, .. }, Some(Ok(_))) => Reply::flag(true),
            (Write::SetMany { absent: false, .. }, Some(Ok(_))) => Reply::OK,
            (Write::Swap { .. }, Some(Err(GroupFailure::Unmet { version, .. }))) => conflict_with(*version),
            (Write::Swap { .. }, Some(Ok(_))) => Reply::text(self.version.to_string()),
            (Write::DeleteIf { .. } | Write::Copy { .. }, Some(Err(GroupFailure::Unmet { .. }))) => Reply::flag(false),
            (Write::Rename { .. }, Some(Err(GroupFailure::Unmet { requirement: 0, .. }))) => Reply::error(NO_SUCH_KEY),
            (Write::Rename { .. }, Some(Err(GroupFailure::Unmet { .. }))) => Reply::flag(false),
            (Write::Rename { absent: false, .. }, Some(Ok(_))) => Reply::OK,
            (Write::Rename { from, to, .. }, Some(Ok(_))) => Reply::flag(from != to),
            (Write::AddFloat { .. } | Write::SetRange { .. }, Some(Err(GroupFailure::Failed { failure, .. }))) => {
                Reply::error(match failure {
                    RequestFailure::Overflow => NOT_FINITE,
                    RequestFailure::TooLarge(_) => TOO_LONG,
                    _ => FLOAT,
                })
            }
            (Write::Delete(_) | Write::DeleteIf { .. }, Some(Ok(steps))) => {
                Reply::count(steps.iter().filter(|step| matches!(step, StepOutcome::Deleted(true))).count())
            }
            (Write::Take(_) | Write::GetExpire { .. }, Some(Ok(steps))) => {
                Reply::found(steps.first().and_then(found).map(|found| found.value))
            }
            (_, Some(Ok(steps))) => match steps.first() {
                Some(StepOutcome::Appended(length)) => count(*length),
                Some(StepOutcome::Number(number)) => Reply::Number(*number),
                Some(StepOutcome::Changed(changed)) => Reply::flag(*changed),
                Some(StepOutcome::Decimal(number)) => Reply::Value(number.clone()),
                _ => failed(None),
            },
            (_, other) => failed(other),
        }
    }

    /// The value that the next group found.
    fn value(&mut self) -> Option<Bytes> {
        let steps = self.outcomes.next()?.as_ref().ok()?;
        steps.first().and_then(found).map(|found| found.value)
    }
}

fn found(step: &StepOutcome) -> Found {
    match step {
        StepOutcome::Found(Some((version, value))) => Some(Versioned { version: *version, value: value.clone() }),
        _ => None,
    }
}

/// The answer to a command whose group failed or has no result.
fn failed(outcome: Option<&GroupOutcome>) -> Reply {
    match outcome {
        Some(Err(GroupFailure::Failed { failure, .. })) => match failure {
            RequestFailure::NotANumber => Reply::error(NOT_AN_INTEGER),
            RequestFailure::Overflow => Reply::error(OVERFLOW),
            RequestFailure::TooLarge(len) => Reply::error(format_args!("a value of {len} bytes is above the limit")),
            _ => Reply::error("the command failed"),
        },
        Some(Err(failure)) => Reply::error(failure),
        _ => Reply::Error("UNKNOWN the command was applied, but its result is lost".into()),
    }
}
