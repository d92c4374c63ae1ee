//! Updates without the bytes of their keys and values.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{
    Expiry, Version,
    types::keep::keep,
    types::update::{KeyChange, RequestKey, RequestOutcome, Update, UpdateKind},
};

/// The lengths of a key and of its new value, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Lengths {
    pub key: u32,
    pub value: ValueOutline,
}

/// A new value without its bytes. The first two choices are encoded like an `Option` of the length.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum ValueOutline {
    /// The key is deleted.
    Deleted,
    /// A value of this length that doesn't expire.
    Set(u32),
    Expiring {
        len: u32,
        expires: Expiry,
    },
    /// Only the expiry changes; `None`: it is removed.
    Renewed(Option<Expiry>),
}

impl ValueOutline {
    /// The outline of a change, with the length of its value.
    pub fn of(change: &KeyChange, len: Option<u32>) -> Self {
        match (len, change.expires) {
            (None, expires) if change.renews => Self::Renewed(expires),
            (None, _) => Self::Deleted,
            (Some(len), None) => Self::Set(len),
            (Some(len), Some(expires)) => Self::Expiring { len, expires },
        }
    }

    const fn len(self) -> u32 {
        match self {
            Self::Set(len) | Self::Expiring { len, .. } => len,
            Self::Deleted | Self::Renewed(_) => 0,
        }
    }
}

impl Lengths {
    pub fn sum(&self) -> u64 {
        u64::from(self.key) + u64::from(self.value.len())
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
        let lengths = |change: &KeyChange| Lengths {
            key: len(&change.key),
            value: ValueOutline::of(change, change.value.as_ref().map(len)),
        };
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
        let end = value_at + lengths.value.len() as usize;
        let start = std::mem::replace(&mut self.at, end);
        let (key, value) = keep(self.body, start..end, value_at);
        match lengths.value {
            ValueOutline::Deleted => KeyChange::new(key, None),
            ValueOutline::Set(_) => KeyChange::new(key, Some(value)),
            ValueOutline::Expiring { expires, .. } => KeyChange::new(key, Some(value)).expiring(Some(expires)),
            ValueOutline::Renewed(expires) => KeyChange::renewal(key, expires),
        }
    }
}
