//! Puts the writes of each key into the order of their versions, and computes what must have been there.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use bytes::Bytes;

use super::{Makers, Sight, changed, conflicting, scripts, sights};
use crate::{
    Version,
    replica::{Computed, Expected, Reply, Step, Write},
    testing::book::{Ask, Entry, NEVER, Told, text},
};

/// States that the search goes through for one key at most.
const BUDGET: usize = 200_000;

/// What happened to one key at one version.
struct Point<'a> {
    version: Version,
    what: What<'a>,
    /// What was seen at this version: all the same.
    seen: Option<&'a Bytes>,
    /// By when this version, or a later one, was known to somebody.
    known_by: u64,
}

enum What<'a> {
    /// An acknowledged write.
    Write(&'a Write, &'a Computed),
    /// A write that nobody was told of, and whose version was seen.
    Somebody,
    /// A condition that failed here: which step, and the version that the key had.
    Failed(&'a Write, u32, Version),
}

/// A write of unknown outcome.
#[derive(Clone, Copy)]
struct Hidden<'a> {
    entry: usize,
    called: u64,
    write: &'a Write,
}

/// What a key holds. The version is unknown behind a write whose version nobody saw.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct Content {
    pub(super) value: Option<Bytes>,
    pub(super) version: Option<Version>,
}

/// Checks all keys; tells which hidden writes made the versions that were seen.
pub(super) fn check(entries: &[(usize, &Entry)]) -> Result<Makers, String> {
    let mut makers = Makers::new();
    for key in keys(entries) {
        check_key(key, entries, &mut makers)?;
    }
    Ok(makers)
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

fn check_key(key: &Bytes, entries: &[(usize, &Entry)], makers: &mut Makers) -> Result<(), String> {
    let points = points(key, entries)?;
    let is_hidden = |entry: &Entry| entry.told == Told::Unknown;
    let hidden: Vec<Hidden<'_>> = (entries.iter().filter(|(_, entry)| is_hidden(entry)))
        .filter_map(|(index, entry)| match &entry.ask {
            Ask::Write(write) if changed(write).contains(&key) => {
                Some(Hidden { entry: *index, called: entry.called, write })
            }
            _ => None,
        })
        .collect();
    let (met, furthest) = (BTreeSet::new(), None);
    let mut search = Search { key, points: &points, hidden: &hidden, makers, met, undecided: false, furthest };
    if let Some(made) = search.run() {
        makers.extend(made);
        return Ok(());
    }
    let name = text(key);
    if search.met.len() >= BUDGET || search.undecided {
        return Err(format!("key {name:?}: not decided, too many writes of unknown outcome"));
    }
    let (at, why) = search.furthest.unwrap_or_default();
    let version = points.get(at).map_or(Version::NONE, |point| point.version);
    Err(format!("key {name:?}: no order of the writes explains what was seen at version {version}: {why}"))
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

/// Where an order of the writes stands.
#[derive(Clone)]
struct State {
    /// The next point.
    at: usize,
    /// Hidden writes that have happened.
    used: Rc<BTreeSet<usize>>,
    content: Content,
    /// Which of them made versions that were seen, the last one first.
    made: Option<Rc<Made>>,
}

struct Made {
    version: Version,
    entry: usize,
    before: Option<Rc<Made>>,
}

struct Search<'a> {
    key: &'a Bytes,
    points: &'a [Point<'a>],
    hidden: &'a [Hidden<'a>],
    /// Of the keys that were settled before: batches made the same version of all their keys.
    makers: &'a Makers,
    /// States that were met: each is looked at once.
    met: BTreeSet<(usize, Rc<BTreeSet<usize>>, Content)>,
    /// There was a script that may have done more than was looked at.
    undecided: bool,
    /// The last point that some order reached and none passed, and why.
    furthest: Option<(usize, String)>,
}

impl Search<'_> {
    /// Which hidden writes made which versions, in some order of the writes that explains all points.
    fn run(&mut self) -> Option<Vec<((Bytes, Version), usize)>> {
        let start = State { at: 0, used: Rc::default(), content: Content::default(), made: None };
        let mut states = vec![start];
        while let Some(state) = states.pop() {
            let Some(point) = self.points.get(state.at) else { return Some(self.makers_of(state)) };
            let key = (state.at, state.used.clone(), state.content.clone());
            if self.met.len() >= BUDGET || !self.met.insert(key) {
                continue;
            }
            // The last one is looked at first: what needs nothing hidden.
            for index in self.candidates(point, &state) {
                let after = self.with(&state, index, None);
                states.extend(after);
            }
            match &point.what {
                What::Somebody => {
                    let before = states.len();
                    for index in self.candidates(point, &state) {
                        let after = self.with(&state, index, Some(point));
                        states.extend(after);
                    }
                    if states.len() == before {
                        self.stuck(state.at, || format!("{:?} was seen, which nobody wrote there", point.seen));
                    }
                }
                _ => match pass(point, self.key, &state.content) {
                    Ok(contents) => {
                        self.undecided |= contents.len() + 1 >= scripts::MOST;
                        let next = |content| State { at: state.at + 1, content, ..state.clone() };
                        states.extend(contents.into_iter().map(next));
                    }
                    Err(why) => self.stuck(state.at, || why),
                },
            }
        }
        None
    }

    /// The states behind a hidden write, which made the version of `point` if one is given: many, if nobody knows which
    /// groups of a script failed.
    fn with(&mut self, state: &State, index: usize, point: Option<&Point<'_>>) -> Vec<State> {
        let Hidden { entry, write, .. } = self.hidden[index];
        let elsewhere = self.makers.iter().find(|(_, maker)| **maker == entry).map(|((_, version), _)| *version);
        if point.is_some_and(|point| elsewhere.is_some_and(|version| version != point.version)) {
            return Vec::new();
        }
        let values = match write {
            Write::Script(script) => {
                let values = scripts::perhaps(script, self.key, &state.content);
                self.undecided |= values.len() + 1 >= scripts::MOST;
                values
            }
            write => apply(write, self.key, &state.content).into_iter().collect(),
        };
        let mut used = BTreeSet::clone(&state.used);
        used.insert(index);
        let used = Rc::new(used);
        let after = |value: Option<Bytes>| {
            let used = used.clone();
            let Some(point) = point else {
                return Some(State { used, content: Content { value, version: None }, ..state.clone() });
            };
            if value.is_none() || point.seen.is_some_and(|seen| value.as_ref() != Some(seen)) {
                return None;
            }
            let made = Some(Rc::new(Made { version: point.version, entry, before: state.made.clone() }));
            Some(State { at: state.at + 1, used, content: Content { value, version: Some(point.version) }, made })
        };
        values.into_iter().filter_map(after).collect()
    }

    fn makers_of(&self, state: State) -> Vec<((Bytes, Version), usize)> {
        let mut all = Vec::new();
        let mut next = state.made;
        while let Some(made) = next {
            all.push(((self.key.clone(), made.version), made.entry));
            next = made.before.clone();
        }
        all
    }

    /// Hidden writes that may have happened before a point: those that were called before anybody knew of it.
    fn candidates(&self, point: &Point<'_>, state: &State) -> Vec<usize> {
        let may = |(index, hidden): (usize, &Hidden<'_>)| {
            (hidden.called < point.known_by && !state.used.contains(&index)).then_some(index)
        };
        self.hidden.iter().enumerate().filter_map(may).collect()
    }

    fn stuck(&mut self, at: usize, why: impl FnOnce() -> String) {
        if self.furthest.as_ref().is_none_or(|(furthest, _)| *furthest < at) {
            self.furthest = Some((at, why()));
        }
    }
}

/// Goes past a point whose write is known: what the key may hold behind it.
fn pass(point: &Point<'_>, key: &Bytes, content: &Content) -> Result<Vec<Content>, String> {
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
        Computed::Ran(_) | Computed::RanForgotten => false,
    }
}

/// What a key holds after a write; `None`: it would not have been applied there.
#[allow(clippy::option_option, reason = "whether it is applied, and whether a value is there then")]
fn apply(write: &Write, key: &Bytes, content: &Content) -> Option<Option<Bytes>> {
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
