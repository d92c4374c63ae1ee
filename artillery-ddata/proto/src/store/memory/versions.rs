//! The versions of one key.

use std::{ops::Deref, slice, sync::Arc};

use bytes::Bytes;
use smallvec::SmallVec;

use crate::{Expiry, Sequence, store::Held};

/// All versions of one key, never empty.
///
/// The older versions are in shared runs, the oldest run first. A new run absorbs the preceding runs that are not
/// longer. So a key with many pending versions has few runs, cloning is cheap, and each version is copied a logarithmic
/// number of times.
#[derive(Clone, Debug)]
pub(super) struct Versions {
    newest: Held,
    older: SmallVec<[OlderVersions; 1]>,
    bytes: u64,
}

/// The part of a key's versions in the size of their chain, without the key itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weight {
    /// Bytes of all values.
    pub(super) bytes: u64,
    /// Whether the newest version is a value.
    pub(super) is_live: bool,
    /// The expiry of that value.
    pub(super) expiry: Option<Expiry>,
}

#[derive(Clone, Debug)]
enum OlderVersions {
    /// Inline: most written keys have one older version for a short time, which then needs no allocation.
    One(Held),
    Many(Arc<[Held]>),
}

impl Deref for OlderVersions {
    type Target = [Held];

    fn deref(&self) -> &[Held] {
        match self {
            Self::One(held) => slice::from_ref(held),
            Self::Many(run) => run,
        }
    }
}

/// Runs up to this length are pruned exactly. A longer run is copied only if at least half of it is superseded.
const SHORT: usize = 16;

impl Versions {
    pub(super) fn new(newest: Held) -> Self {
        let bytes = size(&newest);
        Self { newest, older: SmallVec::new(), bytes }
    }

    pub(super) fn newest(&self) -> &Held {
        &self.newest
    }

    pub(super) fn weight(&self) -> Weight {
        Weight { bytes: self.bytes, is_live: self.newest.value.is_some(), expiry: self.newest.expiry() }
    }

    pub(super) fn at(&self, at_most: Sequence) -> Option<&Held> {
        if self.newest.version.sequence <= at_most {
            return Some(&self.newest);
        }
        let run = &self.older[self.run_at(at_most)?];
        Some(&run[below(run, at_most) - 1])
    }

    /// Whether the only version is a value, so that no version can be pruned, now or later.
    pub(super) fn is_settled(&self) -> bool {
        self.older.is_empty() && self.newest.value.is_some()
    }

    /// Whether the key is absent to every reader at `floor` or above.
    pub(super) fn is_gone(&self, floor: Sequence) -> bool {
        self.older.is_empty() && self.newest.value.is_none() && self.newest.version.sequence <= floor
    }

    pub(super) fn with(&self, newest: Held) -> Self {
        let bytes = self.bytes + own(&newest, &self.newest);
        if self.older.is_empty() {
            return Self { newest, older: SmallVec::from_buf([OlderVersions::One(self.newest.clone())]), bytes };
        }
        let mut first = self.older.len();
        let mut len = 1;
        while first > 0 && self.older[first - 1].len() <= len {
            first -= 1;
            len += self.older[first].len();
        }
        let mut run = Vec::with_capacity(len);
        self.older[first..].iter().for_each(|swallowed| run.extend_from_slice(swallowed));
        run.push(self.newest.clone());
        let older = self.older[..first].iter().cloned().chain([OlderVersions::Many(run.into())]).collect();
        Self { newest, older, bytes }
    }

    /// Drops versions that a newer one at or below `floor` supersedes. A long run keeps superseded versions while they
    /// are less than half of it. Returns whether any was dropped.
    pub(super) fn prune(&mut self, floor: Sequence) -> bool {
        if self.newest.version.sequence <= floor {
            let any = !self.older.is_empty();
            self.older.clear();
            self.bytes = size(&self.newest);
            return any;
        }
        let Some(at) = self.run_at(floor) else { return false };
        self.bytes -= self.older.windows(2).take(at).map(|runs| sum(&runs[0], &runs[1][0])).sum::<u64>();
        self.older.drain(..at);
        let run = &mut self.older[0];
        let dead = below(run, floor) - 1;
        let cut = dead > 0 && (run.len() <= SHORT || dead * 2 >= run.len());
        if cut {
            self.bytes -= sum(&run[..dead], &run[dead]);
            *run = OlderVersions::Many(run[dead..].into());
        }
        cut || at > 0
    }

    /// The versions without those above `last`; `None` if no version is left.
    pub(super) fn without_above(&self, last: Sequence) -> Option<Self> {
        if self.newest.version.sequence <= last {
            return Some(self.clone());
        }
        let mut left: Vec<Held> = self
            .older
            .iter()
            .flat_map(|run| run.iter())
            .filter(|held| held.version.sequence <= last)
            .cloned()
            .collect();
        let newest = left.pop()?;
        let bytes = size(&newest) + sum(&left, &newest);
        let older =
            if left.is_empty() { SmallVec::new() } else { SmallVec::from_buf([OlderVersions::Many(left.into())]) };
        Some(Self { newest, older, bytes })
    }

    #[cfg(test)]
    pub(super) fn recount(&self) -> u64 {
        let older: Vec<Held> = self.older.iter().flat_map(|run| run.iter()).cloned().collect();
        size(&self.newest) + sum(&older, &self.newest)
    }

    /// The run that holds the newest of the older versions at or below `at_most`.
    fn run_at(&self, at_most: Sequence) -> Option<usize> {
        self.older.iter().rposition(|run| run[0].version.sequence <= at_most)
    }
}

/// The number of versions in the run at or below `at_most`.
fn below(run: &[Held], at_most: Sequence) -> usize {
    run.partition_point(|held| held.version.sequence <= at_most)
}

fn size(held: &Held) -> u64 {
    held.value.as_ref().map_or(0, Bytes::len) as u64
}

/// The bytes of a value that the next newer version doesn't share: a renewal keeps the value.
fn own(held: &Held, newer: &Held) -> u64 {
    let shares = |value: &Bytes, newer: &Bytes| value.as_ptr() == newer.as_ptr() && value.len() == newer.len();
    let shared = held.value.as_ref().zip(newer.value.as_ref()).is_some_and(|(value, newer)| shares(value, newer));
    if shared { 0 } else { size(held) }
}

/// The bytes of a run of versions that `next` follows.
fn sum(run: &[Held], next: &Held) -> u64 {
    let newer = run.iter().skip(1).chain([next]);
    run.iter().zip(newer).map(|(held, newer)| own(held, newer)).sum()
}
