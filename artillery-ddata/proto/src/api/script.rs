//! Scripts: writes whose steps run one after the other at the head. The answer tells the outcome of each step.

use bytes::Bytes;

use super::expected::Expected;
use crate::{Version, types::update::RequestFailure};

/// Steps that run one after the other, in groups of which each fails alone. Readers see all changes of it, or none.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ScriptWrite {
    /// How keys must be before the script runs. If one isn't, nothing of the script happens.
    pub require: Vec<Requirement>,
    /// The groups, in the order in which they run. Each group sees what those before it did.
    pub groups: Vec<ScriptGroup>,
}

/// Steps that are done all together or not at all. The other groups of the script run in either case.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ScriptGroup {
    /// How keys must be when the group's turn comes. If one isn't, the group changes nothing.
    pub require: Vec<Requirement>,
    /// The steps, in the order in which they run. Each step sees what those before it did.
    pub steps: Vec<ScriptStep>,
}

/// How a key must be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Requirement {
    /// The key.
    pub key: Bytes,
    /// How it must be.
    pub expected: Expected,
}

/// One step of a [`ScriptGroup`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ScriptStep {
    /// Tells what the key holds.
    Get {
        /// The key.
        key: Bytes,
    },
    /// Tells how long the key's value is.
    Length {
        /// The key.
        key: Bytes,
    },
    /// The key has this value from now on.
    Put {
        /// The key.
        key: Bytes,
        /// The value.
        value: Bytes,
    },
    /// The key is absent from now on; tells whether it was there.
    Delete {
        /// The key.
        key: Bytes,
    },
    /// The key is absent from now on; tells what it held.
    GetDelete {
        /// The key.
        key: Bytes,
    },
    /// The value gets these bytes at its end; an absent key counts as empty.
    Append {
        /// The key.
        key: Bytes,
        /// What is appended.
        value: Bytes,
    },
    /// The value, a decimal number, gets larger by this much; an absent key counts as 0.
    Increment {
        /// The key.
        key: Bytes,
        /// How much, perhaps negative.
        by: i64,
    },
}

/// The outcome of a group: the outcome of each of its steps, or why the group changed nothing.
pub type GroupOutcome = Result<Vec<StepOutcome>, GroupFailure>;

/// The outcome of a step.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum StepOutcome {
    /// Nothing: a put.
    Done,
    /// Whether there was something to delete.
    Deleted(bool),
    /// The value that a get or a get-and-delete found, and its version. If an earlier step of the script made the
    /// value, the version is the script's own. `None`: the key was absent.
    Found(Option<(Version, Bytes)>),
    /// The length of the key's value, in bytes; `None`: the key was absent.
    Length(Option<u64>),
    /// The length of the value after an append, in bytes.
    Appended(u64),
    /// The number after an increment.
    Number(i64),
}

/// Why a group changed nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum GroupFailure {
    /// A key wasn't as required.
    #[error("requirement {requirement} of the group wasn't met")]
    Unmet {
        /// Which of the group's requirements, counted from 0.
        requirement: u32,
        /// The version that the key had then; [`Version::NONE`]: it was absent.
        version: Version,
    },
    /// A step can't be done.
    #[error("step {step} of the group failed: {failure}")]
    Failed {
        /// Which of the group's steps, counted from 0.
        step: u32,
        /// Why.
        failure: RequestFailure,
    },
}

impl ScriptWrite {
    /// The number of requirements and steps; a group counts as at least one.
    pub fn size(&self) -> usize {
        let of_group = |group: &ScriptGroup| (group.require.len() + group.steps.len()).max(1);
        self.require.len() + self.groups.iter().map(of_group).sum::<usize>()
    }

    /// The keys that it is about.
    pub fn keys(&self) -> impl Iterator<Item = &Bytes> {
        let required = self.require.iter().map(|requirement| &requirement.key);
        required.chain(self.groups.iter().flat_map(ScriptGroup::keys))
    }

    /// The values that it carries.
    pub fn values(&self) -> impl Iterator<Item = &Bytes> {
        self.groups.iter().flat_map(|group| &group.steps).filter_map(ScriptStep::value)
    }
}

impl ScriptGroup {
    /// The keys that it is about.
    pub fn keys(&self) -> impl Iterator<Item = &Bytes> {
        let required = self.require.iter().map(|requirement| &requirement.key);
        required.chain(self.steps.iter().map(ScriptStep::key))
    }
}

impl ScriptStep {
    /// The key, if the step appends to the key's value.
    pub(super) fn appended(&self) -> Option<&Bytes> {
        if let Self::Append { key, .. } = self { Some(key) } else { None }
    }

    /// The key that it is about.
    pub fn key(&self) -> &Bytes {
        match self {
            Self::Get { key }
            | Self::Length { key }
            | Self::Put { key, .. }
            | Self::Delete { key }
            | Self::GetDelete { key }
            | Self::Append { key, .. }
            | Self::Increment { key, .. } => key,
        }
    }

    /// The value that it carries.
    pub fn value(&self) -> Option<&Bytes> {
        match self {
            Self::Put { value, .. } | Self::Append { value, .. } => Some(value),
            _ => None,
        }
    }
}

impl StepOutcome {
    /// The length of the value in this outcome, in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Found(Some((_, value))) => value.len(),
            _ => 0,
        }
    }
}

/// The length of all values in these outcomes, in bytes.
pub fn bytes_of(outcomes: &[GroupOutcome]) -> usize {
    outcomes.iter().flatten().flatten().map(StepOutcome::bytes).sum()
}
