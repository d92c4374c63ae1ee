//! Watches of a typed map.

use std::{
    fmt,
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures_core::Stream;
use serde::de::DeserializeOwned;

use super::{KeySpace, MapError, calls::Decode};
use crate::{
    Frontier, Kv, Version,
    kv::{Call, Change, FromNow, FromPosition, OpenWatch, Versioned, Watch, WithPrevious},
};

/// A committed change of a typed map.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MapChange<K, V> {
    /// The key.
    pub key: K,
    /// The version of the update. Changes of one batch or script share it.
    pub version: Version,
    /// The new value. `None`: the entry was deleted.
    pub value: Option<V>,
    /// Whether the entry was deleted because it was due.
    pub expired: bool,
    /// The value before the change, if the watch was opened [with previous values](OpenMapWatch::with_previous).
    pub previous: Option<Versioned<V>>,
}

impl<K, V> MapChange<K, V> {
    /// Creates a change, for tests of code that takes one.
    pub fn new(key: K, version: Version, value: Option<V>) -> Self {
        Self { key, version, value, expired: false, previous: None }
    }
}

/// A call that opens a [`MapWatch`]. Set the options that differ from the defaults, and await it: then the watch has
/// begun. `S` states where it begins, as in [`OpenWatch`].
#[must_use = "a call does nothing until it is awaited"]
pub struct OpenMapWatch<K, V, S = FromNow> {
    open: OpenWatch<S>,
    keys: KeySpace<K>,
    decode: Decode<V>,
}

impl<K, V> OpenMapWatch<K, V> {
    pub(super) fn new(kv: &Kv, keys: KeySpace<K>, decode: Decode<V>) -> Self {
        Self { open: kv.watch(keys.prefix()), keys, decode }
    }
}

impl<K, V> OpenMapWatch<K, V, FromNow> {
    /// Begins after this position, which another watch ([`MapWatch::position`]) or a session reported
    /// ([`OpenWatch::from`]).
    pub fn from(self, position: Frontier) -> OpenMapWatch<K, V, FromPosition> {
        let Self { open, keys, decode } = self;
        OpenMapWatch { open: open.from(position), keys, decode }
    }
}

impl<K, V> OpenMapWatch<K, V, FromNow> {
    /// Reports the previous value of each change ([`OpenWatch::with_previous`]).
    pub fn with_previous(self) -> OpenMapWatch<K, V, WithPrevious> {
        let Self { open, keys, decode } = self;
        OpenMapWatch { open: open.with_previous(), keys, decode }
    }
}

impl<K, V, S> OpenMapWatch<K, V, S> {
    /// Sets how long opening the watch may take ([`OpenWatch::timeout`]).
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { open: self.open.timeout(timeout), ..self }
    }
}

impl<K: 'static, V: 'static, S> IntoFuture for OpenMapWatch<K, V, S> {
    type Output = Result<MapWatch<K, V>, MapError>;
    type IntoFuture = Call<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { open, keys, decode } = self;
        let open = open.into_future();
        Box::pin(async move { Ok(MapWatch { watch: open.await?, keys, decode }) })
    }
}

impl<K, V, S> fmt::Debug for OpenMapWatch<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenMapWatch").field("open", &self.open).finish_non_exhaustive()
    }
}

/// The committed changes of a typed map; otherwise like [`Watch`].
///
/// If an entry can't be decoded, the watch returns an error in the place of its change, and continues with the next
/// change. Any other error ends the watch.
#[must_use = "a watch returns nothing until its changes are asked for"]
pub struct MapWatch<K, V> {
    watch: Watch,
    keys: KeySpace<K>,
    decode: Decode<V>,
}

impl<K, V> MapWatch<K, V> {
    /// The position up to which all changes were returned, or errors in their place ([`Watch::position`]).
    pub fn position(&self) -> Frontier {
        self.watch.position()
    }
}

impl<K: DeserializeOwned, V> MapWatch<K, V> {
    /// The next change. `None` after an error that ended the watch. Dropping the future loses no change.
    ///
    /// # Errors
    /// [`MapError::Key`] or [`MapError::Value`] if the entry can't be decoded; errors of [`Watch::next`] as
    /// [`MapError::Call`].
    pub async fn next(&mut self) -> Option<Result<MapChange<K, V>, MapError>> {
        poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }
}

impl<K: DeserializeOwned, V> Stream for MapWatch<K, V> {
    type Item = Result<MapChange<K, V>, MapError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = ready!(Pin::new(&mut self.watch).poll_next(context));
        Poll::Ready(next.map(|change| typed(&self.keys, self.decode, change?)))
    }
}

fn typed<K: DeserializeOwned, V>(
    keys: &KeySpace<K>,
    decode: Decode<V>,
    change: Change,
) -> Result<MapChange<K, V>, MapError> {
    let Change { key, version, value, expired, previous } = change;
    let previous = previous.map(|found| decode(&found.value).map(|value| Versioned { version: found.version, value }));
    let (key, value, previous) = (keys.decode(&key)?, value.as_ref().map(decode).transpose()?, previous.transpose()?);
    Ok(MapChange { key, version, value, expired, previous })
}

impl<K, V> fmt::Debug for MapWatch<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MapWatch").field("watch", &self.watch).finish_non_exhaustive()
    }
}
