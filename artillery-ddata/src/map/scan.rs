//! Scans of a typed map.

use std::{
    fmt,
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use futures_core::Stream;
use serde::de::DeserializeOwned;

use super::{AsKey, KeyError, KeySpace, MapError, calls::Decode};
use crate::{
    Kv, ReadMode, Session, Version,
    kv::{Entry, Scan},
    rpc::router::poll_budget,
};

/// One entry of a typed map.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MapEntry<K, V> {
    /// The key.
    pub key: K,
    /// The version of the update that wrote the value.
    pub version: Version,
    /// The value.
    pub value: V,
}

impl<K, V> MapEntry<K, V> {
    /// Creates an entry, for tests of code that takes one.
    pub fn new(key: K, version: Version, value: V) -> Self {
        Self { key, version, value }
    }
}

/// The entries of a typed map, in the order of their keys; otherwise like [`Scan`].
///
/// If an entry can't be decoded, the scan returns an error in its place and continues with the next entry. Any other
/// error ends the scan.
#[must_use = "a scan does nothing until its entries are asked for"]
pub struct MapScan<K, V> {
    /// `Err`: the scan could not begin; `None` once that error was returned.
    scan: Result<(Scan, KeySpace<K>), Option<MapError>>,
    decode: Decode<V>,
}

impl<K, V> MapScan<K, V> {
    pub(super) fn new(kv: &Kv, keys: KeySpace<K>, prefix: Result<Bytes, KeyError>, decode: Decode<V>) -> Self {
        let scan = prefix.map(|prefix| (kv.scan(prefix), keys)).map_err(|error| Some(error.into()));
        Self { scan, decode }
    }

    fn set(mut self, set: impl FnOnce(Scan) -> Scan) -> Self {
        self.scan = self.scan.map(|(scan, keys)| (set(scan), keys));
        self
    }

    /// Limits the number of entries that the scan returns.
    pub fn limit(self, limit: u64) -> Self {
        self.set(|scan| scan.limit(limit))
    }

    /// Returns only entries after this key.
    pub fn after<Q: AsKey<K> + ?Sized>(mut self, key: &Q) -> Self {
        self.scan = self.scan.and_then(|(scan, keys)| match keys.key(key) {
            Ok(key) => Ok((scan.after(key), keys)),
            Err(error) => Err(Some(error.into())),
        });
        self
    }

    /// Sets the read mode of all pages.
    pub fn mode(self, mode: ReadMode) -> Self {
        self.set(|scan| scan.mode(mode))
    }

    /// Sets how long a fetch may take. A fetch gets one page of each chain that has no fetched entry left.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.set(|scan| scan.timeout(timeout))
    }

    /// Reads the pages in a session: none shows an older state than the session has seen.
    pub fn session(self, session: &Session) -> Self {
        self.set(|scan| scan.session(session))
    }

    /// Shows one point of the history of each chain ([`Scan::snapshot`]).
    pub fn snapshot(self) -> Self {
        self.set(Scan::snapshot)
    }
}

impl<K: DeserializeOwned, V> MapScan<K, V> {
    /// The next entry. `None` after the last entry, or after an error that ended the scan. Dropping the future loses no
    /// entry.
    pub async fn next(&mut self) -> Option<Result<MapEntry<K, V>, MapError>> {
        poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }
}

impl<K: DeserializeOwned, V> Stream for MapScan<K, V> {
    type Item = Result<MapEntry<K, V>, MapError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let decode = self.decode;
        let (scan, keys) = match &mut self.scan {
            Ok(scan) => scan,
            Err(error) => {
                ready!(poll_budget(context));
                return Poll::Ready(error.take().map(Err));
            }
        };
        let next = ready!(Pin::new(scan).poll_next(context));
        Poll::Ready(next.map(|entry| typed(keys, decode, entry?)))
    }
}

pub(super) fn typed<K: DeserializeOwned, V>(
    keys: &KeySpace<K>,
    decode: Decode<V>,
    entry: Entry,
) -> Result<MapEntry<K, V>, MapError> {
    let key = keys.decode(&entry.key)?;
    Ok(MapEntry { key, version: entry.version, value: decode(&entry.value)? })
}

impl<K, V> fmt::Debug for MapScan<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MapScan").field("scan", &self.scan).finish_non_exhaustive()
    }
}
