//! Test-only: copies of a runner, from which the model checker explores every order of events
//! (docs/adr/0019-model-checking.md).

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
            is_restored: self.is_restored,
            is_foreign: self.is_foreign,
            offered: self.offered,
            stretch: self.stretch,
            yields: self.yields,
            words: self.words.clone(),
            refused: self.refused.clone(),
            open: self.open,
            halted: self.halted.clone(),
            small_writes: self.small_writes,
            behind_since: self.behind_since,
            slice: self.slice,
            guards: self.guards,
            kept: self.kept,
        }
    }
}

impl<C: fmt::Debug> ChainRunner<C> {
    /// Writes everything that the runner's behaviour depends on, except for settings, store, gate, and what the log
    /// says of its epoch. Two runners with equal descriptions over equal stores behave alike, as long as no member
    /// joins their chain.
    ///
    /// # Errors
    /// Errors of `out`.
    pub fn describe(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        // Destructures every field, so a new field that is forgotten here doesn't compile.
        let Self {
            replica,
            callers,
            history,
            is_restored,
            is_foreign,
            offered,
            stretch,
            yields,
            words,
            refused,
            // They follow from the replica's events.
            open: _,
            halted: _,
            // Decides only which line comes first. The model has no lines.
            small_writes: _,
            behind_since,
            // Decides only when other tasks run. A turn of the model has one input.
            slice: _,
            guards: _,
            kept,
        } = self;
        replica.describe(out)?;
        callers.iter().try_for_each(|caller| write!(out, "{caller:?}"))?;
        write!(
            out,
            "{:?}",
            (history, is_restored, is_foreign, offered, stretch, yields, words, refused, behind_since, kept)
        )
    }
}
