//! The known facts about one key, by version.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{
    Sight,
    actions::{changed, concerns, version_in},
    clock::Clock,
    conflicting, sights,
};
use crate::{
    Timestamp, Version,
    api::{Computed, Reply, Write},
    rpc::observer::book::{Ask, BookAnswer, BookEntry, NEVER, text},
};

pub(super) struct Point<'a> {
    pub(super) version: Version,
    pub(super) what: What<'a>,
    /// The value that answers showed at this version; all of them must agree.
    pub(super) seen: Option<&'a Bytes>,
    /// The time of the first answer that showed this version or a later one.
    pub(super) known_by: u64,
}

pub(super) enum What<'a> {
    /// An acknowledged write, its result, and when it was called.
    Write(&'a Write, &'a Computed, Timestamp),
    /// A write without an acknowledgement, whose version an answer showed.
    Somebody,
    /// A write whose condition failed here: the failed step, and the version that the key had.
    Failed(&'a Write, u32, Version),
}

/// A hidden write: one of unknown outcome.
#[derive(Clone, Copy)]
pub(super) struct Hidden<'a> {
    pub(super) entry: usize,
    pub(super) called: u64,
    pub(super) began: Timestamp,
    pub(super) write: &'a Write,
    /// Its version, if the key contains it: that of a sequential put.
    pub(super) version: Option<Version>,
    /// Whether it changes other keys too.
    pub(super) is_shared: bool,
}

pub(super) struct KnownKey<'a> {
    pub(super) key: Bytes,
    pub(super) points: Vec<Point<'a>>,
    pub(super) hidden: Vec<Hidden<'a>>,
    pub(super) clock: &'a Clock,
}

impl<'a> KnownKey<'a> {
    pub(super) fn of(key: Bytes, entries: &[(usize, &'a BookEntry)], clock: &'a Clock) -> Result<Self, String> {
        let hidden = entries.iter().filter_map(|(entry, of)| hidden(&key, *entry, of)).collect();
        Ok(Self { points: points(&key, entries)?, hidden, key, clock })
    }
}

fn hidden<'a>(key: &Bytes, index: usize, entry: &'a BookEntry) -> Option<Hidden<'a>> {
    let Ask::Write(write) = &entry.ask else { return None };
    if entry.told != BookAnswer::Unknown {
        return None;
    }
    let version = if let Write::PutSequential { prefix, .. } = write { version_in(prefix, key) } else { None };
    let changed = changed(write, version);
    let (BookEntry { called, began, .. }, is_shared) = (entry, changed.len() > 1);
    changed.contains(key).then_some(Hidden { entry: index, called: *called, began: *began, write, version, is_shared })
}

fn points<'a>(key: &Bytes, entries: &[(usize, &'a BookEntry)]) -> Result<Vec<Point<'a>>, String> {
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
            BookAnswer::Reply(Reply::Committed(done)) if concerns(write, done.version, key) => {
                add(done.version, What::Write(write, &done.result, entry.began), entry.returned)?;
            }
            BookAnswer::Reply(Reply::Conflict { at, step, version, .. }) if conflicting(write, *step) == Some(key) => {
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
    // An answer that shows a version proves that all lower versions existed before the answer.
    let mut known_by = NEVER;
    for point in points.iter_mut().rev() {
        known_by = known_by.min(point.known_by);
        point.known_by = known_by;
    }
    Ok(points)
}
