//! Batches: several changes that happen together or not at all.

use bytes::Bytes;

use super::{keep::copy, keep::pair};
use crate::api::{Expected, Step};

/// Changes and their conditions, all or nothing, within one chain. A plain value: write it by
/// [`Kv::write`](crate::Kv::write), as often as you like.
///
/// Requirements are about what was there before the batch. The changes take effect in their order, so that an increment
/// sees a put of the same batch before it; readers see all of them or none.
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

    /// Nothing of the batch happens unless the key is as `expected`.
    pub fn require(mut self, key: impl AsRef<[u8]>, expected: Expected) -> Self {
        self.steps.push(Step::Require { key: copy(key), expected });
        self
    }

    /// Gives a key a value.
    pub fn put(mut self, key: impl AsRef<[u8]>, value: impl Into<Bytes>) -> Self {
        let (key, value) = pair(key, value);
        self.steps.push(Step::Put { key, value });
        self
    }

    /// Makes a key absent.
    pub fn delete(mut self, key: impl AsRef<[u8]>) -> Self {
        self.steps.push(Step::Delete { key: copy(key) });
        self
    }

    /// Appends to a value; an absent key counts as empty.
    pub fn append(mut self, key: impl AsRef<[u8]>, value: impl Into<Bytes>) -> Self {
        self.steps.push(Step::Append { key: copy(key), value: value.into() });
        self
    }

    /// Adds to a decimal number; an absent key counts as 0.
    pub fn increment(mut self, key: impl AsRef<[u8]>, by: i64) -> Self {
        self.steps.push(Step::Increment { key: copy(key), by });
        self
    }

    /// How many requirements and changes it has.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    pub(super) fn into_steps(self) -> Vec<Step> {
        self.steps
    }
}
