//! The operations of clients on a key, and the clients that run them.

mod library;
mod resp;

use std::time::Duration;

use artillery_ddata::Version;

pub(super) use self::{library::Library, resp::Resp};

/// The default time that a client waits for an answer; afterwards the outcome is unknown.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// An operation on one key. Each of the three families of keys has its own operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ask {
    /// Plain key: write this number.
    Set(u64),
    /// Plain key: read.
    Get,
    /// Versioned key: write this number.
    Put(u64),
    /// Versioned key: write the number if the key has the version.
    Swap(Version, u64),
    /// Versioned key: delete.
    Delete,
    /// Versioned key: read.
    Look,
    /// Counter: increment by one.
    Add,
    /// Counter: read.
    Count,
}

impl Ask {
    pub(super) fn is_read(self) -> bool {
        matches!(self, Self::Get | Self::Look | Self::Count)
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Reply {
    /// Written, with the new version if the answer contains it.
    Written(Option<Version>),
    /// The key had this version, so nothing was swapped.
    Conflict(Version),
    /// The number that the key holds (0 if this run did not write it), and its version if it was requested; `None` if
    /// the key is absent.
    Found(Option<(Option<Version>, u64)>),
    /// The counter after the operation.
    Counted(u64),
    /// Certainly nothing was applied, for this reason.
    Refused(String),
    Unknown,
    /// An answer that is never valid. The outcome of the request is unknown.
    Odd(String),
}

impl Reply {
    /// Whether the operation was executed, even if a swap found another version.
    pub(super) fn is_good(&self) -> bool {
        matches!(self, Self::Written(_) | Self::Conflict(_) | Self::Found(_) | Self::Counted(_))
    }
}

/// A connection of a client, which runs one operation after the other.
pub(super) trait Door: Send {
    /// Whether the answers to puts and deletes contain the new version.
    const PUTS: bool;

    /// Sends the operation, and waits for the answer up to this door's timeout.
    fn ask(&mut self, key: &str, ask: Ask) -> impl Future<Output = Reply> + Send;
}

/// The value of a number: text that begins with it. A few values are longer than 64 KiB.
pub(super) fn text(number: u64) -> String {
    let length = if number.is_multiple_of(97) { 100_000 } else { 0 };
    format!("{number} {}", ".".repeat(length))
}

/// The number at the start of a value; 0 if no client of this run wrote the value.
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
