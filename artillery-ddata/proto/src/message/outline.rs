//! Updates without the bytes of their keys and values.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{
    Version,
    types::keep::keep,
    types::update::{KeyChange, RequestKey, RequestOutcome, Update, UpdateKind},
};

/// The lengths of a key and of its new value, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Lengths {
    pub key: u32,
    /// `None`: the key is deleted.
    pub value: Option<u32>,
}

impl Lengths {
    pub fn sum(&self) -> u64 {
        u64::from(self.key) + u64::from(self.value.unwrap_or(0))
    }
}

/// An update without its version and the bytes of its keys and values.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Outline {
    pub kind: UpdateKind,
    /// The id of the request that the update answers, if any.
    pub request: Option<RequestKey>,
    pub outcome: RequestOutcome,
    /// The head's timestamp, as in [`Update`].
    pub chain_time: u64,
    /// The lengths of its keys and values.
    pub changes: Vec<Lengths>,
}

impl Outline {
    pub fn of(update: &Update) -> Self {
        // The wire can't express a larger length. The update then has more bytes than stated here, and `encode` rejects
        // it.
        let len = |bytes: &Bytes| u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let lengths = |change: &KeyChange| Lengths { key: len(&change.key), value: change.value.as_ref().map(len) };
        Self {
            kind: update.kind,
            request: update.request,
            outcome: update.outcome,
            chain_time: update.chain_time,
            changes: update.changes.iter().map(lengths).collect(),
        }
    }

    /// The length of all keys and values, in bytes.
    pub fn bytes(&self) -> u64 {
        self.changes.iter().map(Lengths::sum).sum()
    }

    /// The update with this version whose keys and values are `body`, back to back; `None` if the lengths don't match.
    pub fn fill(self, version: Version, body: &Bytes) -> Option<Update> {
        if self.bytes() != body.len() as u64 {
            return None;
        }
        let mut pieces = BodyReader::of(body);
        let changes = self.changes.iter().map(|lengths| pieces.next(lengths)).collect();
        let Self { kind, request, outcome, chain_time, .. } = self;
        Some(Update { version, kind, request, outcome, chain_time, changes })
    }
}

/// Splits a body into keys and values. The caller has checked the body's length.
pub(crate) struct BodyReader<'a> {
    body: &'a Bytes,
    at: usize,
}

impl<'a> BodyReader<'a> {
    pub(crate) fn of(body: &'a Bytes) -> Self {
        Self { body, at: 0 }
    }

    pub(crate) fn next(&mut self, lengths: &Lengths) -> KeyChange {
        let value_at = self.at + lengths.key as usize;
        let end = value_at + lengths.value.unwrap_or(0) as usize;
        let start = std::mem::replace(&mut self.at, end);
        let (key, value) = keep(self.body, start..end, value_at);
        KeyChange { key, value: lengths.value.map(|_| value) }
    }
}
