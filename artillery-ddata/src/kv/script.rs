//! Scripts: steps that run one after another at the head, and return results.

use bytes::Bytes;

use super::{keep::copy, keep::pair};
use crate::api::{self, Expected, Requirement, ScriptStep};

/// Groups of steps that run one after another at the head of the chain, and return results. All keys must belong to one
/// chain. A script is plain data: clone it to run it more than once with [`Kv::run`](crate::Kv::run).
///
/// Readers see all changes of a script or none, and no other write runs between its steps. The chain doesn't keep the
/// results. If the answer with the results is lost, a retry learns only that the script ran, and the call fails with
/// [`Unknown::ResultsLost`](crate::error::Unknown::ResultsLost).
///
/// ```
/// # async fn example(kv: &artillery_ddata::Kv) -> Result<(), artillery_ddata::kv::WriteError> {
/// use artillery_ddata::{
///     Script,
///     kv::{Expected, Group},
/// };
///
/// let script = Script::new()
///     .group(Group::new().get("greeting").put("greeting", "hello"))
///     .group(Group::new().require("visitors", Expected::Present).increment("visitors", 1));
/// let done = kv.run(script).await?; // never a conflict: the script itself has no requirements
/// match &done.result[..] {
///     [Ok(greeting), Ok(visitors)] => println!("{greeting:?}, {visitors:?}"),
///     [Ok(greeting), Err(why)] => println!("{greeting:?}, visitors not counted: {why}"),
///     _ => unreachable!("a get and a put never fail"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[must_use = "a script does nothing until it is run"]
pub struct Script(api::ScriptWrite);

impl Script {
    /// An empty script.
    pub fn new() -> Self {
        Self::default()
    }

    /// Requires that the key is as `expected` before the script; otherwise no part of the script runs.
    pub fn require(mut self, key: impl AsRef<[u8]>, expected: Expected) -> Self {
        self.0.require.push(Requirement { key: copy(key), expected });
        self
    }

    /// Adds a group, which runs after the groups before it.
    pub fn group(mut self, group: Group) -> Self {
        self.0.groups.push(group.0);
        self
    }

    /// The number of groups.
    pub fn len(&self) -> usize {
        self.0.groups.len()
    }

    /// Whether the script has no group.
    pub fn is_empty(&self) -> bool {
        self.0.groups.is_empty()
    }

    pub(super) fn into_inner(self) -> api::ScriptWrite {
        self.0
    }
}

impl FromIterator<Group> for Script {
    fn from_iter<I: IntoIterator<Item = Group>>(groups: I) -> Self {
        let groups = groups.into_iter().map(|group| group.0).collect();
        Self(api::ScriptWrite { require: Vec::new(), groups })
    }
}

/// Steps of a [`Script`] that are applied together or not at all. If a requirement isn't met or a step fails, the group
/// changes nothing, and the script continues with the next group. Requirements and steps see the changes of earlier
/// groups; steps also see the changes of earlier steps.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[must_use = "a group does nothing until its script is run"]
pub struct Group(api::ScriptGroup);

impl Group {
    /// An empty group.
    pub fn new() -> Self {
        Self::default()
    }

    /// Requires that the key is as `expected` when the group begins; otherwise the group changes nothing.
    pub fn require(mut self, key: impl AsRef<[u8]>, expected: Expected) -> Self {
        self.0.require.push(Requirement { key: copy(key), expected });
        self
    }

    /// Reads a key. The outcome is [`StepOutcome::Found`](crate::kv::StepOutcome::Found).
    pub fn get(self, key: impl AsRef<[u8]>) -> Self {
        self.step(ScriptStep::Get { key: copy(key) })
    }

    /// Reads the length of a key's value. The outcome is [`StepOutcome::Length`](crate::kv::StepOutcome::Length).
    pub fn length(self, key: impl AsRef<[u8]>) -> Self {
        self.step(ScriptStep::Length { key: copy(key) })
    }

    /// Sets a key's value. The outcome is [`StepOutcome::Done`](crate::kv::StepOutcome::Done).
    pub fn put(self, key: impl AsRef<[u8]>, value: impl Into<Bytes>) -> Self {
        let (key, value) = pair(key, value);
        self.step(ScriptStep::Put { key, value })
    }

    /// Deletes a key. The outcome is [`StepOutcome::Deleted`](crate::kv::StepOutcome::Deleted).
    pub fn delete(self, key: impl AsRef<[u8]>) -> Self {
        self.step(ScriptStep::Delete { key: copy(key) })
    }

    /// Deletes a key and returns its value. The outcome is [`StepOutcome::Found`](crate::kv::StepOutcome::Found).
    pub fn get_delete(self, key: impl AsRef<[u8]>) -> Self {
        self.step(ScriptStep::GetDelete { key: copy(key) })
    }

    /// Appends to a key's value. An absent key is treated as empty. The outcome is
    /// [`StepOutcome::Appended`](crate::kv::StepOutcome::Appended).
    pub fn append(self, key: impl AsRef<[u8]>, value: impl Into<Bytes>) -> Self {
        self.step(ScriptStep::Append { key: copy(key), value: value.into() })
    }

    /// Adds `by` to a key's value, a decimal number. An absent key is treated as 0. The outcome is
    /// [`StepOutcome::Number`](crate::kv::StepOutcome::Number).
    pub fn increment(self, key: impl AsRef<[u8]>, by: i64) -> Self {
        self.step(ScriptStep::Increment { key: copy(key), by })
    }

    /// The number of steps, not counting requirements.
    pub fn len(&self) -> usize {
        self.0.steps.len()
    }

    /// Whether the group has no step.
    pub fn is_empty(&self) -> bool {
        self.0.steps.is_empty()
    }

    fn step(mut self, step: ScriptStep) -> Self {
        self.0.steps.push(step);
        self
    }
}
