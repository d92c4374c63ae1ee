//! The writes that a client can ask for.

use bytes::Bytes;

use super::{Expected, ScriptStep, ScriptWrite};
use crate::Version;

/// A write that a client asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Write {
    /// The key has this value from now on.
    Put {
        /// The key.
        key: Bytes,
        /// The value.
        value: Bytes,
    },
    /// The key is absent from now on.
    Delete {
        /// The key.
        key: Bytes,
    },
    /// Changes the key if its newest version is `expected` ([`Version::NONE`]: if it is absent).
    CompareAndSwap {
        /// The key.
        key: Bytes,
        /// The version that it must have.
        expected: Version,
        /// The new value; `None` deletes.
        value: Option<Bytes>,
    },
    /// The value gets these bytes at its end; an absent key counts as empty.
    Append {
        /// The key.
        key: Bytes,
        /// What is appended.
        value: Bytes,
    },
    /// The value, a decimal number, gets larger by this much; an absent key counts as 0.
    Increment {
        /// The key.
        key: Bytes,
        /// How much, perhaps negative.
        by: i64,
    },
    /// The key is absent from now on, and what it held comes back.
    GetDelete {
        /// The key.
        key: Bytes,
    },
    /// Does all of these steps or none, in this order. Each step sees what those before it did.
    Batch(Vec<Step>),
    /// Runs steps in groups of which each fails alone. The outcomes of the steps come back.
    Script(ScriptWrite),
    /// Opens a client session. Its id is the version of the update.
    OpenSession,
    /// Settles a request: answers with its record, or bars it for ever. It must come with that request's key.
    Resolve,
}

impl Write {
    /// The keys that it is about.
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

    /// The values that it carries.
    pub fn values(&self) -> impl Iterator<Item = &Bytes> {
        let one = match self {
            Self::Put { value, .. } | Self::Append { value, .. } => Some(value),
            Self::CompareAndSwap { value, .. } => value.as_ref(),
            _ => None,
        };
        let script = self.script().into_iter().flat_map(ScriptWrite::values);
        one.into_iter().chain(self.steps().iter().filter_map(Step::value)).chain(script)
    }

    /// The keys to whose values it appends.
    pub fn appended(&self) -> impl Iterator<Item = &Bytes> {
        let one = if let Self::Append { key, .. } = self { Some(key) } else { None };
        let of_step = |step: &Step| matches!(step, Step::Append { .. });
        let batch = self.steps().iter().filter(move |step| of_step(step)).map(Step::key);
        let groups = self.script().into_iter().flat_map(|script| &script.groups);
        let script = groups.flat_map(|group| &group.steps).filter_map(ScriptStep::appended);
        one.into_iter().chain(batch).chain(script)
    }

    /// The steps of a batch; other writes have none here.
    fn steps(&self) -> &[Step] {
        if let Self::Batch(steps) = self { steps } else { &[] }
    }

    fn script(&self) -> Option<&ScriptWrite> {
        if let Self::Script(script) = self { Some(script) } else { None }
    }
}

impl Step {
    /// The key that it is about.
    pub fn key(&self) -> &Bytes {
        match self {
            Self::Require { key, .. }
            | Self::Put { key, .. }
            | Self::Delete { key }
            | Self::Append { key, .. }
            | Self::Increment { key, .. } => key,
        }
    }

    /// The value that it carries.
    pub fn value(&self) -> Option<&Bytes> {
        match self {
            Self::Put { value, .. } | Self::Append { value, .. } => Some(value),
            _ => None,
        }
    }
}

/// One step of a [`Write::Batch`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Nothing of the batch happens unless the key is as expected.
    Require {
        /// The key.
        key: Bytes,
        /// How it must be.
        expected: Expected,
    },
    /// As [`Write::Put`].
    Put {
        /// The key.
        key: Bytes,
        /// The value.
        value: Bytes,
    },
    /// As [`Write::Delete`].
    Delete {
        /// The key.
        key: Bytes,
    },
    /// As [`Write::Append`].
    Append {
        /// The key.
        key: Bytes,
        /// What is appended.
        value: Bytes,
    },
    /// As [`Write::Increment`].
    Increment {
        /// The key.
        key: Bytes,
        /// How much.
        by: i64,
    },
}
