//! The rules that a test can take out, to see that its checks would notice.

/// One rule less. For tests alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(not(feature = "mutants"), allow(unreachable_pub, reason = "public to the simulator alone"))]
#[cfg_attr(not(any(test, feature = "mutants")), expect(dead_code, reason = "only tests take rules out"))]
pub enum Mutant {
    /// A node gives its proposal up when that takes too long.
    GiveUpWhenSlow,
    /// A node gives its proposal up when one founder is replaced.
    GiveUpWhenOneIsReplaced,
    /// A node forgets the proposal that it accepted when another one comes.
    AcceptTwo,
    /// A new life speaks for the old one.
    AnyLife,
    /// A majority that accepted is enough.
    MajorityAccepts,
    /// Who knows that all accepted forms the cluster without a vote.
    FormWithoutVote,
    /// The owner of a ballot doesn't care for earlier votes.
    FreshVerdict,
    /// A node votes below what it promised.
    BrokenPromise,
    /// A refused proposal can be accepted later.
    RefuseForNow,
    /// A member of a cluster accepts proposals for another.
    FormAgain,
}
