//! Updates without their bytes: how long their keys and values are.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{
    Version,
    types::keep::keep,
    types::update::{KeyChange, RequestKey, RequestOutcome, Update, UpdateKind},
};

/// The lengths of a key and of what it is to hold, in bytes.
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

/// An update but for its version and its bytes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Outline {
    /// What it is for.
    pub kind: UpdateKind,
    /// Whose request it answers.
    pub request: Option<RequestKey>,
    /// What came of the request.
    pub outcome: RequestOutcome,
    /// The head's stamp.
    pub chain_time: u64,
    /// Its keys and values, by their lengths.
    pub changes: Vec<Lengths>,
}

impl Outline {
    /// What `update` is but for its version and bytes.
    pub fn of(update: &Update) -> Self {
        // Frames can't say more; `encode` refuses what was cut off here, since the bytes are more than stated then.
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

    /// The update with this version whose keys and values are `body`, one behind the other; `None` if they don't fill it.
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

/// Takes a body apart whose length has been checked.
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
