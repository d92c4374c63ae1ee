//! The handle of a typed map.

use std::{fmt, marker::PhantomData, time::Duration};

use bytes::Bytes;
use serde::de::DeserializeOwned;

use super::{
    AsKey, Bincode, CompareAndSwap, Decimal, Delete, Get, Increment, KeySpace, Leading, MapError, MapScan, MapUpdate,
    NameError, Put, ValueCodec,
};
use crate::{Kv, ReadMode, Session, Version, kv::Versioned};

/// Entries of one type within the data of a cluster: keys by a codec that keeps their order ([`key`](super::key)),
/// values by the codec `C`.
///
/// Clones are cheap. A name that no map can have ([`NameError`]) is reported by each call.
///
/// ```no_run
/// # async fn example(kv: artillery_ddata::Kv) -> Result<(), artillery_ddata::map::MapError> {
/// use artillery_ddata::{Batch, Map, map::Decimal};
///
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct User { name: String, visits: u32 }
///
/// let users: Map<String, User> = kv.map("users");
/// users.put("ann", &User { name: "Ann".into(), visits: 1 }).await?;
/// users.update("ann", |user| user.map(|user| User { visits: user.visits + 1, ..user })).await?;
///
/// let orders: Map<(u32, u64), String> = kv.map("orders");
/// orders.put(&(7, 1), &"tea".to_owned()).await?;
/// let mut of_customer_7 = orders.scan_prefix(&7u32);
/// while let Some(entry) = of_customer_7.next().await {
///     println!("{:?}", entry?.key);
/// }
///
/// let hits: Map<String, i64, Decimal> = kv.map("hits");
/// hits.increment("home", 1).await?;
///
/// let batch = Batch::new().delete(users.key("ann")?).put(orders.key(&(7, 1))?, orders.value(&"milk".into())?);
/// let _ = kv.write(batch).await?;
/// # Ok(())
/// # }
/// ```
pub struct Map<K, V, C = Bincode> {
    kv: Kv,
    keys: Result<KeySpace<K>, NameError>,
    types: PhantomData<fn() -> (V, C)>,
}

impl Kv {
    /// The typed map with this name, whose types are those of the variable: `let users: Map<String, User> =
    /// kv.map("users")`. It has the defaults of this handle.
    ///
    /// Nothing is asked or made: a map is there as soon as it has an entry. A name that is empty, longer than
    /// [`MAX_NAME`](crate::map::key::MAX_NAME) or has a zero byte in it is reported by the calls of the map.
    pub fn map<K, V, C>(&self, name: &str) -> Map<K, V, C> {
        Map { kv: self.clone(), keys: KeySpace::new(name), types: PhantomData }
    }
}

impl<K, V, C> Map<K, V, C> {
    /// The same map; calls through this handle try for so long, where they don't say otherwise.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.kv = self.kv.with_timeout(timeout);
        self
    }

    /// The same map; reads through this handle are served in this mode, where they don't say otherwise.
    #[must_use]
    pub fn with_read_mode(mut self, mode: ReadMode) -> Self {
        self.kv = self.kv.with_read_mode(mode);
        self
    }

    /// The same map; calls through this handle are made in this session, where they don't say otherwise.
    #[must_use]
    pub fn in_session(&self, session: &Session) -> Self {
        Self { kv: self.kv.in_session(session), ..self.clone() }
    }

    /// Its keys.
    ///
    /// # Errors
    /// [`NameError`] when no map can have its name.
    pub fn keys(&self) -> Result<&KeySpace<K>, NameError> {
        self.keys.as_ref().map_err(|error| *error)
    }

    /// The whole key of an entry, as a [`Batch`](crate::Batch) and the calls of [`Kv`] take it.
    ///
    /// # Errors
    /// [`MapError::Name`] and [`MapError::Key`].
    pub fn key<Q: AsKey<K> + ?Sized>(&self, key: &Q) -> Result<Bytes, MapError> {
        Ok(self.keys()?.key(key)?)
    }

    /// Makes an entry absent, whether it was there or not.
    ///
    /// # Errors
    /// When awaited, [`MapError`]; what [`Kv::delete`] says as [`MapError::Call`].
    pub fn delete<Q: AsKey<K> + ?Sized>(&self, key: &Q) -> Delete {
        Delete(self.key(key).map(|key| self.kv.delete(key)))
    }

    /// Makes an entry absent if its newest version is `expected`.
    ///
    /// # Errors
    /// As [`delete`](Self::delete).
    pub fn compare_and_delete<Q: AsKey<K> + ?Sized>(&self, key: &Q, expected: Version) -> CompareAndSwap {
        CompareAndSwap(self.key(key).map(|key| self.kv.compare_and_delete(key, expected)))
    }
}

impl<K, V, C: ValueCodec<V>> Map<K, V, C> {
    /// The bytes of a value, as a [`Batch`](crate::Batch) takes them.
    ///
    /// # Errors
    /// [`MapError::Value`].
    pub fn value(&self, value: &V) -> Result<Bytes, MapError> {
        Ok(C::encode(value)?)
    }

    /// The value that these bytes are, of a [`Conflict`](crate::kv::Conflict) for instance.
    ///
    /// # Errors
    /// [`MapError::Value`].
    pub fn decode(&self, bytes: &Bytes) -> Result<V, MapError> {
        Ok(C::decode(bytes)?)
    }

    /// Reads an entry.
    ///
    /// # Errors
    /// When awaited, [`MapError`]; what [`Kv::get`] says as [`MapError::Call`].
    pub fn get<Q: AsKey<K> + ?Sized>(&self, key: &Q) -> Get<V> {
        Get::new(&self.kv, self.key(key), C::decode)
    }

    /// A strong read from this node's own state: a plain function, which works on any thread.
    ///
    /// # Errors
    /// [`MapError::NotLocal`] when this node can't serve it here and now, so that [`get`](Self::get) is the way; never
    /// [`MapError::Call`].
    pub fn get_local<Q: AsKey<K> + ?Sized>(&self, key: &Q) -> Result<Option<Versioned<V>>, MapError> {
        let Some(found) = self.kv.get_local(&self.key(key)?)? else { return Ok(None) };
        Ok(Some(Versioned { version: found.version, value: C::decode(&found.value)? }))
    }

    /// Gives an entry a value. Returns, when awaited, once the write is on all serving members.
    ///
    /// # Errors
    /// When awaited, [`MapError`]; what [`Kv::put`] says as [`MapError::Call`].
    pub fn put<Q: AsKey<K> + ?Sized>(&self, key: &Q, value: &V) -> Put {
        Put(self.key(key).and_then(|key| Ok(self.kv.put(key, self.value(value)?))))
    }

    /// Gives an entry a value if its newest version is `expected`; [`Version::NONE`]: if it is absent.
    ///
    /// The inner result says whether it was. A conflict has the bytes of the value that is there:
    /// [`decode`](Self::decode) reads them.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn compare_and_swap<Q: AsKey<K> + ?Sized>(&self, key: &Q, expected: Version, value: &V) -> CompareAndSwap {
        let call = |key| Ok(self.kv.compare_and_swap(key, expected, self.value(value)?));
        CompareAndSwap(self.key(key).and_then(call))
    }

    /// Changes an entry from what it is: `change` is given its value, `None` if it is absent, and returns what it is to
    /// become, `None` to make it absent.
    ///
    /// It reads strongly and swaps by version, and begins again, without a new read where possible, whenever somebody
    /// else was first: `change` may be called several times, and the last of these calls counts. All of that together
    /// takes no longer than the timeout.
    ///
    /// # Errors
    /// When awaited, [`MapError`]: also when the value that is there isn't of this type; what [`Kv::compare_and_swap`]
    /// says as [`MapError::Call`], where `NotApplied` by a timeout may mean that somebody else was first each time.
    pub fn update<'a, Q: AsKey<K> + ?Sized>(
        &self,
        key: &Q,
        change: impl FnMut(Option<V>) -> Option<V> + Send + 'a,
    ) -> MapUpdate<'a, V> {
        MapUpdate::new::<C>(&self.kv, self.key(key), Box::new(change))
    }
}

impl<K: DeserializeOwned, V, C: ValueCodec<V>> Map<K, V, C> {
    /// All entries, in the order of their keys.
    pub fn scan(&self) -> MapScan<K, V> {
        let prefix = self.keys().map(|keys| keys.prefix().clone()).map_err(MapError::from);
        MapScan::new(&self.kv, self.keys.clone(), prefix, C::decode)
    }

    /// The entries whose keys have these leading fields, in the order of their keys: all orders of one customer, say.
    pub fn scan_prefix<const FIELDS: usize, Q>(&self, fields: &Q) -> MapScan<K, V>
    where
        Q: Leading<K, FIELDS> + ?Sized,
    {
        let prefix = self.keys().map_err(MapError::from).and_then(|keys| Ok(keys.leading(fields)?));
        MapScan::new(&self.kv, self.keys.clone(), prefix, C::decode)
    }
}

impl<K> Map<K, i64, Decimal> {
    /// Adds to a number; an absent entry counts as 0.
    ///
    /// # Errors
    /// When awaited, [`MapError`]; what [`Kv::increment`] says as [`MapError::Call`].
    pub fn increment<Q: AsKey<K> + ?Sized>(&self, key: &Q, by: i64) -> Increment {
        Increment(self.key(key).map(|key| self.kv.increment(key, by)))
    }
}

impl<K, V, C> Clone for Map<K, V, C> {
    fn clone(&self) -> Self {
        Self { kv: self.kv.clone(), keys: self.keys.clone(), types: PhantomData }
    }
}

impl<K, V, C> fmt::Debug for Map<K, V, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Map").field("keys", &self.keys).field("kv", &self.kv).finish_non_exhaustive()
    }
}
