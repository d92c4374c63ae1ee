//! When the versions of each key may go by themselves, for the checker.
//!
//! A version inherits its expiry if its write keeps the one before. Writes of unknown outcome may be in between, and one
//! of them may have made an observed version that is attributed to another. So the earliest of their ends counts too.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::{
    Makers,
    actions::{actions, after_all, changed},
    clock::Clock,
    content::{Action, Content},
};
use crate::{
    Version,
    rpc::observer::book::{Ask, BookAnswer, BookEntry, NEVER},
};

/// A value that may go by itself.
pub(super) struct Lifetime {
    pub(super) key: Bytes,
    /// `None`: no answer showed the version.
    pub(super) version: Option<Version>,
    /// The first answer that may show that it is gone.
    pub(super) from: u64,
    pub(super) entry: usize,
}

/// The writes of one key.
#[derive(Default)]
struct KeyWrites {
    /// By version, the entry that made it.
    known: BTreeMap<Version, usize>,
    /// Entries that may have changed the key in a version that no answer showed. Some of them are also in `known`,
    /// where others like them may have made the version instead.
    loose: BTreeSet<usize>,
}

/// All values that may go by themselves. `unshown` are renewals in acknowledged batches that may have done nothing.
pub(super) fn lifetimes(
    entries: &[(usize, &BookEntry)],
    makers: &Makers,
    unshown: &BTreeSet<(Bytes, usize)>,
    clock: &Clock,
) -> Vec<Lifetime> {
    let mut keys: BTreeMap<Bytes, KeyWrites> = BTreeMap::new();
    for ((key, version), index) in makers {
        keys.entry(key.clone()).or_default().known.insert(*version, *index);
    }
    for (key, index) in unshown {
        keys.entry(key.clone()).or_default().loose.insert(*index);
    }
    for (index, entry) in entries {
        let Ask::Write(write) = &entry.ask else { continue };
        if entry.told == BookAnswer::Unknown {
            for key in changed(write, None) {
                keys.entry(key).or_default().loose.insert(*index);
            }
        }
    }
    let by_index: BTreeMap<usize, &BookEntry> = entries.iter().copied().collect();
    keys.iter().flat_map(|(key, writes)| of_key(key, writes, &by_index, clock)).collect()
}

fn of_key(key: &Bytes, writes: &KeyWrites, entries: &BTreeMap<usize, &BookEntry>, clock: &Clock) -> Vec<Lifetime> {
    let end = |index: &usize, before: u64, was_there: bool| {
        entries.get(index).map_or(NEVER, |entry| end_of(entry, key, before, was_there, clock))
    };
    let earliest =
        |indexes: &mut dyn Iterator<Item = &usize>, before| indexes.map(|index| end(index, before, false)).min();
    let own = earliest(&mut writes.known.values().chain(&writes.loose), NEVER).unwrap_or(NEVER);
    let loose = earliest(&mut writes.loose.iter(), own).unwrap_or(NEVER);
    let (mut before, mut lifetimes) = (NEVER, Vec::new());
    let mut is_present = false;
    for (version, index) in &writes.known {
        // The value certainly was present if nothing else can have removed it.
        let was_there = is_present && before == NEVER && writes.loose.is_empty();
        let own = end(index, loose.min(before), was_there);
        is_present = entries.get(index).is_some_and(|entry| leaves_value(entry, key));
        before = if writes.loose.contains(index) { own.min(loose) } else { own };
        lifetimes.push(Lifetime { key: key.clone(), version: Some(*version), from: before, entry: *index });
    }
    let made: BTreeSet<&usize> = writes.known.values().collect();
    for index in writes.loose.iter().filter(|index| !made.contains(index)) {
        lifetimes.push(Lifetime { key: key.clone(), version: None, from: end(index, own, false), entry: *index });
    }
    lifetimes.retain(|lifetime| lifetime.from != NEVER);
    lifetimes
}

/// Whether the key has a value after this write of known version.
fn leaves_value(entry: &BookEntry, key: &Bytes) -> bool {
    let Ask::Write(write) = &entry.ask else { return false };
    let is_set = |action: &&Action<'_>| !matches!(action, Action::Expire(..));
    // A renewal has a version only if it found a value.
    !matches!(actions(write, key).iter().rfind(is_set), Some(Action::Delete))
}

/// The earliest end of the key's time to live after a write that changed it. Before, the key had a value that may go from
/// `before`; or, unless it certainly was present, the key was absent.
fn end_of(entry: &BookEntry, key: &Bytes, before: u64, was_there: bool, clock: &Clock) -> u64 {
    let Ask::Write(write) = &entry.ask else { return NEVER };
    // Differs from the version of the contents before.
    let terms = clock.terms(Version::new(u64::MAX, u64::MAX), entry.began);
    let actions = actions(write, key);
    let contents = [Content::copied(None, Some(before)), Content::default()];
    let contents = if was_there { &contents[..1] } else { &contents[..] };
    let after = contents.iter().flat_map(|content| after_all(&actions, content, &terms));
    let after = after.filter(|after| after.version == Some(terms.at));
    after.filter_map(|after| after.expires).min().unwrap_or(NEVER)
}
