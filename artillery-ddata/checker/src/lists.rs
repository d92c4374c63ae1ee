//! Lists: every item is at the position of its append, once.

use std::collections::{BTreeMap, BTreeSet};

use artillery_proto::Version;

use super::series::{Broken, Rule, earliest};
use crate::history::{SeriesAnswer, SeriesCall, SeriesOperation, Value};

/// A list as returned by a read.
struct Found<'a> {
    version: Version,
    items: &'a [Value],
    called: u64,
    returned: u64,
}

/// Checks one list. Its operations are in the order of their calls.
pub(super) fn check(operations: &[&SeriesOperation]) -> Result<(), Broken> {
    let appends = appends(operations)?;
    let mut found: Vec<Found<'_>> = operations.iter().filter_map(|operation| found(operation)).collect();
    // In this order each list must be equal to the one before it or extend it.
    found.sort_by_key(|found| (found.version, found.items.len()));
    for list in &found {
        items_were_asked(list, &appends)?;
    }
    for pair in found.windows(2) {
        let grown = pair[0].version < pair[1].version && pair[0].items.len() < pair[1].items.len();
        let same = pair[0].version == pair[1].version && pair[0].items.len() == pair[1].items.len();
        if !(grown || same) || !pair[1].items.starts_with(pair[0].items) {
            let (one, other) = (&pair[0], &pair[1]);
            return Err(Broken::new(
                Rule::Forked,
                format!("{:?} at {}, {:?} at {}", one.items, one.version, other.items, other.version),
            ));
        }
    }
    let longest = found.last();
    appends_stand_where_they_said(&appends, &found)?;
    counts_ascend(&appends)?;
    match longest {
        Some(longest) => items_keep_time(longest, &found, &appends),
        None => Ok(()),
    }
}

fn appends<'a>(operations: &[&'a SeriesOperation]) -> Result<BTreeMap<Value, &'a SeriesOperation>, Broken> {
    let mut appends = BTreeMap::new();
    for operation in operations {
        let fits = match (operation.call, &operation.answer) {
            (
                SeriesCall::Append(item),
                SeriesAnswer::Counted { .. } | SeriesAnswer::Refused | SeriesAnswer::Unknown,
            ) => appends.insert(item, *operation).is_none(),
            (SeriesCall::Read, SeriesAnswer::List(version, items)) => version.is_none() == items.is_empty(),
            _ => false,
        };
        if !fits {
            return Err(Broken::new(Rule::Malformed, format!("{operation:?}")));
        }
    }
    Ok(appends)
}

fn found(operation: &SeriesOperation) -> Option<Found<'_>> {
    match &operation.answer {
        SeriesAnswer::List(version, items) => {
            Some(Found { version: *version, items, called: operation.called, returned: operation.returned })
        }
        _ => None,
    }
}

fn items_were_asked(list: &Found<'_>, appends: &BTreeMap<Value, &SeriesOperation>) -> Result<(), Broken> {
    let mut met = BTreeSet::new();
    for item in list.items {
        if !met.insert(item) {
            return Err(Broken::new(Rule::AppliedTwice, format!("{item:?} in {:?} at {}", list.items, list.version)));
        }
        let append = appends.get(item);
        if append.is_none_or(|append| append.answer == SeriesAnswer::Refused || append.called > list.returned) {
            return Err(Broken::new(Rule::NotAsked, format!("{item:?} at {}, by {append:?}", list.version)));
        }
    }
    Ok(())
}

/// An acknowledged item is in all lists from its version up and in none before, at the position that its answer
/// reported.
fn appends_stand_where_they_said(
    appends: &BTreeMap<Value, &SeriesOperation>,
    found: &[Found<'_>],
) -> Result<(), Broken> {
    for (item, append) in appends {
        let SeriesAnswer::Counted { version, count } = append.answer else { continue };
        let from = found.partition_point(|list| list.version < version);
        let place = |list: &Found<'_>| list.items.iter().position(|other| other == item);
        if let Some(early) = found[..from].last().filter(|list| place(list).is_some()) {
            return Err(Broken::new(Rule::Forked, format!("{append:?} is already in the list at {}", early.version)));
        }
        // Each list extends the lists before it, so the first one shows the item's position in all of them.
        let Some(first) = found.get(from) else { continue };
        let Some(place) = place(first) else {
            return Err(Broken::new(
                Rule::Lost,
                format!("{append:?} is not in {:?} at {}", first.items, first.version),
            ));
        };
        let is_last = place + 1 == first.items.len();
        if count.is_some_and(|count| count != place as u64 + 1) || is_last != (first.version == version) {
            let what = format!("{append:?} is at index {place} in {:?} at {}", first.items, first.version);
            return Err(Broken::new(Rule::Forked, what));
        }
    }
    Ok(())
}

/// A later append reports a greater length. The difference exceeds the number of appends known in between.
fn counts_ascend(appends: &BTreeMap<Value, &SeriesOperation>) -> Result<(), Broken> {
    let mut told: Vec<(Version, Option<u64>, &SeriesOperation)> = appends
        .values()
        .filter_map(|append| match append.answer {
            SeriesAnswer::Counted { version, count } => Some((version, count, *append)),
            _ => None,
        })
        .collect();
    told.sort_by_key(|(version, ..)| *version);
    let mut least = 0;
    for (_, count, append) in told {
        least += 1;
        let Some(count) = count else { continue };
        if count < least {
            return Err(Broken::new(Rule::Forked, format!("{append:?}, but {least} appends have no higher version")));
        }
        least = count;
    }
    Ok(())
}

/// An item that had been appended or seen when another item's append was called precedes that other item. The versions
/// of acknowledged items ascend.
fn items_keep_time(
    longest: &Found<'_>,
    found: &[Found<'_>],
    appends: &BTreeMap<Value, &SeriesOperation>,
) -> Result<(), Broken> {
    let acknowledged = |item: &Value| appends.get(item).filter(|append| append.version().is_some());
    let mut known: Vec<u64> =
        longest.items.iter().map(|item| acknowledged(item).map_or(u64::MAX, |append| append.returned)).collect();
    for list in found {
        if let Some(last) = list.items.len().checked_sub(1) {
            known[last] = known[last].min(list.returned);
        }
    }
    let known = earliest(known.into_iter());
    let mut version = Version::NONE;
    for (place, item) in longest.items.iter().enumerate() {
        let Some(append) = appends.get(item) else { continue };
        if append.called > known[place] || append.version().is_some_and(|own| own <= version) {
            let what = format!("{append:?} is at index {place} in {:?}, read at {}", longest.items, longest.called);
            return Err(Broken::new(Rule::VersionWentBack, what));
        }
        version = append.version().unwrap_or(version);
    }
    Ok(())
}
