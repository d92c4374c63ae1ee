//! Scripts: steps that run one after another at the head, and return results.

use std::time::Duration;

use bytes::Bytes;

use super::{keep::copy, keep::pair};
use crate::api::{self, Expected, ExpireIf, Requirement, ScriptStep, Ttl, millis};

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
        self.step(ScriptStep::put(key, value))
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
        self.step(ScriptStep::append(copy(key), value.into()))
    }

    /// Puts bytes in front of a key's value. An absent key is treated as empty. The outcome is
    /// [`StepOutcome::Appended`](crate::kv::StepOutcome::Appended).
    pub fn prepend(self, key: impl AsRef<[u8]>, value: impl Into<Bytes>) -> Self {
        self.step(ScriptStep::Prepend { key: copy(key), value: value.into(), ttl: Ttl::Usual })
    }

    /// Lets a key expire after this length of chain time, if its present expiry meets the condition. An absent key
    /// stays absent, and a length of zero deletes the key at once. The outcome is [`StepOutcome::Changed`](crate::kv::StepOutcome::Changed).
    pub fn expire(self, key: impl AsRef<[u8]>, ttl: Duration, when: Option<ExpireIf>) -> Self {
        self.step(ScriptStep::Expire { key: copy(key), ttl: Some(millis(ttl)), when })
    }

    /// Removes a key's expiry. The outcome is [`StepOutcome::Changed`](crate::kv::StepOutcome::Changed).
    pub fn persist(self, key: impl AsRef<[u8]>) -> Self {
        self.step(ScriptStep::Expire { key: copy(key), ttl: None, when: None })
    }

    /// Reads when a key expires. The outcome is [`StepOutcome::ExpiresIn`](crate::kv::StepOutcome::ExpiresIn).
    pub fn expires_in(self, key: impl AsRef<[u8]>) -> Self {
        self.step(ScriptStep::ExpiresIn { key: copy(key) })
    }

    /// Sets another key to the value and the expiry of `key`, if `key` is present. The outcome is
    /// [`StepOutcome::Changed`](crate::kv::StepOutcome::Changed).
    pub fn copy(self, key: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Self {
        self.step(ScriptStep::Copy { key: copy(key), to: copy(to) })
    }

    /// Lets the key of the last step expire after this length of chain time.
    ///
    /// # Panics
    /// If the last step sets no value.
    pub fn ttl(self, ttl: Duration) -> Self {
        self.with_ttl(Ttl::set(ttl))
    }

    /// As [`ttl`](Self::ttl), if the last step creates the key. Otherwise the key keeps its expiry.
    ///
    /// # Panics
    /// If the last step sets no value.
    pub fn ttl_if_new(self, ttl: Duration) -> Self {
        self.with_ttl(Ttl::if_new(ttl))
    }

    /// Lets the last step keep the expiry of its key. By default a put removes it.
    ///
    /// # Panics
    /// If the last step sets no value.
    pub fn keep_ttl(self) -> Self {
        self.with_ttl(Ttl::Keep)
    }

    fn with_ttl(mut self, new: Ttl) -> Self {
        let ttl = self.0.steps.last_mut().and_then(ScriptStep::ttl_mut);
        *ttl.expect("a time to live belongs to a step that sets a value") = new;
        self
    }

    /// Adds `by` to a key's value, a decimal number. An absent key is treated as 0. The outcome is
    /// [`StepOutcome::Number`](crate::kv::StepOutcome::Number).
    pub fn increment(self, key: impl AsRef<[u8]>, by: i64) -> Self {
        self.step(ScriptStep::increment(copy(key), by))
    }

    /// Adds a decimal number, which may have a fraction, to a key's value. An absent key is treated as 0. Numbers below
    /// 10^20 are added exactly, with 17 digits behind the point. The outcome is
    /// [`StepOutcome::Decimal`](crate::kv::StepOutcome::Decimal).
    pub fn increment_float(self, key: impl AsRef<[u8]>, by: impl Into<Bytes>) -> Self {
        self.step(ScriptStep::IncrementFloat { key: copy(key), by: by.into(), ttl: Ttl::Usual })
    }

    /// Replaces the bytes of a key's value from `offset` on. Zeros extend a shorter value up to there, and empty bytes
    /// change nothing. The outcome is [`StepOutcome::Appended`](crate::kv::StepOutcome::Appended).
    pub fn set_range(self, key: impl AsRef<[u8]>, offset: u64, value: impl Into<Bytes>) -> Self {
        self.step(ScriptStep::SetRange { key: copy(key), offset, value: value.into(), ttl: Ttl::Usual })
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
