//! Scripts: writes whose steps run in order at the head. The reply contains the outcome of each step.

use bytes::Bytes;

use super::{ExpireIf, Ttl, expected::Expected};
use crate::{Version, types::update::RequestFailure};

/// Groups of steps that run in order; each group fails independently. Readers see all changes of the script or none.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct ScriptWrite {
    /// Conditions checked before the script runs. If one fails, nothing of the script takes effect.
    pub require: Vec<Requirement>,
    /// The groups, in execution order. Each group sees the changes of the groups before it.
    pub groups: Vec<ScriptGroup>,
}

/// Steps that take effect together or not at all. The other groups of the script run in either case.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct ScriptGroup {
    /// Conditions checked when the group begins. If one fails, the group changes nothing.
    pub require: Vec<Requirement>,
    /// The steps, in execution order. Each step sees the changes of the steps before it.
    pub steps: Vec<ScriptStep>,
}

/// A condition on a key, checked before the script or its group runs.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Requirement {
    pub key: Bytes,
    pub expected: Expected,
}

/// One step of a [`ScriptGroup`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ScriptStep {
    /// Returns the key's value.
    Get { key: Bytes },
    /// Returns the length of the key's value.
    Length { key: Bytes },
    /// Sets the key's value.
    Put { key: Bytes, value: Bytes, ttl: Ttl },
    /// Deletes the key; returns whether it was present.
    Delete { key: Bytes },
    /// Deletes the key and returns its value.
    GetDelete { key: Bytes },
    /// Appends to the key's value; an absent key is treated as empty.
    Append { key: Bytes, value: Bytes, ttl: Ttl },
    /// Like [`Append`](Self::Append), at the front.
    Prepend { key: Bytes, value: Bytes, ttl: Ttl },
    /// Adds to the key's value, a signed decimal integer of 64 bits without leading zeros; an absent key is treated
    /// as 0.
    Increment { key: Bytes, by: i64, ttl: Ttl },
    /// Sets when the key expires, as [`Write::Expire`](super::Write::Expire). A length of 0 deletes the key at once.
    Expire { key: Bytes, ttl: Option<u64>, when: Option<ExpireIf> },
    /// Returns when the key expires.
    ExpiresIn { key: Bytes },
    /// Sets another key to the value and the expiry of `key`; returns whether `key` was present.
    Copy { key: Bytes, to: Bytes },
    /// Adds to the key's value, a decimal number that may have a fraction (see [`decimal_sum`](super::decimal_sum)); an
    /// absent key is treated as 0.
    IncrementFloat { key: Bytes, by: Bytes, ttl: Ttl },
    /// Replaces the bytes of the key's value from `offset` on; zeros extend a shorter value up to there. Empty bytes
    /// change nothing.
    SetRange { key: Bytes, offset: u64, value: Bytes, ttl: Ttl },
}

/// The outcome of each step of a group, or why the group changed nothing.
pub type GroupOutcome = Result<Vec<StepOutcome>, GroupFailure>;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum StepOutcome {
    /// A put has no result.
    Done,
    /// Whether the key was present before a delete.
    Deleted(bool),
    /// The value that a get or a get-and-delete found, and its version; `None`: the key was absent. If an earlier step
    /// of the script wrote the value, the version is the script's own.
    Found(Option<(Version, Bytes)>),
    /// The length of the key's value, in bytes; `None`: the key was absent.
    Length(Option<u64>),
    /// The length of the value after an append, a prepend or the replacement of a range, in bytes.
    Appended(u64),
    /// The number after an increment.
    Number(i64),
    /// Whether an expiry was set or removed, or a key was copied.
    Changed(bool),
    /// The milliseconds after which the key expires, 0 if it is due. The inner `None`: it doesn't expire. The outer
    /// `None`: it is absent.
    ExpiresIn(Option<Option<u64>>),
    /// The decimal number after an increment.
    Decimal(Bytes),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum GroupFailure {
    /// A condition of the group didn't hold.
    #[error("requirement {requirement} of the group wasn't met")]
    Unmet {
        /// The index of the condition among the group's, from 0.
        requirement: u32,
        /// The key's version at that time; [`Version::NONE`]: it was absent.
        version: Version,
    },
    /// A step couldn't be applied.
    #[error("step {step} of the group failed: {failure}")]
    Failed {
        /// The index of the step among the group's, from 0.
        step: u32,
        /// The reason.
        failure: RequestFailure,
    },
}

impl ScriptWrite {
    /// The number of conditions and steps; a group is counted as at least one.
    pub fn size(&self) -> usize {
        let of_group = |group: &ScriptGroup| (group.require.len() + group.steps.len()).max(1);
        self.require.len() + self.groups.iter().map(of_group).sum::<usize>()
    }

    pub fn keys(&self) -> impl Iterator<Item = &Bytes> {
        let required = self.require.iter().map(|requirement| &requirement.key);
        required.chain(self.groups.iter().flat_map(ScriptGroup::keys))
    }

    pub fn values(&self) -> impl Iterator<Item = &Bytes> {
        let steps = self.groups.iter().flat_map(|group| &group.steps).filter_map(ScriptStep::value);
        let required = self.groups.iter().flat_map(|group| &group.require).chain(&self.require);
        steps.chain(required.filter_map(|requirement| requirement.expected.value()))
    }
}

impl ScriptGroup {
    pub fn keys(&self) -> impl Iterator<Item = &Bytes> {
        let required = self.require.iter().map(|requirement| &requirement.key);
        let copies = self.steps.iter().filter_map(ScriptStep::copies_to);
        required.chain(self.steps.iter().map(ScriptStep::key)).chain(copies)
    }
}

impl ScriptStep {
    pub fn put(key: Bytes, value: Bytes) -> Self {
        Self::Put { key, value, ttl: Ttl::Usual }
    }

    pub fn append(key: Bytes, value: Bytes) -> Self {
        Self::Append { key, value, ttl: Ttl::Usual }
    }

    pub fn increment(key: Bytes, by: i64) -> Self {
        Self::Increment { key, by, ttl: Ttl::Usual }
    }

    /// The effect on the key's expiry, to be changed; `None`: the step sets no value.
    pub fn ttl_mut(&mut self) -> Option<&mut Ttl> {
        match self {
            Self::Put { ttl, .. }
            | Self::Append { ttl, .. }
            | Self::Prepend { ttl, .. }
            | Self::Increment { ttl, .. }
            | Self::IncrementFloat { ttl, .. }
            | Self::SetRange { ttl, .. } => Some(ttl),
            _ => None,
        }
    }

    fn copies_to(&self) -> Option<&Bytes> {
        if let Self::Copy { to, .. } = self { Some(to) } else { None }
    }

    pub(super) fn appended(&self) -> Option<&Bytes> {
        match self {
            Self::Append { key, .. } | Self::Prepend { key, .. } | Self::SetRange { key, .. } => Some(key),
            _ => None,
        }
    }

    pub fn key(&self) -> &Bytes {
        match self {
            Self::Get { key }
            | Self::Length { key }
            | Self::Put { key, .. }
            | Self::Delete { key }
            | Self::GetDelete { key }
            | Self::Append { key, .. }
            | Self::Prepend { key, .. }
            | Self::Increment { key, .. }
            | Self::Expire { key, .. }
            | Self::ExpiresIn { key }
            | Self::Copy { key, .. }
            | Self::IncrementFloat { key, .. }
            | Self::SetRange { key, .. } => key,
        }
    }

    pub fn value(&self) -> Option<&Bytes> {
        match self {
            Self::Put { value, .. }
            | Self::Append { value, .. }
            | Self::Prepend { value, .. }
            | Self::IncrementFloat { by: value, .. }
            | Self::SetRange { value, .. } => Some(value),
            _ => None,
        }
    }
}

impl StepOutcome {
    pub fn bytes(&self) -> usize {
        match self {
            Self::Found(Some((_, value))) | Self::Decimal(value) => value.len(),
            _ => 0,
        }
    }
}

/// The length of all values in these outcomes, in bytes.
pub fn bytes_of(outcomes: &[GroupOutcome]) -> usize {
    outcomes.iter().flatten().flatten().map(StepOutcome::bytes).sum()
}
