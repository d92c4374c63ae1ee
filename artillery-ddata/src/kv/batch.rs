//! Batches: several changes that are applied together or not at all.

use std::time::Duration;

use bytes::Bytes;

use super::{keep::copy, keep::pair};
use crate::api::{Expected, Step, Ttl, millis};

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
        self.steps.push(Step::put(key, value));
        self
    }

    /// Deletes a key.
    pub fn delete(mut self, key: impl AsRef<[u8]>) -> Self {
        self.steps.push(Step::Delete { key: copy(key) });
        self
    }

    /// Appends to a key's value. An absent key is treated as empty.
    pub fn append(mut self, key: impl AsRef<[u8]>, value: impl Into<Bytes>) -> Self {
        self.steps.push(Step::append(copy(key), value.into()));
        self
    }

    /// Puts bytes in front of a key's value. An absent key is treated as empty.
    pub fn prepend(mut self, key: impl AsRef<[u8]>, value: impl Into<Bytes>) -> Self {
        self.steps.push(Step::Prepend { key: copy(key), value: value.into(), ttl: Ttl::Usual });
        self
    }

    /// Adds to a number stored as decimal text. An absent key is treated as 0.
    pub fn increment(mut self, key: impl AsRef<[u8]>, by: i64) -> Self {
        self.steps.push(Step::increment(copy(key), by));
        self
    }

    /// Lets a key expire after this length of chain time. An absent key stays absent.
    pub fn expire(mut self, key: impl AsRef<[u8]>, ttl: Duration) -> Self {
        self.steps.push(Step::Expire { key: copy(key), ttl: Some(millis(ttl)), when: None });
        self
    }

    /// Removes a key's expiry.
    pub fn persist(mut self, key: impl AsRef<[u8]>) -> Self {
        self.steps.push(Step::Expire { key: copy(key), ttl: None, when: None });
        self
    }

    /// Lets the key of the last change expire after this length of chain time.
    ///
    /// # Panics
    /// If the last step sets no value.
    pub fn ttl(self, ttl: Duration) -> Self {
        self.with_ttl(Ttl::set(ttl))
    }

    /// As [`ttl`](Self::ttl), if the last change creates the key. Otherwise the key keeps its expiry.
    ///
    /// # Panics
    /// If the last step sets no value.
    pub fn ttl_if_new(self, ttl: Duration) -> Self {
        self.with_ttl(Ttl::if_new(ttl))
    }

    /// Lets the last change keep the expiry of its key. By default a put removes it.
    ///
    /// # Panics
    /// If the last step sets no value.
    pub fn keep_ttl(self) -> Self {
        self.with_ttl(Ttl::Keep)
    }

    fn with_ttl(mut self, new: Ttl) -> Self {
        let ttl = self.steps.last_mut().and_then(Step::ttl_mut);
        *ttl.expect("a time to live belongs to a step that sets a value") = new;
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
