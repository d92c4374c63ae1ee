//! All mutants, each with its name, its trap, and the failure that its guard prevents.

/// Defines the enum of the mutants and their attributes in one table.
macro_rules! mutants {
    ($($(#[doc = $doc:literal])+ $mutant:ident = $name:literal, trap $trap:literal;)+) => {
        /// A guard that can be disabled, named after the resulting failure.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Mutant {
            $($(#[doc = $doc])+ #[doc = concat!("\n\nTrap ", $trap, ".")] $mutant,)+
        }

        impl Mutant {
            pub const ALL: &[Self] = &[$(Self::$mutant),+];

            /// The name on the command line.
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
    /// A read is served at the answer of its version query although the member's watermark is higher: that version may
    /// be pruned.
    AnswerBelowOwnWatermark = "answer-below-own-watermark", trap 12;
    /// The newest version is served as committed, without a version query.
    DirtyAsCommitted = "dirty-as-committed", trap 18;
    /// Local readers may read while forwarded updates are not yet in the member's store.
    ReadBehind = "read-behind", trap 47;
    /// Any move of the member's watermark ends the wait of a dirty read, even below the version that the read saw.
    WaitEndsEarly = "wait-ends-early", trap 29;
    /// A retry isn't recognized and runs a second time.
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
    /// A chunk of a large update is appended to the received bytes even if it belongs elsewhere.
    JoinPieces = "join-pieces", trap 41;
    /// A member serves without a lease, even if it was expelled or paused. Also trap 19.
    IgnoreLease = "ignore-lease", trap 1;
    /// A member that a newer configuration doesn't name continues to serve.
    ServeWhenExpelled = "serve-when-expelled", trap 1;
    /// A message of an older epoch is accepted. Also trap 2.
    TakeOlderEpoch = "take-older-epoch", trap 22;
    /// A message of a newer epoch is accepted by a member that hasn't entered that epoch.
    TakeNewerEpoch = "take-newer-epoch", trap 36;
    /// The tail asks for the joiner's promotion however far behind the joiner is, and commits without it.
    PromoteTooEarly = "promote-too-early", trap 5;
    /// The commit watermark acknowledges updates for a joiner, as it does for a serving member.
    AcknowledgeForJoiner = "acknowledge-for-joiner", trap 5;
    /// A new head numbers its updates in the epoch of the old one.
    ReuseEpoch = "reuse-epoch", trap 6;
    /// Updates that a returning member holds beyond the common history stay in its store.
    KeepDirty = "keep-dirty", trap 10;
    /// The stamp of a dropped update still counts, so that chain time jumps when its member becomes head.
    KeepDroppedStamps = "keep-dropped-stamps", trap 98;
    /// A received update doesn't move a member's base unless its stamp is higher: the time before it counts twice.
    KeepOlderBase = "keep-older-base", trap 100;
    /// The head removes a key whose committed version is due, although a newer version is pending.
    RemoveNewer = "remove-newer", trap 101;
    /// A write is resolved against a value that is due.
    WriteToDead = "write-to-dead", trap 102;
    /// Full members refuse renewals as if they were values.
    RefuseRenewals = "refuse-renewals", trap 106;
    /// A snapshot begins with the newest stamp, although that update isn't committed and may be dropped.
    ShowPendingStamp = "show-pending-stamp", trap 99;
    /// A snapshot is written over the old content of the store, which isn't cleared first.
    NoWipe = "no-wipe", trap 11;
    /// A joiner accepts parts of a snapshot while it clears its old store.
    TakeWhileClearing = "take-while-clearing", trap 64;
    /// A tail answers version queries before its epoch is open.
    AnswerBeforeOpen = "answer-before-open", trap 23;
    /// When a link breaks, a tail no longer waits for the joiner whose promotion it asked for.
    ForgetAsked = "forget-asked", trap 24;
    /// A tail asks for a promotion before its epoch is open.
    AskBeforeOpen = "ask-before-open", trap 25;
    /// Waiting reads keep waiting when their member enters another epoch.
    KeepWaiting = "keep-waiting", trap 27;
    /// A local read doesn't check a second time that its member still serves.
    LookOnce = "look-once", trap 28;
    /// A returning member drops the updates above its own watermark before it has contacted the chain. Also disables
    /// the guard that halts the member at a later cut.
    RollBackFirst = "roll-back-first", trap 37;
    /// A new snapshot resumes where the previous one was interrupted.
    SkipFinished = "skip-finished", trap 38;
    /// A joiner is treated as complete after the last part of its snapshot, even if the parts show updates that it
    /// hasn't applied: a state that never existed. Also disables a second guard: an update that is older than the
    /// stored value is skipped.
    WholeTooSoon = "whole-too-soon", trap 43;
    /// A tail answers version queries without a lease.
    AnswerUnleased = "answer-unleased", trap 2;
    /// Version queries, and answers to them, are accepted from any epoch.
    TakeAnyAnswer = "take-any-answer", trap 2;
    /// In a new epoch a member sends only updates that it hadn't sent to its old successor, and the new one accepts the
    /// gap. Disables two guards, either of which prevents this.
    LoseInFlight = "lose-in-flight", trap 8;
    /// A joiner discards the updates that arrive during its snapshot.
    KeepNothing = "keep-nothing", trap 16;
    /// A local reader uses a cached clock reading: that of the replica's last input.
    CacheClock = "cache-clock", trap 19;
    /// A member that is alone answers reads through the chain by itself, even after it asked for a promotion.
    AnswerAlone = "answer-alone", trap 26;
    /// A member uses its successor's position before its own history is known to be a prefix of its predecessor's. Also
    /// disables two other guards: the version before a frame's first update is not compared, and a later cut doesn't
    /// halt the member.
    FollowTooSoon = "follow-too-soon", trap 52;
    /// A local reader compares the version of its lookup with a watermark that is loaded after the lookup.
    LoadWatermarkLate = "load-watermark-late", trap 53;
    /// Of the version before a frame's first update, only the sequence is compared.
    CompareSequences = "compare-sequences", trap 54;
    /// A page in hash order ends between two keys with the same position, and the next page begins after that position.
    PartPositions = "part-positions", trap 46;

    // The store, and clients.

    /// A key that is added while the hash order is being built is omitted from it.
    ForgetNewKeys = "forget-new-keys", trap 46;
    /// A refusal is believed although an earlier attempt has no answer.
    BelieveRefusals = "believe-refusals", trap 33;

    // The runner of chains.

    /// The clock reading of one turn also decides the requests of the next turn.
    KeepReading = "keep-reading", trap 56;
    /// A renewed lease is not applied in a turn in which orders, frames or requests were received.
    LeaseLast = "lease-last", trap 57;
    /// A chain processes its entire backlog of input before its node does anything else, however long that takes.
    NeverPause = "never-pause", trap 90;
    /// A floor, or a position, of another history is accepted as one of this history. Also trap 59.
    MixHistories = "mix-histories", trap 58;
    /// A lease that was granted before the node resigned is valid again once the node has withdrawn its resignation.
    TakeAnyStretch = "take-any-stretch", trap 62;

    // The node.

    /// The node reports that it acts by a configuration as soon as one of its chains does. Also trap 28.
    ActEarly = "act-early", trap 65;
    /// The node reports that it is ready although the leader reports that no other node should be stopped.
    ReadyUnsettled = "ready-unsettled", trap 70;
    /// A node that is asked to stop ends at once, although it is the last node that serves a chain.
    EndAtOnce = "end-at-once", trap 69;
    /// A node gives way permanently to a cluster that succeeds its own, although other nodes of its own cluster answer.
    YieldAtOnce = "yield-at-once", trap 71;
    /// A node without contact to its own cluster keeps serving, although another cluster succeeds that cluster.
    NeverYield = "never-yield", trap 71;
    /// A restarted node reports its previous incarnation. Implemented in the simulator's nodes.
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
    /// The granter treats a lease as expired by its own clock, and ignores that the holder's clock may run slower.
    ForgetDrift = "forget-drift", trap 4;
    /// A request for a promotion stays valid in later epochs.
    PromoteInAnyEpoch = "promote-in-any-epoch", trap 5;
    /// A node is treated as alive when its message is read, however old that message is. Also disables the same guard
    /// for the heir of a leaver.
    BelieveOldMessages = "believe-old-messages", trap 42;
    /// A living member keeps its place though its neighbour can't reach it.
    TolerateDeadHop = "tolerate-dead-hop", trap 39;
    /// A living joiner keeps its place though it holds up the commit of updates.
    TolerateDeadJoiner = "tolerate-dead-joiner", trap 39;
    /// A joiner that receives nothing from its tail keeps the place that another node could have, as long as no write
    /// waits.
    TolerateUnheardJoiner = "tolerate-unheard-joiner", trap 39;
    /// A member that makes its chain slow by itself keeps its place.
    TolerateSlow = "tolerate-slow", trap 39;
    /// A slow disk is not detected; the resulting delay of commits is attributed to a slow path.
    TolerateSlowDisk = "tolerate-slow-disk", trap 39;
    /// A node that repeatedly stalled its chain is kept away twice as long each time, without a limit.
    KeepAwayForLong = "keep-away-for-long", trap 49;
    /// A node joins a chain although it receives messages from no other node.
    TakeDeaf = "take-deaf", trap 50;
    /// A leader that receives messages from no other node removes all others.
    RemoveUnheard = "remove-unheard", trap 51;
    /// A leader that can't be reached treats the others as dead, although they answer the log.
    TrustOneWay = "trust-one-way", trap 51;
    /// A leader that no other node can reach keeps its leadership.
    LeadUnreached = "lead-unreached", trap 51;
    /// A node votes after its first message, and the number of voters grows while some of them are dead.
    VoteYoung = "vote-young", trap 89;
    /// The members of a chain change places while its head isn't closed.
    ReorderOpen = "reorder-open", trap 15;
    /// The members change places because of an earlier closing of the head, which may have expired.
    BelieveOldClosing = "believe-old-closing", trap 55;
    /// A node that leaves remains a voter of the log. When most voters have left, the log can no longer be changed.
    KeepLeavers = "keep-leavers", trap 44;
    /// After a leave the log is kept by nodes that are not proven to be alive.
    KeepUnproven = "keep-unproven", trap 60;
    /// A node that asks to leave may resign though no other member of its chains stays.
    AgreeAtOnce = "agree-at-once", trap 61;
    /// A member that has resigned, and can no longer be removed, stays resigned.
    KeepResigned = "keep-resigned", trap 61;
    /// A message of a node's resignation is believed, though the node has withdrawn the resignation since.
    TakeOldResignation = "take-old-resignation", trap 62;
    /// A resignation from before this leader's term is accepted, although an earlier leader may have had it withdrawn.
    TakeUnvouchedResignation = "take-unvouched-resignation", trap 62;
    /// A node uses the timing of its own start options instead of its cluster's.
    KeepOwnTimes = "keep-own-times", trap 63;
    /// A proposal that may be in the log is treated as refused once another attempt at it is refused.
    ForgetUnknown = "forget-unknown", trap 66;
    /// A leader reports that no change is due before it can have received renewals from all nodes.
    SettleAtOnce = "settle-at-once", trap 67;
    /// A member whose replica halted stays a member.
    KeepHalted = "keep-halted", trap 68;
    /// When the last member of a chain leaves, the chain gets no joiner that could replace it.
    KeepLast = "keep-last", trap 69;

    // The formation of a cluster.

    /// A node abandons its proposal when the formation takes too long.
    GiveUpWhenSlow = "give-up-when-slow", trap 13;
    /// A node abandons its proposal when one founder is replaced.
    GiveUpWhenOneIsReplaced = "give-up-when-one-is-replaced", trap 13;
    /// A node forgets the proposal that it accepted when another one arrives.
    AcceptTwo = "accept-two", trap 13;
    /// A new incarnation of a node acts for the old one.
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

    /// The tail commits updates that its own disk, or another member's, doesn't hold.
    CommitUndurable = "commit-undurable", trap 76;
    /// The tail commits an update that is durable at itself, although it may not be durable at the members before it.
    IgnoreMarks = "ignore-marks", trap 76;
    /// The pending disk write of an update that was cut off makes its replacement durable.
    KeepCutMarks = "keep-cut-marks", trap 77;
    /// A durable mark of another member stays valid after the updates that it covers were cut off here.
    KeepHeardMarks = "keep-heard-marks", trap 77;
    /// A durable mark is accepted for whatever update has its sequence.
    TakeAnyMark = "take-any-mark", trap 77;
    /// A new tail answers version queries before its watermark covers the commits of the previous epoch.
    SpeakTooSoon = "speak-too-soon", trap 78;

    /// An update is written with the watermark at the time of writing.
    StampLate = "stamp-late", trap 79;

    // The journal.

    /// After a failed sync the journal syncs again and trusts the result.
    SyncAgain = "sync-again", trap 72;
    /// After a start, groups are accepted that no sync is known to have made durable.
    CountUnproven = "count-unproven", trap 72;
    /// A segment is treated as durable although the sync of its directory entry may have failed.
    TrustName = "trust-name", trap 72;
    /// Groups that could be read once are accepted, although they can't be read when their segment is rewritten.
    ReadOnce = "read-once", trap 72;
    /// The control file exists in one copy: a torn write loses the node's promises.
    KeepOneCopy = "keep-one-copy", trap 80;
    /// The control file doesn't name the newest segment of the journal, so the loss of that segment goes unnoticed at
    /// the next start.
    NameNoSegment = "name-no-segment", trap 81;
    /// Segments are removed that a chain still needs.
    ReleaseAll = "release-all", trap 82;
    /// A store forgets that it was once started without syncing each batch.
    ForgetWeak = "forget-weak", trap 83;
    /// The chains act by configurations that are not on the node's disk.
    ActUnkept = "act-unkept", trap 80;
    /// An incarnation leads in a term to which an earlier incarnation of its store was elected.
    LeadAgain = "lead-again", trap 35;
    /// A store that returns with less than it had is accepted.
    TakeCopies = "take-copies", trap 84;
    /// A joiner accepts updates without a limit on its disk queue.
    QueueAll = "queue-all", trap 85;
    /// A serving member commits up to the watermark that a joiner sends.
    LearnFromJoiners = "learn-from-joiners", trap 87;
    /// A head adds values although a member's disk is full.
    FillFullDisks = "fill-full-disks", trap 86;
    /// An incomplete store opens a chain.
    ReopenTorn = "reopen-torn", trap 83;
    /// A store opens a chain though another one knows of a higher watermark.
    ReopenBelow = "reopen-below", trap 83;
    /// A store opens a chain although it may have lost unsynced commits.
    ReopenWeak = "reopen-weak", trap 83;
    /// An operator's order opens a chain although a store with all commits is back.
    LoseWhole = "lose-whole", trap 88;
    /// A group that was refused on a full disk is accepted when it looks complete later.
    CountRefused = "count-refused", trap 74;
    /// A group begins in the sector in which a synced group ends.
    FillLittle = "fill-little", trap 73;
    /// A damaged group is mistaken for the torn end.
    TakeDamageForTorn = "take-damage-for-torn", trap 74;
    /// A group claims that the groups before it were synced, although they were only written.
    ClaimUnsynced = "claim-unsynced", trap 74;
    /// The next segment is used before the end of the previous one is durable.
    NextTooSoon = "next-too-soon", trap 75;
    /// A segment gets its name before its first bytes are durable.
    NameTooSoon = "name-too-soon", trap 75;

    // A cluster that gives way to another one of its name and secret.

    /// A cluster gives way once its members report that they hold nothing, although they may still order updates.
    GiveWayUnsealed = "give-way-unsealed", trap 93;
    /// A report from before the seal is accepted as evidence that nothing was committed.
    CountUnsealed = "count-unsealed", trap 93;
    /// A cluster that holds data gives way to another one that does.
    GiveWayWithData = "give-way-with-data", trap 94;
    /// Two empty clusters give way to each other.
    BothGiveWay = "both-give-way", trap 95;
    /// A sealed cluster that doesn't give way after all stays sealed.
    NeverUnseal = "never-unseal", trap 96;
    /// The answer of any member, not only of a leader, is accepted as evidence that the cluster has not given way.
    AnyAnswerRefutes = "any-answer-refutes", trap 97;

    // Locks and views.

    /// A waiter that was paused holds once its predecessor's key is gone, although its own may have expired.
    TrustWakeUp = "trust-wake-up", trap 107;
    /// A waiter watches its predecessor's key from the next change on, not from the position at which it saw the key.
    WatchFromNow = "watch-from-now", trap 108;
    /// A waiter holds once its predecessor's key is gone, although a lower key may exist.
    PassDeadWaiter = "pass-dead-waiter", trap 109;
    /// A holder counts its time from the answer to a renewal.
    CountFromAnswer = "count-from-answer", trap 110;
    /// A holder's clock stops while its process is suspended.
    SuspendClock = "suspend-clock", trap 110;
    /// A renewal of unknown outcome is treated as acknowledged.
    TrustUnknownRenewal = "trust-unknown-renewal", trap 110;
    /// A follower asks for its position after it has read the pages.
    PositionLate = "position-late", trap 111;
    /// A follower accepts a page from a member that is behind its position.
    ReadPagesBehind = "read-pages-behind", trap 111;
    /// A copy keeps keys that were deleted before it was read again.
    KeepMissing = "keep-missing", trap 112;
    /// A copy that is read again reports every key, also those that haven't changed.
    ReportAgain = "report-again", trap 113;
    /// A follower reports a change that its page contained already.
    RepeatChange = "repeat-change", trap 113;
    /// A member sums its records at its own watermark, not at the point that the digest names.
    DigestNow = "digest-now", trap 114;
    /// A backup ends with its last record, without the updates up to the point of its parts.
    EndEarly = "end-early", trap 116;

    // The configuration log (in the crate artillery-ddata).

    /// A restarted node initialises the log once more.
    InitialiseAgain = "initialise-again", trap 13;
    /// A node leads before it has applied what its predecessors committed.
    LeadUnapplied = "lead-unapplied", trap 14;
    /// A deposed leader that doesn't know of its deposition confirms that it leads.
    ConfirmWithoutQuorum = "confirm-without-quorum", trap 14;
    /// A restarted node that has forgotten its votes votes as its former incarnation.
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
