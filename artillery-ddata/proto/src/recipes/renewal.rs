//! Renewals: one script renews the keys of many leases of a process.

use std::time::Duration;

use bytes::Bytes;

use crate::api::{
    Expected, GroupOutcome, Requirement, ScriptGroup, ScriptStep, ScriptWrite, StepOutcome, Write, millis,
};

/// The most keys that one script renews.
pub const MAX_RENEWALS: usize = 1024;

/// A key to be renewed.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RenewedKey {
    pub key: Bytes,
    pub ttl: Duration,
    /// The value without which the key isn't renewed: another process has put its own.
    pub value: Option<Bytes>,
}

/// The outcome of the renewal of one key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Renewal {
    Renewed,
    /// The key is absent.
    Gone,
    /// The key has another value.
    Replaced,
    /// The renewal may or may not have been applied.
    Unknown,
}

/// The write that renews these keys, all of one chain.
pub fn renewal<'a>(keys: impl IntoIterator<Item = &'a RenewedKey>) -> Write {
    let groups = keys.into_iter().map(|RenewedKey { key, ttl, value }| {
        let expected = value.clone().map_or(Expected::Present, Expected::Value);
        let steps = vec![ScriptStep::Expire { key: key.clone(), ttl: Some(millis(*ttl)), when: None }];
        ScriptGroup { require: vec![Requirement { key: key.clone(), expected }], steps }
    });
    Write::Script(ScriptWrite { require: Vec::new(), groups: groups.collect() })
}

impl Renewal {
    /// The outcome of a key's group.
    pub fn of(outcome: &GroupOutcome) -> Self {
        use crate::api::GroupFailure;
        match outcome {
            Ok(steps) => match steps[..] {
                [StepOutcome::Changed(true)] => Self::Renewed,
                [StepOutcome::Changed(false)] => Self::Gone,
                _ => Self::Unknown,
            },
            Err(GroupFailure::Unmet { version, .. }) if version.is_none() => Self::Gone,
            Err(GroupFailure::Unmet { .. }) => Self::Replaced,
            Err(GroupFailure::Failed { .. }) => Self::Unknown,
        }
    }
}
