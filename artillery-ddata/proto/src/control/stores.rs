//! How far other stores have come, as a node has heard it. A directory that comes back with less is an older copy: it has
//! forgotten what it promised, and is refused (docs/adr/0030, 0042).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{MemberId, NodeId};

/// How far a store has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct StorePosition {
    /// A random number of this start: two starts of copies of one directory differ by it.
    pub start: u64,
    /// How often its control file was written.
    pub control: u64,
    /// The number of groups of its journal that are synced.
    pub groups: u64,
}

/// A store has less than it had before, or another start of it was heard: its directory is a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
#[error("the directory of {0} is an older copy, or a second one")]
pub struct StoreRolledBack(pub MemberId);

/// The positions of other stores.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct HeardStores(BTreeMap<(NodeId, u128), Heard>);

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Heard {
    starts: u64,
    position: StorePosition,
}

impl HeardStores {
    /// Whether a life of a store may come with this position.
    ///
    /// # Errors
    /// [`StoreRolledBack`].
    pub fn check(&self, id: MemberId, position: StorePosition) -> Result<(), StoreRolledBack> {
        let Some(heard) = self.of(id) else { return Ok(()) };
        let StorePosition { start, control, groups } = heard.position;
        let is_good = match id.incarnation.starts.cmp(&heard.starts) {
            std::cmp::Ordering::Less => false,
            // An old message of this start says less.
            std::cmp::Ordering::Equal => position.start == start,
            std::cmp::Ordering::Greater => position.control >= control && position.groups >= groups,
        };
        if is_good { Ok(()) } else { Err(StoreRolledBack(id)) }
    }

    /// Takes note of a position that was checked. Returns whether the start is another one than was heard before.
    pub fn note(&mut self, id: MemberId, position: StorePosition) -> bool {
        let starts = id.incarnation.starts;
        let new = Heard { starts, position };
        let before = self.0.insert((id.node, id.incarnation.store), new);
        if let Some(before) = before {
            self.0.insert((id.node, id.incarnation.store), before.and(new));
        }
        before.is_none_or(|before| before.starts != starts)
    }

    /// Takes over what another record of the same node says.
    pub fn merge(&mut self, other: Self) {
        for (store, theirs) in other.0 {
            let mine = self.0.entry(store).or_insert(theirs);
            *mine = mine.and(theirs);
        }
    }

    /// What was heard of a store.
    pub fn position(&self, id: MemberId) -> Option<StorePosition> {
        self.of(id).map(|heard| heard.position)
    }

    fn of(&self, id: MemberId) -> Option<&Heard> {
        self.0.get(&(id.node, id.incarnation.store))
    }
}

impl Heard {
    /// The newest start of both, and the furthest that either has come.
    fn and(self, other: Self) -> Self {
        let newest = if other.starts >= self.starts { other } else { self };
        let (mine, theirs) = (self.position, other.position);
        let (control, groups) = (mine.control.max(theirs.control), mine.groups.max(theirs.groups));
        Self { position: StorePosition { control, groups, ..newest.position }, ..newest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    fn life(starts: u64) -> MemberId {
        let mut id = fixtures::id(1);
        id.incarnation.starts = starts;
        id
    }

    fn at(start: u64, control: u64, groups: u64) -> StorePosition {
        StorePosition { start, control, groups }
    }

    #[test]
    fn a_store_that_comes_with_less_is_refused() {
        let mut heard = HeardStores::default();
        assert_eq!(heard.check(life(3), at(7, 10, 100)), Ok(()));
        assert!(heard.note(life(3), at(7, 10, 100)));
        assert!(!heard.note(life(3), at(7, 12, 90)), "the same start");
        assert!(!heard.note(life(3), at(7, 12, 100)), "an idle store says the same again and again");
        assert_eq!(heard.position(life(1)), Some(at(7, 12, 100)));
        assert_eq!(heard.check(life(3), at(7, 9, 80)), Ok(()), "an old message");
        assert_eq!(heard.check(life(4), at(8, 14, 100)), Ok(()), "the next start");
        let copies = [(life(2), at(7, 20, 200)), (life(3), at(8, 20, 200)), (life(4), at(8, 11, 200))];
        for (id, position) in copies.into_iter().chain([(life(4), at(8, 20, 99))]) {
            assert_eq!(heard.check(id, position), Err(StoreRolledBack(id)));
        }
        assert!(heard.note(life(5), at(9, 20, 200)));
        heard.note(life(4), at(8, 15, 150));
        assert_eq!(
            heard.check(life(4), at(8, 15, 150)),
            Err(StoreRolledBack(life(4))),
            "a late message of an earlier start"
        );
        assert_eq!(heard.check(fixtures::incarnation(1, 9), at(0, 0, 0)), Ok(()), "a new store");
    }
}
