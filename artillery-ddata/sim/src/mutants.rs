//! Guards that can be taken out, to see that the simulator notices.

use artillery_ddata::replica::Mutant;

use crate::scenario::Scenario;

/// A guard taken out of the replica.
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
}

impl MutantName {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::JoinQueryInFlight, Self::AnswerBelowOwnWatermark, Self::DirtyAsCommitted, Self::WaitEndsEarly];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::JoinQueryInFlight => "join-query-in-flight",
            Self::AnswerBelowOwnWatermark => "answer-below-own-watermark",
            Self::DirtyAsCommitted => "dirty-as-committed",
            Self::WaitEndsEarly => "wait-ends-early",
        }
    }

    /// The number of the trap in the list of known bugs (docs/DESIGN.md §12).
    pub const fn trap(self) -> u32 {
        match self {
            Self::JoinQueryInFlight => 3,
            Self::AnswerBelowOwnWatermark => 12,
            Self::DirtyAsCommitted => 18,
            Self::WaitEndsEarly => 29,
        }
    }

    /// The scenario that it is hunted in unless another one is named.
    pub const fn scenario(self) -> Scenario {
        match self {
            Self::JoinQueryInFlight | Self::AnswerBelowOwnWatermark | Self::DirtyAsCommitted | Self::WaitEndsEarly => {
                Scenario::Storm
            }
        }
    }

    /// The guard that it takes out.
    pub const fn guard(self) -> Mutant {
        match self {
            Self::JoinQueryInFlight => Mutant::JoinQueryInFlight,
            Self::AnswerBelowOwnWatermark => Mutant::AnswerBelowOwnWatermark,
            Self::DirtyAsCommitted => Mutant::DirtyAsCommitted,
            Self::WaitEndsEarly => Mutant::WaitEndsEarly,
        }
    }

    /// The mutant called `name`.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mutant| mutant.name() == name)
    }
}
