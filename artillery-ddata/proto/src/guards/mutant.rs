//! All mutants: what each is called, which trap it walks into, and what goes wrong without its guard.

/// Makes the enum of the mutants, and what is known of each. A mutant stands here once, and nowhere else.
macro_rules! mutants {
    ($($(#[doc = $doc:literal])+ $mutant:ident = $name:literal, trap $trap:literal;)+) => {
        /// A guard that can be taken out, by what goes wrong without it.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Mutant {
            $($(#[doc = $doc])+ #[doc = concat!("\n\nTrap ", $trap, ".")] $mutant,)+
        }

        impl Mutant {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$mutant),+];

            /// Its name on the command line.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$mutant => $name,)+
                }
            }

            /// The number of the trap in the list of known bugs (docs/DESIGN.md §12).
            pub const fn trap(self) -> u32 {
                match self {
                    $(Self::$mutant => $trap,)+
                }
            }
        }
    };
}

mutants! {
    // The replica.

    /// A read joins a version query that was sent before it arrived.
    JoinQueryInFlight = "join-query-in-flight", trap 3;
    /// A read is served at the answer, though the own watermark went past it and the version may be pruned.
    AnswerBelowOwnWatermark = "answer-below-own-watermark", trap 12;
    /// The newest version is served as committed without asking.
    DirtyAsCommitted = "dirty-as-committed", trap 18;
    /// Local readers aren't kept out while what was handed on isn't in the store.
    ReadBehind = "read-behind", trap 47;
    /// Any move of the own watermark ends the wait for a dirty read, even below the version that it saw.
    WaitEndsEarly = "wait-ends-early", trap 29;
    /// A retry isn't known again, and runs once more.
    ForgetRecords = "forget-records", trap 7;
    /// A session's read is served by a member that is behind its floor.
    IgnoreFloor = "ignore-floor", trap 17;
    /// A failed compare-and-swap is answered before what it saw is committed.
    AnswerFailedSwapAtOnce = "answer-failed-swap-at-once", trap 20;
    /// What a script told is answered before the script is committed.
    AnswerScriptAtOnce = "answer-script-at-once", trap 20;
    /// The steps of a script's group stand that came before the one that failed.
    KeepFailedGroups = "keep-failed-groups", trap 45;
    /// A failed compare-and-swap leaves no record, so that a late duplicate may succeed.
    ForgetFailedSwaps = "forget-failed-swaps", trap 20;
    /// A retry is answered from a record whose update isn't committed.
    AnswerPendingRecord = "answer-pending-record", trap 31;
    /// The request of an evicted session runs as if it were new.
    RunEvicted = "run-evicted", trap 32;
    /// Keys that are read together are read at two times.
    ReadKeysApart = "read-keys-apart", trap 34;
    /// Changes are shown before they are committed.
    WatchUncommitted = "watch-uncommitted", trap 18;
    /// A piece of a large update is put behind what has come of it, wherever it belongs.
    JoinPieces = "join-pieces", trap 41;
    /// A member serves without a lease, whatever became of it meanwhile. Also trap 19.
    IgnoreLease = "ignore-lease", trap 1;
    /// A member that a newer configuration doesn't name goes on as before.
    ServeWhenExpelled = "serve-when-expelled", trap 1;
    /// What was said in an older epoch is taken in. Also trap 2.
    TakeOlderEpoch = "take-older-epoch", trap 22;
    /// What was said in a newer epoch is taken in by a member that hasn't entered it.
    TakeNewerEpoch = "take-newer-epoch", trap 36;
    /// The joiner's promotion is asked for however far behind it is, and the tail commits without it.
    PromoteTooEarly = "promote-too-early", trap 5;
    /// The watermark counts as a joiner's acknowledgement too, as it does for a member that serves.
    AcknowledgeForJoiner = "acknowledge-for-joiner", trap 5;
    /// A new head numbers its updates in the epoch of the old one.
    ReuseEpoch = "reuse-epoch", trap 6;
    /// What a returning member holds beyond the common history stays in its store.
    KeepDirty = "keep-dirty", trap 10;
    /// A snapshot is put over what is there.
    NoWipe = "no-wipe", trap 11;
    /// A joiner takes in parts of a snapshot while it clears what it held.
    TakeWhileClearing = "take-while-clearing", trap 64;
    /// A tail answers version queries before its epoch is open.
    AnswerBeforeOpen = "answer-before-open", trap 23;
    /// A broken link to the joiner ends the wait for it.
    ForgetAsked = "forget-asked", trap 24;
    /// A tail asks for a promotion before its epoch is open.
    AskBeforeOpen = "ask-before-open", trap 25;
    /// Reads that wait go on waiting when their member enters another epoch.
    KeepWaiting = "keep-waiting", trap 27;
    /// A local read doesn't look again whether its member still serves.
    LookOnce = "look-once", trap 28;
    /// A returning member drops what lies above its own watermark before it has met the chain. Two guards: a cut behind that
    /// halts nothing.
    RollBackFirst = "roll-back-first", trap 37;
    /// A snapshot that begins anew goes on where the last one was broken off.
    SkipFinished = "skip-finished", trap 38;
    /// A joiner counts as whole when the last part of its snapshot is there, whatever the parts show that it hasn't
    /// applied: a state that never was. Two guards: it then puts older updates over newer values in vain.
    WholeTooSoon = "whole-too-soon", trap 43;
    /// A tail answers version queries without a lease.
    AnswerUnleased = "answer-unleased", trap 2;
    /// Version queries, and answers to them, are taken in whatever the epoch in which they were said.
    TakeAnyAnswer = "take-any-answer", trap 2;
    /// In a new epoch sending goes on behind what the old successor was sent, and the new one passes over what it misses:
    /// two guards, either of which would do.
    LoseInFlight = "lose-in-flight", trap 8;
    /// A joiner keeps nothing of what is written while its snapshot comes.
    KeepNothing = "keep-nothing", trap 16;
    /// A local reader takes the time for what it was when the replica last had something to do.
    CacheClock = "cache-clock", trap 19;
    /// A member that is alone answers reads through the chain by itself, whatever it has asked for.
    AnswerAlone = "answer-alone", trap 26;
    /// A member follows its successor's position before its own history is known to be a prefix of its predecessor's.
    /// Three guards: the version before a frame's first update is not compared, and a cut behind that halts nothing.
    FollowTooSoon = "follow-too-soon", trap 52;
    /// A local reader compares what it found with the watermark as it is after the lookup.
    LoadWatermarkLate = "load-watermark-late", trap 53;
    /// The version before a frame's first update is not compared, only its sequence.
    CompareSequences = "compare-sequences", trap 54;
    /// A page in hash order ends between two keys of one position, and the next one begins behind that.
    PartPositions = "part-positions", trap 46;

    // The store, and clients.

    /// A key that comes while hash order is being made is left out of it.
    ForgetNewKeys = "forget-new-keys", trap 46;
    /// A refusal is believed though an earlier attempt was not answered.
    BelieveRefusals = "believe-refusals", trap 33;

    // The runner of chains.

    /// The reading of the clock for one turn decides about the next one too.
    KeepReading = "keep-reading", trap 56;
    /// The lease is taken in turns in which nothing else was received.
    LeaseLast = "lease-last", trap 57;
    /// A floor, or a position, of another history is taken for one of this history. Also trap 59.
    MixHistories = "mix-histories", trap 58;
    /// A lease that was granted before the node resigned counts again once the node has taken its resignation back.
    TakeAnyStretch = "take-any-stretch", trap 62;

    // The node.

    /// The node says that it acts by a configuration as soon as one of its chains does. Also trap 28.
    ActEarly = "act-early", trap 65;
    /// The node says that it is ready though the leader says that no other one should be stopped.
    ReadyUnsettled = "ready-unsettled", trap 70;
    /// A node that is to stop, and is the last that serves a chain, ends at once.
    EndAtOnce = "end-at-once", trap 69;
    /// A node gives way to a cluster that succeeds its own, for good, though other nodes of its cluster are there.
    YieldAtOnce = "yield-at-once", trap 71;
    /// A node that hears no other one of its own goes on though another cluster succeeds its own.
    NeverYield = "never-yield", trap 71;
    /// A node that starts again says that it is who it was. In the simulator's nodes.
    SameLife = "same-life", trap 21;

    // The coordinator.

    /// A member is removed as soon as it is suspected, while its lease may run.
    RemoveAtOnce = "remove-at-once", trap 4;
    /// A new leader doesn't wait for the leases that others granted.
    NewLeaderDoesNotWait = "new-leader-does-not-wait", trap 4;
    /// Leases are renewed while the removal of their holder is being decided.
    RenewWhileDeciding = "renew-while-deciding", trap 35;
    /// A lease is granted without a quorum's word that this node still leads.
    GrantUnconfirmed = "grant-unconfirmed", trap 14;
    /// A renewal is answered by a round that began before it was received.
    JoinRound = "join-round", trap 14;
    /// A member gets a lease though it may still act as what it was before it was expelled.
    GrantToFormerSelf = "grant-to-former-self", trap 28;
    /// The granter takes a lease to be out by its own clock, whatever the rate of the holder's.
    ForgetDrift = "forget-drift", trap 4;
    /// A request for a promotion counts in later epochs too.
    PromoteInAnyEpoch = "promote-in-any-epoch", trap 5;
    /// A node that is heard of is taken to live, however old the message. Two guards: also as the heir of a leaver.
    BelieveOldMessages = "believe-old-messages", trap 42;
    /// A member that lives is left where it is, though its neighbour can't reach it.
    TolerateDeadHop = "tolerate-dead-hop", trap 39;
    /// A joiner that lives and holds up what is to be committed is left where it is.
    TolerateDeadJoiner = "tolerate-dead-joiner", trap 39;
    /// A joiner that its tail doesn't hear keeps the place that another node could have, as long as no write waits for it.
    TolerateUnheardJoiner = "tolerate-unheard-joiner", trap 39;
    /// A member that alone makes its chain slow is left where it is.
    TolerateSlow = "tolerate-slow", trap 39;
    /// A node that held its chain up again and again keeps away for twice as long each time, with no end.
    KeepAwayForLong = "keep-away-for-long", trap 49;
    /// A node that is heard joins a chain, whether it hears or not.
    TakeDeaf = "take-deaf", trap 50;
    /// A leader that hears no other node removes all others.
    RemoveUnheard = "remove-unheard", trap 51;
    /// The members of a chain change places while its head goes on.
    ReorderOpen = "reorder-open", trap 15;
    /// The members change places because the head was closed once, whether it still is or not.
    BelieveOldClosing = "believe-old-closing", trap 55;
    /// A node that leaves goes on keeping the log: when most of those have left it can't be changed any more.
    KeepLeavers = "keep-leavers", trap 44;
    /// After a leave the log is kept by nodes that nothing proves to live.
    KeepUnproven = "keep-unproven", trap 60;
    /// A node that asks to leave may resign though no other member of its chains stays.
    AgreeAtOnce = "agree-at-once", trap 61;
    /// A member that has resigned, and can't be removed any more, stays so.
    KeepResigned = "keep-resigned", trap 61;
    /// A message says that a node has resigned which has taken that back since.
    TakeOldResignation = "take-old-resignation", trap 62;
    /// A resignation of before this leader's term counts, though another leader may have had it taken back.
    TakeUnvouchedResignation = "take-unvouched-resignation", trap 62;
    /// A node goes by the times that it was started with, not by those of its cluster.
    KeepOwnTimes = "keep-own-times", trap 63;
    /// A proposal that may be in the log counts as refused once another attempt at it is.
    ForgetUnknown = "forget-unknown", trap 66;
    /// A leader says that nothing is about to change before it can have heard of all nodes.
    SettleAtOnce = "settle-at-once", trap 67;
    /// A member that halted stays a member.
    KeepHalted = "keep-halted", trap 68;
    /// The last member of a chain that leaves gets no joiner.
    KeepLast = "keep-last", trap 69;

    // The formation of a cluster.

    /// A node gives its proposal up when that takes too long.
    GiveUpWhenSlow = "give-up-when-slow", trap 13;
    /// A node gives its proposal up when one founder is replaced.
    GiveUpWhenOneIsReplaced = "give-up-when-one-is-replaced", trap 13;
    /// A node forgets the proposal that it accepted when another one comes.
    AcceptTwo = "accept-two", trap 13;
    /// A new life speaks for the old one.
    AnyLife = "any-life", trap 13;
    /// A majority that accepted is enough.
    MajorityAccepts = "majority-accepts", trap 13;
    /// A node that knows that all accepted forms the cluster without a vote.
    FormWithoutVote = "form-without-vote", trap 13;
    /// The owner of a ballot doesn't care for earlier votes.
    FreshVerdict = "fresh-verdict", trap 13;
    /// A node votes below what it promised.
    BrokenPromise = "broken-promise", trap 13;
    /// A refused proposal can be accepted later.
    RefuseForNow = "refuse-for-now", trap 13;
    /// A member of a cluster accepts proposals for another.
    FormAgain = "form-again", trap 13;

    // The log that nodes keep (the crate artillery-ddata).

    /// A restarted node begins the log once more.
    InitialiseAgain = "initialise-again", trap 13;
    /// A node leads before it has applied what its predecessors committed.
    LeadUnapplied = "lead-unapplied", trap 14;
    /// A leader that was deposed and doesn't know it confirms.
    ConfirmWithoutQuorum = "confirm-without-quorum", trap 14;
    /// A restarted node that has forgotten its votes votes as its former self.
    KeepVote = "keep-vote", trap 21;
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::Mutant;

    #[test]
    fn names_are_those_of_the_variants() {
        let names: BTreeSet<_> = Mutant::ALL.iter().map(|mutant| mutant.name()).collect();
        assert_eq!(names.len(), Mutant::ALL.len());
        for mutant in Mutant::ALL {
            assert_eq!(mutant.name().replace('-', ""), format!("{mutant:?}").to_lowercase());
        }
    }
}
