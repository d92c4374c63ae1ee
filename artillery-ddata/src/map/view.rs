//! Views of a typed map.

use std::{fmt, marker::PhantomData, time::Duration};

use bytes::Bytes;
use serde::de::DeserializeOwned;

use super::{AsKey, Bincode, KeySpace, MapEntry, MapError, ValueCodec, handle::Map, scan::typed};
use crate::{
    Frontier, Session, Version, View,
    kv::{Call, Versioned},
    view::{OpenView, ViewChange, ViewError, ViewStatus},
};

/// Opens a [`MapView`]. Set the options that differ from the defaults, and await it.
#[must_use = "a view isn't opened until this is awaited"]
pub struct OpenMapView<K, V, C = Bincode> {
    open: OpenView,
    keys: KeySpace<K>,
    types: PhantomData<fn() -> (V, C)>,
}

/// The difference of an entry between two successive states of a view. A key or value that isn't of the map's types is
/// reported as an error in its place.
#[derive(Debug)]
#[non_exhaustive]
pub struct MapViewChange<K, V> {
    /// The key.
    pub key: Result<K, MapError>,
    /// The key as bytes, with the prefix of the map.
    pub raw_key: Bytes,
    /// The value in the earlier state. `None`: the entry was absent, or the callback sees it for the first time.
    pub previous: Result<Option<Versioned<V>>, MapError>,
    /// The value in the later state. `None`: the entry is absent.
    pub value: Result<Option<Versioned<V>>, MapError>,
    /// Whether the entry is known to be absent because it was due.
    pub expired: bool,
}

/// A copy of the entries of a map, kept current: like a [`View`], with keys and values of your types. See the
/// [module](crate::view).
///
/// Clones are cheap. They share the copy and the callback; each has its own [`changed`](Self::changed). Each look-up
/// decodes its value.
pub struct MapView<K, V, C = Bincode> {
    view: View,
    keys: KeySpace<K>,
    types: PhantomData<fn() -> (V, C)>,
}

impl<K, V, C> Map<K, V, C> {
    /// Opens a [view](crate::view) of the map: a copy in this process, which follows all changes.
    ///
    /// # Errors
    /// When awaited, those of [`Kv::view`](crate::Kv::view).
    pub fn view(&self) -> OpenMapView<K, V, C> {
        let keys = self.keys().clone();
        OpenMapView { open: self.kv().view(keys.prefix()), keys, types: PhantomData }
    }
}

impl<K, V, C> OpenMapView<K, V, C> {
    /// Sets how long opening may take ([`OpenView::timeout`]).
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { open: self.open.timeout(timeout), ..self }
    }

    /// Sets how much memory the copy may need, in bytes ([`OpenView::max_bytes`]).
    pub fn max_bytes(self, max_bytes: u64) -> Self {
        Self { open: self.open.max_bytes(max_bytes), ..self }
    }
}

impl<K: DeserializeOwned + 'static, V: 'static, C: ValueCodec<V> + 'static> OpenMapView<K, V, C> {
    /// Calls `on_change` for each entry that exists, before opening returns, and then for every change that the view
    /// shows: once, and in the order of the entry's chain. It must not block, as for [`OpenView::on_change`].
    pub fn on_change(self, mut on_change: impl FnMut(&MapViewChange<K, V>) + Send + 'static) -> Self {
        let keys = self.keys.clone();
        let open = self.open.on_change(move |change| on_change(&typed_change::<K, V, C>(&keys, change)));
        Self { open, ..self }
    }
}

fn typed_change<K: DeserializeOwned, V, C: ValueCodec<V>>(
    keys: &KeySpace<K>,
    change: &ViewChange,
) -> MapViewChange<K, V> {
    MapViewChange {
        key: keys.decode(&change.key).map_err(Into::into),
        raw_key: change.key.clone(),
        previous: change.previous.as_ref().map(decode::<V, C>).transpose(),
        value: change.value.as_ref().map(decode::<V, C>).transpose(),
        expired: change.expired,
    }
}

fn decode<V, C: ValueCodec<V>>(found: &Versioned<Bytes>) -> Result<Versioned<V>, MapError> {
    Ok(Versioned { version: found.version, value: C::decode(&found.value)? })
}

impl<K: 'static, V: 'static, C: 'static> IntoFuture for OpenMapView<K, V, C> {
    type Output = Result<MapView<K, V, C>, ViewError>;
    type IntoFuture = Call<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { Ok(MapView { view: self.open.await?, keys: self.keys, types: PhantomData }) })
    }
}

impl<K, V, C> MapView<K, V, C> {
    /// Whether the copy has this entry.
    ///
    /// # Errors
    /// [`MapError::Key`] if the key can't be encoded.
    pub fn contains_key<Q: AsKey<K> + ?Sized>(&self, key: &Q) -> Result<bool, MapError> {
        Ok(self.view.contains_key(&self.keys.key(key)?))
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.view.len()
    }

    /// Whether the copy has no entry.
    pub fn is_empty(&self) -> bool {
        self.view.is_empty()
    }

    /// The position up to which the view shows all changes of each chain ([`View::position`]).
    pub fn position(&self) -> Frontier {
        self.view.position()
    }

    /// The newest version among the changes and entries that the view has shown ([`View::version`]).
    pub fn version(&self) -> Version {
        self.view.version()
    }

    /// Waits until the state differs from the one at the last call of this ([`View::changed`]).
    ///
    /// # Errors
    /// The error with which the view ended.
    pub async fn changed(&mut self) -> Result<(), ViewError> {
        self.view.changed().await
    }

    /// Waits until the view shows its chain up to the update with this version ([`View::caught_up_to`]).
    ///
    /// # Errors
    /// Those of [`View::caught_up_to`]. If the cluster has several chains, the entries of a map belong to several.
    pub async fn caught_up_to(&self, version: Version) -> Result<(), ViewError> {
        self.view.caught_up_to(version).await
    }

    /// Waits until the view shows each update that the session has seen ([`View::caught_up_to_session`]).
    ///
    /// # Errors
    /// Those of [`View::caught_up_to_session`].
    pub async fn caught_up_to_session(&self, session: &Session) -> Result<(), ViewError> {
        self.view.caught_up_to_session(session).await
    }

    /// The condition of the view.
    pub fn status(&self) -> ViewStatus {
        self.view.status()
    }

    /// The same view, as raw keys and values.
    pub fn raw(&self) -> &View {
        &self.view
    }
}

impl<K, V, C: ValueCodec<V>> MapView<K, V, C> {
    /// An entry's value. `None`: the entry is absent from the copy.
    ///
    /// # Errors
    /// [`MapError::Key`] or [`MapError::Value`] if the key can't be encoded or the value can't be decoded.
    pub fn get<Q: AsKey<K> + ?Sized>(&self, key: &Q) -> Result<Option<Versioned<V>>, MapError> {
        self.view.get(&self.keys.key(key)?).as_ref().map(decode::<V, C>).transpose()
    }
}

impl<K: DeserializeOwned, V, C: ValueCodec<V>> MapView<K, V, C> {
    /// All entries in the order of their keys ([`View::iter`]). If an entry can't be decoded, an error takes its place.
    pub fn iter(
        &self,
    ) -> impl ExactSizeIterator<Item = Result<MapEntry<K, V>, MapError>> + DoubleEndedIterator + use<K, V, C> {
        let keys = self.keys.clone();
        self.view.iter().map(move |entry| typed(&keys, C::decode, entry))
    }
}

impl<K, V, C> Clone for MapView<K, V, C> {
    fn clone(&self) -> Self {
        Self { view: self.view.clone(), keys: self.keys.clone(), types: PhantomData }
    }
}

impl<K, V, C> fmt::Debug for OpenMapView<K, V, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenMapView").field("keys", &self.keys).field("open", &self.open).finish_non_exhaustive()
    }
}

impl<K, V, C> fmt::Debug for MapView<K, V, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MapView").field("keys", &self.keys).field("view", &self.view).finish_non_exhaustive()
    }
}
