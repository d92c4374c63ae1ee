//! The content that a write found in a key, and how the write changed it.

use bytes::Bytes;

use super::{
    actions::apply,
    clock::{Clock, Terms},
    content::{Content, holds, matches},
    points::{Point, What},
    scripts,
};
use crate::api::{Computed, Step, Write};

/// The possible contents of the key after a point whose write is known. An error explains why that write is impossible.
pub(super) fn pass(point: &Point<'_>, key: &Bytes, content: &Content, clock: &Clock) -> Result<Vec<Content>, String> {
    match &point.what {
        What::Failed(write, step, version) => {
            if content.value.is_none() != version.is_none() || (!version.is_none() && content.version != Some(*version))
            {
                return Err(format!("{write:?} failed over {version}, but there was {content:?}"));
            }
            if would_pass(write, *step, content) {
                return Err(format!("{write:?} failed, although it found the expected version: {content:?}"));
            }
            Ok(vec![content.clone()])
        }
        What::Write(Write::Script(script), Computed::Ran(outcomes), began) => {
            let terms = clock.terms(point.version, *began);
            let after = scripts::after(script, outcomes, key, content, &terms)?;
            seen_there(point, after, || format!("was seen after {script:?} over {content:?}"))
        }
        What::Write(Write::Script(script), _, began) => {
            // The script ran and its results are lost: it may have left the key unchanged.
            let mut after = scripts::perhaps(script, key, content, &clock.terms(point.version, *began));
            after.push(content.clone());
            Ok(seen_there(point, after, String::new).unwrap_or_default())
        }
        What::Write(write, result, began) => {
            let terms = clock.terms(point.version, *began);
            let after = apply(write, key, content, &terms);
            if after.is_empty() {
                return Err(format!("{write:?} succeeded over {content:?}"));
            }
            let told = |after| told_right(result, content, after, &terms);
            let after: Vec<Content> = after.into_iter().filter_map(told).collect();
            if after.is_empty() {
                return Err(format!("{write:?} returned {result:?} over {content:?}"));
            }
            seen_there(point, after, || format!("was seen after {write:?} over {content:?}"))
        }
        What::Somebody => Ok(vec![content.clone()]),
    }
}

/// The contents that answers can have shown at the point, if they showed any.
fn seen_there(point: &Point<'_>, after: Vec<Content>, why: impl FnOnce() -> String) -> Result<Vec<Content>, String> {
    let Some(seen) = point.seen else { return Ok(after) };
    // A write that changes nothing leaves the version unchanged.
    let made = after.into_iter().filter(|after| after.version == Some(point.version));
    let after: Vec<Content> = made.filter_map(|after| after.shown(Some(seen))).collect();
    if after.is_empty() { Err(format!("{seen:?} {}", why())) } else { Ok(after) }
}

/// The content after a write, if it fits the result.
fn told_right(result: &Computed, before: &Content, after: Content, terms: &Terms<'_>) -> Option<Content> {
    let took = |version, value: Option<&Bytes>| {
        let same = before.copied || value.is_none() || before.value.as_ref() == value;
        matches(before, version) && same
    };
    let fits = match result {
        Computed::Nothing => true,
        Computed::Length(length) => return after.of_length(Some(*length)),
        Computed::Number(number) => return after.of_number(*number),
        Computed::Changed(changed) => *changed == (after.version == Some(terms.at)),
        Computed::Took(None) => before.value.is_none(),
        Computed::Took(Some((version, value))) => took(*version, Some(value)),
        Computed::TookForgotten(version) => took(*version, None),
        // Scripts are checked elsewhere; an unknown result is treated as wrong.
        _ => false,
    };
    fits.then_some(after)
}

fn would_pass(write: &Write, step: u32, content: &Content) -> bool {
    let certainly = |expected| holds(content, expected) == Some(true);
    match write {
        Write::CompareAndSwap { expected, .. } => matches(content, *expected),
        Write::Batch(steps) => match steps.get(step as usize) {
            Some(Step::Require { expected, .. }) => certainly(expected),
            _ => false,
        },
        Write::Script(script) => {
            script.require.get(step as usize).is_some_and(|requirement| certainly(&requirement.expected))
        }
        _ => false,
    }
}
