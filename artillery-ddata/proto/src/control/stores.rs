//! How far other stores have come, as a node has heard it. A directory that comes back with less is an older copy: it has
//! forgotten what it promised, and is refused (docs/adr/0030, 0042).
//!
//! A start writes to its directory before it speaks. So what a store has now says little: a copy that is started again and
//! again would have as much as the store that it is a copy of. A store tells what each of its last starts has *found*.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{MemberId, NodeId};

/// How many of its last starts a store tells of.
const STARTS: usize = 8;

/// A start of a store, and what it found in the directory, before it wrote anything there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct StoreStart {
    /// The number of this start, from 1 on; 0: there was none.
    pub number: u64,
    /// A random number of this start: two starts of copies of one directory differ by it.
    pub id: u64,
    /// How often the control file was written.
    pub control: u64,
    /// The number of groups of the journal.
    pub groups: u64,
}

/// The last starts of a store, newest first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StoreStarts([StoreStart; STARTS]);

impl StoreStarts {
    /// Another start begins.
    pub fn begin(&mut self, start: StoreStart) {
        self.0.rotate_right(1);
        self.0[0] = start;
    }

    /// Another start begins of a directory that was refused as an older copy. What the refused start has written doesn't count.
    pub fn begin_again(&mut self, start: StoreStart) {
        let StoreStart { control, groups, .. } = self.0[0];
        self.0[0] = StoreStart { control, groups, ..start };
    }

    /// The present start.
    pub const fn newest(&self) -> StoreStart {
        self.0[0]
    }

    /// Whether a store with these starts may be the one that had come as far as `heard`, in an earlier start.
    fn follow(&self, heard: Heard) -> bool {
        let known = || self.0.iter().take_while(|start| start.number > 0);
        let is_same = known().find(|start| start.number == heard.starts).is_none_or(|start| start.id == heard.start);
        // Each start finds at least what those before it have found, so the first one behind that start tells most.
        let next = known().take_while(|start| start.number > heard.starts).last();
        is_same && next.is_some_and(|next| next.control >= heard.control && next.groups >= heard.groups)
    }
}

/// How far a store has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct StorePosition {
    /// How often its control file was written, as far as one damaged copy of that file would not hide.
    pub control: u64,
    /// The number of groups of its journal that are synced.
    pub groups: u64,
    /// Its last starts.
    pub starts: StoreStarts,
}

/// A store has less than it had before, or another start of it was heard: its directory is a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
#[error("the directory of {0} is an older copy, or a second one")]
pub struct StoreRolledBack(pub MemberId);

/// The positions of other stores.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct HeardStores(BTreeMap<(NodeId, u128), Heard>);

/// The newest start of a store that was heard, and how far the store had come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Heard {
    /// The number of that start, and its id.
    starts: u64,
    start: u64,
    control: u64,
    groups: u64,
}

impl HeardStores {
    /// Whether a life of a store may come with this position.
    ///
    /// # Errors
    /// [`StoreRolledBack`].
    pub fn check(&self, id: MemberId, position: StorePosition) -> Result<(), StoreRolledBack> {
        let Some(&heard) = self.of(id) else { return Ok(()) };
        let starts = position.starts;
        let is_good = match id.incarnation.starts.cmp(&heard.starts) {
            std::cmp::Ordering::Less => false,
            // An old message of this start says less.
            std::cmp::Ordering::Equal => starts.newest().id == heard.start,
            std::cmp::Ordering::Greater => starts.follow(heard),
        };
        if is_good { Ok(()) } else { Err(StoreRolledBack(id)) }
    }

    /// Checks a position and takes note of it, in one step: of two copies that come at the same moment only one passes. Returns
    /// whether the start is another one than was heard before.
    ///
    /// # Errors
    /// [`StoreRolledBack`]; then nothing is noted.
    pub fn hear(&mut self, id: MemberId, position: StorePosition) -> Result<bool, StoreRolledBack> {
        self.check(id, position)?;
        let StorePosition { control, groups, starts } = position;
        let new = Heard { starts: id.incarnation.starts, start: starts.newest().id, control, groups };
        let before = self.of(id).copied();
        self.0.insert((id.node, id.incarnation.store), before.map_or(new, |before| before.and(new)));
        Ok(before.is_none_or(|before| before.starts != new.starts))
    }

    /// Takes over what another record of the same node says.
    pub fn merge(&mut self, other: Self) {
        for (store, theirs) in other.0 {
            let mine = self.0.entry(store).or_insert(theirs);
            *mine = mine.and(theirs);
        }
    }

    /// Whether this start of a store, and as many changes of its control file, were heard before.
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
    /// The newest start of both, and the furthest that either has come. Of two starts of the same number the first one counts.
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

    /// A store, as its directory holds it.
    #[derive(Clone, Copy, Default)]
    struct Directory {
        control: u64,
        groups: u64,
        starts: StoreStarts,
        refused: bool,
    }

    impl Directory {
        /// Another start, which writes to the directory before it speaks.
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

    /// A directory in its third start, and a node that has heard it.
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
        assert_eq!(heard.hear(directory.life(), directory.position()), Ok(false), "an idle store says the same again");
        assert!(old.is_heard(&mut heard), "an old message");
        assert!(heard.covers(directory.life(), directory.position()), "which takes nothing back");
        directory.start(4);
        assert_eq!(heard.hear(directory.life(), directory.position()), Ok(true), "the next start");
        // This node hears nothing of many starts.
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
        // One vote later.
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
        // Which is true of the directory itself.
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
