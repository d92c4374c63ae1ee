//! Local reads in two halves, so that a simulator can have anything happen between them.

use super::{Gate, Looked, Mutant, NotLocal};
use crate::{
    Timestamp,
    store::{Held, Store},
};

/// A local read in its middle.
#[derive(Debug)]
pub struct Begun(Option<Looked>);

impl Gate {
    /// The first half of [`read`](Self::read), at `now`: all but the lease and the second look at whether this member serves.
    ///
    /// # Errors
    /// [`NotLocal`]: ask a node.
    pub fn begin(&self, store: &dyn Store, key: &[u8], now: Timestamp) -> Result<Begun, NotLocal> {
        if !self.is(Mutant::LeaseBeforeLook) {
            return self.look(store, key).map(|looked| Begun(Some(looked)));
        }
        if now >= self.lease_until() { Err(NotLocal::NoLease) } else { Ok(Begun(None)) }
    }

    /// The second half.
    ///
    /// # Errors
    /// [`NotLocal`]: ask a node.
    pub fn end(
        &self,
        begun: Begun,
        store: &dyn Store,
        key: &[u8],
        now: impl FnOnce() -> Timestamp,
    ) -> Result<Option<Held>, NotLocal> {
        match begun.0 {
            Some(looked) => self.leave(looked, now),
            // The lease was looked at already.
            None => self.leave(self.look(store, key)?, || Timestamp::ZERO),
        }
    }

    /// Takes a guard out.
    pub(crate) fn take_out(&self, mutant: Mutant) {
        // A gate belongs to one replica.
        self.mutant.get_or_init(|| mutant);
    }

    pub(super) fn is(&self, mutant: Mutant) -> bool {
        self.mutant.get() == Some(&mutant)
    }
}
