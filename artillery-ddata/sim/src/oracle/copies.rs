//! Checks that a copy of a chain's keys shows committed states only, and reports each change once.

use std::collections::{BTreeMap, BTreeSet};

use artillery_proto::{
    Sequence,
    follower::{Copy, CopyChange, CopyEntry},
};
use bytes::Bytes;

use super::{ChainOracle, Failure, Oracle};

/// The reports of one copy, and the committed state that it should show.
#[derive(Debug)]
pub struct CopyOracle {
    prefix: Bytes,
    /// The state that follows from the reported changes.
    reported: BTreeMap<Bytes, CopyEntry>,
    /// The keys reported since the last check.
    touched: BTreeSet<Bytes>,
    /// The committed state at `at`.
    expected: BTreeMap<Bytes, Bytes>,
    at: Sequence,
}

fn fail(what: String) -> Result<(), Failure> {
    Err(Failure::new(Oracle::Copies, what))
}

impl CopyOracle {
    /// The oracle of an empty copy of the keys with this prefix.
    pub fn new(prefix: Bytes) -> Self {
        let (reported, expected) = (BTreeMap::new(), BTreeMap::new());
        Self { prefix, reported, touched: BTreeSet::new(), expected, at: Sequence::ZERO }
    }

    /// The copy reports these changes, because it was read again if `replaces`.
    ///
    /// # Errors
    /// They don't follow from the earlier ones, or repeat one of them.
    pub fn report(&mut self, changes: Vec<CopyChange>, replaces: bool) -> Result<(), Failure> {
        for change in changes {
            let CopyChange { key, before, after, .. } = &change;
            let value = |entry: &Option<CopyEntry>| entry.as_ref().map(|entry| entry.value.clone());
            let same_value = value(before) == value(after);
            let is_older = matches!((before, after), (Some(before), Some(after)) if before.version >= after.version);
            if value(before) != self.reported.get(key).map(|entry| entry.value.clone()) {
                return fail(format!("{change:?} doesn't follow {:?}", self.reported.get(key)));
            }
            if same_value && (replaces || is_older) || before.is_none() && after.is_none() {
                return fail(format!("{change:?} was reported again"));
            }
            self.touched.insert(key.clone());
            match change.after {
                Some(entry) => drop(self.reported.insert(change.key, entry)),
                None => drop(self.reported.remove(&change.key)),
            }
        }
        Ok(())
    }

    /// Checks the copy, which shows the state at `at`: all of it if it `is_new`, and otherwise the changed keys.
    ///
    /// # Errors
    /// It shows another state.
    pub fn check(&mut self, chain: &ChainOracle, copy: &Copy, at: Sequence, is_new: bool) -> Result<(), Failure> {
        let committed = chain.committed_up_to();
        if at > committed || at < self.at || copy.at() != Some(at) {
            let (known, before) = (copy.at(), self.at);
            return fail(format!("a copy shows {known:?} at {at}, after {before}, but {committed} is committed"));
        }
        let new = chain.log().iter().take(at.0 as usize).skip(self.at.0 as usize);
        for change in new.flat_map(|update| &update.changes) {
            if change.renews || !change.key.starts_with(&self.prefix) {
                continue;
            }
            match &change.value {
                Some(value) => drop(self.expected.insert(change.key.clone(), value.clone())),
                None => drop(self.expected.remove(&change.key)),
            }
            self.touched.insert(change.key.clone());
        }
        self.at = at;
        let touched = std::mem::take(&mut self.touched);
        if is_new {
            return self.check_whole(copy);
        }
        touched.iter().try_for_each(|key| self.check_key(copy, key))
    }

    /// Checks the whole copy at the point of the last [`check`](Self::check).
    ///
    /// # Errors
    /// It shows another state.
    pub fn check_whole(&self, copy: &Copy) -> Result<(), Failure> {
        let keys: BTreeSet<_> = copy.iter().map(|(key, _)| key).chain(self.expected.keys()).collect();
        keys.into_iter().try_for_each(|key| self.check_key(copy, key))
    }

    fn check_key(&self, copy: &Copy, key: &Bytes) -> Result<(), Failure> {
        let (found, expected) = (copy.get(key), self.expected.get(key));
        let reported = self.reported.get(key).map(|entry| &entry.value);
        if found.map(|entry| &entry.value) == expected && reported == expected {
            return Ok(());
        }
        let at = self.at;
        fail(format!("a copy shows {key:?} as {found:?} at {at} and reported {reported:?}, but it was {expected:?}"))
    }
}
