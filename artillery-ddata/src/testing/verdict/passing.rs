//! The content that a write found in a key, and how the write changed it.

use bytes::Bytes;

use super::{
    changed,
    content::{Content, appended, holds, incremented, matches, number_of, prepended},
    points::{Point, What},
    scripts,
};
use crate::api::{Computed, Step, Write};

/// The possible contents of the key after a point whose write is known. An error explains why that write is impossible.
pub(super) fn pass(point: &Point<'_>, key: &Bytes, content: &Content) -> Result<Vec<Content>, String> {
    let content = match &point.what {
        What::Failed(write, step, version) => {
            if content.value.is_none() != version.is_none() || (!version.is_none() && content.version != Some(*version))
            {
                return Err(format!("{write:?} failed over {version}, but there was {content:?}"));
            }
            if would_pass(write, *step, content) {
                return Err(format!("{write:?} failed, although it found the expected version: {content:?}"));
            }
            content.clone()
        }
        What::Write(Write::Script(script), Computed::Ran(outcomes)) => {
            let after = scripts::after(script, outcomes, key, point.version, content)?;
            if let Some(seen) = point.seen.filter(|seen| after.value.as_ref() != Some(*seen)) {
                return Err(format!("{seen:?} was seen after {script:?} over {content:?}"));
            }
            after
        }
        What::Write(Write::Script(script), _) => {
            // The script ran and its results are lost: it may have left the key unchanged.
            let made = |value| Content { value, version: Some(point.version) };
            let mut after: Vec<Content> = scripts::perhaps(script, key, content).into_iter().map(made).collect();
            after.push(content.clone());
            after.retain(|after| point.seen.is_none_or(|seen| after.value.as_ref() == Some(seen)));
            return Ok(after);
        }
        What::Write(write, result) => {
            let refused = || format!("{write:?} succeeded over {content:?}");
            let value = apply(write, key, content).ok_or_else(refused)?;
            if !told_right(result, content, value.as_ref()) {
                return Err(format!("{write:?} returned {result:?} over {content:?}"));
            }
            if let Some(seen) = point.seen.filter(|seen| value.as_ref() != Some(*seen)) {
                return Err(format!("{seen:?} was seen after {write:?} over {content:?}"));
            }
            // A write that changes nothing leaves the version unchanged.
            let changes = changed(write).contains(&key) && **result != Computed::Took(None);
            Content { value, version: if changes { Some(point.version) } else { content.version } }
        }
        What::Somebody => content.clone(),
    };
    Ok(vec![content])
}

fn told_right(result: &Computed, before: &Content, after: Option<&Bytes>) -> bool {
    match result {
        Computed::Nothing => true,
        Computed::Length(length) => after.is_some_and(|value| value.len() as u64 == *length),
        Computed::Number(number) => number_of(after) == Some(*number),
        Computed::Took(None) => before.value.is_none(),
        Computed::Took(Some((version, value))) => {
            before.version == Some(*version) && before.value.as_ref() == Some(value)
        }
        Computed::TookForgotten(version) => before.version == Some(*version),
        // Scripts are checked elsewhere; an unknown result is treated as wrong.
        _ => false,
    }
}

/// A key's value after a write. `None`: the write would not have been applied to this content.
#[allow(clippy::option_option, reason = "whether the write is applied, and whether the key then has a value")]
pub(super) fn apply(write: &Write, key: &Bytes, content: &Content) -> Option<Option<Bytes>> {
    match write {
        Write::Put { value, .. } => Some(Some(value.clone())),
        Write::Delete { .. } | Write::GetDelete { .. } => Some(None),
        Write::CompareAndSwap { expected, value, .. } => matches(content, *expected).then(|| value.clone()),
        Write::Append { value, .. } => Some(Some(appended(content.value.as_ref(), value))),
        Write::Prepend { value, .. } => Some(Some(prepended(content.value.as_ref(), value))),
        Write::Expire { .. } => Some(content.value.clone()),
        Write::PutSequential { value, .. } => Some(Some(value.clone())),
        Write::Increment { by, .. } => incremented(content.value.as_ref(), *by).map(Some),
        Write::Batch(steps) => {
            let mut value = content.value.clone();
            for step in steps.iter().filter(|step| step.key() == key) {
                match step {
                    Step::Require { expected, .. } => {
                        if !holds(content, expected) {
                            return None;
                        }
                    }
                    Step::Put { value: new, .. } => value = Some(new.clone()),
                    Step::Delete { .. } => value = None,
                    Step::Append { value: more, .. } => value = Some(appended(value.as_ref(), more)),
                    Step::Prepend { value: more, .. } => value = Some(prepended(value.as_ref(), more)),
                    Step::Expire { .. } => {}
                    Step::Increment { by, .. } => value = Some(incremented(value.as_ref(), *by)?),
                }
            }
            Some(value)
        }
        // Scripts are checked group by group, elsewhere.
        Write::Script(_) | Write::OpenSession | Write::Resolve => None,
    }
}

fn would_pass(write: &Write, step: u32, content: &Content) -> bool {
    match write {
        Write::CompareAndSwap { expected, .. } => matches(content, *expected),
        Write::Batch(steps) => match steps.get(step as usize) {
            Some(Step::Require { expected, .. }) => holds(content, expected),
            _ => false,
        },
        Write::Script(script) => {
            script.require.get(step as usize).is_some_and(|requirement| holds(content, &requirement.expected))
        }
        _ => false,
    }
}
