//! Registries of running instances.

use std::{fmt, time::Duration};

use artillery_proto::recipes::name::{Kind, prefix};
use bytes::Bytes;

use super::{Registration, lock::DEFAULT_TTL};
use crate::{Error, Kv, Version, kv::Call};

/// A registry of the running instances of a service, by its name. An instance that dies disappears after its time to
/// live.
///
/// Each instance is a key `registry/{NAME}/ID` with its value, usually an address.
#[derive(Clone)]
pub struct Registry {
    kv: Kv,
    name: String,
    ttl: Duration,
}

impl Kv {
    /// The registry with this name. This contacts no node.
    pub fn registry(&self, name: impl Into<String>) -> Registry {
        Registry { kv: self.plain(), name: name.into(), ttl: DEFAULT_TTL }
    }
}

/// A registered instance.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Instance {
    /// The id of the instance.
    pub id: Bytes,
    /// Its value.
    pub value: Bytes,
    /// The version of the registration, or of its last renewal.
    pub version: Version,
}

impl Registry {
    /// Sets how long an instance stays registered after it dies or is cut off (10 s).
    #[must_use]
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Registers an instance, and keeps it registered until the result is dropped. It replaces an instance with the same
    /// id: the one before was restarted, or made by mistake. Two processes that register the same id with the same value
    /// keep one instance together.
    ///
    /// # Errors
    /// When awaited, those of [`Kv::put`]. If the outcome is unknown, the instance may be registered for one time to
    /// live.
    pub fn register(&self, id: impl AsRef<[u8]>, value: impl Into<Bytes>) -> Register {
        let key = [&self.prefix()[..], id.as_ref()].concat().into();
        Register { kv: self.kv.clone(), key, value: value.into(), ttl: self.ttl, timeout: self.kv.timeout() }
    }

    /// The registered instances, in the order of their ids. Pages of a large registry may show different times.
    ///
    /// # Errors
    /// Those of [`Kv::scan`].
    pub async fn instances(&self) -> Result<Vec<Instance>, Error> {
        let prefix = self.prefix();
        let (mut entries, mut instances) = (self.kv.scan(&prefix), Vec::new());
        while let Some(entry) = entries.next().await.transpose()? {
            let id = entry.key.slice(prefix.len()..);
            instances.push(Instance { id, value: entry.value, version: entry.version });
        }
        Ok(instances)
    }

    pub(super) fn kv(&self) -> &Kv {
        &self.kv
    }

    /// The prefix of the keys of the instances.
    pub fn prefix(&self) -> Bytes {
        prefix(Kind::Registry, &self.name)
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("name", &self.name).field("ttl", &self.ttl).finish_non_exhaustive()
    }
}

/// The registration of an instance. Await it.
#[derive(Debug, Clone)]
#[must_use = "a call does nothing until it is awaited"]
pub struct Register {
    kv: Kv,
    key: Bytes,
    value: Bytes,
    ttl: Duration,
    timeout: Duration,
}

impl Register {
    /// Sets how long the call may take (the timeout of the handle).
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}

impl IntoFuture for Register {
    type Output = Result<Registration, Error>;
    type IntoFuture = Call<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { kv, key, value, ttl, timeout } = self;
        Box::pin(Registration::begin(kv, key, value, ttl, timeout))
    }
}
