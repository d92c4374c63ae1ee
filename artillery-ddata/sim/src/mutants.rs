//! Guards that can be taken out, to see that the simulator notices.

use artillery_ddata::replica::Mutant;

use crate::scenario::Scenario;

/// A guard taken out of the replica, or of what clients make of its refusals.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum MutantName {
    /// A read joins a version query that is already in flight.
    JoinQueryInFlight,
    /// A version query's answer is taken even below the own watermark, whose versions may be pruned.
    AnswerBelowOwnWatermark,
    /// A dirty version is shown as committed.
    DirtyAsCommitted,
    /// A wait for a dirty read ends on any watermark, also one below the version that it saw.
    WaitEndsEarly,
    /// A retry is not known again, and runs once more.
    ForgetRecords,
    /// A session is served by a member that is behind its floor.
    IgnoreFloor,
    /// A failed compare-and-swap is answered before what it saw is committed.
    AnswerFailedSwapAtOnce,
    /// A failed compare-and-swap leaves no record.
    ForgetFailedSwaps,
    /// A retry is answered from a record whose update is not committed.
    AnswerPendingRecord,
    /// An evicted session's request runs as if it were new.
    RunEvicted,
    /// A refusal is believed though an earlier attempt was not answered.
    BelieveRefusals,
    /// Keys that are read together are read at two times.
    ReadKeysApart,
    /// Changes are shown before they are committed.
    WatchUncommitted,
    /// A piece of a large update is put behind what has come of it, wherever it belongs.
    JoinPieces,
}

impl MutantName {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::JoinQueryInFlight,
        Self::AnswerBelowOwnWatermark,
        Self::DirtyAsCommitted,
        Self::WaitEndsEarly,
        Self::ForgetRecords,
        Self::IgnoreFloor,
        Self::AnswerFailedSwapAtOnce,
        Self::ForgetFailedSwaps,
        Self::AnswerPendingRecord,
        Self::RunEvicted,
        Self::BelieveRefusals,
        Self::ReadKeysApart,
        Self::WatchUncommitted,
        Self::JoinPieces,
    ];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::JoinQueryInFlight => "join-query-in-flight",
            Self::AnswerBelowOwnWatermark => "answer-below-own-watermark",
            Self::DirtyAsCommitted => "dirty-as-committed",
            Self::WaitEndsEarly => "wait-ends-early",
            Self::ForgetRecords => "forget-records",
            Self::IgnoreFloor => "ignore-floor",
            Self::AnswerFailedSwapAtOnce => "answer-failed-swap-at-once",
            Self::ForgetFailedSwaps => "forget-failed-swaps",
            Self::AnswerPendingRecord => "answer-pending-record",
            Self::RunEvicted => "run-evicted",
            Self::BelieveRefusals => "believe-refusals",
            Self::ReadKeysApart => "read-keys-apart",
            Self::WatchUncommitted => "watch-uncommitted",
            Self::JoinPieces => "join-pieces",
        }
    }

    /// The number of the trap in the list of known bugs (docs/DESIGN.md §12).
    pub const fn trap(self) -> u32 {
        match self {
            Self::JoinQueryInFlight => 3,
            Self::AnswerBelowOwnWatermark => 12,
            Self::DirtyAsCommitted => 18,
            Self::WaitEndsEarly => 29,
            Self::ForgetRecords => 7,
            Self::IgnoreFloor => 17,
            Self::AnswerFailedSwapAtOnce => 20,
            Self::ForgetFailedSwaps => 20,
            Self::AnswerPendingRecord => 31,
            Self::RunEvicted => 32,
            Self::BelieveRefusals => 33,
            Self::ReadKeysApart => 34,
            Self::WatchUncommitted => 18,
            Self::JoinPieces => 41,
        }
    }

    /// The scenario that it is hunted in unless another one is named.
    pub const fn scenario(self) -> Scenario {
        match self {
            Self::JoinQueryInFlight | Self::AnswerBelowOwnWatermark | Self::DirtyAsCommitted | Self::WaitEndsEarly => {
                Scenario::Storm
            }
            Self::ForgetRecords => Scenario::Retries,
            Self::IgnoreFloor => Scenario::Sessions,
            Self::AnswerFailedSwapAtOnce => Scenario::Retries,
            Self::ForgetFailedSwaps => Scenario::Retries,
            Self::AnswerPendingRecord => Scenario::Retries,
            Self::RunEvicted => Scenario::Evictions,
            Self::BelieveRefusals => Scenario::Retries,
            Self::ReadKeysApart => Scenario::Batches,
            Self::WatchUncommitted => Scenario::Watches,
            Self::JoinPieces => Scenario::Large,
        }
    }

    /// The guard of the replica that it takes out; `None`: it is the client that lacks one.
    pub const fn guard(self) -> Option<Mutant> {
        Some(match self {
            Self::JoinQueryInFlight => Mutant::JoinQueryInFlight,
            Self::AnswerBelowOwnWatermark => Mutant::AnswerBelowOwnWatermark,
            Self::DirtyAsCommitted => Mutant::DirtyAsCommitted,
            Self::WaitEndsEarly => Mutant::WaitEndsEarly,
            Self::ForgetRecords => Mutant::ForgetRecords,
            Self::IgnoreFloor => Mutant::IgnoreFloor,
            Self::AnswerFailedSwapAtOnce => Mutant::AnswerFailedSwapAtOnce,
            Self::ForgetFailedSwaps => Mutant::ForgetFailedSwaps,
            Self::AnswerPendingRecord => Mutant::AnswerPendingRecord,
            Self::RunEvicted => Mutant::RunEvicted,
            Self::ReadKeysApart => Mutant::ReadKeysApart,
            Self::WatchUncommitted => Mutant::WatchUncommitted,
            Self::JoinPieces => Mutant::JoinPieces,
            Self::BelieveRefusals => return None,
        })
    }

    /// The mutant called `name`.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mutant| mutant.name() == name)
    }
}
