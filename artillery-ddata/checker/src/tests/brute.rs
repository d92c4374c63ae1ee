//! The definition of the register, tried on every order: slow, simple, and written independently of the search.

use artillery_proto::Version;

use crate::history::{Answer, Call, Operation, Value};

/// Whether some order of the operations of one key, with some choice of applied unknown writes, explains all answers.
pub(super) fn is_linearizable(operations: &[Operation]) -> bool {
    let values: Vec<Value> = operations.iter().filter_map(value).collect();
    assert!((1..values.len()).all(|at| !values[at..].contains(&values[at - 1])), "each value is written once");
    extend(operations, &mut Vec::new())
}

fn value(operation: &Operation) -> Option<Value> {
    match operation.call {
        Call::Put(value) | Call::CompareAndSwap { value, .. } => Some(value),
        Call::Delete | Call::GetDelete | Call::Read | Call::Expire { .. } => None,
    }
}

fn extend(operations: &[Operation], order: &mut Vec<usize>) -> bool {
    let left = |at: &usize| !order.contains(at);
    let must = |at: &usize| !matches!(operations[*at].answer, Answer::Unknown | Answer::Refused);
    if !(0..operations.len()).any(|at| left(&at) && must(&at)) && explains(operations, order) {
        return true;
    }
    let may =
        |at: &usize| must(at) || (operations[*at].answer == Answer::Unknown && operations[*at].call != Call::Read);
    let returned_before =
        |called: u64| (0..operations.len()).any(|at| left(&at) && must(&at) && operations[at].returned < called);
    let next: Vec<usize> =
        (0..operations.len()).filter(|at| left(at) && may(at) && !returned_before(operations[*at].called)).collect();
    next.into_iter().any(|at| {
        order.push(at);
        let explained = extend(operations, order);
        order.pop();
        explained
    })
}

/// Whether a register used in this order returns these answers.
fn explains(operations: &[Operation], order: &[usize]) -> bool {
    // The version of each applied write, if an answer reports it.
    let mut versions: Vec<Option<Version>> = Vec::new();
    let mut current: Option<(usize, Value)> = None;
    for at in order {
        let operation = &operations[*at];
        let saw = |told: Option<(Version, Value)>, versions: &mut Vec<Option<Version>>| match (told, current) {
            (None, None) => true,
            (Some((version, value)), Some((write, held))) => value == held && pin(&mut versions[write], version),
            _ => false,
        };
        let explained = match (operation.call, operation.answer) {
            (Call::Read, Answer::Found(told)) => saw(told, &mut versions),
            (Call::CompareAndSwap { expected, .. }, Answer::Conflict(told)) => {
                expected != told.map_or(Version::NONE, |(version, _)| version) && saw(told, &mut versions)
            }
            (Call::CompareAndSwap { expected, .. }, Answer::Failed(version)) => {
                expected != version
                    && match current {
                        None => version.is_none(),
                        Some((write, _)) => !version.is_none() && pin(&mut versions[write], version),
                    }
            }
            (Call::GetDelete, Answer::Found(told)) => saw(told, &mut versions),
            (Call::GetDelete, Answer::Took { found, .. }) => saw(Some(found), &mut versions),
            (Call::CompareAndSwap { expected, .. }, _) => match current {
                None => expected.is_none(),
                Some((write, _)) => !expected.is_none() && pin(&mut versions[write], expected),
            },
            // An expiry without an effect is left out of the order.
            (Call::Expire { version }, _) => current.is_some_and(|(write, _)| pin(&mut versions[write], version)),
            _ => true,
        };
        if !explained {
            return false;
        }
        let takes_nothing = operation.call == Call::GetDelete && current.is_none();
        if matches!(operation.answer, Answer::Written(_) | Answer::Took { .. } | Answer::Unknown) && !takes_nothing {
            current = value(operation).map(|value| (versions.len(), value));
            versions.push(match operation.answer {
                Answer::Written(version) | Answer::Took { version, .. } => Some(version),
                _ => None,
            });
        }
    }
    ascend(&versions)
}

fn pin(known: &mut Option<Version>, version: Version) -> bool {
    *known.get_or_insert(version) == version
}

/// Whether the unreported versions can be chosen so that all ascend.
fn ascend(versions: &[Option<Version>]) -> bool {
    let mut last = Version::NONE;
    for version in versions {
        let lowest = Version::new(last.epoch.0, last.sequence.0 + 1);
        let version = version.unwrap_or(lowest);
        if version <= last {
            return false;
        }
        last = version;
    }
    true
}
