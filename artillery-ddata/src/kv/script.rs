//! Scripts: steps that run one after the other, and tell what they found.

use bytes::Bytes;

use super::{keep::copy, keep::pair};
use crate::api::{self, Expected, Requirement, ScriptStep};

/// Groups of steps that run one after the other where the chain is ordered, and whose results come back. Its keys belong to
/// one chain. A plain value: run it by [`Kv::run`](crate::Kv::run), as often as you like.
///
/// Readers see all that it changed or nothing of it, and nothing happens between its steps. What it tells comes once: if an
/// answer is lost, the record knows that the script ran, and
/// [`Unknown::ResultsLost`](crate::error::Unknown::ResultsLost) says so.
///
/// ```
/// # async fn transfer(kv: &artillery_ddata::Kv) -> Result<(), artillery_ddata::Error> {
/// use artillery_ddata::{Expected, Group, Script, StepOutcome};
///
/// let script = Script::new()
///     .group(Group::new().get("greeting").put("greeting", "hello"))
///     .group(Group::new().require("visitors", Expected::Present).increment("visitors", 1));
/// match kv.run(script).await? {
///     Ok(done) => match &done.result[..] {
///         [Ok(greeting), Ok(visitors)] => println!("{greeting:?}, {visitors:?}"),
///         [Ok(greeting), Err(why)] => println!("{greeting:?}, nobody counted: {why}"),
///         _ => unreachable!("a get and a put never fail"),
///     },
///     Err(conflict) => println!("not run: {conflict}"), // it has no requirements of its own
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

    /// Nothing of the script happens unless the key was as `expected` before it.
    pub fn require(mut self, key: impl AsRef<[u8]>, expected: Expected) -> Self {
        self.0.require.push(Requirement { key: copy(key), expected });
        self
    }

    /// Runs these steps behind those that are there.
    pub fn group(mut self, group: Group) -> Self {
        self.0.groups.push(group.0);
        self
    }

    /// How many groups it has.
    pub fn len(&self) -> usize {
        self.0.groups.len()
    }

    /// Whether it has none.
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

/// Steps of a [`Script`] that happen together or not at all: if a requirement isn't met, or a step can't be done, the group
/// changes nothing, and the script goes on behind it. Requirements and steps see what came before them in the script.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[must_use = "a group does nothing until its script is run"]
pub struct Group(api::ScriptGroup);

impl Group {
    /// An empty group.
    pub fn new() -> Self {
        Self::default()
    }

    /// The group changes nothing unless the key is as `expected` when its turn comes.
    pub fn require(mut self, key: impl AsRef<[u8]>, expected: Expected) -> Self {
        self.0.require.push(Requirement { key: copy(key), expected });
        self
    }

    /// Tells what a key holds: [`StepOutcome::Found`](crate::kv::StepOutcome::Found).
    pub fn get(self, key: impl AsRef<[u8]>) -> Self {
        self.step(ScriptStep::Get { key: copy(key) })
    }

    /// Tells how long a key's value is: [`StepOutcome::Length`](crate::kv::StepOutcome::Length).
    pub fn length(self, key: impl AsRef<[u8]>) -> Self {
        self.step(ScriptStep::Length { key: copy(key) })
    }

    /// Gives a key a value: [`StepOutcome::Done`](crate::kv::StepOutcome::Done).
    pub fn put(self, key: impl AsRef<[u8]>, value: impl Into<Bytes>) -> Self {
        let (key, value) = pair(key, value);
        self.step(ScriptStep::Put { key, value })
    }

    /// Makes a key absent: [`StepOutcome::Deleted`](crate::kv::StepOutcome::Deleted).
    pub fn delete(self, key: impl AsRef<[u8]>) -> Self {
        self.step(ScriptStep::Delete { key: copy(key) })
    }

    /// Makes a key absent, and tells what it held: [`StepOutcome::Found`](crate::kv::StepOutcome::Found).
    pub fn get_delete(self, key: impl AsRef<[u8]>) -> Self {
        self.step(ScriptStep::GetDelete { key: copy(key) })
    }

    /// Appends to a value; an absent key counts as empty: [`StepOutcome::Appended`](crate::kv::StepOutcome::Appended).
    pub fn append(self, key: impl AsRef<[u8]>, value: impl Into<Bytes>) -> Self {
        self.step(ScriptStep::Append { key: copy(key), value: value.into() })
    }

    /// Adds to a decimal number; an absent key counts as 0: [`StepOutcome::Number`](crate::kv::StepOutcome::Number).
    pub fn increment(self, key: impl AsRef<[u8]>, by: i64) -> Self {
        self.step(ScriptStep::Increment { key: copy(key), by })
    }

    /// How many steps it has.
    pub fn len(&self) -> usize {
        self.0.steps.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.0.steps.is_empty()
    }

    fn step(mut self, step: ScriptStep) -> Self {
        self.0.steps.push(step);
        self
    }
}
