//! A copy of the data below a prefix, kept by what a [`Follower`](super::Follower) reports.

use std::collections::BTreeMap;
#[expect(
    clippy::disallowed_types,
    reason = "a lookup must cost what it costs in a map of the application; no caller \
                                             sees the order"
)]
use std::collections::HashMap;

use bytes::Bytes;

use super::Followed;
use crate::{Sequence, Version, guards::Guards, store::ScanRecord, types::keep::copied};

/// The memory of an entry besides the bytes of its key and value, about.
const ENTRY_BYTES: usize = 128;

/// A value and its version.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CopyEntry {
    pub version: Version,
    pub value: Bytes,
}

/// The difference of a key between two states of a copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopyChange {
    pub key: Bytes,
    /// The value in the earlier state; `None`: the key was absent.
    pub before: Option<CopyEntry>,
    /// The value in the later state; `None`: the key is absent.
    pub after: Option<CopyEntry>,
    /// Whether the key is known to be absent because it was due.
    pub expired: bool,
}

/// A step from one committed state to a later one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CopyEdit {
    /// An update of the history.
    Update(Vec<ScanRecord>),
    /// All data, read again.
    Replace(BTreeMap<Bytes, CopyEntry>),
    /// No further change up to this point of the history.
    Reach(Sequence),
}

/// Turns reports of a follower into edits of a copy. It collects pages until they show one point of the history, so a
/// copy never shows a state that was not committed.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct CopyFeed {
    /// The state that is being read.
    reading: Option<BTreeMap<Bytes, CopyEntry>>,
    bytes: usize,
}

impl CopyFeed {
    /// The edits that follow from a report.
    pub fn edits(&mut self, followed: Followed, mut edit: impl FnMut(CopyEdit)) {
        match followed {
            Followed::Restarted => (self.reading, self.bytes) = (Some(BTreeMap::new()), 0),
            Followed::Page(records) => self.collect(records),
            Followed::Update { changes, .. } if self.reading.is_some() => self.collect(changes),
            Followed::Update { changes, .. } => edit(CopyEdit::Update(changes)),
            Followed::Level(at) => {
                if let Some(read) = self.reading.take() {
                    self.bytes = 0;
                    edit(CopyEdit::Replace(read));
                }
                edit(CopyEdit::Reach(at));
            }
        }
    }

    /// The memory of the state that is being read, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn collect(&mut self, records: Vec<ScanRecord>) {
        let Some(reading) = &mut self.reading else { return };
        for ScanRecord { key, held } in records {
            let former = match held.value {
                Some(value) => {
                    self.bytes += size(&key, &value);
                    reading.insert(copied(&key), CopyEntry { version: held.version, value: copied(&value) })
                }
                None => reading.remove(&key),
            };
            self.bytes -= former.map_or(0, |former| size(&key, &former.value));
        }
    }
}

fn size(key: &Bytes, value: &Bytes) -> usize {
    key.len() + value.len() + ENTRY_BYTES
}

/// The data below a prefix at one point of a chain's history.
#[derive(Clone, Debug)]
pub struct Copy {
    #[expect(clippy::disallowed_types, reason = "as above")]
    entries: HashMap<Bytes, CopyEntry>,
    bytes: usize,
    /// `None`: it was never level.
    at: Option<Sequence>,
    guards: Guards,
}

impl Copy {
    /// A copy that was never level.
    pub fn new(guards: Guards) -> Self {
        Self { entries: Default::default(), bytes: 0, at: None, guards }
    }

    /// The point of the history that it shows; `None`: it was never level.
    pub fn at(&self) -> Option<Sequence> {
        self.at
    }

    /// The memory of the entries, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn get(&self, key: &[u8]) -> Option<&CopyEntry> {
        self.entries.get(key)
    }

    /// All entries, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (&Bytes, &CopyEntry)> {
        self.entries.iter()
    }

    /// Makes an edit, and returns the differences between the two states, in the order of the keys of each update.
    pub fn edit(&mut self, edit: CopyEdit) -> Vec<CopyChange> {
        match edit {
            CopyEdit::Reach(at) => {
                self.at = Some(at);
                Vec::new()
            }
            CopyEdit::Update(records) => records
                .into_iter()
                .filter_map(|ScanRecord { key, held }| {
                    let expired = held.value.is_none() && held.expires.is_some();
                    let after = held.value.map(|value| CopyEntry { version: held.version, value: copied(&value) });
                    self.set(&key, after, expired)
                })
                .collect(),
            CopyEdit::Replace(read) => self.replace(read),
        }
    }

    fn replace(&mut self, read: BTreeMap<Bytes, CopyEntry>) -> Vec<CopyChange> {
        let is_missing = |key: &&Bytes| !read.contains_key(*key);
        let mut missing: Vec<Bytes> = self.entries.keys().filter(is_missing).cloned().collect();
        if allows!(self.guards, KeepMissing) {
            missing.clear();
        }
        missing.sort_unstable();
        let mut changes: Vec<_> = missing.iter().filter_map(|key| self.set(key, None, false)).collect();
        for (key, entry) in read {
            // A renewal changes the version alone, and isn't reported.
            let is_same = self.entries.get(&key).is_some_and(|former| former.value == entry.value);
            let change = self.set(&key, Some(entry), false);
            changes.extend(change.filter(|_| !is_same || allows!(self.guards, ReportAgain)));
        }
        changes
    }

    /// Sets or removes a key. `None`: that changes nothing.
    fn set(&mut self, key: &Bytes, after: Option<CopyEntry>, expired: bool) -> Option<CopyChange> {
        let before = match after.clone() {
            Some(entry) => {
                self.bytes += size(key, &entry.value);
                self.entries.insert(copied(key), entry)
            }
            None => Some(self.entries.remove(key)?),
        };
        self.bytes -= before.as_ref().map_or(0, |before| size(key, &before.value));
        Some(CopyChange { key: key.clone(), before, after, expired })
    }
}
