//! Why calls of locks, elections and registrations fail.

use crate::{Error, Refusal, kv::WriteError};

/// Why a call of a lock or an election failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// The timeout expired: others held the lock, or the cluster couldn't serve. This process has left the
    /// queue. If the cluster can't be reached now, its key expires after one time to live.
    #[error("the lock wasn't acquired in time{}", because(.last))]
    TimedOut {
        /// The last error of a call to the cluster, if one failed.
        last: Option<Error>,
    },
    /// A call failed, and a retry would fail too.
    #[error(transparent)]
    Call(#[from] Error),
    /// The lock was held and was lost: another process may hold it.
    #[error("the lock was lost")]
    Lost,
}

fn because(last: &Option<Error>) -> String {
    last.as_ref().map_or_else(String::new, |last| format!(": {last}"))
}

/// Why a registration couldn't be changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegistrationError {
    /// Another process has registered under this id.
    #[error("another process has registered under this id")]
    Replaced,
    /// The call failed.
    #[error(transparent)]
    Call(#[from] Error),
}

/// The error of a write that has no condition: only another write under its request id can have left a conflict.
pub(super) fn without_condition(error: WriteError) -> Error {
    error.into_conflict().map_or_else(|error| error, |_| Error::refused(Refusal::OtherRequest, None))
}
