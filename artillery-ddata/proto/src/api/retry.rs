//! The outcome of a request after several attempts.
//!
//! A refusal concerns only the attempt that it answers. An earlier attempt without an answer may have been applied, or
//! may still be, by a head that the refusing node doesn't know. So once an attempt is unanswered, "nothing was applied"
//! is reported only if the request's own record states it (docs/DESIGN.md §3 and §9). Every kind of client uses
//! [`RetryState`] instead of interpreting refusals itself.
//!
//! ```
//! use artillery_proto::{
//!     Refusal,
//!     api::{
//!         Reply,
//!         retry::{Ending, NextAttempt, Repeat, RetryState},
//!     },
//! };
//!
//! let mut state = RetryState::new(Repeat::Recorded);
//! assert_eq!(state.replied(&Reply::Refused(Refusal::Busy)), NextAttempt::Again);
//! assert_eq!(state.give_up(), Ending::NotApplied(Some(Refusal::Busy)));
//!
//! assert_eq!(state.unanswered(), NextAttempt::Again);
//! assert_eq!(state.replied(&Reply::Refused(Refusal::Busy)), NextAttempt::Again);
//! assert_eq!(state.give_up(), Ending::Unknown(Some(Refusal::Busy)));
//! ```

use crate::{
    api::{Refusal, Reply},
    guards::Guards,
};

/// The effect of repeating a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Repeat {
    /// None: the request is a read, or opens a session.
    Harmless,
    /// None: the request has an id by which a repetition is recognized.
    Recorded,
    /// The write may be applied twice, since it has no request id. It is repeated only while it certainly wasn't
    /// applied.
    Twice,
}

/// The next action after an attempt.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NextAttempt {
    /// The reply is the outcome of the request.
    Done,
    /// Try again, under the same request id if it has one. If no time is left, end with [`RetryState::give_up`].
    Again,
    /// Further attempts are useless.
    Over(Ending),
}

/// How a request ends without an outcome.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Ending {
    /// Nothing was applied, and nothing will be, under this request id, except that an unanswered request for a session
    /// may have opened one; with the last refusal, if any. After [`Refusal::SessionExpired`] the caller may repeat the
    /// request in a new session, under another id.
    NotApplied(Option<Refusal>),
    /// The request may have been applied, may still be, or never will be; with the last refusal, if any.
    Unknown(Option<Refusal>),
}

/// The state of all attempts at one request, without attempts that certainly never left this process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RetryState {
    repeat: Repeat,
    unanswered: bool,
    resolves: bool,
    refusal: Option<Refusal>,
    guards: Guards,
}

impl RetryState {
    pub const fn new(repeat: Repeat) -> Self {
        Self { repeat, unanswered: false, resolves: false, refusal: None, guards: Guards::ALL }
    }

    /// A state for a write under a given request id, after an unknown number of attempts.
    pub const fn settling() -> Self {
        let mut tries = Self::new(Repeat::Recorded);
        tries.unanswered = true;
        tries
    }

    /// A state for [resolving](crate::api::Write::Resolve) a request after an unknown number of attempts.
    pub const fn resolving() -> Self {
        let mut tries = Self::settling();
        tries.resolves = true;
        tries
    }

    #[cfg(any(test, feature = "mutants"))]
    #[must_use]
    pub const fn with_guards(self, guards: Guards) -> Self {
        Self { guards, ..self }
    }

    /// Whether an attempt is unanswered: it may have been applied, or may still be.
    pub const fn is_open(&self) -> bool {
        self.unanswered
    }

    pub const fn refusal(&self) -> Option<Refusal> {
        self.refusal
    }

    /// Records that an attempt was sent and that its answer is no longer awaited.
    pub const fn unanswered(&mut self) -> NextAttempt {
        self.unanswered = true;
        match self.repeat {
            Repeat::Harmless | Repeat::Recorded => NextAttempt::Again,
            Repeat::Twice => NextAttempt::Over(Ending::Unknown(self.refusal)),
        }
    }

    /// Records the answer to an attempt.
    pub const fn replied(&mut self, reply: &Reply) -> NextAttempt {
        match reply {
            Reply::Refused(refusal) => self.refused(*refusal),
            Reply::Expired => self.unanswered(),
            Reply::Committed(_)
            | Reply::Conflict { .. }
            | Reply::Read(_)
            | Reply::Cut(_)
            | Reply::Page(_)
            | Reply::Changes(_)
            | Reply::Hashed(_)
            | Reply::Digest(_)
            | Reply::Copied(_) => NextAttempt::Done,
        }
    }

    /// How the request ends if no time is left for another attempt.
    pub const fn give_up(&self) -> Ending {
        match self.repeat {
            Repeat::Recorded | Repeat::Twice if self.unanswered => Ending::Unknown(self.refusal),
            _ => Ending::NotApplied(self.refusal),
        }
    }

    const fn refused(&mut self, refusal: Refusal) -> NextAttempt {
        self.refusal = Some(refusal);
        if allows!(self.guards, BelieveRefusals) {
            self.unanswered = false;
        }
        match self.says(refusal) {
            Says::NotNow => NextAttempt::Again,
            Says::NotHere if matches!(self.repeat, Repeat::Harmless) => NextAttempt::Again,
            Says::Settled => NextAttempt::Over(Ending::NotApplied(self.refusal)),
            Says::NotHere | Says::Never => NextAttempt::Over(self.give_up()),
        }
    }

    /// `ValueTooLarge` can mean the value of the request itself or the value after an append. Only the latter leaves a
    /// record, and only it can answer a request without a value.
    const fn says(&self, refusal: Refusal) -> Says {
        match refusal {
            Refusal::ValueTooLarge { .. } if self.resolves => Says::Settled,
            refusal => says(refusal),
        }
    }
}

/// The scope of a refusal.
enum Says {
    /// The present time or the asked node: a later attempt may succeed.
    NotNow,
    /// The asked member: another one may answer a request that any member can answer.
    NotHere,
    /// The attempt: other nodes would refuse it too.
    Never,
    /// The request: its record states that it changed nothing.
    Settled,
}

const fn says(refusal: Refusal) -> Says {
    match refusal {
        Refusal::NoChain
        | Refusal::NotHead(_)
        | Refusal::NotTail(_)
        | Refusal::NoLease
        | Refusal::Busy
        | Refusal::Succeeded { .. }
        | Refusal::Parted { .. }
        | Refusal::SessionFull => Says::NotNow,
        Refusal::StoreFailed => Says::NotHere,
        Refusal::Barred
        | Refusal::NotANumber
        | Refusal::Overflow
        | Refusal::ResultsTooLarge { .. }
        | Refusal::UpdateTooLarge { .. } => Says::Settled,
        Refusal::TooFewMembers { .. }
        | Refusal::DiskFull { .. }
        | Refusal::MemoryFull { .. }
        | Refusal::KeyTooLong { .. }
        | Refusal::ValueTooLarge { .. }
        | Refusal::BatchSize { .. }
        | Refusal::ManyChains
        | Refusal::OtherRequest
        | Refusal::Compacted { .. }
        | Refusal::OtherHistory
        | Refusal::SessionExpired
        | Refusal::Forgotten
        | Refusal::SnapshotGone
        | Refusal::Unsupported { .. } => Says::Never,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Version,
        api::{Computed, WriteReply},
        guards::Mutant,
    };

    const MEMBER: crate::MemberId = crate::MemberId {
        node: crate::NodeId::from_bytes([1; 16]),
        incarnation: crate::Incarnation { store: 1, starts: 0 },
    };
    const SETTLED: [Refusal; 5] = [
        Refusal::Barred,
        Refusal::NotANumber,
        Refusal::Overflow,
        Refusal::ResultsTooLarge { len: 2, limit: 1 },
        Refusal::UpdateTooLarge { len: 2, limit: 1 },
    ];
    const PASSING: [Refusal; 8] = [
        Refusal::NoChain,
        Refusal::NotHead(None),
        Refusal::NotTail(None),
        Refusal::NoLease,
        Refusal::Busy,
        Refusal::Succeeded { by: crate::ClusterId(2) },
        Refusal::Parted { by: crate::control::History { generation: 1, id: 2 } },
        Refusal::SessionFull,
    ];
    const FINAL: [Refusal; 11] = [
        Refusal::StoreFailed,
        Refusal::TooFewMembers { have: 1, need: 2 },
        Refusal::DiskFull { member: MEMBER },
        Refusal::MemoryFull { member: MEMBER },
        Refusal::KeyTooLong { len: 2, limit: 1 },
        Refusal::ValueTooLarge { len: 2, limit: 1 },
        Refusal::BatchSize { len: 2, limit: 1 },
        Refusal::SessionExpired,
        Refusal::Forgotten,
        Refusal::SnapshotGone,
        Refusal::Unsupported { needs: 2, has: 1 },
    ];

    fn refused(refusal: Refusal) -> Reply {
        Reply::Refused(refusal)
    }

    fn committed() -> Reply {
        Reply::Committed(WriteReply { version: Version::NONE, copies: 3, replayed: true, result: Computed::Nothing })
    }

    #[test]
    fn refusals_alone_leave_nothing_behind() {
        for repeat in [Repeat::Recorded, Repeat::Twice] {
            for refusal in PASSING {
                let mut tries = RetryState::new(repeat);
                assert_eq!(tries.replied(&refused(refusal)), NextAttempt::Again);
                assert_eq!(tries.give_up(), Ending::NotApplied(Some(refusal)));
            }
            for refusal in FINAL.into_iter().chain(SETTLED) {
                let over = NextAttempt::Over(Ending::NotApplied(Some(refusal)));
                assert_eq!(RetryState::new(repeat).replied(&refused(refusal)), over);
            }
            assert_eq!(RetryState::new(repeat).give_up(), Ending::NotApplied(None));
        }
    }

    #[test]
    fn after_an_unanswered_attempt_only_the_record_is_believed() {
        for first in [RetryState::unanswered, |tries: &mut RetryState| tries.replied(&Reply::Expired)] {
            let mut tries = RetryState::new(Repeat::Recorded);
            tries.replied(&refused(Refusal::Busy));
            assert_eq!(first(&mut tries), NextAttempt::Again);
            assert_eq!(tries.give_up(), Ending::Unknown(Some(Refusal::Busy)));
            for refusal in PASSING {
                let mut tries = tries;
                assert_eq!(tries.replied(&refused(refusal)), NextAttempt::Again);
                assert_eq!(tries.give_up(), Ending::Unknown(Some(refusal)));
            }
            for refusal in FINAL {
                let over = NextAttempt::Over(Ending::Unknown(Some(refusal)));
                assert_eq!(tries.clone().replied(&refused(refusal)), over);
            }
            for refusal in SETTLED {
                let over = NextAttempt::Over(Ending::NotApplied(Some(refusal)));
                assert_eq!(tries.clone().replied(&refused(refusal)), over);
            }
            assert_eq!(tries.replied(&committed()), NextAttempt::Done);
        }
        assert_eq!(RetryState::settling().give_up(), Ending::Unknown(None));
    }

    #[test]
    fn a_request_without_a_value_learns_from_the_record_that_a_value_was_too_large() {
        let reply = refused(Refusal::ValueTooLarge { len: 2, limit: 1 });
        let reason = Some(Refusal::ValueTooLarge { len: 2, limit: 1 });
        assert_eq!(RetryState::resolving().replied(&reply), NextAttempt::Over(Ending::NotApplied(reason)));
        assert_eq!(RetryState::settling().replied(&reply), NextAttempt::Over(Ending::Unknown(reason)));
        let other = refused(Refusal::KeyTooLong { len: 2, limit: 1 });
        assert!(matches!(RetryState::resolving().replied(&other), NextAttempt::Over(Ending::Unknown(_))));
    }

    #[test]
    fn an_unanswered_write_without_id_is_not_repeated() {
        let mut write = RetryState::new(Repeat::Twice);
        write.replied(&refused(Refusal::NotHead(None)));
        let unknown = NextAttempt::Over(Ending::Unknown(Some(Refusal::NotHead(None))));
        assert_eq!(write.clone().unanswered(), unknown);
        assert_eq!(write.replied(&Reply::Expired), unknown);
    }

    #[test]
    fn a_harmless_request_is_never_unknown() {
        let mut read = RetryState::new(Repeat::Harmless);
        assert_eq!(read.unanswered(), NextAttempt::Again);
        assert_eq!(read.replied(&refused(Refusal::StoreFailed)), NextAttempt::Again);
        assert_eq!(read.give_up(), Ending::NotApplied(Some(Refusal::StoreFailed)));
        let gone = NextAttempt::Over(Ending::NotApplied(Some(Refusal::SnapshotGone)));
        assert_eq!(read.replied(&refused(Refusal::SnapshotGone)), gone);
    }

    #[test]
    fn the_mutant_believes_what_it_hears_last() {
        let mut tries = RetryState::new(Repeat::Recorded).with_guards(Guards::without(Mutant::BelieveRefusals));
        tries.unanswered();
        tries.replied(&refused(Refusal::Busy));
        assert_eq!(tries.give_up(), Ending::NotApplied(Some(Refusal::Busy)));
    }
}
