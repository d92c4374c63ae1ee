//! Lists and counters: whatever is applied to them stays, so each key's operations are in the order of their versions.
//!
//! Of every acknowledged operation the version is known. A write makes a version of its own, a read tells that of the last
//! write before it. So an order is a linearization if it is that of the versions and no operation stands before one that had
//! returned when it was called; what is left is whether each state holds what the writes up to it make.
//!
//! The rules are necessary. They leave a little open: which versions writes of unknown outcome had that nobody saw, and what
//! stands in a list behind the last read of it.

use std::{collections::BTreeMap, fmt};

use artillery_proto::Version;
use serde::{Deserialize, Serialize};

use super::{counters, lists};
use crate::history::{SeriesAnswer, SeriesCall, SeriesOperation};

/// What is wrong with lists, counters, cuts or sessions. Each proves that no chain behaves so.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Rule {
    /// The history itself makes no sense.
    Malformed,
    /// A write was applied twice.
    AppliedTwice,
    /// An acknowledged write isn't there.
    Lost,
    /// A refused write is there, or one that nobody asked for by then.
    NotAsked,
    /// Two reads of one list have no common history, or what was told of a place in it isn't so.
    Forked,
    /// A write was given a version below one that was known before it was called, or another one's.
    VersionWentBack,
    /// A read shows less than was known before it was called.
    StaleRead,
    /// Half of a batch was seen.
    HalfBatch,
    /// Keys that were read together were never so at one time.
    NoCut,
    /// A session's read shows less than the session had seen.
    WentBack,
}

/// A history that breaks a rule.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Broken {
    /// Which.
    pub rule: Rule,
    /// How.
    pub what: String,
}

impl Broken {
    pub(super) fn new(rule: Rule, what: impl Into<String>) -> Self {
        Self { rule, what: what.into() }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "the history makes no sense",
            Self::AppliedTwice => "a write was applied twice",
            Self::Lost => "an acknowledged write was lost",
            Self::NotAsked => "something was applied that was refused, or not asked for by then",
            Self::Forked => "two answers have no common history",
            Self::VersionWentBack => "a later write has a lower version",
            Self::StaleRead => "a read shows less than was known",
            Self::HalfBatch => "half of a batch was seen",
            Self::NoCut => "what was read together never was there together",
            Self::WentBack => "a session went back",
        })
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.what)
    }
}

impl std::error::Error for Broken {}

/// Checks each key for itself.
pub(super) fn check(operations: &[SeriesOperation]) -> Result<(), Broken> {
    let mut keys: BTreeMap<u32, Vec<&SeriesOperation>> = BTreeMap::new();
    for operation in operations {
        keys.entry(operation.key).or_default().push(operation);
    }
    for mut operations in keys.into_values() {
        operations.sort_by_key(|operation| operation.called);
        keeps_time(&operations)?;
        if operations.iter().any(|operation| is_of_list(operation)) {
            lists::check(&operations)?;
        } else {
            counters::check(&operations)?;
        }
    }
    Ok(())
}

fn is_of_list(operation: &SeriesOperation) -> bool {
    matches!(operation.call, SeriesCall::Append(_)) || matches!(operation.answer, SeriesAnswer::List(..))
}

/// Versions follow upon each other as calls and answers do, and no two writes share one.
fn keeps_time(operations: &[&SeriesOperation]) -> Result<(), Broken> {
    let mut answered: Vec<(u64, Version)> =
        operations.iter().filter_map(|operation| Some((operation.returned, operation.version()?))).collect();
    answered.sort_unstable();
    let mut answered = answered.into_iter().peekable();
    let mut known = Version::NONE;
    let mut writes: BTreeMap<Version, &SeriesOperation> = BTreeMap::new();
    for operation in operations {
        while let Some((_, version)) = answered.next_if(|&(returned, _)| returned < operation.called) {
            known = known.max(version);
        }
        let Some(version) = operation.version() else { continue };
        let is_read = operation.call == SeriesCall::Read;
        let rule = if is_read { Rule::StaleRead } else { Rule::VersionWentBack };
        if version < known || (!is_read && version == known) {
            return Err(Broken::new(rule, format!("{operation:?} was called when {known} was known")));
        }
        if !is_read && let Some(other) = writes.insert(version, operation) {
            return Err(Broken::new(Rule::VersionWentBack, format!("{operation:?} and {other:?} made one version")));
        }
    }
    Ok(())
}

/// At each position of what is sorted by version the earliest return from there on; one longer than `returns`.
pub(super) fn earliest(returns: impl DoubleEndedIterator<Item = u64>) -> Vec<u64> {
    let mut earliest = vec![u64::MAX];
    for returned in returns.rev() {
        earliest.push(returned.min(earliest[earliest.len() - 1]));
    }
    earliest.reverse();
    earliest
}
