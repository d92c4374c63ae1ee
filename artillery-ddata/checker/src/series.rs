//! Lists and counters. Each applied write stays visible, so the operations of a key follow the order of their versions.
//!
//! The version of every acknowledged operation is known. A write creates a version; a read reports that of the last
//! write before it. So an order is a linearization if it follows the versions and no operation comes before one that
//! had returned when it was called. What remains is to check that each state is the result of the writes up to it.
//!
//! The rules are necessary. They leave two things open: the versions of unseen writes of unknown outcome, and the
//! content of a list after its last read.

use std::{collections::BTreeMap, fmt};

use artillery_proto::Version;
use serde::{Deserialize, Serialize};

use super::{counters, lists};
use crate::history::{SeriesAnswer, SeriesCall, SeriesOperation};

/// A rule for lists, counters, cuts or sessions. A correct chain never breaks one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Rule {
    /// The history itself is malformed.
    Malformed,
    /// A list contains an item twice, or a counter is higher than the increments requested by then allow.
    AppliedTwice,
    /// An acknowledged write is missing.
    Lost,
    /// A list contains an item whose append was refused, was never called, or had not been called yet when the item was
    /// seen.
    NotAsked,
    /// Two answers about one key have no common history: two lists, two numbers of one version, two lengths, or an item
    /// and the position that its append reported.
    Forked,
    /// A write has a version below one that was known before its call, or the version of another write. Or the items of
    /// a list aren't in the order of their appends.
    VersionWentBack,
    /// A read shows less than was known before its call.
    StaleRead,
    /// Only a part of a batch was visible.
    HalfBatch,
    /// Keys that were read together never had these values at the same time.
    NoCut,
    /// A session's read shows less than the session had seen.
    WentBack,
}

/// A history that breaks a rule.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Broken {
    /// The broken rule.
    pub rule: Rule,
    /// The evidence.
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
            Self::Malformed => "the history is malformed",
            Self::AppliedTwice => "a write was applied twice",
            Self::Lost => "an acknowledged write was lost",
            Self::NotAsked => "a visible write was refused, or had not been called by then",
            Self::Forked => "two answers have no common history",
            Self::VersionWentBack => "a later write has a lower version",
            Self::StaleRead => "a read shows less than was known",
            Self::HalfBatch => "half of a batch was seen",
            Self::NoCut => "keys that were read together never had these values at the same time",
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

/// Checks each key independently.
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

/// No version is lower than one that was answered before the call, and no two writes share a version.
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
            return Err(Broken::new(
                Rule::VersionWentBack,
                format!("{operation:?} and {other:?} have the same version"),
            ));
        }
    }
    Ok(())
}

/// For each position, the earliest return at or after it. `returns` are in the order of versions; the result has one
/// more element.
pub(super) fn earliest(returns: impl DoubleEndedIterator<Item = u64>) -> Vec<u64> {
    let mut earliest = vec![u64::MAX];
    for returned in returns.rev() {
        earliest.push(returned.min(earliest[earliest.len() - 1]));
    }
    earliest.reverse();
    earliest
}
