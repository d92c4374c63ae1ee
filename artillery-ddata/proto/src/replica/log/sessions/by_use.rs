use std::collections::BTreeSet;

use crate::{Sequence, Version};

/// Sessions in the order of their last use. The newest one is stored separately, so that repeated writes of one client
/// move no entry.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct ByUse {
    older: BTreeSet<(Sequence, Version)>,
    newest: Option<(Sequence, Version)>,
}

impl ByUse {
    /// Moves a session from `before` to `now`, which is later than every other use.
    pub(super) fn used(&mut self, id: Version, before: Sequence, now: Sequence) {
        match &mut self.newest {
            Some((at, newest)) if *newest == id => *at = now,
            _ => {
                self.older.remove(&(before, id));
                self.add(id, now);
            }
        }
    }

    /// Adds a new session, last used at `used`.
    pub(super) fn add(&mut self, id: Version, used: Sequence) {
        match &mut self.newest {
            Some(newest) if used < newest.0 => self.older.extend([(used, id)]),
            newest => self.older.extend(newest.replace((used, id))),
        }
    }

    pub(super) fn remove(&mut self, id: Version, used: Sequence) {
        if self.newest.take_if(|(_, newest)| *newest == id).is_some() {
            self.newest = self.older.pop_last();
        } else {
            self.older.remove(&(used, id));
        }
    }

    /// The sessions, least recently used first.
    pub(super) fn iter(&self) -> impl Iterator<Item = Version> {
        self.older.iter().chain(&self.newest).map(|&(_, id)| id)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_longest_unused_comes_first(steps in prop::collection::vec((0u8..4, 0u64..6), 0..60)) {
            let (mut by_use, mut order) = (ByUse::default(), Vec::<(Sequence, Version)>::new());
            for (now, (what, id)) in (1..).map(Sequence).zip(steps) {
                let id = Version::new(1, id);
                let known = order.iter().position(|(_, other)| *other == id).map(|at| order.remove(at).0);
                match known {
                    Some(used) if what == 0 => by_use.remove(id, used),
                    before => {
                        match before {
                            Some(before) => by_use.used(id, before, now),
                            None => by_use.add(id, now),
                        }
                        order.push((now, id));
                    }
                }
                prop_assert!(by_use.iter().eq(order.iter().map(|&(_, id)| id)));
                let (mut copy, mut sorted) = (ByUse::default(), order.clone());
                sorted.sort_by_key(|&(_, id)| id);
                sorted.into_iter().for_each(|(used, id)| copy.add(id, used));
                prop_assert_eq!(&copy, &by_use);
            }
        }
    }
}
