//! The mutants that seeds hunt, and where.

use artillery_proto::guards::Mutant;

use crate::{oracle::Oracle, scenario::Scenario};

/// A mutant, and the scenario that it is hunted in unless another one is named.
pub type Hunted = (Mutant, Scenario);

/// Most seeds of a hunt, unless another number is given.
pub const MAX_SEEDS: u64 = 500;

/// Seeds within which a mutant is convicted in its own scenario if it is not a rare one. Far below [`MAX_SEEDS`], so that weaker
/// oracles and scenarios are noticed early.
pub const USUAL_SEEDS: u64 = 60;

/// Mutants that few seeds convict. A hunt for one may take up to [`MAX_SEEDS`].
const RARE: [Mutant; 4] =
    [Mutant::RemoveUnheard, Mutant::NewLeaderDoesNotWait, Mutant::TakeOlderEpoch, Mutant::ForgetDrift];

/// Most seeds that it may take to convict a mutant in its own scenario.
pub fn expected_seeds(mutant: Mutant) -> u64 {
    if RARE.contains(&mutant) { MAX_SEEDS } else { USUAL_SEEDS }
}

/// All that seeds hunt, in the order of the hunt. Tests take out the others (`tests/simulator/catalogue.rs`).
pub const HUNTED: [Hunted; 84] = {
    use Mutant as M;
    use Scenario as S;
    [
        (M::JoinQueryInFlight, S::Storm),
        (M::AnswerBelowOwnWatermark, S::Storm),
        (M::DirtyAsCommitted, S::Storm),
        (M::ReadBehind, S::Stalls),
        (M::WaitEndsEarly, S::Storm),
        (M::ForgetRecords, S::Retries),
        (M::IgnoreFloor, S::Sessions),
        (M::AnswerFailedSwapAtOnce, S::Retries),
        (M::ForgetFailedSwaps, S::Retries),
        (M::AnswerPendingRecord, S::Retries),
        (M::RunEvicted, S::Evictions),
        (M::BelieveRefusals, S::Retries),
        (M::ReadKeysApart, S::Batches),
        (M::WatchUncommitted, S::Watches),
        (M::JoinPieces, S::Large),
        (M::IgnoreLease, S::Partitions),
        (M::TakeOlderEpoch, S::Unrest),
        (M::PromoteTooEarly, S::Failover),
        (M::AcknowledgeForJoiner, S::Failover),
        (M::ReuseEpoch, S::Failover),
        (M::NoWipe, S::Resync),
        (M::AnswerBeforeOpen, S::Whispers),
        (M::ForgetAsked, S::Sole),
        (M::KeepWaiting, S::Stalls),
        (M::RollBackFirst, S::Partitions),
        (M::RemoveAtOnce, S::Partitions),
        (M::NewLeaderDoesNotWait, S::LastWords),
        (M::RenewWhileDeciding, S::Clocks),
        (M::GrantUnconfirmed, S::Unrest),
        (M::JoinRound, S::Halves),
        (M::ForgetDrift, S::Clocks),
        (M::PromoteInAnyEpoch, S::Sole),
        (M::KeepDirty, S::Forks),
        (M::ServeWhenExpelled, S::Turmoil),
        (M::TakeNewerEpoch, S::Unrest),
        (M::LookOnce, S::Stalls),
        (M::SkipFinished, S::Disturbed),
        (M::WholeTooSoon, S::Overlaps),
        (M::AnswerUnleased, S::Halves),
        (M::LoseInFlight, S::Failover),
        (M::KeepNothing, S::Race),
        (M::CacheClock, S::Unrest),
        (M::AnswerAlone, S::LastWords),
        (M::SameLife, S::Failover),
        (M::ProposeUnsearched, S::Unequal),
        (M::NameOnlyExpected, S::Unequal),
        (M::AcceptFewer, S::Unequal),
        (M::TolerateDeadHop, S::Gray),
        (M::TolerateSlow, S::Gray),
        (M::TolerateSlowDisk, S::Gray),
        (M::KeepAwayForLong, S::Relapses),
        (M::RemoveUnheard, S::Relapses),
        (M::ReorderOpen, S::Orders),
        (M::FollowTooSoon, S::Shuffles),
        (M::KeepLeavers, S::Leaves),
        (M::KeepUnproven, S::Leaves),
        (M::AnswerScriptAtOnce, S::Scripts),
        (M::KeepFailedGroups, S::Scripts),
        (M::PartPositions, S::Walks),
        (M::ForgetNewKeys, S::Walks),
        (M::KeepOwnTimes, S::Unrest),
        (M::KeepReading, S::Unrest),
        (M::ActEarly, S::Lags),
        (M::GrantToFormerSelf, S::Lags),
        (M::EndAtOnce, S::Rolling),
        (M::YieldAtOnce, S::Succession),
        (M::GiveWayUnsealed, S::Strangers),
        (M::CountUnsealed, S::Strangers),
        (M::GiveWayWithData, S::Strangers),
        (M::BothGiveWay, S::Strangers),
        (M::NeverUnseal, S::Strangers),
        (M::ReadyUnsettled, S::Rolling),
        (M::SettleAtOnce, S::Rolling),
        (M::CommitUndurable, S::Power),
        (M::IgnoreMarks, S::Power),
        (M::CountUnproven, S::Power),
        (M::ReleaseAll, S::Power),
        (M::ReopenWeak, S::Power),
        (M::ForgetWeak, S::Power),
        (M::MixHistories, S::Losses),
        (M::TrustOneWay, S::Addresses),
        (M::LeadUnreached, S::Addresses),
        (M::VoteYoung, S::Young),
        (M::NeverPause, S::Busy),
    ]
};

/// The hunted mutant called `name`.
pub fn hunted(name: &str) -> Option<Hunted> {
    HUNTED.into_iter().find(|(mutant, _)| mutant.name() == name)
}

/// Whether a failure of this oracle convicts this mutant. As a rule only what clients saw and the invariants of a chain convict.
/// The mutants of nine traps break neither. Eight of them show only as a recovery that takes too long, so [`Oracle::Liveness`]
/// convicts: a catch-up that never ends (16), a log that has lost its majority to nodes that left (44), died (60) or died young
/// (89), a member that is kept away (49), a leader that hears no other node and stays alone (51), a joiner that is removed again
/// and again (90), a chain that stays sealed (96). Trap 13 makes two clusters of one cluster's nodes, which no client can see, so
/// [`Oracle::Formation`] convicts.
pub const fn is_convicted_by(mutant: Mutant, oracle: Oracle) -> bool {
    match oracle {
        Oracle::Liveness => matches!(mutant.trap(), 16 | 44 | 49 | 51 | 60 | 89 | 90 | 96),
        Oracle::Formation => mutant.trap() == 13,
        _ => oracle.convicts(),
    }
}
