//! Writes of clients.

use bytes::Bytes;

use super::{Expected, ExpireIf, Refusal, ScriptStep, ScriptWrite, Ttl};
use crate::{Version, types::update::MAX_KEY};

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Write {
    /// Sets the key's value.
    Put { key: Bytes, value: Bytes, ttl: Ttl },
    /// Deletes the key.
    Delete { key: Bytes },
    /// Changes the key if its newest version is `expected`; [`Version::NONE`]: if it is absent.
    CompareAndSwap {
        key: Bytes,
        expected: Version,
        /// The new value; `None` deletes.
        value: Option<Bytes>,
        ttl: Ttl,
    },
    /// Appends to the key's value; an absent key is treated as empty.
    Append { key: Bytes, value: Bytes, ttl: Ttl },
    /// Like [`Append`](Self::Append), at the front.
    Prepend { key: Bytes, value: Bytes, ttl: Ttl },
    /// Adds to the key's value, a signed decimal integer of 64 bits without leading zeros; an absent key is treated
    /// as 0.
    Increment { key: Bytes, by: i64, ttl: Ttl },
    /// Sets when the key expires. An absent key stays absent.
    Expire {
        key: Bytes,
        /// In milliseconds from the update's stamp; `None`: the key no longer expires.
        ttl: Option<u64>,
        when: Option<ExpireIf>,
    },
    /// Sets the value of a new key: the prefix, followed by the [version](sequential_key) of this update.
    PutSequential { prefix: Bytes, value: Bytes, ttl: Ttl },
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
    pub fn put(key: Bytes, value: Bytes) -> Self {
        Self::Put { key, value, ttl: Ttl::Usual }
    }

    pub fn compare_and_swap(key: Bytes, expected: Version, value: Option<Bytes>) -> Self {
        Self::CompareAndSwap { key, expected, value, ttl: Ttl::Usual }
    }

    pub fn append(key: Bytes, value: Bytes) -> Self {
        Self::Append { key, value, ttl: Ttl::Usual }
    }

    pub fn increment(key: Bytes, by: i64) -> Self {
        Self::Increment { key, by, ttl: Ttl::Usual }
    }

    /// The effect on the key's expiry, to be changed; `None`: the write sets no value of one key.
    pub fn ttl_mut(&mut self) -> Option<&mut Ttl> {
        match self {
            Self::Put { ttl, .. }
            | Self::CompareAndSwap { ttl, .. }
            | Self::Append { ttl, .. }
            | Self::Prepend { ttl, .. }
            | Self::Increment { ttl, .. }
            | Self::PutSequential { ttl, .. } => Some(ttl),
            _ => None,
        }
    }

    /// The keys that determine the write's chain: of a [`PutSequential`](Self::PutSequential) its prefix.
    pub fn keys(&self) -> impl Iterator<Item = &Bytes> {
        let one = match self {
            Self::Put { key, .. }
            | Self::Delete { key }
            | Self::CompareAndSwap { key, .. }
            | Self::Append { key, .. }
            | Self::Prepend { key, .. }
            | Self::Increment { key, .. }
            | Self::Expire { key, .. }
            | Self::PutSequential { prefix: key, .. }
            | Self::GetDelete { key } => Some(key),
            Self::Batch(_) | Self::Script(_) | Self::OpenSession | Self::Resolve => None,
        };
        let script = self.script().into_iter().flat_map(ScriptWrite::keys);
        one.into_iter().chain(self.steps().iter().map(Step::key)).chain(script)
    }

    pub fn values(&self) -> impl Iterator<Item = &Bytes> {
        let one = match self {
            Self::Put { value, .. }
            | Self::Append { value, .. }
            | Self::Prepend { value, .. }
            | Self::PutSequential { value, .. } => Some(value),
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
        let longest = match self {
            Self::PutSequential { .. } => MAX_KEY - SEQUENTIAL,
            _ => MAX_KEY,
        };
        if let Some(len) = first(&mut self.keys(), longest as u64) {
            return Err(Refusal::KeyTooLong { len, limit: longest as u64 });
        }
        let value = first(&mut self.values(), max_value);
        value.map_or(Ok(()), |len| Err(Refusal::ValueTooLarge { len, limit: max_value }))
    }

    /// The keys whose values the write appends to.
    pub fn appended(&self) -> impl Iterator<Item = &Bytes> {
        let one = if let Self::Append { key, .. } | Self::Prepend { key, .. } = self { Some(key) } else { None };
        let of_step = |step: &Step| matches!(step, Step::Append { .. } | Step::Prepend { .. });
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
            | Self::Prepend { key, .. }
            | Self::Increment { key, .. }
            | Self::Expire { key, .. } => key,
        }
    }

    pub fn value(&self) -> Option<&Bytes> {
        match self {
            Self::Put { value, .. } | Self::Append { value, .. } | Self::Prepend { value, .. } => Some(value),
            Self::Require { expected, .. } => expected.value(),
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
    Put { key: Bytes, value: Bytes, ttl: Ttl },
    /// As [`Write::Delete`].
    Delete { key: Bytes },
    /// As [`Write::Append`].
    Append { key: Bytes, value: Bytes, ttl: Ttl },
    /// As [`Write::Prepend`].
    Prepend { key: Bytes, value: Bytes, ttl: Ttl },
    /// As [`Write::Increment`].
    Increment { key: Bytes, by: i64, ttl: Ttl },
    /// As [`Write::Expire`].
    Expire { key: Bytes, ttl: Option<u64>, when: Option<ExpireIf> },
}

impl Step {
    pub fn put(key: Bytes, value: Bytes) -> Self {
        Self::Put { key, value, ttl: Ttl::Usual }
    }

    pub fn append(key: Bytes, value: Bytes) -> Self {
        Self::Append { key, value, ttl: Ttl::Usual }
    }

    pub fn increment(key: Bytes, by: i64) -> Self {
        Self::Increment { key, by, ttl: Ttl::Usual }
    }

    /// The effect on the key's expiry, to be changed; `None`: the step sets no value.
    pub fn ttl_mut(&mut self) -> Option<&mut Ttl> {
        match self {
            Self::Put { ttl, .. }
            | Self::Append { ttl, .. }
            | Self::Prepend { ttl, .. }
            | Self::Increment { ttl, .. } => Some(ttl),
            Self::Require { .. } | Self::Delete { .. } | Self::Expire { .. } => None,
        }
    }
}

/// The length that a sequential key adds to its prefix, in bytes.
pub const SEQUENTIAL: usize = 33;

/// The key of a sequential put by the update with this version: the prefix, then epoch and sequence as 16 hexadecimal
/// digits each, separated by a dot. So keys of one prefix are in the order of their updates.
pub fn sequential_key(prefix: &[u8], version: Version) -> Bytes {
    let suffix = format!("{:016x}.{:016x}", version.epoch.0, version.sequence.0);
    [prefix, suffix.as_bytes()].concat().into()
}
