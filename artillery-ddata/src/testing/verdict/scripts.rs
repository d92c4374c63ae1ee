//! The effect of a script on one key: certain if its results are known, else the possible effects.
//!
//! Whether a group failed may depend on other keys. So a script without results may have had any of several effects,
//! and only an impossible one is an error. The keys of scripts are not checked as registers.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::{
    Sight,
    content::{Content, appended, holds, incremented, number_of, prepended, with_range},
};
use crate::{
    Version,
    api::{
        Computed, GroupFailure, GroupOutcome, ScriptGroup, ScriptStep, ScriptWrite, StepOutcome, WriteReply,
        decimal_sum,
    },
};

/// Once a script may have left this many contents, its further groups aren't tried.
pub(super) const MAX_CONTENTS: usize = 1000;

/// The keys that a script changes if no group fails, once for each step.
pub(super) fn changing(script: &ScriptWrite) -> impl Iterator<Item = &Bytes> {
    let steps = script.groups.iter().flat_map(|group| &group.steps);
    steps.filter(|step| changes(step)).map(ScriptStep::key)
}

fn changes(step: &ScriptStep) -> bool {
    !matches!(step, ScriptStep::Get { .. } | ScriptStep::Length { .. })
}

/// The steps of the groups that didn't fail, with their outcomes.
fn done<'a>(
    script: &'a ScriptWrite,
    outcomes: &'a [GroupOutcome],
) -> impl Iterator<Item = (&'a ScriptStep, &'a StepOutcome)> {
    let told = |(group, outcome): (&'a ScriptGroup, &'a GroupOutcome)| Some((group, outcome.as_ref().ok()?));
    script.groups.iter().zip(outcomes).filter_map(told).flat_map(|(group, told)| group.steps.iter().zip(told))
}

/// The values of other writes that the script's results show.
pub(super) fn sights<'a>(script: &'a ScriptWrite, reply: &'a WriteReply) -> Vec<Sight<'a>> {
    let Computed::Ran(outcomes) = &reply.result else { return Vec::new() };
    let sight = |(step, told): (&'a ScriptStep, &'a StepOutcome)| match told {
        StepOutcome::Found(Some((version, value))) if *version != reply.version => {
            Some(Sight { key: step.key(), version: *version, value: Some(value) })
        }
        _ => None,
    };
    done(script, outcomes).filter_map(sight).collect()
}

/// The key's content after a script that was committed as `at` with these `outcomes`.
///
/// # Errors
/// Why these outcomes are impossible.
pub(super) fn after(
    script: &ScriptWrite,
    outcomes: &[GroupOutcome],
    key: &Bytes,
    at: Version,
    content: &Content,
) -> Result<Content, String> {
    let wrong = |what: &str, now: &Content| format!("{what} of {script:?}, which returned {outcomes:?}, over {now:?}");
    if outcomes.len() != script.groups.len() {
        return Err(wrong("outcomes are missing", content));
    }
    if script.require.iter().any(|required| required.key == key && !holds(content, &required.expected)) {
        return Err(wrong("a requirement wasn't met", content));
    }
    let mut now = content.clone();
    for (group, outcome) in script.groups.iter().zip(outcomes) {
        let mut next = now.clone();
        match outcome {
            Ok(told) => {
                let unmet =
                    group.require.iter().any(|required| required.key == key && !holds(&now, &required.expected));
                if unmet || told.len() != group.steps.len() {
                    return Err(wrong("an impossible group ran", &now));
                }
                for (step, told) in group.steps.iter().zip(told).filter(|(step, _)| step.key() == key) {
                    let before = next.clone();
                    next = stepped(step, at, &before).ok_or_else(|| wrong("an impossible step was done", &before))?;
                    if !told_right(told, &before, &next) {
                        return Err(wrong("a step returned something else", &before));
                    }
                }
                now = next;
            }
            Err(failure) if !may_fail(group, *failure, key, at, next) => {
                return Err(wrong("a group failed without a reason", &now));
            }
            Err(_) => {}
        }
    }
    Ok(now)
}

/// Whether the content of this key is consistent with this failure of the group.
fn may_fail(group: &ScriptGroup, failure: GroupFailure, key: &Bytes, at: Version, mut now: Content) -> bool {
    match failure {
        GroupFailure::Unmet { requirement, version } => match group.require.get(requirement as usize) {
            Some(required) if required.key == key => {
                !holds(&now, &required.expected) && now.value.is_none() == version.is_none()
            }
            required => required.is_some(),
        },
        GroupFailure::Failed { step, .. } => {
            let Some(failed) = group.steps.get(step as usize) else { return false };
            for step in group.steps.iter().take(step as usize).filter(|step| step.key() == key) {
                let Some(next) = stepped(step, at, &now) else { return false };
                now = next;
            }
            match failed {
                ScriptStep::Increment { key: of, by, .. } => {
                    of != key || incremented(now.value.as_ref(), *by).is_none()
                }
                // The limit of a value's length isn't known here.
                ScriptStep::Append { .. } | ScriptStep::Prepend { .. } | ScriptStep::SetRange { .. } => true,
                ScriptStep::IncrementFloat { key: of, by, .. } => {
                    of != key || decimal_sum(now.value.as_deref(), by).is_err()
                }
                _ => false,
            }
        }
        // An unknown failure is treated as impossible.
        _ => false,
    }
}

/// The key's content after a step. `None`: the step fails.
fn stepped(step: &ScriptStep, at: Version, now: &Content) -> Option<Content> {
    let value = match step {
        ScriptStep::Get { .. } | ScriptStep::Length { .. } | ScriptStep::ExpiresIn { .. } => return Some(now.clone()),
        // Copies are treated as unknown.
        ScriptStep::Expire { .. } | ScriptStep::Copy { .. } => return Some(now.clone()),
        ScriptStep::Delete { .. } | ScriptStep::GetDelete { .. } if now.value.is_none() => return Some(now.clone()),
        ScriptStep::Delete { .. } | ScriptStep::GetDelete { .. } => None,
        ScriptStep::Put { value, .. } => Some(value.clone()),
        ScriptStep::Append { value, .. } => Some(appended(now.value.as_ref(), value)),
        ScriptStep::Prepend { value, .. } => Some(prepended(now.value.as_ref(), value)),
        ScriptStep::Increment { by, .. } => Some(incremented(now.value.as_ref(), *by)?),
        ScriptStep::IncrementFloat { by, .. } => Some(decimal_sum(now.value.as_deref(), by).ok()?.into()),
        ScriptStep::SetRange { value, .. } if value.is_empty() => return Some(now.clone()),
        ScriptStep::SetRange { offset, value, .. } => Some(with_range(now.value.as_ref(), *offset, value)?),
    };
    Some(Content { value, version: Some(at) })
}

fn told_right(told: &StepOutcome, before: &Content, after: &Content) -> bool {
    match told {
        StepOutcome::Done => true,
        StepOutcome::Deleted(was_there) => before.value.is_some() == *was_there,
        StepOutcome::Found(None) => before.value.is_none(),
        StepOutcome::Found(Some((version, value))) => {
            before.version == Some(*version) && before.value.as_ref() == Some(value)
        }
        StepOutcome::Length(length) => before.value.as_ref().map(|value| value.len() as u64) == *length,
        StepOutcome::Appended(0) if after.value.is_none() => true,
        StepOutcome::Appended(length) => after.value.as_ref().is_some_and(|value| value.len() as u64 == *length),
        StepOutcome::Number(number) => number_of(after.value.as_ref()) == Some(*number),
        StepOutcome::Decimal(number) => after.value.as_ref() == Some(number),
        // An unknown outcome is treated as wrong.
        _ => false,
    }
}

/// The possible values of the key after a script without results, if the script changed the key.
pub(super) fn perhaps(script: &ScriptWrite, key: &Bytes, content: &Content) -> Vec<Option<Bytes>> {
    if script.require.iter().any(|required| required.key == key && !holds(content, &required.expected)) {
        return Vec::new();
    }
    // A version that no condition can name: the script's own didn't exist when the script was requested.
    let at = Version::new(u64::MAX, u64::MAX);
    let mut contents = BTreeSet::from([content.clone()]);
    for group in script.groups.iter().filter(|group| group.steps.iter().any(|step| step.key() == key)) {
        let ran: Vec<Content> = contents.iter().filter_map(|now| group_ran(group, key, at, now)).collect();
        if is_certain(group, key) {
            contents.retain(|now| group_ran(group, key, at, now).is_none());
        }
        contents.extend(ran);
        if contents.len() >= MAX_CONTENTS {
            break;
        }
    }
    let made = contents.into_iter().filter(|after| after.version == Some(at)).map(|after| after.value);
    made.collect::<BTreeSet<_>>().into_iter().collect()
}

/// The key's content after a group. `None`: this key makes the group fail.
fn group_ran(group: &ScriptGroup, key: &Bytes, at: Version, now: &Content) -> Option<Content> {
    if group.require.iter().any(|required| required.key == key && !holds(now, &required.expected)) {
        return None;
    }
    let steps = group.steps.iter().filter(|step| step.key() == key);
    steps.into_iter().try_fold(now.clone(), |now, step| stepped(step, at, &now))
}

/// Whether this key alone determines whether a group fails: neither other keys nor the limit of a value's length
/// matter.
fn is_certain(group: &ScriptGroup, key: &Bytes) -> bool {
    let may_grow = |step: &ScriptStep| matches!(step, ScriptStep::Append { .. } | ScriptStep::SetRange { .. });
    group.keys().all(|other| other == key) && !group.steps.iter().any(may_grow)
}
