//! Local reads in two halves, so that a simulator can have anything happen between them, and guards that can be left out.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Gate, Looked, Mutant, NotLocal};
use crate::{
    Timestamp,
    store::{Held, Store},
};

/// A local read in its middle.
#[derive(Debug)]
pub struct Begun(Looked);

/// Which guard is out, and what it takes to do without it.
#[derive(Debug, Default)]
pub(super) struct Without {
    mutant: std::sync::OnceLock<Mutant>,
    /// The time at which the replica took something in last.
    noted: AtomicU64,
}

impl Gate {
    /// The first half of [`read`](Self::read): all but the lease and the second look at whether this member serves.
    ///
    /// # Errors
    /// [`NotLocal`]: ask a node.
    pub fn begin(&self, store: &dyn Store, key: &[u8]) -> Result<Begun, NotLocal> {
        self.look(store, key).map(Begun)
    }

    /// The second half.
    ///
    /// # Errors
    /// [`NotLocal`]: ask a node.
    pub fn end(&self, begun: Begun, now: impl FnOnce() -> Timestamp) -> Result<Option<Held>, NotLocal> {
        self.leave(begun.0, now)
    }

    /// Takes a guard out.
    pub(crate) fn take_out(&self, mutant: Mutant) {
        // A gate belongs to one replica.
        self.without.mutant.get_or_init(|| mutant);
    }

    /// The guard that is out.
    pub(in super::super) fn taken_out(&self) -> Option<Mutant> {
        self.without.mutant.get().copied()
    }

    pub(super) fn is(&self, mutant: Mutant) -> bool {
        self.without.mutant.get() == Some(&mutant)
    }

    /// Mutant: the time, as of when the replica last looked at a clock.
    pub(crate) fn note_time(&self, now: Timestamp) {
        self.without.noted.store(now.as_nanos(), Ordering::Relaxed);
    }

    pub(super) fn noted_time(&self) -> Option<Timestamp> {
        self.is(Mutant::CacheClock).then(|| Timestamp::from_nanos(self.without.noted.load(Ordering::Relaxed)))
    }
}
