//! Batches: several changes that are applied together or not at all.

use bytes::Bytes;

use super::{keep::copy, keep::pair};
use crate::api::{Expected, Step};

/// Changes to keys of one chain, with conditions: all are applied, or none. A batch is plain data: clone it to write it
/// more than once with [`Kv::write`](crate::Kv::write).
///
/// Requirements are checked against the state before the batch. Changes take effect in order: an increment sees an
/// earlier put of the same batch. Readers see all changes or none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[must_use = "a batch does nothing until it is written"]
pub struct Batch {
    steps: Vec<Step>,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Requires that the key is as `expected`; otherwise no part of the batch is applied.
    pub fn require(mut self, key: impl AsRef<[u8]>, expected: Expected) -> Self {
        self.steps.push(Step::Require { key: copy(key), expected });
        self
    }

    /// Sets a key's value.
    pub fn put(mut self, key: impl AsRef<[u8]>, value: impl Into<Bytes>) -> Self {
        let (key, value) = pair(key, value);
        self.steps.push(Step::Put { key, value });
        self
    }

    /// Deletes a key.
    pub fn delete(mut self, key: impl AsRef<[u8]>) -> Self {
        self.steps.push(Step::Delete { key: copy(key) });
        self
    }

    /// Appends to a key's value. An absent key is treated as empty.
    pub fn append(mut self, key: impl AsRef<[u8]>, value: impl Into<Bytes>) -> Self {
        self.steps.push(Step::Append { key: copy(key), value: value.into() });
        self
    }

    /// Adds to a number stored as decimal text. An absent key is treated as 0.
    pub fn increment(mut self, key: impl AsRef<[u8]>, by: i64) -> Self {
        self.steps.push(Step::Increment { key: copy(key), by });
        self
    }

    /// The number of requirements and changes.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether the batch has neither requirements nor changes.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    pub(super) fn into_steps(self) -> Vec<Step> {
        self.steps
    }
}
