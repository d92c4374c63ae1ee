//! The guard of a lock.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;

use super::{FencingToken, LockError, contest::Contest, leaving::Leaving};
use crate::Batch;

/// A lock that this process holds. Its key is renewed in the background. Dropping the guard releases the lock too,
/// without waiting for the result.
///
/// The guard counts from the *sending* of its last acknowledged renewal, by a clock that includes the time in which the
/// machine was suspended. It ends after the time to live, less the bound on the drift of two clocks: before another
/// contender can hold. A guard that was lost never holds again.
#[must_use = "the lock is released when the guard is dropped"]
pub struct Guard {
    contest: Arc<Contest>,
    token: FencingToken,
    key: Bytes,
    is_released: bool,
}

impl Guard {
    pub(super) fn new(contest: Arc<Contest>) -> Self {
        let (token, key) = (contest.token(), contest.key());
        Self { contest, token, key, is_released: false }
    }

    /// The fencing token: greater than that of every earlier holder of this lock.
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// Whether the lock is certainly held now. Sends nothing: reads the clock.
    ///
    /// The process may be paused right after this call. An action that must not overlap with another holder's checks the
    /// [token](Self::token), or is a batch with [`held`](Batch::held).
    pub fn is_held(&self) -> bool {
        !self.held_for().is_zero()
    }

    /// How much longer the lock is certainly held, without further renewals; zero if it isn't.
    pub fn held_for(&self) -> Duration {
        self.contest.held_for()
    }

    /// Waits until the lock is no longer held: renewals failed for too long, or the key was deleted.
    pub async fn lost(&self) {
        self.contest.lost().await;
    }

    /// Releases the lock. When this returns, the next contender may hold it already.
    ///
    /// # Errors
    /// [`LockError::Lost`] if the lock was no longer held; then another process may have held it before this call.
    /// [`LockError::Call`] if the release may not have been applied: then the lock is free after its time to live.
    pub async fn release(mut self) -> Result<(), LockError> {
        let released = self.contest.release().await;
        self.is_released = !matches!(released, Err(LockError::Call(_)));
        released
    }

    /// The key that represents this holder in the lock's queue.
    pub fn key(&self) -> &Bytes {
        &self.key
    }

    pub(super) fn contest(&self) -> &Contest {
        &self.contest
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.is_released {
            let contest = self.contest.clone();
            let (runtime, task) = (contest.kv().runtime().clone(), Leaving::begin(&contest.kv().router));
            runtime.spawn(async move {
                contest.leave().await;
                drop(task);
            });
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("key", &self.key).field("held_for", &self.held_for()).finish_non_exhaustive()
    }
}

impl Batch {
    /// Requires that this lock is held: the batch conflicts once it isn't, whatever this process believes. An earlier batch
    /// of the same holder, of unknown outcome, may still be applied: repeat it under its request id, or add a condition on
    /// the version of a key.
    ///
    /// All keys of a batch must belong to one chain. If the cluster has several chains, the other keys must contain the
    /// name of the lock in braces, as in `report/{jobs}`.
    pub fn held(self, guard: &Guard) -> Self {
        self.require(guard.key(), crate::kv::Expected::Present)
    }
}
