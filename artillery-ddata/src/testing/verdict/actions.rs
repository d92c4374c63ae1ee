//! The keys that a write changes, and its effect on each.

use bytes::Bytes;

use super::{
    clock::Terms,
    content::{Action, Content, holds, matches},
    scripts,
};
use crate::{
    Version,
    api::{SEQUENTIAL, Step, Write, sequential_key},
};

/// The keys that a write changes if it is applied, each once. A script may change fewer, and so may a write that sets
/// expiries. The key of a sequential put is known only with its version.
pub(super) fn changed(write: &Write, version: Option<Version>) -> Vec<Bytes> {
    let keys: Vec<&Bytes> = match write {
        Write::PutSequential { prefix, .. } => {
            return version.into_iter().map(|version| sequential_key(prefix, version)).collect();
        }
        Write::Batch(steps) => steps.iter().filter(|step| is_change(step)).map(Step::key).collect(),
        Write::Script(script) => scripts::changing(script).collect(),
        write => write.keys().collect(),
    };
    let mut distinct: Vec<Bytes> = Vec::new();
    for key in keys {
        if !distinct.contains(key) {
            distinct.push(key.clone());
        }
    }
    distinct
}

/// Whether answers to the write are about this key.
pub(super) fn concerns(write: &Write, version: Version, key: &Bytes) -> bool {
    match write {
        Write::PutSequential { prefix, .. } => sequential_key(prefix, version) == *key,
        write => write.keys().any(|other| other == key),
    }
}

fn is_change(step: &Step) -> bool {
    !matches!(step, Step::Require { .. })
}

/// The version that a sequential put with this prefix must have if it made this key.
pub(super) fn version_in(prefix: &[u8], key: &[u8]) -> Option<Version> {
    let suffix = key.strip_prefix(prefix).filter(|suffix| suffix.len() == SEQUENTIAL)?;
    let (epoch, sequence) = std::str::from_utf8(suffix).ok()?.split_once('.')?;
    let number = |digits| u64::from_str_radix(digits, 16).ok();
    let version = Version::new(number(epoch)?, number(sequence)?);
    (sequential_key(prefix, version) == *key).then_some(version)
}

/// The actions on the key of a write that is not a script, in order.
pub(super) fn actions<'a>(write: &'a Write, key: &Bytes) -> Vec<Action<'a>> {
    let action = match write {
        Write::Put { value, ttl, .. } | Write::PutSequential { value, ttl, .. } => Action::Put(value, *ttl),
        Write::Delete { .. } | Write::GetDelete { .. } | Write::CompareAndSwap { value: None, .. } => Action::Delete,
        Write::CompareAndSwap { value: Some(value), ttl, .. } => Action::Put(value, *ttl),
        Write::Append { value, ttl, .. } => Action::Append(value, *ttl),
        Write::Prepend { value, ttl, .. } => Action::Prepend(value, *ttl),
        Write::Increment { by, ttl, .. } => Action::Increment(*by, *ttl),
        Write::Expire { ttl, when, .. } => Action::Expire(*ttl, *when),
        Write::Batch(steps) => return steps.iter().filter(|step| step.key() == key).filter_map(step_action).collect(),
        Write::Script(_) | Write::OpenSession | Write::Resolve => return Vec::new(),
    };
    vec![action]
}

fn step_action(step: &Step) -> Option<Action<'_>> {
    Some(match step {
        Step::Require { .. } => return None,
        Step::Put { value, ttl, .. } => Action::Put(value, *ttl),
        Step::Delete { .. } => Action::Delete,
        Step::Append { value, ttl, .. } => Action::Append(value, *ttl),
        Step::Prepend { value, ttl, .. } => Action::Prepend(value, *ttl),
        Step::Increment { by, ttl, .. } => Action::Increment(*by, *ttl),
        Step::Expire { ttl, when, .. } => Action::Expire(*ttl, *when),
    })
}

/// Whether the write only sets the expiry of this key, and so may leave it unchanged.
pub(super) fn only_renews(write: &Write, key: &Bytes) -> bool {
    actions(write, key).iter().all(|action| matches!(action, Action::Expire(..)))
}

/// The possible contents of a key after a write that is not a script: none if the write would not have been applied to
/// this content. Those that it changes have the version of `terms`.
pub(super) fn apply(write: &Write, key: &Bytes, content: &Content, terms: &Terms<'_>) -> Vec<Content> {
    let may = match write {
        Write::CompareAndSwap { expected, .. } => matches(content, *expected),
        Write::Batch(steps) => steps.iter().filter(|step| step.key() == key).all(|step| match step {
            Step::Require { expected, .. } => holds(content, expected) != Some(false),
            _ => true,
        }),
        Write::Script(_) | Write::OpenSession | Write::Resolve => false,
        _ => true,
    };
    if !may {
        return Vec::new();
    }
    // A deletion that returns the value needs no tombstone for an absent key.
    if matches!(write, Write::GetDelete { .. }) && content.value.is_none() {
        return vec![content.clone()];
    }
    after_all(&actions(write, key), content, terms)
}

/// The possible contents after all actions: none if one fails.
pub(super) fn after_all(actions: &[Action<'_>], content: &Content, terms: &Terms<'_>) -> Vec<Content> {
    actions.iter().fold(vec![content.clone()], |contents, action| {
        let mut after: Vec<Content> = contents.iter().flat_map(|content| content.after(action, terms)).collect();
        after.dedup();
        after
    })
}
