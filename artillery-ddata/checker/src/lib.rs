//! Decides whether the observations of clients are possible with one versioned register per key.
//!
//! A history is *linearizable* (Herlihy & Wing 1990) if each operation can be assigned one instant between its call and
//! its answer so that, in the order of these instants, all answers are those of a register used by one client at a
//! time. The register of a key is absent or holds a value and its version:
//!
//! - a put, a delete and a compare-and-swap that succeed are *applied*: each creates a version greater than all earlier
//!   versions of the key, and no two writes of the history, of any keys, share a version unless they are parts of one
//!   batch (so a history is of **one** chain);
//! - a read or a conflict reports a value with the version that its write created;
//! - a compare-and-swap succeeds if and only if the key holds a value of the expected version or, with
//!   [`Version::NONE`](artillery_proto::Version::NONE), is absent (a deleted key is absent); a compare-and-swap that
//!   fails reports the state of the key and changes nothing;
//! - a deletion that returns a value found it, with that version, directly before the deletion;
//! - the parts of a batch, each on a different key, are applied together, in one version, or not at all;
//! - an *expiry* lets a key go by itself: it makes the key absent, at most once and at any time after its call, if the
//!   key then holds the value of exactly the expiry's version. Otherwise it does nothing, so it never removes a later
//!   value. State the earliest time at which the value may go as the time of the call;
//! - a refused write is never applied; a write of unknown outcome is applied at most once, at any time after its call,
//!   or never.
//!
//! Linearizability is local, so keys are checked one by one. Cheap necessary rules are checked first and give a
//! violation a precise name ([`Kind`]). The exact search of Wing & Gong (1993) with the memory of Lowe (2017) follows.
//! A history that isn't decided within the [`Budget`] is a violation too.
//!
//! [`check_more`] checks what registers don't show: that each write to a list or counter is applied once, that keys
//! read together form a cut, and that sessions never go back.

mod counters;
mod cuts;
mod floors;
mod form;
pub mod history;
mod known;
mod lists;
mod register;
mod rules;
mod search;
mod series;
mod shrink;
#[cfg(test)]
mod tests;
mod violation;

use std::collections::BTreeMap;

use history::{History, Operation};

pub use series::{Broken, Rule};
pub use shrink::shortest;
pub use violation::{Kind, Violation};

/// Limit on the work of a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    /// States of the search, summed over the keys. A history without writes of unknown outcome needs about one per
    /// write.
    pub states: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self { states: 1_000_000 }
    }
}

/// The work of a check that found no violation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Checked {
    /// The number of keys in the history.
    pub keys: usize,
    /// The number of operations in the history.
    pub operations: usize,
    /// The number of states visited by the search.
    pub states: u64,
}

/// Checks each key of `history` against the register described for this crate.
///
/// # Errors
///
/// A malformed operation or a version used twice, if the history has one; otherwise the violation of the lowest key
/// that has one. The violation contains its explanation.
pub fn check(history: &History, budget: Budget) -> Result<Checked, Violation> {
    verdict(&history.operations, budget).map_err(|violation| shrink::explain(history, budget, violation))
}

/// Checks lists, counters, cuts and sessions.
///
/// # Errors
///
/// The first broken rule that is found.
pub fn check_more(history: &History) -> Result<(), Broken> {
    series::check(&history.series)?;
    let known = known::Known::new(history);
    cuts::check(history, &known)?;
    floors::check(history, &known)
}

/// [`check`] without shortening the explanation.
fn verdict(operations: &[Operation], budget: Budget) -> Result<Checked, Violation> {
    let operations = form::complete(operations);
    let versions = form::check(&operations)?;
    let keys = by_key(&operations);
    let mut left = budget.states;
    for (key, operations) in &keys {
        decide(*key, operations, &versions, &mut left)?;
    }
    Ok(Checked { keys: keys.len(), operations: operations.len(), states: budget.states - left })
}

/// Checks the operations of one key, which must be well-formed and in the order of their calls.
fn decide(key: u32, operations: &[Operation], versions: &form::Versions, left: &mut u64) -> Result<(), Violation> {
    let register = register::Register::new(key, operations)?;
    rules::check(&register, versions)?;
    search::search(&register, versions, left)
}

/// The operations of each key in the order of their calls.
fn by_key(operations: &[Operation]) -> BTreeMap<u32, Vec<Operation>> {
    let mut keys: BTreeMap<u32, Vec<Operation>> = BTreeMap::new();
    for operation in operations {
        keys.entry(operation.key).or_default().push(*operation);
    }
    for operations in keys.values_mut() {
        operations.sort_by_key(|operation| operation.called);
    }
    keys
}
