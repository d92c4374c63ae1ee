//! The operations of clients on a key, and the ways to run them.

mod library;
mod resp;

use std::time::Duration;

use artillery_ddata::Version;

pub(super) use self::{library::Library, resp::Resp};

/// How long a client waits for an answer, if nothing else is said; then its outcome is unknown.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// An operation on one key. Keys are of three families, each with operations of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ask {
    /// A plain key: write this number.
    Set(u64),
    /// A plain key: read.
    Get,
    /// A key with versions: write this number.
    Put(u64),
    /// A key with versions: write this number if the key has that version.
    Swap(Version, u64),
    /// A key with versions: make it absent.
    Delete,
    /// A key with versions: read.
    Look,
    /// A counter: one more.
    Add,
    /// A counter: read.
    Count,
}

impl Ask {
    pub(super) fn is_read(self) -> bool {
        matches!(self, Self::Get | Self::Look | Self::Count)
    }
}

/// The answer to an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Reply {
    /// It was written; with the version that it made, where the door learns it.
    Written(Option<Version>),
    /// The key had this version, so that nothing was swapped.
    Conflict(Version),
    /// The number that the key holds, 0 where it is none of ours, and its version where it was asked for; `None`: the key
    /// is absent.
    Found(Option<(Option<Version>, u64)>),
    /// The counter, after what was asked.
    Counted(u64),
    /// Certainly nothing was applied, for this reason.
    Refused(String),
    /// The outcome is unknown.
    Unknown,
    /// An answer that should never be given. The outcome of the request is unknown.
    Odd(String),
}

impl Reply {
    /// Whether the operation was done.
    pub(super) fn is_good(&self) -> bool {
        matches!(self, Self::Written(_) | Self::Conflict(_) | Self::Found(_) | Self::Counted(_))
    }
}

/// A way to ask: one operation after the other.
pub(super) trait Door: Send {
    /// Whether it learns the versions of what it puts and deletes.
    const PUTS: bool;

    /// Asks, and waits for the answer as long as clients of this door do.
    fn ask(&mut self, key: &str, ask: Ask) -> impl Future<Output = Reply> + Send;
}

/// A value as text, which begins with its number. A few are too long for one frame.
pub(super) fn text(number: u64) -> String {
    let length = if number.is_multiple_of(97) { 100_000 } else { 0 };
    format!("{number} {}", ".".repeat(length))
}

/// The number that a value begins with; 0: no client of this run wrote it.
pub(super) fn number(value: &[u8]) -> u64 {
    let text = str::from_utf8(value).unwrap_or_default();
    let number = text.split_once(' ').and_then(|(number, _)| number.parse().ok()).unwrap_or(0);
    if self::text(number).as_bytes() == value { number } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_they_were_written() {
        for written in [1, 96, 97, 12345] {
            assert_eq!(number(text(written).as_bytes()), written);
        }
        assert!(text(97).len() > 65_536);
    }

    #[test]
    fn a_foreign_value_has_number_zero() {
        let long = text(97);
        for foreign in ["", "1", " ", "x ", "1 .", "-1 ", &long[..long.len() - 1]] {
            assert_eq!(number(foreign.as_bytes()), 0, "{foreign:.20}");
        }
    }
}
