//! Local reads in two halves, so that a simulator can interleave other events, and the clock of the mutant
//! `CacheClock`.

use std::sync::atomic::Ordering;

use super::{Gate, Looked, NotLocal};
use crate::{
    Timestamp,
    store::{Held, Store},
};

#[derive(Debug)]
pub struct Begun(Looked);

impl Gate {
    /// The first half of [`read`](Self::read): everything except the lease and the second load of `serving`.
    ///
    /// # Errors
    /// [`NotLocal`]: the read must be served by another path.
    pub fn begin(&self, store: &dyn Store, key: &[u8]) -> Result<Begun, NotLocal> {
        self.look(store, key).map(Begun)
    }

    /// The second half of [`read`](Self::read): checks the lease and loads `serving` again.
    ///
    /// # Errors
    /// [`NotLocal`]: the read must be served by another path.
    pub fn end(&self, begun: Begun, now: impl FnOnce() -> Timestamp) -> Result<Option<Held>, NotLocal> {
        self.leave(begun.0, now)
    }

    /// For a mutant: notes the time of the replica's last input.
    pub(crate) fn note_time(&self, now: Timestamp) {
        self.noted.store(now.as_nanos(), Ordering::Relaxed);
    }

    pub(super) fn noted_time(&self) -> Option<Timestamp> {
        allows!(self.guards, CacheClock).then(|| Timestamp::from_nanos(self.noted.load(Ordering::Relaxed)))
    }
}
