//! Guards that can be taken out, to see that the simulator notices.

use artillery_proto::{
    control::formation,
    node::{self, CoordinatorMutant},
    replica, runner,
};

use crate::{oracle::Oracle, scenario::Scenario};

/// A guard taken out of the replica, of the coordinator, or of what clients make of refusals.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum MutantName {
    /// A read joins a version query that is already in flight.
    JoinQueryInFlight,
    /// A version query's answer is taken even below the own watermark, whose versions may be pruned.
    AnswerBelowOwnWatermark,
    /// A dirty version is shown as committed.
    DirtyAsCommitted,
    /// Local readers aren't kept out while what was handed on isn't in the store (trap 47).
    ReadBehind,
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
    /// A member serves without a lease, whatever became of it meanwhile.
    IgnoreLease,
    /// What was said in an older epoch is taken in.
    TakeOlderEpoch,
    /// A joiner is promoted however far behind it is.
    PromoteTooEarly,
    /// The watermark acknowledges for a joiner too.
    AcknowledgeForJoiner,
    /// A new head numbers its updates in the epoch of the old one.
    ReuseEpoch,
    /// A snapshot is put over what is there.
    NoWipe,
    /// A tail answers version queries before its epoch is open.
    AnswerBeforeOpen,
    /// A broken link to the joiner ends the wait for it.
    ForgetAsked,
    /// Reads that wait go on waiting when their member enters another epoch.
    KeepWaiting,
    /// A returning member drops what lies above its own watermark before it has met the chain.
    RollBackFirst,
    /// A member is removed while its lease may still run.
    RemoveAtOnce,
    /// A new leader doesn't wait for the leases that others granted.
    NewLeaderDoesNotWait,
    /// A lease is renewed between the end of the fence and the decision.
    RenewWhileDeciding,
    /// A deposed leader grants leases.
    GrantUnconfirmed,
    /// A lease is granted by a confirmation that began before it was asked for.
    JoinRound,
    /// A lease is taken to be out by the granter's clock alone.
    ForgetDrift,
    /// A request for a promotion counts in later epochs too.
    PromoteInAnyEpoch,
    /// What a returning member holds beyond the common history stays in its store.
    KeepDirty,
    /// A member that a newer configuration doesn't name goes on as before.
    ServeWhenExpelled,
    /// What was said in a newer epoch is taken in by a member that hasn't entered it.
    TakeNewerEpoch,
    /// A local read doesn't look again whether its member still serves.
    LookOnce,
    /// A snapshot that begins anew goes on where the last one was broken off.
    SkipFinished,
    /// A joiner counts as whole before it has applied all that its snapshot shows in part.
    WholeTooSoon,
    /// A tail answers version queries without a lease.
    AnswerUnleased,
    /// In a new epoch sending goes on behind what the old successor was sent, and the new one passes over what it misses.
    LoseInFlight,
    /// A joiner keeps nothing of what is written while its snapshot comes.
    KeepNothing,
    /// A local reader takes the time for what it was when the replica last had something to do.
    CacheClock,
    /// A member that is alone answers reads through the chain by itself, whatever it has asked for.
    AnswerAlone,
    /// A node that starts again says that it is who it was.
    SameLife,
    /// A node forgets the proposal that it accepted when another one comes.
    AcceptTwo,
    /// A member of a cluster accepts proposals for another.
    FormAgain,
    /// A member that lives is left where it is, though its neighbour can't reach it.
    TolerateDeadHop,
    /// A member that alone makes its chain slow is left where it is.
    TolerateSlow,
    /// Who holds its chain up again and again keeps away for longer and longer, with no end.
    KeepAwayForLong,
    /// A leader that hears nobody removes all others.
    RemoveUnheard,
    /// The members of a chain change places while its head goes on.
    ReorderOpen,
    /// A member follows its successor's position before its own history is known to be a prefix.
    FollowTooSoon,
    /// Whoever leaves goes on keeping the log.
    KeepLeavers,
    /// After a leave the log is kept by nodes that nothing proves to live.
    KeepUnproven,
    /// What a script told is answered before the script is committed.
    AnswerScriptAtOnce,
    /// The steps of a script's group stand that came before the one that failed.
    KeepFailedGroups,
    /// A page in hash order ends between two keys of one position, and the next one begins behind that.
    PartPositions,
    /// A key that comes while hash order is being made is left out of it.
    ForgetNewKeys,
    /// A node goes by the times that it was started with, not by those of its cluster.
    KeepOwnTimes,
    /// A reading of the clock decides about what a chain receives after it.
    KeepReading,
    /// A node says that it acts by a configuration as soon as one of its chains does.
    ActEarly,
    /// A member gets a lease though it may still act as what it was before.
    GrantToFormerSelf,
    /// A node that is told to stop ends at once, also the last one with a chain's data.
    EndAtOnce,
    /// Trap 71: a node gives way to a cluster that succeeds its own though other nodes of its cluster are there.
    YieldAtOnce,
    /// A node says that it is ready though the leader says that no other one should be stopped.
    ReadyUnsettled,
    /// A leader says that any node may be stopped before it can have heard of all.
    SettleAtOnce,
}

/// What is taken out.
#[derive(Clone, Copy, Debug)]
enum Guard {
    Replica(replica::Mutant),
    Coordinator(CoordinatorMutant),
    Runner(runner::Mutant),
    Decider(node::Mutant),
    Formation(formation::Mutant),
    Client,
    Node,
}

/// A line of the table of mutants.
struct Line {
    mutant: MutantName,
    name: &'static str,
    trap: u32,
    scenario: Scenario,
    guard: Guard,
}

const fn line(mutant: MutantName, name: &'static str, trap: u32, scenario: Scenario, guard: Guard) -> Line {
    Line { mutant, name, trap, scenario, guard }
}

const TABLE: [Line; 66] = {
    use CoordinatorMutant as C;
    use MutantName as M;
    use Scenario as S;
    use formation::Mutant as F;
    use replica::Mutant as R;
    [
        line(M::JoinQueryInFlight, "join-query-in-flight", 3, S::Storm, Guard::Replica(R::JoinQueryInFlight)),
        line(
            M::AnswerBelowOwnWatermark,
            "answer-below-own-watermark",
            12,
            S::Storm,
            Guard::Replica(R::AnswerBelowOwnWatermark),
        ),
        line(M::DirtyAsCommitted, "dirty-as-committed", 18, S::Storm, Guard::Replica(R::DirtyAsCommitted)),
        line(M::ReadBehind, "read-behind", 47, S::Stalls, Guard::Replica(R::ReadBehind)),
        line(M::WaitEndsEarly, "wait-ends-early", 29, S::Storm, Guard::Replica(R::WaitEndsEarly)),
        line(M::ForgetRecords, "forget-records", 7, S::Retries, Guard::Replica(R::ForgetRecords)),
        line(M::IgnoreFloor, "ignore-floor", 17, S::Sessions, Guard::Replica(R::IgnoreFloor)),
        line(
            M::AnswerFailedSwapAtOnce,
            "answer-failed-swap-at-once",
            20,
            S::Retries,
            Guard::Replica(R::AnswerFailedSwapAtOnce),
        ),
        line(M::ForgetFailedSwaps, "forget-failed-swaps", 20, S::Retries, Guard::Replica(R::ForgetFailedSwaps)),
        line(M::AnswerPendingRecord, "answer-pending-record", 31, S::Retries, Guard::Replica(R::AnswerPendingRecord)),
        line(M::RunEvicted, "run-evicted", 32, S::Evictions, Guard::Replica(R::RunEvicted)),
        line(M::BelieveRefusals, "believe-refusals", 33, S::Retries, Guard::Client),
        line(M::ReadKeysApart, "read-keys-apart", 34, S::Batches, Guard::Replica(R::ReadKeysApart)),
        line(M::WatchUncommitted, "watch-uncommitted", 18, S::Watches, Guard::Replica(R::WatchUncommitted)),
        line(M::JoinPieces, "join-pieces", 41, S::Large, Guard::Replica(R::JoinPieces)),
        line(M::IgnoreLease, "ignore-lease", 1, S::Partitions, Guard::Replica(R::IgnoreLease)),
        line(M::TakeOlderEpoch, "take-older-epoch", 22, S::Unrest, Guard::Replica(R::TakeOlderEpoch)),
        line(M::PromoteTooEarly, "promote-too-early", 5, S::Failover, Guard::Replica(R::PromoteTooEarly)),
        line(
            M::AcknowledgeForJoiner,
            "acknowledge-for-joiner",
            5,
            S::Failover,
            Guard::Replica(R::AcknowledgeForJoiner),
        ),
        line(M::ReuseEpoch, "reuse-epoch", 6, S::Failover, Guard::Replica(R::ReuseEpoch)),
        line(M::NoWipe, "no-wipe", 11, S::Resync, Guard::Replica(R::NoWipe)),
        line(M::AnswerBeforeOpen, "answer-before-open", 23, S::Whispers, Guard::Replica(R::AnswerBeforeOpen)),
        line(M::ForgetAsked, "forget-asked", 24, S::Sole, Guard::Replica(R::ForgetAsked)),
        line(M::KeepWaiting, "keep-waiting", 27, S::Stalls, Guard::Replica(R::KeepWaiting)),
        line(M::RollBackFirst, "roll-back-first", 37, S::Partitions, Guard::Replica(R::RollBackFirst)),
        line(M::RemoveAtOnce, "remove-at-once", 4, S::Partitions, Guard::Coordinator(C::RemoveAtOnce)),
        line(
            M::NewLeaderDoesNotWait,
            "new-leader-does-not-wait",
            4,
            S::LastWords,
            Guard::Coordinator(C::NewLeaderDoesNotWait),
        ),
        line(M::RenewWhileDeciding, "renew-while-deciding", 35, S::Unrest, Guard::Coordinator(C::RenewWhileDeciding)),
        line(M::GrantUnconfirmed, "grant-unconfirmed", 14, S::Unrest, Guard::Coordinator(C::GrantUnconfirmed)),
        line(M::JoinRound, "join-round", 14, S::Halves, Guard::Coordinator(C::JoinRound)),
        line(M::ForgetDrift, "forget-drift", 4, S::Clocks, Guard::Coordinator(C::ForgetDrift)),
        line(M::PromoteInAnyEpoch, "promote-in-any-epoch", 5, S::Sole, Guard::Coordinator(C::PromoteInAnyEpoch)),
        line(M::KeepDirty, "keep-dirty", 10, S::Forks, Guard::Replica(R::KeepDirty)),
        line(M::ServeWhenExpelled, "serve-when-expelled", 1, S::Turmoil, Guard::Replica(R::ServeWhenExpelled)),
        line(M::TakeNewerEpoch, "take-newer-epoch", 36, S::Unrest, Guard::Replica(R::TakeNewerEpoch)),
        line(M::LookOnce, "look-once", 28, S::Stalls, Guard::Replica(R::LookOnce)),
        line(M::SkipFinished, "skip-finished", 38, S::Disturbed, Guard::Replica(R::SkipFinished)),
        line(M::WholeTooSoon, "whole-too-soon", 43, S::Overlaps, Guard::Replica(R::WholeTooSoon)),
        line(M::AnswerUnleased, "answer-unleased", 2, S::Halves, Guard::Replica(R::AnswerUnleased)),
        line(M::LoseInFlight, "lose-in-flight", 8, S::Failover, Guard::Replica(R::LoseInFlight)),
        line(M::KeepNothing, "keep-nothing", 16, S::Race, Guard::Replica(R::KeepNothing)),
        line(M::CacheClock, "cache-clock", 19, S::Unrest, Guard::Replica(R::CacheClock)),
        line(M::AnswerAlone, "answer-alone", 26, S::LastWords, Guard::Replica(R::AnswerAlone)),
        line(M::SameLife, "same-life", 21, S::Failover, Guard::Node),
        line(M::AcceptTwo, "accept-two", 13, S::Crowd, Guard::Formation(F::AcceptTwo)),
        line(M::FormAgain, "form-again", 13, S::Crowd, Guard::Formation(F::FormAgain)),
        line(M::TolerateDeadHop, "tolerate-dead-hop", 39, S::Gray, Guard::Coordinator(C::TolerateDeadHop)),
        line(M::TolerateSlow, "tolerate-slow", 39, S::Gray, Guard::Coordinator(C::TolerateSlow)),
        line(M::KeepAwayForLong, "keep-away-for-long", 49, S::Relapses, Guard::Coordinator(C::KeepAwayForLong)),
        line(M::RemoveUnheard, "remove-unheard", 51, S::Relapses, Guard::Coordinator(C::RemoveUnheard)),
        line(M::ReorderOpen, "reorder-open", 15, S::Orders, Guard::Coordinator(C::ReorderOpen)),
        line(M::FollowTooSoon, "follow-too-soon", 52, S::Shuffles, Guard::Replica(R::FollowTooSoon)),
        line(M::KeepLeavers, "keep-leavers", 44, S::Leaves, Guard::Coordinator(C::KeepLeavers)),
        line(M::KeepUnproven, "keep-unproven", 60, S::Leaves, Guard::Coordinator(C::KeepUnproven)),
        line(M::AnswerScriptAtOnce, "answer-script-at-once", 20, S::Scripts, Guard::Replica(R::AnswerScriptAtOnce)),
        line(M::KeepFailedGroups, "keep-failed-groups", 45, S::Scripts, Guard::Replica(R::KeepFailedGroups)),
        line(M::PartPositions, "part-positions", 46, S::Walks, Guard::Replica(R::PartPositions)),
        line(M::ForgetNewKeys, "forget-new-keys", 46, S::Walks, Guard::Node),
        line(M::KeepOwnTimes, "keep-own-times", 63, S::Unrest, Guard::Coordinator(C::KeepOwnTimes)),
        line(M::KeepReading, "keep-reading", 56, S::Unrest, Guard::Runner(runner::Mutant::KeepReading)),
        line(M::ActEarly, "act-early", 65, S::Lags, Guard::Decider(node::Mutant::ActEarly)),
        line(M::GrantToFormerSelf, "grant-to-former-self", 28, S::Lags, Guard::Coordinator(C::GrantToFormerSelf)),
        line(M::EndAtOnce, "end-at-once", 69, S::Rolling, Guard::Decider(node::Mutant::EndAtOnce)),
        line(M::YieldAtOnce, "yield-at-once", 71, S::Succession, Guard::Decider(node::Mutant::YieldAtOnce)),
        line(M::ReadyUnsettled, "ready-unsettled", 70, S::Rolling, Guard::Decider(node::Mutant::ReadyUnsettled)),
        line(M::SettleAtOnce, "settle-at-once", 67, S::Rolling, Guard::Coordinator(C::SettleAtOnce)),
    ]
};

impl MutantName {
    /// All of them.
    pub const ALL: [Self; TABLE.len()] = {
        let mut all = [TABLE[0].mutant; TABLE.len()];
        let mut at = 1;
        while at < all.len() {
            all[at] = TABLE[at].mutant;
            at += 1;
        }
        all
    };

    const fn line(self) -> &'static Line {
        &TABLE[self as usize]
    }

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        self.line().name
    }

    /// The number of the trap in the list of known bugs (docs/DESIGN.md §12).
    pub const fn trap(self) -> u32 {
        self.line().trap
    }

    /// The scenario that it is hunted in unless another one is named.
    pub const fn scenario(self) -> Scenario {
        self.line().scenario
    }

    /// The guard of the replica that it takes out, if it is one of the replica's.
    pub const fn guard(self) -> Option<replica::Mutant> {
        match self.line().guard {
            Guard::Replica(mutant) => Some(mutant),
            _ => None,
        }
    }

    /// The guard of the coordinator that it takes out, if it is one of the coordinator's.
    pub const fn coordinator(self) -> Option<CoordinatorMutant> {
        match self.line().guard {
            Guard::Coordinator(mutant) => Some(mutant),
            _ => None,
        }
    }

    /// The guard of the runner of chains that it takes out, if it is one of that.
    pub const fn runner(self) -> Option<runner::Mutant> {
        match self.line().guard {
            Guard::Runner(mutant) => Some(mutant),
            _ => None,
        }
    }

    /// The guard of the node that it takes out, if it is one of that.
    pub const fn node(self) -> Option<node::Mutant> {
        match self.line().guard {
            Guard::Decider(mutant) => Some(mutant),
            _ => None,
        }
    }

    /// The guard of formation that it takes out, if it is one of that.
    pub const fn formation(self) -> Option<formation::Mutant> {
        match self.line().guard {
            Guard::Formation(mutant) => Some(mutant),
            _ => None,
        }
    }

    /// Whether this oracle's word is enough: what clients saw, or an invariant of the chain. Six traps break neither. Five
    /// show by the bound on recovery: a catch-up that never ends (16), a log that has lost its majority to those that left
    /// (44) or to the dead (60), a member that is kept away (49), a leader that hears no other node and stays alone (51).
    /// And of two groups of one cluster's nodes (13) no client ever meets the other.
    pub const fn is_convicted_by(self, oracle: Oracle) -> bool {
        match oracle {
            Oracle::Liveness => matches!(self.trap(), 16 | 44 | 49 | 51 | 60),
            Oracle::Formation => self.trap() == 13,
            _ => oracle.convicts(),
        }
    }

    /// The mutant called `name`.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mutant| mutant.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order() {
        for mutant in MutantName::ALL {
            assert_eq!(mutant.line().mutant, mutant);
            assert_eq!(MutantName::named(mutant.name()), Some(mutant));
        }
    }
}
