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

    /// A read joins a version query that was sent before the read arrived.
    JoinQueryInFlight = "join-query-in-flight", trap 3;
    /// A read is served at the answer of its version query, though the member's watermark is past it: it may be pruned.
    AnswerBelowOwnWatermark = "answer-below-own-watermark", trap 12;
    /// The newest version is served as committed, without a version query.
    DirtyAsCommitted = "dirty-as-committed", trap 18;
    /// Local readers may read while updates that the member has handed on are not yet in its store.
    ReadBehind = "read-behind", trap 47;
    /// Any move of the member's watermark ends the wait of a dirty read, even below the version that the read saw.
    WaitEndsEarly = "wait-ends-early", trap 29;
    /// A retry isn't recognized, and runs once more.
    ForgetRecords = "forget-records", trap 7;
    /// A session's read is served by a member that is behind the session's floor.
    IgnoreFloor = "ignore-floor", trap 17;
    /// A failed compare-and-swap is answered before the version that it saw is committed.
    AnswerFailedSwapAtOnce = "answer-failed-swap-at-once", trap 20;
    /// The outcomes of a script are answered before the script is committed.
    AnswerScriptAtOnce = "answer-script-at-once", trap 20;
    /// When a step of a script's group fails, the steps before it keep their effect.
    KeepFailedGroups = "keep-failed-groups", trap 45;
    /// A failed compare-and-swap leaves no record, so that a late duplicate may succeed.
    ForgetFailedSwaps = "forget-failed-swaps", trap 20;
    /// A retry is answered from a record whose update isn't committed.
    AnswerPendingRecord = "answer-pending-record", trap 31;
    /// The request of an evicted session runs as if it were new.
    RunEvicted = "run-evicted", trap 32;
    /// The keys of one read are read at two points of the history.
    ReadKeysApart = "read-keys-apart", trap 34;
    /// Changes are shown before they are committed.
    WatchUncommitted = "watch-uncommitted", trap 18;
    /// A piece of a large update is put behind the bytes that have come, even if it belongs elsewhere.
    JoinPieces = "join-pieces", trap 41;
    /// A member serves without a lease, even if it was expelled or paused meanwhile. Also trap 19.
    IgnoreLease = "ignore-lease", trap 1;
    /// A member that a newer configuration doesn't name goes on serving as before.
    ServeWhenExpelled = "serve-when-expelled", trap 1;
    /// A message of an older epoch is accepted. Also trap 2.
    TakeOlderEpoch = "take-older-epoch", trap 22;
    /// A message of a newer epoch is accepted by a member that hasn't entered that epoch.
    TakeNewerEpoch = "take-newer-epoch", trap 36;
    /// The tail asks for the joiner's promotion however far behind the joiner is, and commits without it.
    PromoteTooEarly = "promote-too-early", trap 5;
    /// The commit watermark counts as an acknowledgement by a joiner, as it does for a serving member.
    AcknowledgeForJoiner = "acknowledge-for-joiner", trap 5;
    /// A new head numbers its updates in the epoch of the old one.
    ReuseEpoch = "reuse-epoch", trap 6;
    /// Updates that a returning member holds beyond the common history stay in its store.
    KeepDirty = "keep-dirty", trap 10;
    /// A snapshot is written over the old content of the store, which isn't cleared first.
    NoWipe = "no-wipe", trap 11;
    /// A joiner accepts parts of a snapshot while it clears what it held before.
    TakeWhileClearing = "take-while-clearing", trap 64;
    /// A tail answers version queries before its epoch is open.
    AnswerBeforeOpen = "answer-before-open", trap 23;
    /// When its link to the joiner breaks, a tail no longer waits for the joiner whose promotion it asked for.
    ForgetAsked = "forget-asked", trap 24;
    /// A tail asks for a promotion before its epoch is open.
    AskBeforeOpen = "ask-before-open", trap 25;
    /// Waiting reads go on waiting when their member enters another epoch.
    KeepWaiting = "keep-waiting", trap 27;
    /// A local read doesn't check a second time that its member still serves.
    LookOnce = "look-once", trap 28;
    /// A returning member drops the updates above its own watermark before it has met the chain. Two guards: a cut that
    /// comes after that doesn't halt it.
    RollBackFirst = "roll-back-first", trap 37;
    /// A new snapshot goes on at the place where the last one was broken off.
    SkipFinished = "skip-finished", trap 38;
    /// A joiner counts as whole when the last part of its snapshot is there, even if the parts show updates that it
    /// hasn't applied: a state that never existed. Two guards: an older update then leaves a newer value as it is.
    WholeTooSoon = "whole-too-soon", trap 43;
    /// A tail answers version queries without a lease.
    AnswerUnleased = "answer-unleased", trap 2;
    /// Version queries, and answers to them, are accepted from any epoch.
    TakeAnyAnswer = "take-any-answer", trap 2;
    /// In a new epoch a member sends only what it hadn't sent its old successor, and the new one passes over the gap.
    /// Two guards: either one alone prevents it.
    LoseInFlight = "lose-in-flight", trap 8;
    /// A joiner keeps none of the updates that arrive while its snapshot comes.
    KeepNothing = "keep-nothing", trap 16;
    /// A local reader uses the reading of the clock from when the replica last had something to do.
    CacheClock = "cache-clock", trap 19;
    /// A member that is alone answers reads through the chain by itself, even after it asked for a promotion.
    AnswerAlone = "answer-alone", trap 26;
    /// A member follows its successor's position before its own history is known to be a prefix of its predecessor's.
    /// Three guards: the version before a frame's first update is not compared, and a cut after that doesn't halt it.
    FollowTooSoon = "follow-too-soon", trap 52;
    /// A local reader compares the version that it found with the watermark as it is after the lookup.
    LoadWatermarkLate = "load-watermark-late", trap 53;
    /// Of the version before a frame's first update, only the sequence is compared.
    CompareSequences = "compare-sequences", trap 54;
    /// A page in hash order ends between two keys of one position, and the next page begins behind that position.
    PartPositions = "part-positions", trap 46;

    // The store, and clients.

    /// A key that is added while the hash order is being built is left out of it.
    ForgetNewKeys = "forget-new-keys", trap 46;
    /// A refusal is believed though an earlier attempt was not answered.
    BelieveRefusals = "believe-refusals", trap 33;

    // The runner of chains.

    /// The reading of the clock for one turn decides about the requests of the next turn too.
    KeepReading = "keep-reading", trap 56;
    /// A renewed lease is taken only in turns in which no request was received.
    LeaseLast = "lease-last", trap 57;
    /// A chain takes in all that it has received before its node does anything else, however long that takes.
    NeverPause = "never-pause", trap 90;
    /// A floor, or a position, of another history is taken for one of this history. Also trap 59.
    MixHistories = "mix-histories", trap 58;
    /// A lease that was granted before the node resigned counts again once the node has withdrawn its resignation.
    TakeAnyStretch = "take-any-stretch", trap 62;

    // The node.

    /// The node reports that it acts by a configuration as soon as one of its chains does. Also trap 28.
    ActEarly = "act-early", trap 65;
    /// The node reports that it is ready though the leader says that no other node should be stopped.
    ReadyUnsettled = "ready-unsettled", trap 70;
    /// A node that is to stop ends at once, though it is the last node that serves a chain.
    EndAtOnce = "end-at-once", trap 69;
    /// A node gives way for good to a cluster that succeeds its own, though other nodes of its own cluster are there.
    YieldAtOnce = "yield-at-once", trap 71;
    /// A node that hears no other node of its own cluster goes on, though another cluster succeeds that cluster.
    NeverYield = "never-yield", trap 71;
    /// A restarted node reports the incarnation that it was before. In the simulator's nodes.
    SameLife = "same-life", trap 21;

    // The coordinator.

    /// A member is removed as soon as it is suspected, while its lease may still run.
    RemoveAtOnce = "remove-at-once", trap 4;
    /// A new leader doesn't wait until the leases that other leaders granted have expired.
    NewLeaderDoesNotWait = "new-leader-does-not-wait", trap 4;
    /// Leases are renewed while the removal of their holder is being decided.
    RenewWhileDeciding = "renew-while-deciding", trap 35;
    /// A lease is granted though no quorum has confirmed that this node still leads.
    GrantUnconfirmed = "grant-unconfirmed", trap 14;
    /// A renewal is answered by a confirmation round that began before the renewal was received.
    JoinRound = "join-round", trap 14;
    /// A member gets a lease though it may still act in the role that it had before it was expelled.
    GrantToFormerSelf = "grant-to-former-self", trap 28;
    /// The granter counts a lease as expired by its own clock, and ignores that the holder's clock may run slower.
    ForgetDrift = "forget-drift", trap 4;
    /// A request for a promotion counts in epochs after its own too.
    PromoteInAnyEpoch = "promote-in-any-epoch", trap 5;
    /// A node counts as alive once its message is read, however old that is. Two guards: also as the heir of a leaver.
    BelieveOldMessages = "believe-old-messages", trap 42;
    /// A living member keeps its place though its neighbour can't reach it.
    TolerateDeadHop = "tolerate-dead-hop", trap 39;
    /// A living joiner keeps its place though it holds up the commit of updates.
    TolerateDeadJoiner = "tolerate-dead-joiner", trap 39;
    /// A joiner that its tail doesn't hear keeps the place that another node could have, as long as no write waits.
    TolerateUnheardJoiner = "tolerate-unheard-joiner", trap 39;
    /// A member that alone makes its chain slow keeps its place.
    TolerateSlow = "tolerate-slow", trap 39;
    /// A slow disk is not found, and what commits wait for it is taken for a slow path.
    TolerateSlowDisk = "tolerate-slow-disk", trap 39;
    /// A node that held up its chain repeatedly is kept away twice as long each time, without a limit.
    KeepAwayForLong = "keep-away-for-long", trap 49;
    /// A node that is heard joins a chain, even if it hears no other node.
    TakeDeaf = "take-deaf", trap 50;
    /// A leader that hears no other node removes all others.
    RemoveUnheard = "remove-unheard", trap 51;
    /// A leader that can't be reached takes the others for dead, though they answer the log.
    TrustOneWay = "trust-one-way", trap 51;
    /// A leader that no other node can reach keeps its leadership.
    LeadUnreached = "lead-unreached", trap 51;
    /// A node votes as soon as it is heard, and the voters become more while some of them are dead.
    VoteYoung = "vote-young", trap 89;
    /// The members of a chain change places while its head isn't closed.
    ReorderOpen = "reorder-open", trap 15;
    /// The members change places because the head was closed once, even if it no longer is.
    BelieveOldClosing = "believe-old-closing", trap 55;
    /// A node that leaves stays a voter of the log. When most voters have left, the log can't be changed any more.
    KeepLeavers = "keep-leavers", trap 44;
    /// After a leave the log is kept by nodes that are not proven to be alive.
    KeepUnproven = "keep-unproven", trap 60;
    /// A node that asks to leave may resign though no other member of its chains stays.
    AgreeAtOnce = "agree-at-once", trap 61;
    /// A member that has resigned, and can no longer be removed, stays resigned.
    KeepResigned = "keep-resigned", trap 61;
    /// A message of a node's resignation is believed, though the node has withdrawn the resignation since.
    TakeOldResignation = "take-old-resignation", trap 62;
    /// A resignation from before this leader's term counts, though another leader may have had it withdrawn.
    TakeUnvouchedResignation = "take-unvouched-resignation", trap 62;
    /// A node uses the timing that it was started with, not that of its cluster.
    KeepOwnTimes = "keep-own-times", trap 63;
    /// A proposal that may be in the log counts as refused once another attempt at it is refused.
    ForgetUnknown = "forget-unknown", trap 66;
    /// A leader reports that nothing is about to change before it can have heard of all nodes.
    SettleAtOnce = "settle-at-once", trap 67;
    /// A member whose replica halted stays a member.
    KeepHalted = "keep-halted", trap 68;
    /// When the last member of a chain leaves, the chain gets no joiner that could take over.
    KeepLast = "keep-last", trap 69;

    // The formation of a cluster.

    /// A node gives up its proposal when the formation takes too long.
    GiveUpWhenSlow = "give-up-when-slow", trap 13;
    /// A node gives up its proposal when one founder is replaced.
    GiveUpWhenOneIsReplaced = "give-up-when-one-is-replaced", trap 13;
    /// A node forgets the proposal that it accepted when another one comes.
    AcceptTwo = "accept-two", trap 13;
    /// A new incarnation of a node speaks for the old one.
    AnyLife = "any-life", trap 13;
    /// The acceptance of a majority of the founders is enough.
    MajorityAccepts = "majority-accepts", trap 13;
    /// A node that knows that all founders accepted forms the cluster without a vote.
    FormWithoutVote = "form-without-vote", trap 13;
    /// The owner of a ballot ignores earlier votes.
    FreshVerdict = "fresh-verdict", trap 13;
    /// A node votes in a lower ballot than it promised.
    BrokenPromise = "broken-promise", trap 13;
    /// A refused proposal can be accepted later.
    RefuseForNow = "refuse-for-now", trap 13;
    /// A member of a cluster accepts proposals for another.
    FormAgain = "form-again", trap 13;
    /// A node proposes as soon as it sees as many nodes as it expects.
    ProposeUnsearched = "propose-unsearched", trap 13;
    /// A node proposes as soon as its seeds have answered, though it may not see yet the nodes that they know.
    ProposeOnAnswer = "propose-on-answer", trap 13;
    /// A proposal leaves out nodes beyond the expected number.
    NameOnlyExpected = "name-only-expected", trap 13;
    /// A node accepts a proposal of fewer founders than it expects.
    AcceptFewer = "accept-fewer", trap 13;

    // Durable members.

    /// The tail commits what its disk, or another member's, doesn't hold.
    CommitUndurable = "commit-undurable", trap 76;
    /// The tail commits what is durable at itself, though it may not be at the members before it.
    IgnoreMarks = "ignore-marks", trap 76;
    /// What was on its way to the disk when it was cut off counts as what takes its place.
    KeepCutMarks = "keep-cut-marks", trap 77;
    /// What another member said of its disk still counts after what it spoke of was cut off here.
    KeepHeardMarks = "keep-heard-marks", trap 77;
    /// A durable mark counts for any update that stands under its sequence.
    TakeAnyMark = "take-any-mark", trap 77;
    /// A new tail answers version queries before its watermark covers what was committed before.
    SpeakTooSoon = "speak-too-soon", trap 78;

    /// An update is written with the watermark of the moment at which it is written.
    StampLate = "stamp-late", trap 79;

    // The journal.

    /// After a failed sync the journal is synced again, and believes it.
    SyncAgain = "sync-again", trap 72;
    /// After a start, groups count that no sync is known to have made durable.
    CountUnproven = "count-unproven", trap 72;
    /// A segment counts as durable though the sync of its name may have failed.
    TrustName = "trust-name", trap 72;
    /// What was read once counts, though the kernel shows it no more when it is written again.
    ReadOnce = "read-once", trap 72;
    /// The control file is kept once: a torn writing loses what was promised.
    KeepOneCopy = "keep-one-copy", trap 80;
    /// The control file doesn't name the newest segment of the journal, so that the next start doesn't miss it.
    NameNoSegment = "name-no-segment", trap 81;
    /// Segments are removed that a chain still needs.
    ReleaseAll = "release-all", trap 82;
    /// A store forgets that it was once started without syncing each batch.
    ForgetWeak = "forget-weak", trap 83;
    /// The chains act by configurations that the node's disk doesn't keep.
    ActUnkept = "act-unkept", trap 80;
    /// A life leads in a term to which an earlier life of its store was elected.
    LeadAgain = "lead-again", trap 35;
    /// A store that comes with less than it had is taken in.
    TakeCopies = "take-copies", trap 84;
    /// A joiner takes in updates however many wait for its disk.
    QueueAll = "queue-all", trap 85;
    /// A serving member commits up to the watermark that a joiner tells.
    LearnFromJoiners = "learn-from-joiners", trap 87;
    /// A head adds values though a member's disk is full.
    FillFullDisks = "fill-full-disks", trap 86;
    /// A store that isn't whole opens a chain.
    ReopenTorn = "reopen-torn", trap 83;
    /// A store opens a chain though another one knows of a higher watermark.
    ReopenBelow = "reopen-below", trap 83;
    /// A store opens a chain that may have lost what wasn't synced.
    ReopenWeak = "reopen-weak", trap 83;
    /// An operator's order opens a chain though a store is back that may lack nothing.
    LoseWhole = "lose-whole", trap 88;
    /// A group that was refused for lack of room counts when it looks whole later.
    CountRefused = "count-refused", trap 74;
    /// A group begins in the sector in which a synced one ends.
    FillLittle = "fill-little", trap 73;
    /// A damaged group is taken for the torn end.
    TakeDamageForTorn = "take-damage-for-torn", trap 74;
    /// A group claims that the ones before it were synced, though they were only written.
    ClaimUnsynced = "claim-unsynced", trap 74;
    /// The next segment is used while the end of the one before isn't durable.
    NextTooSoon = "next-too-soon", trap 75;
    /// A segment gets its name before its beginning is durable.
    NameTooSoon = "name-too-soon", trap 75;

    // A cluster that gives way to another one of its name and secret.

    /// A cluster gives way once its members report that they hold nothing, while they may still order.
    GiveWayUnsealed = "give-way-unsealed", trap 93;
    /// A report from before the seal shows that nothing was committed.
    CountUnsealed = "count-unsealed", trap 93;
    /// A cluster that holds data gives way to another one that does.
    GiveWayWithData = "give-way-with-data", trap 94;
    /// Two empty clusters give way to each other.
    BothGiveWay = "both-give-way", trap 95;
    /// A sealed cluster that doesn't give way after all stays sealed.
    NeverUnseal = "never-unseal", trap 96;
    /// Any node's answer shows that the cluster has not given way, as if an operator had founded another one in its place.
    AnyAnswerRefutes = "any-answer-refutes", trap 97;

    // The log that nodes keep (the crate artillery-ddata).

    /// A restarted node initialises the log once more.
    InitialiseAgain = "initialise-again", trap 13;
    /// A node leads before it has applied what its predecessors committed.
    LeadUnapplied = "lead-unapplied", trap 14;
    /// A leader that was deposed, and doesn't know it, confirms that it leads.
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
