//! Test-only switches: each takes one guard out, so that the simulator can show that it would notice
//! (docs/adr/0003-mutants.md).

use super::Replica;

/// A guard that can be left out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Mutant {
    /// A read joins a version query that was sent before it arrived (trap 3).
    JoinQueryInFlight,
    /// A read is served at the answer, though the own watermark went past it and the version may be pruned (trap 12).
    AnswerBelowOwnWatermark,
    /// The newest version is served as committed without asking (trap 18).
    DirtyAsCommitted,
    /// Any move of the own watermark ends the wait for a dirty read, even below the version that it saw (trap 29).
    WaitEndsEarly,
    /// A retry isn't known again, and runs once more (trap 7).
    ForgetRecords,
    /// A session's read is served by a member that is behind its floor (trap 17).
    IgnoreFloor,
    /// A failed compare-and-swap is answered before what it saw is committed (trap 20).
    AnswerFailedSwapAtOnce,
    /// A failed compare-and-swap leaves no record, so that a late duplicate may succeed (trap 20).
    ForgetFailedSwaps,
    /// A retry is answered from a record whose update isn't committed (trap 31).
    AnswerPendingRecord,
    /// The request of an evicted session runs as if it were new (trap 32).
    RunEvicted,
    /// Keys that are read together are read at two times (trap 34).
    ReadKeysApart,
    /// Changes are shown before they are committed (trap 18).
    WatchUncommitted,
    /// A piece of a large update is put behind what has come of it, wherever it belongs (trap 41).
    JoinPieces,
}

impl Replica {
    #[cfg(feature = "mutants")]
    pub(super) fn is(&self, mutant: Mutant) -> bool {
        self.settings.mutant == Some(mutant)
    }

    #[cfg(not(feature = "mutants"))]
    pub(super) const fn is(&self, _: Mutant) -> bool {
        false
    }
}
