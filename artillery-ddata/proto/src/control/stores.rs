//! The last known position of each store. A store that has less at a later start is an older copy: it has forgotten
//! promises, and is refused (docs/adr/0030, 0042).
//!
//! A start writes to its directory before it sends anything. So the current contents of a store prove little: a copy
//! that is started repeatedly would have as much as its original. Therefore a store reports the contents that each of
//! its last starts *found*.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{MemberId, NodeId};

/// The number of starts that a store reports.
const STARTS: usize = 8;

/// A start of a store, and the contents of the directory before the start wrote anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct StoreStart {
    /// The number of this start, from 1; 0: no start.
    pub number: u64,
    /// Random: starts of copies of one directory have different ids.
    pub id: u64,
    /// How often the control file had been written.
    pub control: u64,
    /// The number of groups in the journal.
    pub groups: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StoreStarts([StoreStart; STARTS]);

impl StoreStarts {
    pub fn begin(&mut self, start: StoreStart) {
        self.0.rotate_right(1);
        self.0[0] = start;
    }

    /// Replaces the newest start, whose directory was refused as an older copy. Data written by the refused start is
    /// ignored.
    pub fn begin_again(&mut self, start: StoreStart) {
        let StoreStart { control, groups, .. } = self.0[0];
        self.0[0] = StoreStart { control, groups, ..start };
    }

    pub const fn newest(&self) -> StoreStart {
        self.0[0]
    }

    /// Whether a store with these starts may be a continuation of the one recorded as `heard`.
    fn follow(&self, heard: Heard) -> bool {
        let known = || self.0.iter().take_while(|start| start.number > 0);
        let is_same = known().find(|start| start.number == heard.starts).is_none_or(|start| start.id == heard.start);
        // Each start finds at least as much as the previous one, so the first start after `heard` is decisive.
        let next = known().take_while(|start| start.number > heard.starts).last();
        is_same && next.is_some_and(|next| next.control >= heard.control && next.groups >= heard.groups)
    }
}

/// How much a store has written, and its last starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct StorePosition {
    /// The number of writes of the control file, without the last one: damage to one copy of the file could hide it.
    pub control: u64,
    /// The number of synced groups in the journal.
    pub groups: u64,
    pub starts: StoreStarts,
}

/// A store has less than it is known to have had, or a start contradicts a known one: its directory is a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
#[error("the directory of {0} is an older copy, or a second one")]
pub struct StoreRolledBack(pub MemberId);

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct HeardStores(BTreeMap<(NodeId, u128), Heard>);

/// The newest known start of a store, and the store's position.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Heard {
    /// The number of that start; `start` is its id.
    starts: u64,
    start: u64,
    control: u64,
    groups: u64,
}

impl HeardStores {
    /// Whether an incarnation of a store may have this position.
    pub fn check(&self, id: MemberId, position: StorePosition) -> Result<(), StoreRolledBack> {
        let Some(&heard) = self.of(id) else { return Ok(()) };
        let starts = position.starts;
        let is_good = match id.incarnation.starts.cmp(&heard.starts) {
            std::cmp::Ordering::Less => false,
            // Older messages of the same start may report less.
            std::cmp::Ordering::Equal => starts.newest().id == heard.start,
            std::cmp::Ordering::Greater => starts.follow(heard),
        };
        if is_good { Ok(()) } else { Err(StoreRolledBack(id)) }
    }

    /// Checks a position and records it, in one step: of two copies that appear at the same time only one passes.
    /// Returns whether the start is new.
    ///
    /// # Errors
    /// [`StoreRolledBack`]; then nothing is recorded.
    pub fn hear(&mut self, id: MemberId, position: StorePosition) -> Result<bool, StoreRolledBack> {
        self.check(id, position)?;
        let StorePosition { control, groups, starts } = position;
        let new = Heard { starts: id.incarnation.starts, start: starts.newest().id, control, groups };
        let before = self.of(id).copied();
        self.0.insert((id.node, id.incarnation.store), before.map_or(new, |before| before.and(new)));
        Ok(before.is_none_or(|before| before.starts != new.starts))
    }

    /// Adds the content of another record, which the same node keeps.
    pub fn merge(&mut self, other: Self) {
        for (store, theirs) in other.0 {
            let mine = self.0.entry(store).or_insert(theirs);
            *mine = mine.and(theirs);
        }
    }

    /// Whether this start of a store, with at least as many writes of its control file, is already recorded.
    pub fn covers(&self, id: MemberId, position: StorePosition) -> bool {
        let (start, starts) = (position.starts.newest().id, id.incarnation.starts);
        let is_known =
            |heard: &Heard| (heard.starts, heard.start) == (starts, start) && heard.control >= position.control;
        self.of(id).is_some_and(is_known)
    }

    fn of(&self, id: MemberId) -> Option<&Heard> {
        self.0.get(&(id.node, id.incarnation.store))
    }
}

impl Heard {
    /// The newest start and the highest position of both. Of two starts with the same number, `self`'s is kept.
    fn and(self, other: Self) -> Self {
        let newest = if other.starts > self.starts { other } else { self };
        let (control, groups) = (self.control.max(other.control), self.groups.max(other.groups));
        Self { control, groups, ..newest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    #[derive(Clone, Copy, Default)]
    struct Directory {
        control: u64,
        groups: u64,
        starts: StoreStarts,
        refused: bool,
    }

    impl Directory {
        /// Another start, which writes to the directory before it sends anything.
        fn start(&mut self, id: u64) -> Self {
            let &mut Self { control, groups, .. } = self;
            let start = StoreStart { number: self.starts.newest().number + 1, id, control, groups };
            if self.refused {
                self.starts.begin_again(start)
            } else {
                self.starts.begin(start)
            }
            self.runs(6, 1)
        }

        fn runs(&mut self, control: u64, groups: u64) -> Self {
            (self.control, self.groups) = (self.control + control, self.groups + groups);
            *self
        }

        fn life(&self) -> MemberId {
            let mut id = fixtures::id(1);
            id.incarnation.starts = self.starts.newest().number;
            id
        }

        fn position(&self) -> StorePosition {
            let Self { control, groups, starts, .. } = *self;
            StorePosition { control, groups, starts }
        }

        fn is_heard(&self, heard: &mut HeardStores) -> bool {
            heard.hear(self.life(), self.position()).is_ok()
        }
    }

    /// A directory in its third start, and the record of a node that knows it.
    fn heard() -> (Directory, HeardStores) {
        let (mut directory, mut heard) = (Directory::default(), HeardStores::default());
        for id in 1..=3 {
            directory.start(id);
        }
        assert!(directory.runs(10, 100).is_heard(&mut heard));
        (directory, heard)
    }

    #[test]
    fn a_store_that_goes_on_is_heard() {
        let (mut directory, mut heard) = heard();
        let old = directory;
        assert_eq!(heard.hear(directory.life(), directory.runs(2, 0).position()), Ok(false), "the same start");
        assert_eq!(heard.hear(directory.life(), directory.position()), Ok(false), "an idle store repeats its position");
        assert!(old.is_heard(&mut heard), "an old message");
        assert!(heard.covers(directory.life(), directory.position()), "an old message reverts nothing");
        directory.start(4);
        assert_eq!(heard.hear(directory.life(), directory.position()), Ok(true), "the next start");
        // This node misses many starts.
        for id in 5..40 {
            directory.start(id);
            directory.runs(3, 3);
        }
        assert!(directory.is_heard(&mut heard));
        assert!(!old.is_heard(&mut heard), "a late message of an earlier start");
        assert_eq!(heard.check(fixtures::incarnation(1, 9), StorePosition::default()), Ok(()), "a new store");
    }

    #[test]
    fn a_copy_is_refused_whatever_its_own_starts_write() {
        let (mut directory, mut heard) = heard();
        let copy = directory;
        // The original writes its control file twice more.
        assert!(directory.runs(2, 0).is_heard(&mut heard));
        for starts in 1..=7 {
            let mut copy = copy;
            for id in 0..starts {
                copy.start(90 + id);
                copy.runs(50, 50);
            }
            assert!(!copy.is_heard(&mut heard), "after {starts} starts");
        }
        let mut shorter = Directory { groups: directory.groups - 1, ..directory };
        assert!(!shorter.start(90).is_heard(&mut heard), "its journal is older");
        // The original directory passes.
        assert!(directory.start(4).is_heard(&mut heard));
    }

    #[test]
    fn a_copy_that_hears_that_it_is_refused_stays_refused() {
        let (mut directory, mut heard) = heard();
        let mut copy = directory;
        copy.start(90);
        copy.refused = true;
        assert!(directory.start(4).is_heard(&mut heard));
        for id in 91..200 {
            copy.start(id);
            assert!(!copy.runs(50, 50).is_heard(&mut heard), "start {id}");
        }
    }

    #[test]
    fn of_two_copies_only_the_first_one_is_heard() {
        let (mut directory, mut heard) = heard();
        let mut copy = directory;
        let (first, second) = (directory.start(4), copy.start(5));
        assert!(first.is_heard(&mut heard));
        assert!(!second.is_heard(&mut heard));
        copy.runs(50, 50);
        assert!(!copy.start(6).is_heard(&mut heard), "nor later");
        assert!(directory.start(6).is_heard(&mut heard));
    }

    #[test]
    fn of_two_records_the_newest_start_counts_and_the_furthest_place() {
        let (mut directory, mut one) = heard();
        let (old, mut other) = (directory, one.clone());
        directory.start(4);
        assert!(directory.is_heard(&mut one));
        assert!({ old }.runs(1, 0).is_heard(&mut other));
        for (mut one, other) in [(one.clone(), other.clone()), (other, one)] {
            one.merge(other);
            assert!(one.covers(directory.life(), directory.position()));
            assert!(!old.is_heard(&mut one));
        }
    }
}
