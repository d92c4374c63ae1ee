//! Guards that can be taken out, to see that the simulator notices.

use artillery_ddata::{control::coordinator, replica};

use crate::scenario::Scenario;

/// A guard taken out of the replica, of the coordinator, or of what clients make of refusals.
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
    /// A member serves without a lease, whatever became of it meanwhile.
    IgnoreLease,
    /// What was said in an older epoch is taken in.
    TakeOlderEpoch,
    /// A joiner is promoted however far behind it is.
    PromoteTooEarly,
    /// A new head numbers its updates in the epoch of the old one.
    ReuseEpoch,
    /// A snapshot is put over what is there.
    NoWipe,
    /// A tail answers version queries before its epoch is open.
    AnswerBeforeOpen,
    /// A broken link to the joiner ends the wait for it.
    ForgetAsked,
    /// A tail asks for a promotion before its epoch is open.
    AskBeforeOpen,
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
    /// A member that lives is left where it is, though its neighbour can't reach it.
    TolerateDeadHop,
    /// A member that alone makes its chain slow is left where it is.
    TolerateSlow,
    /// The members of a chain change places while its head goes on.
    ReorderOpen,
}

/// What is taken out.
#[derive(Clone, Copy, Debug)]
enum Guard {
    Replica(replica::Mutant),
    Coordinator(coordinator::Mutant),
    Client,
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

const TABLE: [Line; 34] = {
    use MutantName as M;
    use Scenario as S;
    use coordinator::Mutant as C;
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
        line(M::ReuseEpoch, "reuse-epoch", 6, S::Failover, Guard::Replica(R::ReuseEpoch)),
        line(M::NoWipe, "no-wipe", 11, S::Resync, Guard::Replica(R::NoWipe)),
        line(M::AnswerBeforeOpen, "answer-before-open", 23, S::Partitions, Guard::Replica(R::AnswerBeforeOpen)),
        line(M::ForgetAsked, "forget-asked", 24, S::Sole, Guard::Replica(R::ForgetAsked)),
        line(M::AskBeforeOpen, "ask-before-open", 25, S::Unrest, Guard::Replica(R::AskBeforeOpen)),
        line(M::KeepWaiting, "keep-waiting", 27, S::Unrest, Guard::Replica(R::KeepWaiting)),
        line(M::RollBackFirst, "roll-back-first", 37, S::Partitions, Guard::Replica(R::RollBackFirst)),
        line(M::RemoveAtOnce, "remove-at-once", 4, S::Partitions, Guard::Coordinator(C::RemoveAtOnce)),
        line(
            M::NewLeaderDoesNotWait,
            "new-leader-does-not-wait",
            4,
            S::Unrest,
            Guard::Coordinator(C::NewLeaderDoesNotWait),
        ),
        line(M::RenewWhileDeciding, "renew-while-deciding", 35, S::Leaders, Guard::Coordinator(C::RenewWhileDeciding)),
        line(M::GrantUnconfirmed, "grant-unconfirmed", 14, S::Unrest, Guard::Coordinator(C::GrantUnconfirmed)),
        line(M::JoinRound, "join-round", 14, S::Unrest, Guard::Coordinator(C::JoinRound)),
        line(M::ForgetDrift, "forget-drift", 4, S::Clocks, Guard::Coordinator(C::ForgetDrift)),
        line(M::PromoteInAnyEpoch, "promote-in-any-epoch", 5, S::Sole, Guard::Coordinator(C::PromoteInAnyEpoch)),
        line(M::TolerateDeadHop, "tolerate-dead-hop", 39, S::Gray, Guard::Coordinator(C::TolerateDeadHop)),
        line(M::TolerateSlow, "tolerate-slow", 39, S::Gray, Guard::Coordinator(C::TolerateSlow)),
        line(M::ReorderOpen, "reorder-open", 15, S::Orders, Guard::Coordinator(C::ReorderOpen)),
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
    pub const fn coordinator(self) -> Option<coordinator::Mutant> {
        match self.line().guard {
            Guard::Coordinator(mutant) => Some(mutant),
            _ => None,
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
