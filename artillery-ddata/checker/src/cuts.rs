//! Keys that were read together must have had the returned values at one point of the history.
//!
//! A version is a position in the history of the whole chain. A value with version `v` was present from `v` until the
//! next known write of its key. At least one point must be possible for all keys of a cut.

use std::collections::BTreeMap;

use artillery_proto::{Sequence, Version};

use super::{
    form,
    known::Known,
    series::{Broken, Rule},
};
use crate::history::{Answer, Cut, History};

pub(super) fn check(history: &History, known: &Known) -> Result<(), Broken> {
    let batches = batches(history);
    for cut in &history.cuts {
        shows_no_half(cut, &batches)?;
        is_of_one_point(cut, known)?;
    }
    Ok(())
}

/// The keys that each batch is known to have written.
fn batches(history: &History) -> BTreeMap<Version, Vec<u32>> {
    let mut batches: BTreeMap<Version, Vec<u32>> = BTreeMap::new();
    for operation in form::complete(&history.operations) {
        if let Answer::Written(version) = operation.answer
            && operation.batch != 0
        {
            batches.entry(version).or_default().push(operation.key);
        }
    }
    batches
}

fn shows_no_half(cut: &Cut, batches: &BTreeMap<Version, Vec<u32>>) -> Result<(), Broken> {
    let found: BTreeMap<u32, Option<Version>> = cut.seen.iter().copied().collect();
    for version in cut.seen.iter().filter_map(|(_, version)| *version) {
        for other in batches.get(&version).into_iter().flatten() {
            // A later write or deletion may have followed, but an older state is impossible.
            if let Some(Some(older)) = found.get(other).filter(|older| older.is_some_and(|older| older < version)) {
                let what = format!("the batch at {version} wrote key {other}, shown at {older} in {cut:?}");
                return Err(Broken::new(Rule::HalfBatch, what));
            }
        }
    }
    Ok(())
}

fn is_of_one_point(cut: &Cut, known: &Known) -> Result<(), Broken> {
    let lowest = cut.seen.iter().filter_map(|(_, version)| Some(version.as_ref()?.sequence)).max();
    let lowest = lowest.unwrap_or(Sequence::ZERO);
    let absent = |(key, version): &(u32, Option<Version>)| {
        (version.is_none() && !known.may_be_deleted(*key, cut.returned)).then_some(*key)
    };
    let absent: Vec<u32> = cut.seen.iter().filter_map(absent).collect();
    // Candidates: the lowest point, and each later point after which an absent key may be absent.
    let mut points: Vec<Sequence> = absent.iter().flat_map(|key| known.absences(*key, cut.returned)).collect();
    points.retain(|point| *point > lowest);
    points.push(lowest);
    let stands = |point: Sequence| {
        let present = cut.seen.iter().filter_map(|(key, version)| Some((*key, version.as_ref()?.sequence)));
        present.clone().all(|(key, from)| known.after(key, from).is_none_or(|next| next.sequence > point))
            && absent.iter().all(|key| is_absent(known, *key, point, cut.returned))
    };
    if points.into_iter().any(stands) {
        return Ok(());
    }
    Err(Broken::new(Rule::NoCut, format!("{cut:?}")))
}

/// Whether the key may be absent from this point until the next known write, in a read that returned then.
fn is_absent(known: &Known, key: u32, point: Sequence, returned: u64) -> bool {
    known.at(key, point).is_none_or(|(version, present)| !present || known.may_have_expired(key, version, returned))
}
