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
    /// By version, when the first `Expire` was called.
    expiries: BTreeMap<Version, u64>,
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
                (Call::Expire { version }, _) => {
                    let first = key.expiries.entry(version).or_insert(u64::MAX);
                    *first = (*first).min(operation.called);
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

    /// Whether a deletion with an unknown outcome, or an expiry of a version that no answer reported, was called before
    /// `returned`, and so may have deleted the key.
    pub(super) fn may_be_deleted(&self, key: u32, returned: u64) -> bool {
        let Some(key) = self.0.get(&key) else { return false };
        let is_hidden = |version: &Version| key.states.get(&version.sequence).is_none_or(|(known, _)| known != version);
        let hidden = key.expiries.iter().filter(|(version, _)| is_hidden(version)).map(|(_, called)| *called);
        key.deleted.into_iter().chain(hidden).any(|called| called < returned)
    }

    /// Whether the value of this version may have expired before `returned`.
    pub(super) fn may_have_expired(&self, key: u32, version: Version, returned: u64) -> bool {
        let expiry = self.0.get(&key).and_then(|key| key.expiries.get(&version));
        expiry.is_some_and(|called| *called < returned)
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

    /// The sequences of the known writes after which the key may have been absent before `returned`: deletions, and
    /// values that may have expired by then.
    pub(super) fn absences(&self, key: u32, returned: u64) -> impl Iterator<Item = Sequence> + '_ {
        let states = self.0.get(&key).into_iter().flat_map(|key| &key.states);
        let absent =
            move |(version, present): &(Version, bool)| !present || self.may_have_expired(key, *version, returned);
        states.filter(move |(_, state)| absent(state)).map(|(sequence, _)| *sequence)
    }
}
