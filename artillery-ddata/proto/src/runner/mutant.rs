//! Test-only switches: each takes one guard out (docs/adr/0003-mutants.md).

use super::{ChainRunner, Lease, Turn};
use crate::Timestamp;

/// A guard that can be left out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Mutant {
    /// The reading of the clock for one turn decides about the next one too (trap 56).
    KeepReading,
    /// The lease is taken in turns in which nothing else was received (trap 57).
    LeaseLast,
    /// A floor, or a position, of another history is taken for one of this history (traps 58, 59).
    MixHistories,
    /// A lease that was granted before the node resigned counts again once it has taken that back (trap 62).
    TakeAnyStretch,
}

impl<C> ChainRunner<C> {
    /// With [`Mutant::KeepReading`] that of the turn before.
    pub(super) fn reading(&mut self, clock: impl Fn() -> Timestamp) -> Timestamp {
        let now = clock();
        match self.mutant {
            Some(Mutant::KeepReading) => self.kept.replace(now).unwrap_or(now),
            _ => now,
        }
    }

    pub(super) fn next_lease<R, W>(&self, turn: &mut Turn<R, W>) -> Option<Lease> {
        let others =
            !(turn.orders.is_empty() && turn.frames.is_empty() && turn.reads.is_empty() && turn.writes.is_empty());
        if self.mutant == Some(Mutant::LeaseLast) && others {
            return None;
        }
        turn.lease.take()
    }

    pub(super) fn mixes_histories(&self) -> bool {
        self.mutant == Some(Mutant::MixHistories)
    }

    pub(super) fn takes_any_stretch(&self) -> bool {
        self.mutant == Some(Mutant::TakeAnyStretch)
    }
}
