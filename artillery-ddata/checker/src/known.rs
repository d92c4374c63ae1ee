//! The states of each key that a history reveals.

use std::collections::BTreeMap;

use artillery_proto::{Sequence, Version};

use super::form;
use crate::history::{Answer, Call, History};

pub(super) struct Known(BTreeMap<u32, Key>);

#[derive(Default)]
struct Key {
    /// The known writes by sequence: the version, and whether the key had a value afterwards.
    states: BTreeMap<Sequence, (Version, bool)>,
    /// When the first `Delete` or `GetDelete` with an unknown outcome was called.
    deleted: Option<u64>,
}

impl Key {
    fn add(&mut self, version: Version, present: bool) {
        self.states.insert(version.sequence, (version, present));
    }
}

impl Known {
    pub(super) fn new(history: &History) -> Self {
        let mut known = Self(BTreeMap::new());
        for operation in form::complete(&history.operations) {
            let key = known.0.entry(operation.key).or_default();
            if let Some((version, _)) = form::seen(&operation) {
                key.add(version, true);
            }
            match (operation.call, operation.answer) {
                (Call::Delete, Answer::Written(version)) | (_, Answer::Took { version, .. }) => {
                    key.add(version, false);
                }
                (_, Answer::Written(version)) => {
                    key.add(version, true);
                }
                (Call::Delete | Call::GetDelete, Answer::Unknown) => {
                    key.deleted = Some(key.deleted.unwrap_or(u64::MAX).min(operation.called));
                }
                _ => {}
            }
        }
        for operation in &history.series {
            let key = known.0.entry(operation.key).or_default();
            let version = operation.version().filter(|version| !version.is_none());
            version.into_iter().for_each(|version| key.add(version, true));
        }
        known
    }

    /// Whether a deletion with an unknown outcome was called before `returned`, and so may have deleted the key.
    pub(super) fn may_be_deleted(&self, key: u32, returned: u64) -> bool {
        self.0.get(&key).and_then(|key| key.deleted).is_some_and(|called| called < returned)
    }

    /// The newest known write of the key at or below `sequence`, and whether it left a value.
    pub(super) fn at(&self, key: u32, sequence: Sequence) -> Option<(Version, bool)> {
        let states = &self.0.get(&key)?.states;
        states.range(..=sequence).next_back().map(|(_, state)| *state)
    }

    /// The first known write of the key above `sequence`.
    pub(super) fn after(&self, key: u32, sequence: Sequence) -> Option<Version> {
        let states = &self.0.get(&key)?.states;
        states.range(sequence.next()..).next().map(|(_, (version, _))| *version)
    }

    /// The sequences of the known deletions of the key.
    pub(super) fn deletions(&self, key: u32) -> impl Iterator<Item = Sequence> + '_ {
        let states = self.0.get(&key).into_iter().flat_map(|key| &key.states);
        states.filter(|(_, (_, present))| !present).map(|(sequence, _)| *sequence)
    }
}
