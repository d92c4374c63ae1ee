//! What a script comes to: its groups one after the other, each over what those before it left.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{Resolved, Seen, Terms, appended, decimal, holds, incremented, version_of};
use crate::{
    Version,
    replica::{Group, GroupFailure, GroupOutcome, Requirement, Script, ScriptStep, StepOutcome},
    store::{Held, StoreError},
    update::{Change, Failure, Outcome},
};

/// Keys and what they hold once this is done.
type Changed = BTreeMap<Bytes, Option<Bytes>>;

pub(super) fn script(
    script: Script,
    terms: Terms,
    read: impl Fn(&Bytes) -> Result<Option<Held>, StoreError>,
) -> Result<Resolved, StoreError> {
    for (at, Requirement { key, expected }) in script.require.iter().enumerate() {
        let newest = read(key)?;
        let version = version_of(&newest);
        if !holds(*expected, version) {
            let outcome = Outcome::Unmet { step: at as u32, version };
            return Ok(Resolved { outcome, seen: Seen::of(newest), ..Resolved::default() });
        }
    }
    let mut run = Run { terms, read, before: Changed::new(), now: Changed::new(), told: 0 };
    let mut outcomes = Vec::with_capacity(script.groups.len());
    for group in script.groups {
        match run.group(group) {
            Ok(outcome) => outcomes.push(outcome),
            Err(Stop::Store(error)) => return Err(error),
            Err(Stop::TellsTooMuch) => return Ok(Resolved::failed(Failure::ResultsTooLarge(run.told as u64))),
        }
    }
    let changes = run.before.into_iter().map(|(key, value)| Change { key, value }).collect();
    Ok(Resolved { changes, outcome: Outcome::Ran, seen: Seen::Results(outcomes) })
}

/// A script under way.
struct Run<R> {
    terms: Terms,
    read: R,
    /// What the groups before this one did.
    before: Changed,
    /// What this one has done so far: dropped if it fails.
    now: Changed,
    /// Bytes of the values told so far.
    told: usize,
}

/// Why a script can't go on.
enum Stop {
    Store(StoreError),
    TellsTooMuch,
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl<R: Fn(&Bytes) -> Result<Option<Held>, StoreError>> Run<R> {
    fn group(&mut self, group: Group) -> Result<GroupOutcome, Stop> {
        for (at, Requirement { key, expected }) in group.require.iter().enumerate() {
            let version = version_of(&self.held(key)?);
            if !holds(*expected, version) {
                return Ok(Err(GroupFailure::Unmet { requirement: at as u32, version }));
            }
        }
        let mut told = Vec::with_capacity(group.steps.len());
        for (at, step) in group.steps.into_iter().enumerate() {
            match self.step(step)? {
                Ok(outcome) => told.push(outcome),
                Err(failure) => {
                    if !self.terms.keeps_failed_groups {
                        self.now.clear();
                    }
                    self.before.append(&mut self.now);
                    return Ok(Err(GroupFailure::Failed { step: at as u32, failure }));
                }
            }
        }
        self.before.append(&mut self.now);
        Ok(Ok(told))
    }

    fn step(&mut self, step: ScriptStep) -> Result<Result<StepOutcome, Failure>, Stop> {
        let (key, value, outcome) = match step {
            ScriptStep::Get { key } => return Ok(Ok(self.found(&key)?)),
            ScriptStep::Length { key } => {
                let length = self.value(&key)?.map(|value| value.len() as u64);
                return Ok(Ok(StepOutcome::Length(length)));
            }
            // What isn't there needs no tombstone.
            ScriptStep::Delete { key } => match self.value(&key)? {
                None => return Ok(Ok(StepOutcome::Deleted(false))),
                Some(_) => (key, None, StepOutcome::Deleted(true)),
            },
            ScriptStep::GetDelete { key } => match self.found(&key)? {
                StepOutcome::Found(None) => return Ok(Ok(StepOutcome::Found(None))),
                found => (key, None, found),
            },
            ScriptStep::Put { key, value } => (key, Some(value), StepOutcome::Done),
            ScriptStep::Append { key, value } => match appended(self.value(&key)?, &value, self.terms.limit) {
                Err(failure) => return Ok(Err(failure)),
                Ok(value) => {
                    let length = value.len() as u64;
                    (key, Some(value), StepOutcome::Appended(length))
                }
            },
            ScriptStep::Increment { key, by } => match incremented(self.value(&key)?, by) {
                Err(failure) => return Ok(Err(failure)),
                Ok(number) => (key, Some(decimal(number)), StepOutcome::Number(number)),
            },
        };
        self.now.insert(key, value);
        Ok(Ok(outcome))
    }

    /// What the key holds at this moment, and its version.
    fn held(&self, key: &Bytes) -> Result<Option<Held>, StoreError> {
        match self.now.get(key).or_else(|| self.before.get(key)) {
            Some(None) => Ok(None),
            Some(Some(value)) => Ok(Some(Held { version: self.terms.at, value: Some(value.clone()) })),
            None => (self.read)(key),
        }
    }

    fn value(&self, key: &Bytes) -> Result<Option<Bytes>, StoreError> {
        Ok(self.held(key)?.and_then(|held| held.value))
    }

    /// What is told of the key. The values of a group that fails count too: they were held up to then.
    fn found(&mut self, key: &Bytes) -> Result<StepOutcome, Stop> {
        let found: Option<(Version, Bytes)> = self.held(key)?.and_then(|held| Some((held.version, held.value?)));
        self.told += found.as_ref().map_or(0, |(_, value)| value.len());
        if self.told > self.terms.limit { Err(Stop::TellsTooMuch) } else { Ok(StepOutcome::Found(found)) }
    }
}

#[cfg(test)]
mod tests;
