//! Elections.

use std::{fmt, ops::Deref, time::Duration};

use artillery_proto::recipes::name::{Kind, version_of};
use bytes::Bytes;

use super::{FencingToken, Guard, LockError, contested::Contested, lock::DEFAULT_TTL};
use crate::{
    Batch, Error, Kv,
    kv::{Call, Expected, WriteError},
    rpc::router::from_now,
};

/// An election, by its name: a lock whose holder, the leader, publishes a value.
///
/// Each candidate is a key `election/{NAME}/VERSION` with that candidate's value.
#[derive(Clone)]
pub struct Election(Contested);

impl Kv {
    /// The election with this name. This contacts no node.
    pub fn election(&self, name: impl Into<String>) -> Election {
        Election(Contested { kv: self.plain(), kind: Kind::Election, name: name.into(), ttl: DEFAULT_TTL })
    }
}

/// The leader of an election.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// The value that the leader has published.
    pub value: Bytes,
    /// The token of the leader.
    pub token: FencingToken,
}

impl Election {
    /// Sets how long a leader stays one after it dies or is cut off (10 s): see
    /// [`Lock::with_ttl`](super::Lock::with_ttl).
    #[must_use]
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.0.ttl = ttl;
        self
    }

    /// Waits until this process is the leader, and publishes `value`. Dropping the call withdraws the candidate.
    ///
    /// # Errors
    /// When awaited, [`LockError::TimedOut`] or [`LockError::Call`].
    pub fn campaign(&self, value: impl Into<Bytes>) -> Campaign {
        Campaign { election: self.clone(), value: value.into(), timeout: self.0.kv.timeout() }
    }

    /// The present leader; `None`: no candidate exists. A strong read. The leader may have been paused or cut off for
    /// less than its time to live.
    ///
    /// # Errors
    /// Those of [`Kv::scan`].
    pub async fn leader(&self) -> Result<Option<Leader>, Error> {
        let (kv, prefix) = (&self.0.kv, self.0.prefix());
        let cluster = kv.router.routing(from_now(kv.timeout())).await?.cluster;
        let mut candidates = kv.scan(&prefix);
        while let Some(candidate) = candidates.next().await.transpose()? {
            if let Some(version) = version_of(&prefix, &candidate.key) {
                return Ok(Some(Leader { value: candidate.value, token: FencingToken::new(cluster, version) }));
            }
        }
        Ok(None)
    }

    pub(super) fn kv(&self) -> &Kv {
        &self.0.kv
    }

    /// The prefix of the keys of the election's candidates.
    pub fn prefix(&self) -> Bytes {
        self.0.prefix()
    }
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Election").field("name", &self.0.name).field("ttl", &self.0.ttl).finish_non_exhaustive()
    }
}

/// A candidate that waits to become the leader. Await it.
#[derive(Debug, Clone)]
#[must_use = "a call does nothing until it is awaited"]
pub struct Campaign {
    election: Election,
    value: Bytes,
    timeout: Duration,
}

impl Campaign {
    /// Sets how long to wait (the timeout of the handle).
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}

impl IntoFuture for Campaign {
    type Output = Result<Leadership, LockError>;
    type IntoFuture = Call<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { election, value, timeout } = self;
        Box::pin(async move {
            let guard = election.0.contend(value, timeout, false).await?;
            // Only an attempt that doesn't wait ends without a guard.
            guard.map(Leadership).ok_or(LockError::TimedOut { last: None })
        })
    }
}

/// The leadership of an election that this process won: a [`Guard`] with the leader's value. Dropping it resigns.
#[must_use = "the leadership ends when it is dropped"]
#[derive(Debug)]
pub struct Leadership(Guard);

impl Leadership {
    /// Publishes another value, if this process still leads.
    ///
    /// # Errors
    /// [`LockError::Lost`] if it doesn't; [`LockError::Call`] if the call failed.
    pub async fn proclaim(&self, value: impl Into<Bytes>) -> Result<(), LockError> {
        let key = self.0.key();
        let batch = Batch::new().require(key, Expected::Present).put(key, value).keep_ttl();
        match self.0.contest().kv().write(batch).await {
            Ok(_) => Ok(()),
            Err(WriteError::Conflict(_)) => Err(LockError::Lost),
            Err(WriteError::Call(error)) => Err(error.into()),
        }
    }

    /// Resigns, so that the next candidate leads.
    ///
    /// # Errors
    /// Those of [`Guard::release`].
    pub async fn resign(self) -> Result<(), LockError> {
        self.0.release().await
    }
}

impl Deref for Leadership {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.0
    }
}
