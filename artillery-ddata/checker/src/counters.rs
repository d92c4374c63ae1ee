//! Counters: each increment is applied exactly once.
//!
//! An acknowledged increment has a version. Of any other increment only the time of its call is known. So a number seen
//! at a version must include all acknowledged increments up to that version, and at least as many of the others as any
//! number seen at a lower version.

use artillery_proto::Version;

use super::series::{Broken, Rule, earliest};
use crate::history::{SeriesAnswer, SeriesCall, SeriesOperation};

/// Checks one counter. Its operations are in the order of their calls.
pub(super) fn check(operations: &[&SeriesOperation]) -> Result<(), Broken> {
    let mut acknowledged = Vec::new();
    let mut unknown = Vec::new();
    let mut points: Vec<(Version, u64, &SeriesOperation)> = Vec::new();
    for operation in operations {
        match (operation.call, &operation.answer) {
            (SeriesCall::Increment, SeriesAnswer::Counted { version, count }) => {
                acknowledged.push(*version);
                points.extend(count.map(|count| (*version, count, *operation)));
            }
            (SeriesCall::Increment, SeriesAnswer::Unknown) => unknown.push(operation.called),
            (SeriesCall::Increment, SeriesAnswer::Refused) => {}
            (SeriesCall::Read, SeriesAnswer::Number(version, number)) if version.is_none() == (*number == 0) => {
                points.push((*version, *number, operation));
            }
            _ => return Err(Broken::new(Rule::Malformed, format!("{operation:?}"))),
        }
    }
    acknowledged.sort_unstable();
    points.sort_by_key(|(version, number, _)| (*version, *number));
    let known = earliest(points.iter().map(|(.., operation)| operation.returned));
    // For the last lower version: how many unacknowledged increments it included, and the version itself.
    let (mut below, mut others) = ((0, Version::NONE), 0);
    for (place, (version, number, operation)) in points.iter().enumerate() {
        if place > 0 && points[place - 1].0 < *version {
            below = (others, points[place - 1].0);
        }
        let certain = acknowledged.partition_point(|other| other <= version) as u64;
        // If no acknowledged increment created this version, an unacknowledged one did.
        let made = acknowledged.binary_search(version).is_ok() || version.is_none();
        let least = if made { others } else { below.0 + 1 };
        let Some(more) = number.checked_sub(certain).filter(|more| *more >= least) else {
            let what = format!(
                "{operation:?}, but {certain} increments were acknowledged and at least {least} others were visible by then"
            );
            return Err(Broken::new(Rule::Lost, what));
        };
        let between = certain - acknowledged.partition_point(|other| *other <= below.1) as u64;
        if more - below.0 > version.sequence.0 - below.1.sequence.0 - between {
            let what =
                format!("{operation:?}, but {more} unacknowledged increments don't fit between the known versions");
            return Err(Broken::new(Rule::AppliedTwice, what));
        }
        let possible = unknown.partition_point(|called| *called <= known[place]) as u64;
        if more > possible {
            let what = format!(
                "{operation:?}, but {certain} increments were acknowledged and {possible} others possible by then"
            );
            return Err(Broken::new(Rule::AppliedTwice, what));
        }
        if place > 0 && points[place - 1].0 == *version && points[place - 1].1 != *number {
            return Err(Broken::new(Rule::Forked, format!("{:?} and {operation:?}", points[place - 1].2)));
        }
        others = more;
    }
    Ok(())
}
