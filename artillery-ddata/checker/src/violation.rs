//! Violations: how a history contradicts the register.

use std::fmt;

use artillery_proto::Version;
use serde::{Deserialize, Serialize};

use crate::history::{Answer, Call, Operation, Value};

/// The kind of a violation. All but the first and the last prove that no register can produce the history.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Kind {
    /// The history itself is malformed: two writes of one value, an answer that doesn't match its call, a return before
    /// its call, or a write or expiry of version [`Version::NONE`].
    Malformed,
    /// A value was seen that no operation wrote to this key.
    NeverWritten,
    /// A value was seen by an operation that had returned before the value's write was called.
    FromTheFuture,
    /// The value of a refused write was seen.
    RefusedSeen,
    /// The value of a compare-and-swap that had failed was seen.
    FailedSwapSeen,
    /// One value was seen or acknowledged with two versions.
    TwoVersions,
    /// Two writes have one version.
    VersionReused,
    /// A compare-and-swap failed although the key held what it expected.
    FalseConflict,
    /// A write has a lower version than one that was known before its call.
    VersionWentBack,
    /// Two compare-and-swaps that expected the same version both succeeded, and no write fits between them.
    DoubleSwap,
    /// A compare-and-swap succeeded over a write that it didn't expect.
    LostUpdate,
    /// A compare-and-swap succeeded although the key never held a value of the version that it expected.
    SwapWithoutMatch,
    /// A value was seen after a newer write had been acknowledged.
    StaleRead,
    /// A value was seen after a newer delete had been acknowledged.
    Resurrected,
    /// A value was seen after an operation had seen a newer one.
    ReadWentBack,
    /// The key was absent after a write was known, and no delete or expiry fits in between.
    Vanished,
    /// No rule above is broken, but no order of the operations explains all answers.
    NotLinearizable,
    /// The budget was used up before the search ended.
    Undecided,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "the history is malformed",
            Self::NeverWritten => "a value was seen that nobody wrote to the key",
            Self::FromTheFuture => "a value was seen before its write was called",
            Self::RefusedSeen => "the value of a refused write was seen",
            Self::FailedSwapSeen => "the value of a failed compare-and-swap was seen",
            Self::TwoVersions => "one value has two versions",
            Self::VersionReused => "two writes have one version",
            Self::FalseConflict => "a compare-and-swap failed although it found the expected version",
            Self::VersionWentBack => "a later write has a lower version",
            Self::DoubleSwap => "two compare-and-swaps that expected the same succeeded",
            Self::LostUpdate => "a compare-and-swap succeeded over a write that it did not expect",
            Self::SwapWithoutMatch => "a compare-and-swap succeeded although the key never had the expected version",
            Self::StaleRead => "a value was seen after a newer write was acknowledged",
            Self::Resurrected => "a value was seen after a newer delete was acknowledged",
            Self::ReadWentBack => "a value was seen after a newer one had been seen",
            Self::Vanished => "the key was absent after a write that nothing deleted",
            Self::NotLinearizable => "no order of the operations explains all answers",
            Self::Undecided => "the budget ended before an order was found or excluded",
        })
    }
}

/// A history that no register can produce, or that was not decided.
///
/// Its `Display` has one line for the key and the kind, and one for each operation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Violation {
    /// The key, as in [`Operation::key`].
    pub key: u32,
    /// The broken rule.
    pub kind: Kind,
    /// The index in `operations` of the operation that couldn't be placed; see [`Violation::operation`]. All earlier
    /// answers could be explained. For a kind found by a rule, the operation is the last link of the contradiction.
    /// `None` if undecided.
    pub stuck: Option<usize>,
    /// The contradicting operations, in the order of their calls. For [`Kind::NotLinearizable`]: the shortest prefix of
    /// the key's history, by answers, that is not linearizable. An operation whose answer is not in the prefix is shown
    /// with [`Answer::Unknown`].
    pub operations: Vec<Operation>,
}

impl Violation {
    /// The operation that could not be placed.
    pub fn operation(&self) -> Option<&Operation> {
        self.operations.get(self.stuck?)
    }

    /// The contradiction between `operations`, whose last link is `operation`.
    pub(super) fn new(kind: Kind, operation: Operation, operations: impl IntoIterator<Item = Operation>) -> Self {
        let mut distinct = vec![operation];
        for other in operations {
            if !distinct.contains(&other) {
                distinct.push(other);
            }
        }
        let mut operations = distinct;
        operations.sort_by_key(|operation| (operation.called, operation.returned, operation.client));
        let stuck = operations.iter().position(|other| *other == operation);
        Self { key: operation.key, kind, stuck, operations }
    }
}

impl std::error::Error for Violation {}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key {}: {}", self.key, self.kind)?;
        let client = self.operations.iter().map(|operation| digits(operation.client.into())).max().unwrap_or(1);
        let time = self.operations.iter().map(|operation| digits(latest(operation))).max().unwrap_or(1);
        for (position, operation) in self.operations.iter().enumerate() {
            let mark = if Some(position) == self.stuck { '>' } else { ' ' };
            write!(f, "\n{mark} client {:<client$}  {:>time$} ..", operation.client, operation.called)?;
            match operation.answer {
                Answer::Unknown => write!(f, " {:time$}", "?")?,
                _ if operation.returned == u64::MAX => write!(f, " {:time$}", "?")?,
                _ => write!(f, " {:<time$}", operation.returned)?,
            }
            if operation.key != self.key {
                write!(f, "  key {}", operation.key)?;
            }
            write!(f, "  {} -> {}", Asked(operation.call), Told(operation.answer))?;
        }
        Ok(())
    }
}

fn latest(operation: &Operation) -> u64 {
    match operation.answer {
        Answer::Unknown => operation.called,
        _ if operation.returned == u64::MAX => operation.called,
        _ => operation.called.max(operation.returned),
    }
}

fn digits(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

struct Asked(Call);

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Call::Put(Value(value)) => write!(f, "put #{value}"),
            Call::Delete => f.write_str("delete"),
            Call::CompareAndSwap { expected: Version::NONE, value } => write!(f, "swap absent for #{}", value.0),
            Call::CompareAndSwap { expected, value } => write!(f, "swap {expected} for #{}", value.0),
            Call::GetDelete => f.write_str("take"),
            Call::Read => f.write_str("read"),
            Call::Expire { version } => write!(f, "expiry of {version}"),
        }
    }
}

struct Told(Answer);

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Answer::Written(version) => write!(f, "written {version}"),
            Answer::Conflict(Some((version, Value(value)))) => write!(f, "conflict with #{value} at {version}"),
            Answer::Conflict(None) => f.write_str("conflict: absent"),
            Answer::Failed(version) => write!(f, "conflict with {version}"),
            Answer::Took { version, found: (was, Value(value)) } => {
                write!(f, "took #{value} at {was}, written {version}")
            }
            Answer::Found(Some((version, Value(value)))) => write!(f, "found #{value} at {version}"),
            Answer::Found(None) => f.write_str("absent"),
            Answer::Refused => f.write_str("refused"),
            Answer::Unknown => f.write_str("unknown"),
        }
    }
}
