//! The effect of a script on one key: certain if its results are known, else the possible effects.
//!
//! Whether a group failed may depend on other keys. So a script without results may have had any of several effects,
//! and only an impossible one is an error. The keys of scripts are not checked as registers.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::{
    Sight,
    clock::Terms,
    content::{Action, Content, holds},
};
use crate::api::{
    Computed, GroupFailure, GroupOutcome, Requirement, ScriptGroup, ScriptStep, ScriptWrite, StepOutcome, WriteReply,
};

/// Once a script may have left this many contents, its further groups aren't tried.
pub(super) const MAX_CONTENTS: usize = 1000;

/// The keys that a script changes if no group fails, once for each step.
pub(super) fn changing(script: &ScriptWrite) -> impl Iterator<Item = &Bytes> {
    let steps = script.groups.iter().flat_map(|group| &group.steps);
    steps.filter_map(|step| match step {
        ScriptStep::Get { .. } | ScriptStep::Length { .. } | ScriptStep::ExpiresIn { .. } => None,
        ScriptStep::Copy { to, .. } => Some(to),
        step => Some(step.key()),
    })
}

/// Whether the step reads or changes the key.
fn concerns(step: &ScriptStep, key: &Bytes) -> bool {
    step.key() == key || matches!(step, ScriptStep::Copy { to, .. } if to == key)
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

/// The key's possible contents after a script that was committed with these `outcomes`.
///
/// # Errors
/// Why these outcomes are impossible.
pub(super) fn after(
    script: &ScriptWrite,
    outcomes: &[GroupOutcome],
    key: &Bytes,
    content: &Content,
    terms: &Terms<'_>,
) -> Result<Vec<Content>, String> {
    let wrong =
        |what: &str, now: &[Content]| format!("{what} of {script:?}, which returned {outcomes:?}, over {now:?}");
    let mut now = vec![content.clone()];
    if outcomes.len() != script.groups.len() {
        return Err(wrong("outcomes are missing", &now));
    }
    if !may_be_met(&script.require, key, content) {
        return Err(wrong("a requirement wasn't met", &now));
    }
    for (group, outcome) in script.groups.iter().zip(outcomes) {
        match outcome {
            Ok(told) => {
                let mut next = now.clone();
                next.retain(|now| may_be_met(&group.require, key, now));
                if next.is_empty() || told.len() != group.steps.len() {
                    return Err(wrong("an impossible group ran", &now));
                }
                for (step, told) in group.steps.iter().zip(told).filter(|(step, _)| concerns(step, key)) {
                    next = done_as_told(step, told, key, &next, terms).map_err(|what| wrong(what, &next))?;
                }
                now = next;
            }
            Err(failure) => {
                let before = now.clone();
                now.retain(|now| may_fail(group, *failure, key, now, terms));
                if now.is_empty() {
                    return Err(wrong("a group failed without a reason", &before));
                }
            }
        }
    }
    Ok(now)
}

/// Whether this key doesn't certainly break one of the conditions.
fn may_be_met(require: &[Requirement], key: &Bytes, content: &Content) -> bool {
    require.iter().all(|required| required.key != *key || holds(content, &required.expected) != Some(false))
}

/// The contents after a step that had this outcome.
fn done_as_told(
    step: &ScriptStep,
    told: &StepOutcome,
    key: &Bytes,
    now: &[Content],
    terms: &Terms<'_>,
) -> Result<Vec<Content>, &'static str> {
    let (mut is_possible, mut after) = (false, Vec::new());
    for before in now {
        let next = stepped(step, key, before, terms);
        is_possible |= !next.is_empty();
        after.extend(next.into_iter().filter_map(|next| told_right(step, told, key, before, next, terms)));
    }
    match (is_possible, after.is_empty()) {
        (false, _) => Err("an impossible step was done"),
        (true, true) => Err("a step returned something else"),
        (true, false) => Ok(after),
    }
}

/// Whether the content of this key is consistent with this failure of the group.
fn may_fail(group: &ScriptGroup, failure: GroupFailure, key: &Bytes, now: &Content, terms: &Terms<'_>) -> bool {
    match failure {
        GroupFailure::Unmet { requirement, version } => match group.require.get(requirement as usize) {
            Some(required) if required.key == key => {
                holds(now, &required.expected) != Some(true) && now.value.is_none() == version.is_none()
            }
            required => required.is_some(),
        },
        GroupFailure::Failed { step, .. } => {
            let Some(failed) = group.steps.get(step as usize) else { return false };
            let before = group.steps.iter().take(step as usize);
            let contents = steps_ran(before, key, now, terms);
            contents.iter().any(|now| match failed {
                ScriptStep::Increment { key: of, .. } | ScriptStep::IncrementFloat { key: of, .. } => {
                    of != key || now.copied || stepped(failed, key, now, terms).is_empty()
                }
                // The limit of a value's length isn't known here.
                ScriptStep::Append { .. } | ScriptStep::Prepend { .. } | ScriptStep::SetRange { .. } => true,
                _ => false,
            })
        }
        // An unknown failure is treated as impossible.
        _ => false,
    }
}

/// The key's possible contents after a step: none if it fails.
fn stepped(step: &ScriptStep, key: &Bytes, now: &Content, terms: &Terms<'_>) -> Vec<Content> {
    let action = match step {
        ScriptStep::Get { .. } | ScriptStep::Length { .. } | ScriptStep::ExpiresIn { .. } => return vec![now.clone()],
        ScriptStep::Copy { key: from, to } => return copied(from, to, key, now, terms),
        // An absent key needs no tombstone.
        ScriptStep::Delete { .. } | ScriptStep::GetDelete { .. } if now.value.is_none() => return vec![now.clone()],
        ScriptStep::Delete { .. } | ScriptStep::GetDelete { .. } => Action::Delete,
        ScriptStep::Put { value, ttl, .. } => Action::Put(value, *ttl),
        ScriptStep::Append { value, ttl, .. } => Action::Append(value, *ttl),
        ScriptStep::Prepend { value, ttl, .. } => Action::Prepend(value, *ttl),
        ScriptStep::Increment { by, ttl, .. } => Action::Increment(*by, *ttl),
        ScriptStep::IncrementFloat { by, ttl, .. } => Action::AddDecimal(by, *ttl),
        ScriptStep::SetRange { value, .. } if value.is_empty() => return vec![now.clone()],
        ScriptStep::SetRange { offset, value, ttl, .. } => Action::SetRange(*offset, value, *ttl),
        ScriptStep::Expire { ttl, when, .. } => Action::Expire(*ttl, *when),
    };
    now.after(&action, terms)
}

/// The key's possible contents after a copy from one key to another. The content of another key isn't known here.
fn copied(from: &Bytes, to: &Bytes, key: &Bytes, now: &Content, terms: &Terms<'_>) -> Vec<Content> {
    if to != key {
        return vec![now.clone()];
    }
    if from == key {
        let version = if now.value.is_some() { Some(terms.at) } else { now.version };
        return vec![Content { version, ..now.clone() }];
    }
    vec![Content::copied(Some(terms.at), terms.earliest()), now.clone()]
}

/// The content after a step, if it fits the step's outcome.
fn told_right(
    step: &ScriptStep,
    told: &StepOutcome,
    key: &Bytes,
    before: &Content,
    after: Content,
    terms: &Terms<'_>,
) -> Option<Content> {
    let fits = match told {
        StepOutcome::Done => true,
        StepOutcome::Deleted(was_there) => before.value.is_some() == *was_there,
        StepOutcome::Found(None) => before.value.is_none(),
        StepOutcome::Found(Some((version, value))) => {
            let found = before.clone().shown(Some(value)).filter(|before| before.version == Some(*version))?;
            // A get shows the value that the key keeps.
            return Some(if matches!(step, ScriptStep::Get { .. }) { found } else { after });
        }
        StepOutcome::Length(length) => return after.of_length(*length),
        StepOutcome::Appended(0) if after.value.is_none() => true,
        StepOutcome::Appended(length) => return after.of_length(Some(*length)),
        StepOutcome::Number(number) => return after.of_number(*number),
        StepOutcome::Decimal(number) => return after.shown(Some(number)),
        StepOutcome::Changed(changed) => match step {
            ScriptStep::Copy { key: from, .. } if from == key => before.value.is_some() == *changed,
            // Earlier steps may have given the key the version of this script, so the contents are compared.
            ScriptStep::Copy { .. } => after.copied == *changed,
            _ => renewal_fits(step, *changed, before, &after, terms),
        },
        StepOutcome::ExpiresIn(expiry) => match expiry {
            None => before.value.is_none(),
            Some(left) => before.value.is_some() && (left.is_none() || before.expires.is_some()),
        },
        // An unknown outcome is treated as wrong.
        _ => false,
    };
    fits.then_some(after)
}

/// Whether a step that sets the expiry can have returned this.
fn renewal_fits(step: &ScriptStep, changed: bool, before: &Content, after: &Content, terms: &Terms<'_>) -> bool {
    let ScriptStep::Expire { ttl, .. } = step else { return false };
    let is_set = after.version == Some(terms.at) && after.expires == ttl.map(|ttl| terms.end(ttl));
    if changed { before.value.is_some() && is_set } else { after == before }
}

/// The possible contents of the key after a script without results, if the script changed the key.
pub(super) fn perhaps(script: &ScriptWrite, key: &Bytes, content: &Content, terms: &Terms<'_>) -> Vec<Content> {
    if !may_be_met(&script.require, key, content) {
        return Vec::new();
    }
    let mut contents = BTreeSet::from([content.clone()]);
    for group in script.groups.iter().filter(|group| group.steps.iter().any(|step| concerns(step, key))) {
        let ran: Vec<Content> = contents.iter().flat_map(|now| group_ran(group, key, now, terms)).collect();
        if is_certain(group, key) {
            contents.retain(|now| now.copied || group_ran(group, key, now, terms).is_empty());
        }
        contents.extend(ran);
        if contents.len() >= MAX_CONTENTS {
            break;
        }
    }
    contents.into_iter().filter(|after| after.version == Some(terms.at)).collect()
}

/// The key's possible contents after a group: none if this key makes the group fail.
fn group_ran(group: &ScriptGroup, key: &Bytes, now: &Content, terms: &Terms<'_>) -> Vec<Content> {
    if !may_be_met(&group.require, key, now) {
        return Vec::new();
    }
    steps_ran(group.steps.iter(), key, now, terms)
}

fn steps_ran<'a>(
    steps: impl Iterator<Item = &'a ScriptStep>,
    key: &Bytes,
    now: &Content,
    terms: &Terms<'_>,
) -> Vec<Content> {
    steps.filter(|step| concerns(step, key)).fold(vec![now.clone()], |contents, step| {
        let after: BTreeSet<Content> = contents.iter().flat_map(|now| stepped(step, key, now, terms)).collect();
        after.into_iter().take(MAX_CONTENTS).collect()
    })
}

/// Whether this key alone determines whether a group fails: neither other keys nor the limit of a value's length
/// matter.
fn is_certain(group: &ScriptGroup, key: &Bytes) -> bool {
    let is_limited = |step: &ScriptStep| {
        matches!(step, ScriptStep::Append { .. } | ScriptStep::Prepend { .. } | ScriptStep::SetRange { .. })
    };
    group.keys().all(|other| other == key) && !group.steps.iter().any(is_limited)
}
