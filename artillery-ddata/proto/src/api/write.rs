//! Writes of clients.

use bytes::Bytes;

use super::{Expected, Refusal, ScriptStep, ScriptWrite};
use crate::{Version, types::update::MAX_KEY};

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Write {
    /// Sets the key's value.
    Put { key: Bytes, value: Bytes },
    /// Deletes the key.
    Delete { key: Bytes },
    /// Changes the key if its newest version is `expected`; [`Version::NONE`]: if it is absent.
    CompareAndSwap {
        key: Bytes,
        expected: Version,
        /// The new value; `None` deletes.
        value: Option<Bytes>,
    },
    /// Appends to the key's value; an absent key is treated as empty.
    Append { key: Bytes, value: Bytes },
    /// Adds to the key's value, a signed decimal integer of 64 bits without leading zeros; an absent key is treated
    /// as 0.
    Increment { key: Bytes, by: i64 },
    /// Deletes the key and returns its value.
    GetDelete { key: Bytes },
    /// Applies all of these steps, in this order, or none. Each step sees the changes of the steps before it, except
    /// that conditions are checked first.
    Batch(Vec<Step>),
    /// Applies steps in groups that fail independently. The reply contains the outcomes of the steps.
    Script(ScriptWrite),
    /// Opens a client session. Its id is the version of the update.
    OpenSession,
    /// Resolves the request that the operation's request key identifies: returns its recorded outcome, or bars the
    /// request permanently.
    Resolve,
}

impl Write {
    pub fn keys(&self) -> impl Iterator<Item = &Bytes> {
        let one = match self {
            Self::Put { key, .. }
            | Self::Delete { key }
            | Self::CompareAndSwap { key, .. }
            | Self::Append { key, .. }
            | Self::Increment { key, .. }
            | Self::GetDelete { key } => Some(key),
            Self::Batch(_) | Self::Script(_) | Self::OpenSession | Self::Resolve => None,
        };
        let script = self.script().into_iter().flat_map(ScriptWrite::keys);
        one.into_iter().chain(self.steps().iter().map(Step::key)).chain(script)
    }

    pub fn values(&self) -> impl Iterator<Item = &Bytes> {
        let one = match self {
            Self::Put { value, .. } | Self::Append { value, .. } => Some(value),
            Self::CompareAndSwap { value, .. } => value.as_ref(),
            _ => None,
        };
        let script = self.script().into_iter().flat_map(ScriptWrite::values);
        one.into_iter().chain(self.steps().iter().filter_map(Step::value)).chain(script)
    }

    /// Refuses the first key that is too long, else the first value that is longer than `max_value` bytes.
    pub fn check_lengths(&self, max_value: u64) -> Result<(), Refusal> {
        let first = |pieces: &mut dyn Iterator<Item = &Bytes>, limit: u64| {
            pieces.map(|piece| piece.len() as u64).find(|&len| len > limit)
        };
        if let Some(len) = first(&mut self.keys(), MAX_KEY as u64) {
            return Err(Refusal::KeyTooLong { len, limit: MAX_KEY as u64 });
        }
        let value = first(&mut self.values(), max_value);
        value.map_or(Ok(()), |len| Err(Refusal::ValueTooLarge { len, limit: max_value }))
    }

    /// The keys whose values the write appends to.
    pub fn appended(&self) -> impl Iterator<Item = &Bytes> {
        let one = if let Self::Append { key, .. } = self { Some(key) } else { None };
        let of_step = |step: &Step| matches!(step, Step::Append { .. });
        let batch = self.steps().iter().filter(move |step| of_step(step)).map(Step::key);
        let groups = self.script().into_iter().flat_map(|script| &script.groups);
        let script = groups.flat_map(|group| &group.steps).filter_map(ScriptStep::appended);
        one.into_iter().chain(batch).chain(script)
    }

    /// The steps of a batch; empty for other writes.
    fn steps(&self) -> &[Step] {
        if let Self::Batch(steps) = self { steps } else { &[] }
    }

    fn script(&self) -> Option<&ScriptWrite> {
        if let Self::Script(script) = self { Some(script) } else { None }
    }
}

impl Step {
    pub fn key(&self) -> &Bytes {
        match self {
            Self::Require { key, .. }
            | Self::Put { key, .. }
            | Self::Delete { key }
            | Self::Append { key, .. }
            | Self::Increment { key, .. } => key,
        }
    }

    pub fn value(&self) -> Option<&Bytes> {
        match self {
            Self::Put { value, .. } | Self::Append { value, .. } => Some(value),
            _ => None,
        }
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// A condition: the batch has no effect unless it holds. It is checked against the state before the batch, even if
    /// it follows other steps.
    Require { key: Bytes, expected: Expected },
    /// As [`Write::Put`].
    Put { key: Bytes, value: Bytes },
    /// As [`Write::Delete`].
    Delete { key: Bytes },
    /// As [`Write::Append`].
    Append { key: Bytes, value: Bytes },
    /// As [`Write::Increment`].
    Increment { key: Bytes, by: i64 },
}
