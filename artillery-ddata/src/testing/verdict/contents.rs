//! Puts the writes of each key into the order of their versions, and computes what must have been there.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::{Makers, Sight, changed, conflicting, scripts, search::Search, sights};
use crate::{
    Version,
    replica::{Computed, Expected, Reply, Step, Write},
    rpc::observer::book::{Ask, Entry, NEVER, Told, text},
};

/// What happened to one key at one version.
pub(super) struct Point<'a> {
    pub(super) version: Version,
    pub(super) what: What<'a>,
    /// What was seen at this version: all the same.
    pub(super) seen: Option<&'a Bytes>,
    /// By when this version, or a later one, was known to somebody.
    pub(super) known_by: u64,
}

pub(super) enum What<'a> {
    /// An acknowledged write.
    Write(&'a Write, &'a Computed),
    /// A write that nobody was told of, and whose version was seen.
    Somebody,
    /// A condition that failed here: which step, and the version that the key had.
    Failed(&'a Write, u32, Version),
}

/// A write of unknown outcome.
#[derive(Clone, Copy)]
pub(super) struct Hidden<'a> {
    pub(super) entry: usize,
    pub(super) called: u64,
    pub(super) write: &'a Write,
    /// It changes other keys too.
    pub(super) is_shared: bool,
}

/// What a key holds. The version is unknown behind a write whose version nobody saw.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct Content {
    pub(super) value: Option<Bytes>,
    pub(super) version: Option<Version>,
}

/// Explanations of single keys that are looked at before a run counts as not decided.
const TRIES: usize = 100_000;

/// Checks all keys; tells which hidden writes made the versions that were seen.
///
/// What explains one key may be wrong for another that the same write changed. Then it is explained in another way.
pub(super) fn check(entries: &[(usize, &Entry)]) -> Result<Makers, String> {
    let known: Vec<_> = keys(entries).into_iter().map(|key| Known::of(key, entries)).collect::<Result<_, _>>()?;
    for key in &known {
        // By itself: what nothing explains is to be told of the key where it was seen.
        let mut search = Search::new(key, Makers::new());
        search.next().ok_or_else(|| search.why())?;
    }
    together(&known)
}

/// One explanation for each key, such that a write made one version, wherever it was seen.
fn together(keys: &[Known<'_>]) -> Result<Makers, String> {
    let mut makers = Makers::new();
    let mut searches: Vec<Search<'_>> = Vec::new();
    let mut why = String::new();
    for _ in 0..TRIES + keys.len() {
        let Some(key) = keys.get(searches.len()) else { return Ok(makers) };
        searches.push(Search::new(key, makers));
        makers = loop {
            let Some(search) = searches.last_mut() else { return Err(why) };
            match search.next() {
                Some(makers) => break makers,
                None => why = search.why(),
            }
            searches.pop();
        };
    }
    Err(format!("not decided, too many writes of unknown outcome: {why}"))
}

fn keys<'a>(entries: &[(usize, &'a Entry)]) -> BTreeSet<&'a Bytes> {
    let mut keys = BTreeSet::new();
    for (_, entry) in entries {
        keys.extend(sights(entry).iter().map(|sight| sight.key));
        if let Ask::Write(write) = &entry.ask {
            keys.extend(write.keys());
        }
    }
    keys
}

/// All that is known of one key.
pub(super) struct Known<'a> {
    pub(super) key: &'a Bytes,
    pub(super) points: Vec<Point<'a>>,
    pub(super) hidden: Vec<Hidden<'a>>,
}

impl<'a> Known<'a> {
    fn of(key: &'a Bytes, entries: &[(usize, &'a Entry)]) -> Result<Self, String> {
        let hidden = |(entry, of): &(usize, &'a Entry)| match &of.ask {
            Ask::Write(write) if of.told == Told::Unknown && changed(write).contains(&key) => {
                let is_shared = changed(write).len() > 1;
                Some(Hidden { entry: *entry, called: of.called, write, is_shared })
            }
            _ => None,
        };
        let hidden = entries.iter().filter_map(hidden).collect();
        Ok(Self { key, points: points(key, entries)?, hidden })
    }
}

/// All that is known of a key, by version.
fn points<'a>(key: &Bytes, entries: &[(usize, &'a Entry)]) -> Result<Vec<Point<'a>>, String> {
    let mut points: BTreeMap<Version, Point<'a>> = BTreeMap::new();
    let mut add = |version, what, known_by| {
        match points.entry(version) {
            std::collections::btree_map::Entry::Vacant(vacant) => {
                vacant.insert(Point { version, what, seen: None, known_by });
            }
            std::collections::btree_map::Entry::Occupied(mut present) => {
                let present = present.get_mut();
                present.known_by = present.known_by.min(known_by);
                match (&present.what, &what) {
                    (_, What::Somebody) => {}
                    (What::Somebody, _) => present.what = what,
                    _ => return Err(format!("key {:?}: version {version} was given to two writes", text(key))),
                }
            }
        }
        Ok(())
    };
    for (_, entry) in entries {
        let Ask::Write(write) = &entry.ask else { continue };
        match &entry.told {
            Told::Reply(Reply::Committed(done)) if write.keys().any(|other| other == key) => {
                add(done.version, What::Write(write, &done.result), entry.returned)?;
            }
            Told::Reply(Reply::Conflict { at, step, version, .. }) if conflicting(write, *step) == Some(key) => {
                add(*at, What::Failed(write, *step, *version), entry.returned)?;
            }
            _ => {}
        }
    }
    for (_, entry) in entries {
        for sight in sights(entry).iter().filter(|sight| sight.key == key) {
            add(sight.version, What::Somebody, entry.returned)?;
        }
    }
    for (_, entry) in entries {
        for Sight { version, value, .. } in sights(entry).into_iter().filter(|sight| sight.key == key) {
            let Some(point) = points.get_mut(&version) else { continue };
            if let (Some(before), Some(now)) = (point.seen, value)
                && before != now
            {
                return Err(format!("key {:?}: {before:?} and {now:?} were seen at {version}", text(key)));
            }
            point.seen = point.seen.or(value);
        }
    }
    let mut points: Vec<Point<'a>> = points.into_values().collect();
    // Whoever knows a version knows that those below it were there before.
    let mut known_by = NEVER;
    for point in points.iter_mut().rev() {
        known_by = known_by.min(point.known_by);
        point.known_by = known_by;
    }
    Ok(points)
}

/// Goes past a point whose write is known: what the key may hold behind it.
pub(super) fn pass(point: &Point<'_>, key: &Bytes, content: &Content) -> Result<Vec<Content>, String> {
    let content = match &point.what {
        What::Failed(write, step, version) => {
            if content.value.is_none() != version.is_none() || (!version.is_none() && content.version != Some(*version))
            {
                return Err(format!("{write:?} failed over {version}, but there was {content:?}"));
            }
            if would_pass(write, *step, content) {
                return Err(format!("{write:?} failed, although it found what it expected: {content:?}"));
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
            // It ran, and what it told was lost: perhaps it left the key alone.
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
                return Err(format!("{write:?} told {result:?} over {content:?}"));
            }
            if let Some(seen) = point.seen.filter(|seen| value.as_ref() != Some(*seen)) {
                return Err(format!("{seen:?} was seen after {write:?} over {content:?}"));
            }
            // What changes nothing leaves the version as it was.
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
        // Neither a script's outcome nor what the judge doesn't know is one of these writes'.
        _ => false,
    }
}

/// What a key holds after a write; `None`: it would not have been applied there.
#[allow(clippy::option_option, reason = "whether it is applied, and whether a value is there then")]
pub(super) fn apply(write: &Write, key: &Bytes, content: &Content) -> Option<Option<Bytes>> {
    match write {
        Write::Put { value, .. } => Some(Some(value.clone())),
        Write::Delete { .. } | Write::GetDelete { .. } => Some(None),
        Write::CompareAndSwap { expected, value, .. } => matches(content, *expected).then(|| value.clone()),
        Write::Append { value, .. } => Some(Some(appended(content.value.as_ref(), value))),
        Write::Increment { by, .. } => incremented(content.value.as_ref(), *by).map(Some),
        Write::Batch(steps) => {
            let mut value = content.value.clone();
            for step in steps.iter().filter(|step| step.key() == key) {
                match step {
                    Step::Require { expected, .. } => {
                        if !holds(content, *expected) {
                            return None;
                        }
                    }
                    Step::Put { value: new, .. } => value = Some(new.clone()),
                    Step::Delete { .. } => value = None,
                    Step::Append { value: more, .. } => value = Some(appended(value.as_ref(), more)),
                    Step::Increment { by, .. } => value = Some(incremented(value.as_ref(), *by)?),
                }
            }
            Some(value)
        }
        // Scripts are looked at group by group.
        Write::Script(_) | Write::OpenSession | Write::Resolve => None,
    }
}

fn would_pass(write: &Write, step: u32, content: &Content) -> bool {
    match write {
        Write::CompareAndSwap { expected, .. } => matches(content, *expected),
        Write::Batch(steps) => match steps.get(step as usize) {
            Some(Step::Require { expected, .. }) => holds(content, *expected),
            _ => false,
        },
        Write::Script(script) => {
            script.require.get(step as usize).is_some_and(|requirement| holds(content, requirement.expected))
        }
        _ => false,
    }
}

fn matches(content: &Content, expected: Version) -> bool {
    if expected.is_none() {
        return content.value.is_none();
    }
    content.value.is_some() && content.version == Some(expected)
}

pub(super) fn holds(content: &Content, expected: Expected) -> bool {
    match expected {
        Expected::Absent => content.value.is_none(),
        Expected::Present => content.value.is_some(),
        Expected::Version(version) => matches(content, version),
        // What the judge doesn't know it doesn't believe.
        _ => false,
    }
}

pub(super) fn appended(value: Option<&Bytes>, more: &Bytes) -> Bytes {
    [value.map_or(&[][..], |value| value), more].concat().into()
}

pub(super) fn number_of(value: Option<&Bytes>) -> Option<i64> {
    value.map_or(Some(0), |value| std::str::from_utf8(value).ok()?.parse().ok())
}

pub(super) fn incremented(value: Option<&Bytes>, by: i64) -> Option<Bytes> {
    Some(number_of(value)?.checked_add(by)?.to_string().into())
}
