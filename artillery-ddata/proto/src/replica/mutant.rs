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
    /// Local readers aren't kept out while what was handed on isn't in the store (trap 47).
    ReadBehind,
    /// Any move of the own watermark ends the wait for a dirty read, even below the version that it saw (trap 29).
    WaitEndsEarly,
    /// A retry isn't known again, and runs once more (trap 7).
    ForgetRecords,
    /// A session's read is served by a member that is behind its floor (trap 17).
    IgnoreFloor,
    /// A failed compare-and-swap is answered before what it saw is committed (trap 20).
    AnswerFailedSwapAtOnce,
    /// What a script told is answered before the script is committed (trap 20).
    AnswerScriptAtOnce,
    /// The steps of a script's group stand that came before the one that failed.
    KeepFailedGroups,
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
    /// A member serves without a lease, whatever became of it meanwhile (traps 1, 19).
    IgnoreLease,
    /// A member that a newer configuration doesn't name goes on as before (trap 1).
    ServeWhenExpelled,
    /// What was said in an older epoch is taken in (traps 2, 22).
    TakeOlderEpoch,
    /// What was said in a newer epoch is taken in by a member that hasn't entered it (trap 36).
    TakeNewerEpoch,
    /// The joiner's promotion is asked for however far behind it is, and the tail commits without it (trap 5).
    PromoteTooEarly,
    /// The watermark counts as a joiner's acknowledgement too, as it does for a member that serves (trap 5).
    AcknowledgeForJoiner,
    /// A new head numbers its updates in the epoch of the old one (trap 6).
    ReuseEpoch,
    /// What a returning member holds beyond the common history stays in its store (trap 10).
    KeepDirty,
    /// A snapshot is put over what is there (trap 11).
    NoWipe,
    /// A joiner takes in parts of a snapshot while it clears what it held (trap 64).
    TakeWhileClearing,
    /// A tail answers version queries before its epoch is open (trap 23).
    AnswerBeforeOpen,
    /// A broken link to the joiner ends the wait for it (trap 24).
    ForgetAsked,
    /// A tail asks for a promotion before its epoch is open (trap 25).
    AskBeforeOpen,
    /// Reads that wait go on waiting when their member enters another epoch (trap 27).
    KeepWaiting,
    /// A local read doesn't look again whether its member still serves (trap 28).
    LookOnce,
    /// A returning member drops what lies above its own watermark before it has met the chain (trap 37). Two guards: a cut
    /// behind that halts nothing.
    RollBackFirst,
    /// A snapshot that begins anew goes on where the last one was broken off (trap 38).
    SkipFinished,
    /// A joiner counts as whole when the last part of its snapshot is there, whatever the parts show that it hasn't
    /// applied: a state that never was (trap 43). Two guards: it then puts older updates over newer values in vain.
    WholeTooSoon,
    /// A tail answers version queries without a lease (trap 2).
    AnswerUnleased,
    /// Version queries, and answers to them, are taken in whatever the epoch in which they were said (trap 2).
    TakeAnyAnswer,
    /// In a new epoch sending goes on behind what the old successor was sent, and the new one passes over what it misses:
    /// two guards, either of which would do (trap 8).
    LoseInFlight,
    /// A joiner keeps nothing of what is written while its snapshot comes (trap 16).
    KeepNothing,
    /// A local reader takes the time for what it was when the replica last had something to do (trap 19).
    CacheClock,
    /// A member that is alone answers reads through the chain by itself, whatever it has asked for (trap 26).
    AnswerAlone,
    /// A member follows its successor's position before its own history is known to be a prefix of its predecessor's (trap 52).
    /// Three guards: the version before a frame's first update is not compared, and a cut behind that halts nothing.
    FollowTooSoon,
    /// A local reader compares what it found with the watermark as it is after the lookup (trap 53).
    LoadWatermarkLate,
    /// The version before a frame's first update is not compared, only its sequence (trap 54).
    CompareSequences,
    /// A page in hash order ends between two keys of one position, and the next one begins behind that (trap 46).
    PartPositions,
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
