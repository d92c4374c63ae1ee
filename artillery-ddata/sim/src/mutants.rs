//! The mutants that are hunted with seeds, and the scenario for each.

use artillery_proto::guards::Mutant;

use crate::{oracle::Oracle, scenario::Scenario};

/// A mutant and its default scenario.
pub type Hunted = (Mutant, Scenario);

/// Default limit on the seeds of a hunt.
pub const MAX_SEEDS: u64 = 500;

/// Limit for mutants that are not rare. Far below [`MAX_SEEDS`], so that weakened oracles are noticed early.
pub const USUAL_SEEDS: u64 = 60;

/// Mutants that few seeds convict. Their limit is [`MAX_SEEDS`].
const RARE: [Mutant; 4] =
    [Mutant::RemoveUnheard, Mutant::NewLeaderDoesNotWait, Mutant::TakeOlderEpoch, Mutant::ForgetDrift];

/// The limit on seeds within which `mutant` must be convicted in its own scenario.
pub fn expected_seeds(mutant: Mutant) -> u64 {
    if RARE.contains(&mutant) { MAX_SEEDS } else { USUAL_SEEDS }
}

/// All mutants hunted with seeds, in hunting order. Unit tests cover the others (`tests/simulator/catalogue.rs`).
pub const HUNTED: [Hunted; 94] = {
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
        (M::RemoveNewer, S::Expiry),
        (M::TrustWakeUp, S::Locks),
        (M::WatchFromNow, S::Locks),
        (M::PassDeadWaiter, S::Locks),
        (M::CountFromAnswer, S::Locks),
        (M::SuspendClock, S::Locks),
        (M::TrustUnknownRenewal, S::Locks),
        (M::PositionLate, S::Locks),
        (M::ReadPagesBehind, S::Locks),
        (M::KeepMissing, S::Locks),
    ]
};

/// The hunted mutant called `name`.
pub fn hunted(name: &str) -> Option<Hunted> {
    HUNTED.into_iter().find(|(mutant, _)| mutant.name() == name)
}

/// Whether a failure of this oracle convicts this mutant. Usually only an oracle that [convicts](Oracle::convicts) any
/// mutant does. The mutants of ten traps break no rule of such an oracle. Nine of them show only as a missing or slow
/// recovery, so [`Oracle::Liveness`] convicts them: a catch-up that never ends (16), a log that has lost its majority
/// to nodes that left (44), died (60) or died young (89), a member that is kept out (49), an isolated leader that never
/// resigns (51), a joiner that is removed repeatedly (90), a chain that stays sealed (96), a lock without a holder (108). Trap 13 splits one cluster's
/// nodes into two clusters, which no client can observe, so [`Oracle::Formation`] convicts it.
pub const fn is_convicted_by(mutant: Mutant, oracle: Oracle) -> bool {
    match oracle {
        Oracle::Liveness => matches!(mutant.trap(), 16 | 44 | 49 | 51 | 60 | 89 | 90 | 96 | 108),
        Oracle::Formation => mutant.trap() == 13,
        _ => oracle.convicts(),
    }
}
