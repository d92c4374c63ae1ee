//! Test-only: copies of a runner, from which the model checker explores every order of events
//! (docs/adr/0019-model-checking.md).

use std::{fmt, sync::Arc};

use super::ChainRunner;
use crate::{replica::Gate, store::Store};

impl<C: Clone> ChainRunner<C> {
    /// A runner in the same state, over copies of this one's store and gate.
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
    /// Writes everything on which the runner's behaviour depends, except for settings, store, gate, and the log's
    /// state. Two runners with equal descriptions over equal stores behave alike while no member joins their chain.
    ///
    /// # Errors
    /// Errors of `out`.
    pub fn describe(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        // Destructuring makes a forgotten new field a compile error.
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
            // Only decides which line goes first. The model has no lines.
            small_writes: _,
            behind_since,
            // Only decides when other tasks run. A turn of the model has one input.
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
