//! Commands that run consecutively in one update: pipelined writes, and transactions.

use std::slice::Iter;

use artillery_ddata::{
    Batch, Error, Kv, Script, Version,
    error::Unknown,
    kv::{Expected, Group, GroupFailure, GroupOutcome, RequestFailure, StepOutcome, Versioned},
};
use bytes::Bytes;

use super::{
    failure::{NOT_AN_INTEGER, OVERFLOW, told},
    read::{Found, Read},
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
            Write::Set { key, value, .. } => puts.push((key, value)),
            Write::SetMany { pairs, .. } => puts.extend(pairs.iter().map(|(key, value)| (key, value))),
            _ => {}
        }
    }
    if let [(key, value)] = puts[..] {
        return kv.put(key, value.clone()).await.map(|_| Reply::OK);
    }
    let batch = puts.into_iter().fold(Batch::new(), |batch, (key, value)| batch.put(key, value.clone()));
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
    read.keys.iter().fold(Group::new(), Group::get)
}

/// The steps of a write, in groups that fail independently.
pub(super) fn of_write(write: &Write) -> Vec<Group> {
    let group = Group::new();
    match write {
        Write::Set { key, value, when, answer } => {
            let put = match when {
                When::Always => group,
                When::Absent => group.require(key, Expected::Absent),
                When::Present => group.require(key, Expected::Present),
            };
            let put = put.put(key, value.clone());
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
            Some(Ok(steps)) => {
                let found: Vec<Found> = steps.iter().map(found).collect();
                read.answer(&found, false)
            }
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
            (Write::Delete(_), Some(Ok(steps))) => {
                Reply::count(steps.iter().filter(|step| matches!(step, StepOutcome::Deleted(true))).count())
            }
            (Write::Take(_), Some(Ok(steps))) => Reply::found(steps.first().and_then(found).map(|found| found.value)),
            (Write::Append { .. } | Write::Add { .. }, Some(Ok(steps))) => match steps.first() {
                Some(StepOutcome::Appended(length)) => count(*length),
                Some(StepOutcome::Number(number)) => Reply::Number(*number),
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
