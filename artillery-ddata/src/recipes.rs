//! Locks, elections and registries, built on keys that expire.
//!
//! ```no_run
//! # async fn example(kv: artillery_ddata::Kv) -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//!
//! use artillery_ddata::Batch;
//!
//! let lock = kv.lock("jobs").with_ttl(Duration::from_secs(10));
//! let guard = lock.acquire().timeout(Duration::from_secs(60)).await?;
//! // The write conflicts if the lock was lost.
//! kv.write(Batch::new().held(&guard).put("report/{jobs}", "done")).await?;
//! // Any other resource must check the token.
//! println!("UPDATE report SET … WHERE token <= '{}'", guard.token());
//! guard.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//!
//! At most one guard of a lock [is held](Guard::is_held) at a time, if clocks keep within the cluster's drift bound, and
//! as long as the cluster loses no acknowledged data. A process that checks `is_held` and is then paused may still act
//! after another process got the lock. No lock service can prevent that. So a resource that must not be changed by two
//! holders checks the [token](Guard::token): it remembers the highest one, and refuses lower ones. For data in the same
//! chain, [`Batch::held`](crate::Batch::held) does that. `docs/locks.md` has examples for a database and for files.
//!
//! Only these types should write below `lock/`, `election/` and `registry/`. If an operator deletes the key of a holder,
//! that holder learns it at its next renewal, after another one may hold.
//!
//! After `ctl recover` or `ctl reopen`, which accept the loss of data, two guards may be held for up to one time to live.
//! Their tokens still increase.
//!
//! # Blocking callers
//!
//! A [`BlockingKv`](crate::blocking::BlockingKv) waits for these calls. Renewals run in its runtime, so keep the handle
//! for as long as a guard:
//!
//! ```no_run
//! # fn example(kv: artillery_ddata::blocking::BlockingKv) -> Result<(), artillery_ddata::recipes::LockError> {
//! let guard = kv.wait(kv.kv().lock("jobs").acquire())?;
//! assert!(guard.is_held());
//! kv.wait(guard.release())?;
//! # Ok(())
//! # }
//! ```

mod contest;
mod contested;
mod election;
mod error;
mod guard;
mod instances;
mod leaving;
mod lock;
mod observe;
mod registration;
mod registry;
mod renewer;
#[cfg(test)]
mod tests;

pub use artillery_proto::recipes::FencingToken;

pub(crate) use self::leaving::Leaving;
pub use self::{
    election::{Campaign, Election, Leader, Leadership},
    error::{LockError, RegistrationError},
    guard::Guard,
    instances::{RegistryEvent, RegistryWatch},
    lock::{Acquire, Lock, TryAcquire},
    observe::Observe,
    registration::Registration,
    registry::{Instance, Register, Registry},
};
