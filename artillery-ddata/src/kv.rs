//! Keys and values as bytes: the calls of a [`Kv`](crate::Kv), and their results.

/// Setters for the options of a read, which the call keeps in its field `how`. The user of the macro documents `mode`.
macro_rules! read_options {
    ($(#[$mode:meta])*) => {
        $(#[$mode])*
        pub fn mode(mut self, mode: crate::ReadMode) -> Self {
            self.how.mode = mode;
            self
        }

        /// Sets how long the call may take.
        pub fn timeout(mut self, timeout: std::time::Duration) -> Self {
            self.how.timeout = timeout;
            self
        }

        /// Makes the call in a session: it never shows an older state than the session has seen.
        pub fn session(mut self, session: &crate::Session) -> Self {
            self.how.session = Some(session.clone());
            self
        }
    };
}

mod backup;
pub(crate) mod batch;
mod digest;
mod error;
mod fetched;
mod get;
pub(crate) mod handle;
mod hashed;
mod keep;
mod many;
mod methods;
mod prefix;
mod result;
mod scan;
pub(crate) mod script;
#[cfg(test)]
mod tests;
mod watch;
mod write;

use std::pin::Pin;

pub(crate) use self::{get::no_read, write::outcome};
pub use artillery_proto::{
    Computed, Expected, ExpireIf, GroupFailure, GroupOutcome, ReadPath, StepOutcome,
    api::{HashKey, NotAHashKey, Sums},
    types::update::{MAX_KEY, RequestFailure},
};
pub use backup::{Backup, BackupProgress};
pub use digest::{Digest, MemberDigest, ReadDigest, random_hash_key};
pub use error::WriteError;
pub use get::{Get, GetFuture};
pub use handle::DEFAULT_TIMEOUT;
pub use hashed::{KeyPage, ScanHashed};
pub use many::{GetMany, MultiGet};
pub use result::{Committed, Conflict, Read, ReadState, Record, Resolution, Served, Taken, Versioned};
pub use scan::{Entry, Scan};
pub use script::Group;
pub(crate) use watch::follow;
pub use watch::{Change, FromNow, FromPosition, OpenWatch, Watch, WithPrevious};
pub use write::{NoOptions, SetsExpiry, SetsValue, WriteCall};

/// A call in progress. It borrows nothing, so it can be spawned.
pub type Call<T> = Pin<Box<dyn Future<Output = T> + Send>>;
