//! Calls of a typed map. Each wraps a call of the [`Kv`], or the error that prevented that call.

use std::{fmt, time::Duration};

use bytes::Bytes;
use tokio::task::coop;

use super::{MapError, ValueError};
use crate::{
    Error, Kv, ReadMode, RequestId, Session,
    kv::{Call, NoOptions, Read, SetsValue, Versioned, WriteCall},
};

pub(super) type Decode<V> = fn(&Bytes) -> Result<V, ValueError>;

/// A write of one entry. Set the options that differ from the handle's defaults, and await it. It fails with a
/// [`MapError`], made from `E` if the underlying call fails.
#[must_use = "a call does nothing until it is awaited"]
#[derive(Debug)]
pub struct MapWrite<T, E = Error, K = NoOptions>(pub(super) Result<WriteCall<T, E, K>, MapError>);

impl<T, E> MapWrite<T, E, SetsValue> {
    /// Lets the entry expire after this length of chain time ([`WriteCall::ttl`]).
    pub fn ttl(self, ttl: Duration) -> Self {
        self.set(|call| call.ttl(ttl))
    }

    /// Lets the entry expire after this length of chain time if the write creates it. Otherwise it keeps its expiry.
    pub fn ttl_if_new(self, ttl: Duration) -> Self {
        self.set(|call| call.ttl_if_new(ttl))
    }

    /// Keeps the entry's expiry, if it has one.
    pub fn keep_ttl(self) -> Self {
        self.set(|call| call.keep_ttl())
    }
}

impl<T, E, K> MapWrite<T, E, K> {
    fn set(self, set: impl FnOnce(WriteCall<T, E, K>) -> WriteCall<T, E, K>) -> Self {
        Self(self.0.map(set))
    }

    /// Sets how long the write may take. If the time expires after the write was sent and before its commit is
    /// confirmed, the outcome is unknown.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.set(|call| call.timeout(timeout))
    }

    /// Makes the write in a session: later reads in that session see it.
    pub fn session(self, session: &Session) -> Self {
        self.set(|call| call.session(session))
    }

    /// Makes the write under this id, from [`Kv::new_request_id`] or an unknown outcome. However often a
    /// write is repeated under one id, it is applied at most once.
    pub fn request_id(self, id: RequestId) -> Self {
        self.set(|call| call.request_id(id))
    }
}

impl<T: Send + 'static, E: Into<MapError> + Send + 'static, K: 'static> IntoFuture for MapWrite<T, E, K> {
    type Output = Result<T, MapError>;
    type IntoFuture = Call<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            coop::consume_budget().await;
            self.0?.await.map_err(Into::into)
        })
    }
}

/// A read of one entry. Set the options that differ from the handle's defaults, and await it.
#[must_use = "a call does nothing until it is awaited"]
pub struct Get<V> {
    /// The handle. Its defaults are the settings of this call.
    kv: Kv,
    key: Result<Bytes, MapError>,
    decode: Decode<V>,
}

impl<V> Get<V> {
    pub(super) fn new(kv: &Kv, key: Result<Bytes, MapError>, decode: Decode<V>) -> Self {
        Self { kv: kv.clone(), key, decode }
    }

    /// Sets the mode: where the read may be served, and how fresh its result is.
    pub fn mode(mut self, mode: ReadMode) -> Self {
        self.kv = self.kv.with_read_mode(mode);
        self
    }

    /// Sets how long the read may take.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.kv = self.kv.with_timeout(timeout);
        self
    }

    /// Makes the read in a session: it never shows an older state than the session has seen.
    pub fn session(mut self, session: &Session) -> Self {
        self.kv = self.kv.in_session(session);
        self
    }
}

impl<V: 'static> IntoFuture for Get<V> {
    type Output = Result<Read<V>, MapError>;
    type IntoFuture = Call<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            coop::consume_budget().await;
            let read = self.kv.get(&self.key?).await?;
            let (state, served, expires_in) = (read.state, read.served, read.expires_in());
            let found = match read.into_versioned() {
                Some(found) => Some(Versioned { version: found.version, value: (self.decode)(&found.value)? }),
                None => None,
            };
            Ok(Read::new(found, state, served).expiring_in(expires_in))
        })
    }
}

impl<V> fmt::Debug for Get<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Get").field("kv", &self.kv).field("key", &self.key).finish_non_exhaustive()
    }
}
