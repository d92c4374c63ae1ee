//! Test-only switches: each takes one guard out (docs/adr/0003-mutants.md).

/// A guard that can be left out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
#[cfg_attr(not(feature = "mutants"), allow(dead_code, unreachable_pub, reason = "never made without the feature"))]
pub enum Mutant {
    /// A member is removed as soon as it is suspected, while its lease may run (trap 4).
    RemoveAtOnce,
    /// A new leader doesn't wait for the leases that others granted (trap 4).
    NewLeaderDoesNotWait,
    /// Leases are renewed while the removal of their holder is being decided (trap 35).
    RenewWhileDeciding,
    /// A lease is granted without a quorum's word that this node still leads (trap 14).
    GrantUnconfirmed,
    /// A renewal is answered by a round that began before it was received (trap 14).
    JoinRound,
    /// A member gets a lease though it may still act as what it was before it was expelled (trap 28).
    GrantToFormerSelf,
    /// The granter takes a lease to be out by its own clock, whatever the rate of the holder's (trap 4).
    ForgetDrift,
    /// A request for a promotion counts in later epochs too (trap 5).
    PromoteInAnyEpoch,
    /// A node that is heard of is taken to live, however old the message (trap 42). Two guards: also as the heir of a leaver.
    BelieveOldMessages,
    /// A member that lives is left where it is, though its neighbour can't reach it (trap 39).
    TolerateDeadHop,
    /// A joiner that lives and holds up what is to be committed is left where it is (trap 39).
    TolerateDeadJoiner,
    /// A member that alone makes its chain slow is left where it is (trap 39).
    TolerateSlow,
    /// Who held its chain up again and again keeps away for twice as long each time, with no end (trap 49).
    KeepAwayForLong,
    /// Who is heard joins a chain, whether it hears or not (trap 50).
    TakeDeaf,
    /// A leader that hears nobody removes all others (trap 51).
    RemoveUnheard,
    /// The members of a chain change places while its head goes on (trap 15).
    ReorderOpen,
    /// The members change places because the head was closed once, whether it still is or not (trap 55).
    BelieveOldClosing,
    /// Whoever leaves goes on keeping the log: when most of those have left it can't be changed any more (trap 44).
    KeepLeavers,
    /// After a leave the log is kept by nodes that nothing proves to live (trap 60).
    KeepUnproven,
    /// A node that asks to leave may resign though no other member of its chains stays (trap 61).
    AgreeAtOnce,
    /// A member that has resigned, and can't be removed any more, stays so (trap 61).
    KeepResigned,
    /// A message says that a node has resigned which has taken that back since (trap 62).
    TakeOldResignation,
    /// A resignation of before this leader's term counts, though another leader may have had it taken back (trap 62).
    TakeUnvouchedResignation,
    /// A node goes by the times that it was started with, not by those of its cluster (trap 63).
    KeepOwnTimes,
    /// A proposal that may be in the log counts as refused once another attempt at it is (trap 66).
    ForgetUnknown,
    /// A leader says that nothing is about to change before it can have heard of all nodes (trap 67).
    SettleAtOnce,
    /// A member that halted stays a member (trap 68).
    KeepHalted,
    /// A joiner that its tail doesn't hear keeps the place that another node could have, as long as no write waits for it
    /// (trap 39).
    TolerateUnheardJoiner,
    /// The last member of a chain that leaves gets no joiner (trap 69).
    KeepLast,
}
