//! Values that identify their key and write, and the ledger of all writes.

use std::sync::atomic::{AtomicU64, Ordering};

use artillery_ddata::{ReadMode, Version};

use crate::args::LoadArgs;

/// The keys of one run, and the writes begun and acknowledged.
pub(super) struct Ledger {
    /// Part of keys and values, so that concurrent or consecutive runs never collide.
    run: String,
    keys: Vec<Key>,
    /// The number of writes that each writer has begun.
    writers: Vec<AtomicU64>,
    value_bytes: usize,
    check: bool,
    /// Whether a read must not be older than any write acknowledged before it.
    strong: bool,
    operations: AtomicU64,
}

struct Key {
    name: String,
    /// Sequence of the key's newest committed write.
    committed: AtomicU64,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Wrong {
    #[error("{0} is absent, though it was written")]
    Absent(String),
    #[error("{key} holds a value that no client wrote: {value:?}")]
    Foreign { key: String, value: String },
    #[error("{key} holds the value of {other}")]
    Elsewhere { key: String, other: String },
    #[error("{key} holds write {number} of writer {writer}, which has not begun it")]
    Unwritten { key: String, writer: usize, number: u64 },
    #[error("{key} was read at {version}, after a write of sequence {committed} was acknowledged")]
    Stale { key: String, version: Version, committed: u64 },
}

/// The writer of the first values.
pub(super) const FIRST: usize = 0;

impl Ledger {
    pub(super) fn new(run: String, load: &LoadArgs) -> Self {
        // Without a check all runs share the same keys: otherwise each run would leave its keys behind.
        let prefix = if load.check { format!("load/{run}/") } else { "load/".to_owned() };
        let key = |number| Key { name: format!("{prefix}{number}"), committed: AtomicU64::new(0) };
        Self {
            run,
            keys: (0..load.keys).map(key).collect(),
            writers: (0..=load.clients * load.pipeline).map(|_| AtomicU64::new(0)).collect(),
            value_bytes: load.value_bytes.0,
            check: load.check,
            strong: load.read != ReadMode::Eventual,
            operations: AtomicU64::new(0),
        }
    }

    pub(super) fn keys(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn name(&self, key: usize) -> &str {
        &self.keys[key].name
    }

    pub(super) fn checks(&self) -> bool {
        self.check
    }

    pub(super) fn operations(&self) -> u64 {
        self.operations.load(Ordering::Relaxed)
    }

    pub(super) fn count(&self) {
        self.operations.fetch_add(1, Ordering::Relaxed);
    }

    /// The next value of this writer for this key. From then on, a read may return it.
    pub(super) fn value(&self, key: usize, writer: usize) -> Vec<u8> {
        let number = self.writers[writer].fetch_add(1, Ordering::SeqCst) + 1;
        if !self.check {
            return vec![b'x'; self.value_bytes];
        }
        let mut value = format!("{} {} {writer} {number} ", self.run, self.name(key)).into_bytes();
        value.resize(value.len().max(self.value_bytes), b'.');
        value
    }

    pub(super) fn committed(&self, key: usize, version: Version) {
        self.keys[key].committed.fetch_max(version.sequence.0, Ordering::SeqCst);
    }

    /// The minimum sequence for a strong read that begins now.
    pub(super) fn floor(&self, key: usize) -> u64 {
        self.keys[key].committed.load(Ordering::SeqCst)
    }

    /// Checks the result of a read that began when [`Ledger::floor`] returned `floor`.
    pub(super) fn look(&self, key: usize, floor: u64, value: Option<&[u8]>, version: Version) -> Result<(), Wrong> {
        let name = || self.name(key).to_owned();
        let value = value.ok_or_else(|| Wrong::Absent(name()))?;
        let text = String::from_utf8_lossy(value);
        let foreign = || Wrong::Foreign { key: name(), value: text.chars().take(80).collect() };
        let mut words = text.split(' ');
        let mut word = || words.next().ok_or_else(foreign);
        let (run, other) = (word()?, word()?);
        let writer: usize = word()?.parse().map_err(|_| foreign())?;
        let number: u64 = word()?.parse().map_err(|_| foreign())?;
        if run != self.run || !word()?.bytes().all(|byte| byte == b'.') {
            return Err(foreign());
        }
        if other != self.name(key) {
            return Err(Wrong::Elsewhere { key: name(), other: other.to_owned() });
        }
        let begun = self.writers.get(writer).map_or(0, |begun| begun.load(Ordering::SeqCst));
        if number == 0 || number > begun {
            return Err(Wrong::Unwritten { key: name(), writer, number });
        }
        if self.strong && version.sequence.0 < floor {
            return Err(Wrong::Stale { key: name(), version, committed: floor });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Command, CtlArgs};

    fn ledger(flags: &[&str]) -> Ledger {
        let args = CtlArgs::parse_from(["ctl", "load", "--keys", "2", "--clients", "2"].iter().chain(flags));
        let Command::Load(load) = &args.command else { unreachable!() };
        Ledger::new("run".to_owned(), load)
    }

    #[test]
    fn written_values_are_right() {
        let ledger = ledger(&["--check", "--value-bytes", "200"]);
        let value = ledger.value(1, 2);
        assert_eq!(value.len(), 200);
        ledger.committed(1, Version::new(1, 7));
        let floor = ledger.floor(1);
        assert_eq!(ledger.look(1, floor, Some(&value), Version::new(1, 7)), Ok(()));
    }

    #[test]
    fn other_values_are_wrong() {
        let ledger = ledger(&["--check"]);
        let value = ledger.value(1, 2);
        let at = Version::new(1, 7);
        let look = |key, value: Option<&[u8]>, at| ledger.look(key, 7, value, at);
        assert!(matches!(look(1, None, at), Err(Wrong::Absent(_))));
        assert!(matches!(look(0, Some(&value), at), Err(Wrong::Elsewhere { .. })));
        assert!(matches!(look(1, Some(&value), Version::new(1, 6)), Err(Wrong::Stale { .. })));
        assert!(matches!(look(1, Some(b"run load/run/1 2 2 ..."), at), Err(Wrong::Unwritten { .. })));
        assert!(matches!(look(1, Some(b"run load/run/1 9 1 ..."), at), Err(Wrong::Unwritten { .. })));
        for foreign in [b"".as_slice(), b"run load/run/1", b"old load/run/1 2 1 .", b"run load/run/1 2 1 .!"] {
            assert!(matches!(look(1, Some(foreign), at), Err(Wrong::Foreign { .. })), "{foreign:?}");
        }
        assert!(matches!(look(1, Some(&value[..value.len() - 90]), at), Err(Wrong::Foreign { .. })));
    }

    #[test]
    fn an_eventual_read_may_be_old() {
        let ledger = ledger(&["--check", "--read", "eventual"]);
        let value = ledger.value(0, 1);
        assert_eq!(ledger.look(0, 7, Some(&value), Version::new(1, 1)), Ok(()));
    }
}
