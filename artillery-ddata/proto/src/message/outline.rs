//! Updates without their bytes: how long their keys and values are.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{
    Version,
    types::keep::keep,
    types::update::{KeyChange, RequestKey, RequestOutcome, Update, UpdateKind},
};

/// The lengths of a key and of its new value, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Lengths {
    /// Of the key.
    pub key: u32,
    /// Of the value; `None` deletes.
    pub value: Option<u32>,
}

impl Lengths {
    /// Of both together.
    pub fn sum(&self) -> u64 {
        u64::from(self.key) + u64::from(self.value.unwrap_or(0))
    }
}

/// An update without its version and its bytes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Outline {
    /// What the update is for.
    pub kind: UpdateKind,
    /// The key of the request that it answers, if there is one.
    pub request: Option<RequestKey>,
    /// The outcome of the request.
    pub outcome: RequestOutcome,
    /// The head's stamp.
    pub chain_time: u64,
    /// Its keys and values, by their lengths.
    pub changes: Vec<Lengths>,
}

impl Outline {
    /// The outline of `update`.
    pub fn of(update: &Update) -> Self {
        // A frame can't state a longer one. The update then has more bytes than stated here, and `encode` refuses it.
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

    /// How many bytes its keys and values have together.
    pub fn bytes(&self) -> u64 {
        self.changes.iter().map(Lengths::sum).sum()
    }

    /// The update with this version whose keys and values are `body`, back to back; `None` if they don't fill it.
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
