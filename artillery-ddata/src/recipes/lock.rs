//! Locks.

use std::time::Duration;

use artillery_proto::recipes::name::Kind;
use bytes::Bytes;

use super::{Guard, LockError, contested::Contested};
use crate::{Kv, kv::Call};

/// The time to live of a lock, an election or a registration, unless another is set.
pub(super) const DEFAULT_TTL: Duration = Duration::from_secs(10);

/// A lock, by its name. At most one guard holds it at a time; contenders get it in the order in which they queued.
///
/// Each contender is a key `lock/{NAME}/VERSION` that expires unless it is renewed.
#[derive(Clone)]
pub struct Lock {
    contested: Contested,
    owner: Bytes,
}

impl Kv {
    /// The lock with this name. This contacts no node.
    pub fn lock(&self, name: impl Into<String>) -> Lock {
        let contested = Contested { kv: self.plain(), kind: Kind::Lock, name: name.into(), ttl: DEFAULT_TTL };
        Lock { contested, owner: Bytes::new() }
    }
}

impl Lock {
    /// Sets how long the lock stays held after its holder dies or is cut off (10 s). A holder that is paused for longer
    /// loses it. Keys are renewed three times in this time; it should be far above the time in which the cluster replaces
    /// a dead head.
    #[must_use]
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.contested.ttl = ttl;
        self
    }

    /// Sets the value of the contender's key, for people who look at the queue (empty).
    #[must_use]
    pub fn with_owner(mut self, owner: impl Into<Bytes>) -> Self {
        self.owner = owner.into();
        self
    }

    /// Waits in the queue until this process holds the lock. Dropping the call leaves the queue.
    ///
    /// # Errors
    /// When awaited, [`LockError::TimedOut`] or [`LockError::Call`].
    pub fn acquire(&self) -> Acquire {
        Acquire { lock: self.clone(), timeout: self.contested.kv.timeout() }
    }

    /// Acquires the lock if it is free; `None`: another contender holds it or waits for it.
    ///
    /// # Errors
    /// Those of [`acquire`](Self::acquire).
    pub fn try_acquire(&self) -> TryAcquire {
        TryAcquire(self.acquire())
    }

    /// The prefix of the keys of the lock's queue.
    pub fn prefix(&self) -> Bytes {
        self.contested.prefix()
    }
}

impl std::fmt::Debug for Lock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lock")
            .field("name", &self.contested.name)
            .field("ttl", &self.contested.ttl)
            .finish_non_exhaustive()
    }
}

/// An attempt to acquire a lock. Await it.
#[derive(Debug, Clone)]
#[must_use = "a call does nothing until it is awaited"]
pub struct Acquire {
    lock: Lock,
    timeout: Duration,
}

impl Acquire {
    /// Sets how long to wait for the lock (the timeout of the handle).
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}

impl IntoFuture for Acquire {
    type Output = Result<Guard, LockError>;
    type IntoFuture = Call<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { lock: Lock { contested, owner }, timeout } = self;
        Box::pin(async move {
            let guard = contested.contend(owner, timeout, false).await?;
            // Only an attempt that doesn't wait ends without a guard.
            guard.ok_or(LockError::TimedOut { last: None })
        })
    }
}

/// An attempt to acquire a lock without waiting for other contenders. Await it.
#[derive(Debug, Clone)]
#[must_use = "a call does nothing until it is awaited"]
pub struct TryAcquire(Acquire);

impl TryAcquire {
    /// Sets how long each of the two steps of the call may take: a look, and an attempt (the timeout of the handle).
    pub fn timeout(self, timeout: Duration) -> Self {
        Self(self.0.timeout(timeout))
    }
}

impl IntoFuture for TryAcquire {
    type Output = Result<Option<Guard>, LockError>;
    type IntoFuture = Call<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let Self(Acquire { lock: Lock { contested, owner }, timeout }) = self;
        Box::pin(async move {
            // A key would delay the others, even if it is deleted soon.
            match contested.is_contended(timeout).await {
                Ok(true) => Ok(None),
                Ok(false) => contested.contend(owner, timeout, true).await,
                Err(error) if error.is_timeout() => Err(LockError::TimedOut { last: Some(error) }),
                Err(error) => Err(error.into()),
            }
        })
    }
}
