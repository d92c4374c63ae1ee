//! Resolves a script: its groups run in order, each on top of the changes of the earlier ones.

use bytes::Bytes;

use super::{
    ReadKey, Resolved, Terms, WriteResult,
    draft::{Drafts, End},
    holds, version_of,
};
use crate::{
    Expiry,
    api::{GroupFailure, GroupOutcome, Requirement, ScriptGroup, ScriptStep, ScriptWrite, StepOutcome},
    store::StoreError,
    types::update::{RequestFailure, RequestOutcome},
};

pub(super) fn script(script: ScriptWrite, terms: Terms, read: impl ReadKey) -> Result<Resolved, StoreError> {
    for (at, Requirement { key, expected }) in script.require.iter().enumerate() {
        let newest = read(key)?;
        let version = version_of(&newest);
        if !holds(expected, version, newest.as_ref().and_then(|held| held.value.as_ref())) {
            let outcome = RequestOutcome::Unmet { step: at as u32, version };
            return Ok(Resolved { outcome, seen: WriteResult::of(newest), ..Resolved::default() });
        }
    }
    let mut run = ScriptRun { terms, drafts: Drafts::new(terms, read), told: 0 };
    let mut outcomes = Vec::with_capacity(script.groups.len());
    for group in script.groups {
        match run.group(group) {
            Ok(outcome) => outcomes.push(outcome),
            Err(Stop::Store(error)) => return Err(error),
            Err(Stop::TellsTooMuch) => return Ok(Resolved::failed(RequestFailure::ResultsTooLarge(run.told as u64))),
        }
    }
    Ok(Resolved::made(run.drafts, RequestOutcome::Ran, WriteResult::Results(outcomes)))
}

struct ScriptRun<R> {
    terms: Terms,
    /// The changes of the steps that have run, except those of failed groups.
    drafts: Drafts<R>,
    /// Bytes of the values read for the results, including those of failed groups.
    told: usize,
}

/// Why a script is aborted.
enum Stop {
    Store(StoreError),
    TellsTooMuch,
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl<R: ReadKey> ScriptRun<R> {
    fn group(&mut self, group: ScriptGroup) -> Result<GroupOutcome, Stop> {
        for (at, Requirement { key, expected }) in group.require.iter().enumerate() {
            if let Err(version) = self.drafts.holds(key, expected)? {
                return Ok(Err(GroupFailure::Unmet { requirement: at as u32, version }));
            }
        }
        self.drafts.begin();
        let mut told = Vec::with_capacity(group.steps.len());
        for (at, step) in group.steps.into_iter().enumerate() {
            match self.step(step)? {
                Ok(outcome) => told.push(outcome),
                Err(failure) => {
                    if !self.terms.keeps_failed_groups {
                        self.drafts.undo();
                    }
                    return Ok(Err(GroupFailure::Failed { step: at as u32, failure }));
                }
            }
        }
        Ok(Ok(told))
    }

    fn step(&mut self, step: ScriptStep) -> Result<Result<StepOutcome, RequestFailure>, Stop> {
        Ok(Ok(match step {
            ScriptStep::Get { key } => self.found(&key)?,
            ScriptStep::Length { key } => StepOutcome::Length(self.drafts.length(&key)?.map(|len| len as u64)),
            ScriptStep::Delete { key } => {
                // An absent key needs no tombstone.
                let is_there = self.drafts.length(&key)?.is_some();
                if is_there {
                    self.drafts.delete(key);
                }
                StepOutcome::Deleted(is_there)
            }
            ScriptStep::GetDelete { key } => {
                let found = self.found(&key)?;
                if !matches!(found, StepOutcome::Found(None)) {
                    self.drafts.delete(key);
                }
                found
            }
            ScriptStep::Put { key, value, ttl } => {
                self.drafts.set(key, value, ttl)?;
                StepOutcome::Done
            }
            ScriptStep::Append { key, value, ttl } => {
                return Ok(self.drafts.extend(key, value, End::Back, ttl)?.map(StepOutcome::Appended));
            }
            ScriptStep::Prepend { key, value, ttl } => {
                return Ok(self.drafts.extend(key, value, End::Front, ttl)?.map(StepOutcome::Appended));
            }
            ScriptStep::Increment { key, by, ttl } => {
                return Ok(self.drafts.increment(key, by, ttl)?.map(StepOutcome::Number));
            }
            ScriptStep::Expire { key, ttl: Some(0), when } => StepOutcome::Changed(self.drafts.expire_now(key, when)?),
            ScriptStep::Expire { key, ttl, when } => StepOutcome::Changed(self.drafts.expire(key, ttl, when)?),
            ScriptStep::ExpiresIn { key } => {
                let left = |expiry: Expiry| expiry.left(self.terms.stamp).as_millis() as u64;
                StepOutcome::ExpiresIn(self.drafts.expiry(&key)?.map(|expiry| expiry.map(left)))
            }
            ScriptStep::Copy { key, to } => {
                // A copy is assembled at once, so it is counted like a value for the results.
                self.told += self.drafts.length(&key)?.unwrap_or(0);
                if self.told > self.terms.limit {
                    return Err(Stop::TellsTooMuch);
                }
                StepOutcome::Changed(self.drafts.copy(&key, to)?)
            }
            ScriptStep::IncrementFloat { key, by, ttl } => {
                let sum = self.drafts.increment_float(key, &by, ttl)?;
                self.told += sum.as_ref().map_or(0, Bytes::len);
                if self.told > self.terms.limit {
                    return Err(Stop::TellsTooMuch);
                }
                return Ok(sum.map(StepOutcome::Decimal));
            }
            ScriptStep::SetRange { key, offset, value, ttl } => {
                // The zeros are made here and not sent, so they are limited like results.
                let len = self.drafts.length(&key)?.unwrap_or(0) as u64;
                let zeros = if value.is_empty() { 0 } else { offset.saturating_sub(len) };
                if zeros <= self.terms.limit as u64 {
                    self.told += zeros as usize;
                }
                if self.told > self.terms.limit {
                    return Err(Stop::TellsTooMuch);
                }
                return Ok(self.drafts.set_range(key, offset, value, ttl)?.map(StepOutcome::Appended));
            }
        }))
    }

    /// The key's value for the results. Values read by a failed group are counted too, since they were held until the
    /// group failed.
    fn found(&mut self, key: &Bytes) -> Result<StepOutcome, Stop> {
        // Count the value before it is assembled, so that a value above the limit isn't copied.
        self.told += self.drafts.length(key)?.unwrap_or(0);
        if self.told > self.terms.limit {
            return Err(Stop::TellsTooMuch);
        }
        Ok(StepOutcome::Found(self.drafts.found(key)?))
    }
}

#[cfg(test)]
mod tests;
