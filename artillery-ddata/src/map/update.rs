//! Read-modify-write of one entry.

use std::{fmt, pin::Pin, time::Duration};

use bytes::Bytes;
use tokio::time::Instant;

use super::{MapError, ValueCodec, ValueError, calls::Decode};
use crate::{
    Error, Kv, ReadMode, Session, Version,
    api::Ttl,
    error::NotApplied,
    kv::{Committed, WriteError},
    rpc::router::from_now,
};

type ChangeValue<'a, V> = Box<dyn FnMut(Option<V>) -> Option<V> + Send + 'a>;

/// A read-modify-write of one entry, which returns the entry's new value. Set the options that differ from the handle's
/// defaults, and await it.
#[must_use = "a call does nothing until it is awaited"]
pub struct MapUpdate<'a, V> {
    /// The handle. Its defaults are the settings of this call, except for `timeout`.
    kv: Kv,
    timeout: Duration,
    /// `None`: the entry keeps its expiry.
    ttl: Option<Duration>,
    key: Result<Bytes, MapError>,
    change: ChangeValue<'a, V>,
    encode: fn(&V) -> Result<Bytes, ValueError>,
    decode: Decode<V>,
}

impl<'a, V> MapUpdate<'a, V> {
    pub(super) fn new<C: ValueCodec<V>>(
        kv: &Kv,
        key: Result<Bytes, MapError>,
        ttl: Option<Duration>,
        change: ChangeValue<'a, V>,
    ) -> Self {
        let kv = kv.clone().with_read_mode(ReadMode::Strong);
        Self { timeout: kv.timeout(), ttl, kv, key, change, encode: C::encode, decode: C::decode }
    }

    /// Sets how long the update may take, including all attempts.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Makes the update in a session: later reads in that session see it.
    pub fn session(mut self, session: &Session) -> Self {
        self.kv = self.kv.in_session(session);
        self
    }
}

impl<V: Send> MapUpdate<'_, V> {
    async fn run(mut self) -> Result<Committed<Option<V>>, MapError> {
        let deadline = from_now(self.timeout);
        let key = std::mem::replace(&mut self.key, Ok(Bytes::new()))?;
        let mut seen = read(&self.kv, &key, deadline).await?;
        loop {
            let Seen { version, value: bytes, may_expire } = seen;
            let old = bytes.map(|bytes| (self.decode)(&bytes)).transpose()?;
            let new = (self.change)(old);
            let call = match &new {
                Some(value) => {
                    let mut call = self.kv.compare_and_swap(&key, version, (self.encode)(value)?);
                    let kept = if may_expire { Ttl::Keep } else { Ttl::Usual };
                    call.set_ttl(self.ttl.map_or(kept, Ttl::set));
                    call.timeout(left(deadline)?).into_future()
                }
                None => self.kv.compare_and_delete(&key, version).timeout(left(deadline)?).into_future(),
            };
            let conflict = match call.await {
                Ok(done) => {
                    return Ok(Committed::new(done.version, done.copies, done.request_id, done.replayed, new));
                }
                Err(WriteError::Conflict(conflict)) => conflict,
                Err(WriteError::Call(error)) => return Err(error.into()),
            };
            seen = match conflict.current {
                Some((version, value)) => Seen { version, value: Some(value), may_expire: true },
                None if conflict.version().is_none() => Seen::default(),
                // This conflict answers a retry, for which the chain keeps no value.
                None => read(&self.kv, &key, deadline).await?,
            };
        }
    }
}

/// What an attempt replaces. The swap by version ensures that this is still the entry.
#[derive(Default)]
struct Seen {
    version: Version,
    value: Option<Bytes>,
    may_expire: bool,
}

async fn read(kv: &Kv, key: &Bytes, deadline: Instant) -> Result<Seen, MapError> {
    let read = kv.get(key).timeout(left(deadline)?).await?;
    Ok(Seen { version: read.version(), may_expire: read.expires_in().is_some(), value: read.into_value() })
}

/// The time left for the next attempt. If none is left, the update has applied nothing, since all earlier attempts
/// ended in a conflict.
fn left(deadline: Instant) -> Result<Duration, Error> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(Error::not_applied(NotApplied::TimedOut)) } else { Ok(left) }
}

impl<'a, V: Send + 'a> IntoFuture for MapUpdate<'a, V> {
    type Output = Result<Committed<Option<V>>, MapError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

impl<V> fmt::Debug for MapUpdate<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Update").field("kv", &self.kv).field("key", &self.key).finish_non_exhaustive()
    }
}
