//! The names of a simulated disk's files: as programs see them, and as a power cut may leave them.

use std::collections::{BTreeMap, BTreeSet};

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

/// A change of names, which becomes durable atomically.
#[derive(Debug, Clone)]
enum NameChange {
    Given(String, u64),
    Taken(String),
    Renamed(String, String, u64),
}

impl NameChange {
    fn apply(self, names: &mut BTreeMap<String, u64>) {
        match self {
            Self::Given(name, number) => drop(names.insert(name, number)),
            Self::Taken(name) => drop(names.remove(&name)),
            Self::Renamed(from, to, number) => {
                if names.get(&from) == Some(&number) {
                    names.remove(&from);
                }
                names.insert(to, number);
            }
        }
    }
}

/// The file number of each name.
#[derive(Debug, Default)]
pub(super) struct Names {
    cached: BTreeMap<String, u64>,
    durable: BTreeMap<String, u64>,
    /// Changes since the last sync, oldest first.
    unsynced: Vec<NameChange>,
}

impl Names {
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.cached.get(name).copied()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (&str, u64)> {
        self.cached.iter().map(|(name, &number)| (name.as_str(), number))
    }

    pub(super) fn give(&mut self, name: &str, number: u64) {
        self.change(NameChange::Given(name.to_owned(), number));
    }

    pub(super) fn take(&mut self, name: &str) {
        self.change(NameChange::Taken(name.to_owned()));
    }

    pub(super) fn rename(&mut self, from: &str, to: &str, number: u64) {
        self.change(NameChange::Renamed(from.to_owned(), to.to_owned(), number));
    }

    fn change(&mut self, change: NameChange) {
        change.clone().apply(&mut self.cached);
        self.unsynced.push(change);
    }

    pub(super) fn sync(&mut self) {
        std::mem::take(&mut self.unsynced).into_iter().for_each(|change| change.apply(&mut self.durable));
    }

    /// The sync fails: some changes may be durable, and the others never will be. Programs still see all of them.
    pub(super) fn fail_sync(&mut self, rng: &mut ChaCha8Rng) {
        for change in std::mem::take(&mut self.unsynced) {
            if rng.random() {
                change.apply(&mut self.durable);
            }
        }
    }

    /// The files that have a name, or may get one back after a power cut.
    pub(super) fn may_lead_to(&self) -> BTreeSet<u64> {
        let given = self.unsynced.iter().filter_map(|change| match change {
            NameChange::Given(_, number) | NameChange::Renamed(_, _, number) => Some(*number),
            NameChange::Taken(_) => None,
        });
        self.cached.values().chain(self.durable.values()).copied().chain(given).collect()
    }

    /// Applies a power cut: each unsynced change becomes durable or is lost. Returns whether a name changed.
    pub(super) fn cut(&mut self, rng: &mut ChaCha8Rng) -> bool {
        for change in std::mem::take(&mut self.unsynced) {
            if rng.random() {
                change.apply(&mut self.durable);
            }
        }
        let is_different = self.cached != self.durable;
        self.cached.clone_from(&self.durable);
        is_different
    }
}
