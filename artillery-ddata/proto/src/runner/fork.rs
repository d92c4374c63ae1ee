//! Test-only: a second runner that goes on from where this one stands (docs/adr/0019-model-checking.md).

use std::{fmt, sync::Arc};

use super::ChainRunner;
use crate::{replica::Gate, store::Store};

impl<C: Clone> ChainRunner<C> {
    /// A runner in the same state, over a store and behind a gate that are copies of this one's.
    pub fn fork(&self, store: Arc<dyn Store>, gate: Arc<Gate>) -> Self {
        Self {
            replica: self.replica.fork(store, gate),
            callers: self.callers.clone(),
            history: self.history,
            offered: self.offered,
            stretch: self.stretch,
            successor: self.successor,
            words: self.words.clone(),
            refused: self.refused.clone(),
            open: self.open,
            halted: self.halted.clone(),
            small_writes: self.small_writes,
            behind_since: self.behind_since,
            guards: self.guards,
            kept: self.kept,
        }
    }
}

impl<C: fmt::Debug> ChainRunner<C> {
    /// Writes down all that its conduct depends on, but for settings, store, gate, and what the log says of its epoch: two
    /// runners that write the same over the same go on in the same way, as long as no member joins their chain.
    ///
    /// # Errors
    /// What `out` fails with.
    pub fn describe(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        // Names every field: a new one that is forgotten here doesn't compile.
        let Self {
            replica,
            callers,
            history,
            offered,
            stretch,
            successor,
            words,
            refused,
            // They follow from what the replica has said.
            open: _,
            halted: _,
            // Which line comes first; a driver without lines doesn't ask.
            small_writes: _,
            behind_since,
            guards: _,
            kept,
        } = self;
        replica.describe(out)?;
        callers.iter().try_for_each(|caller| write!(out, "{caller:?}"))?;
        write!(out, "{:?}", (history, offered, stretch, successor, words, refused, behind_since, kept))
    }
}
