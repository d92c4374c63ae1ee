//! The handle of a typed map.

use std::{fmt, marker::PhantomData, time::Duration};

use bytes::Bytes;
use serde::de::DeserializeOwned;

use super::{
    AsKey, Bincode, Decimal, Get, KeySpace, Leading, MapError, MapScan, MapUpdate, MapWrite, NameError, OpenMapWatch,
    ValueCodec,
};
use crate::{
    Error, Kv, ReadMode, Session, Version,
    kv::{Committed, SetsValue, Versioned, WriteCall, WriteError},
};

/// Entries of one type in the data of a cluster. An order-preserving codec encodes the keys ([`key`](super::key)), and
/// the codec `C` the values.
///
/// Clones are cheap.
///
/// ```no_run
/// # async fn example(kv: artillery_ddata::Kv) -> Result<(), artillery_ddata::map::MapError> {
/// use artillery_ddata::{Batch, Map, map::Decimal};
///
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct User { name: String, visits: u32 }
///
/// let users: Map<String, User> = kv.map("users")?;
/// users.put("ann", &User { name: "Ann".into(), visits: 1 }).await?;
/// users.update("ann", |user| user.map(|user| User { visits: user.visits + 1, ..user })).await?;
///
/// let orders: Map<(u32, u64), String> = kv.map("orders")?;
/// orders.put(&(7, 1), &"tea".to_owned()).await?;
/// let mut of_customer_7 = orders.scan_prefix(&7u32);
/// while let Some(entry) = of_customer_7.next().await {
///     println!("{:?}", entry?.key);
/// }
///
/// let hits: Map<String, i64, Decimal> = kv.map("hits")?;
/// hits.increment("home", 1).await?;
///
/// let batch = Batch::new().delete(users.key("ann")?).put(orders.key(&(7, 1))?, orders.value(&"milk".into())?);
/// kv.write(batch).await?;
/// # Ok(())
/// # }
/// ```
pub struct Map<K, V, C = Bincode> {
    kv: Kv,
    keys: KeySpace<K>,
    ttl: Option<Duration>,
    types: PhantomData<fn() -> (V, C)>,
}

impl Kv {
    /// The typed map with this name, with the defaults of this handle. The types are inferred from the variable: `let
    /// users: Map<String, User> = kv.map("users")?`.
    ///
    /// This contacts no node and creates nothing: a map exists once it has an entry.
    ///
    /// # Errors
    /// [`NameError`], unless the name has 1 to 255 bytes, none of them zero.
    pub fn map<K, V, C>(&self, name: &str) -> Result<Map<K, V, C>, NameError> {
        Ok(Map { kv: self.clone(), keys: KeySpace::new(name)?, ttl: None, types: PhantomData })
    }
}

impl<K, V, C> Map<K, V, C> {
    /// Sets the timeout of this handle's calls that don't set their own.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.kv = self.kv.with_timeout(timeout);
        self
    }

    /// Sets the mode of this handle's reads that don't set their own.
    #[must_use]
    pub fn with_read_mode(mut self, mode: ReadMode) -> Self {
        self.kv = self.kv.with_read_mode(mode);
        self
    }

    /// A handle to the same map whose entries expire this length of chain time after they are set or updated. An
    /// increment sets it only for a new entry. A call may set another.
    #[must_use]
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// A handle to the same map whose calls are made in this session, unless they set another.
    #[must_use]
    pub fn in_session(&self, session: &Session) -> Self {
        Self { kv: self.kv.in_session(session), ..self.clone() }
    }

    pub(super) fn kv(&self) -> &Kv {
        &self.kv
    }

    /// The key space of the map.
    pub fn keys(&self) -> &KeySpace<K> {
        &self.keys
    }

    /// The raw key of an entry, for a [`Batch`](crate::Batch) or a call of [`Kv`].
    ///
    /// # Errors
    /// [`MapError::Key`].
    pub fn key<Q: AsKey<K> + ?Sized>(&self, key: &Q) -> Result<Bytes, MapError> {
        Ok(self.keys.key(key)?)
    }

    /// Deletes an entry. Deleting an absent entry succeeds.
    ///
    /// # Errors
    /// When awaited, [`MapError`]; errors of [`Kv::delete`] as [`MapError::Call`].
    pub fn delete<Q: AsKey<K> + ?Sized>(&self, key: &Q) -> MapWrite<Committed> {
        MapWrite(self.key(key).map(|key| self.kv.delete(key)))
    }

    /// Deletes an entry if its newest version is `expected`.
    ///
    /// # Errors
    /// When awaited, [`MapError::Conflict`] if it is another one, and the errors of [`delete`](Self::delete).
    pub fn compare_and_delete<Q: AsKey<K> + ?Sized>(
        &self,
        key: &Q,
        expected: Version,
    ) -> MapWrite<Committed, WriteError> {
        MapWrite(self.key(key).map(|key| self.kv.compare_and_delete(key, expected)))
    }
}

impl<K, V, C> Map<K, V, C> {
    fn expiring<T, E>(&self, call: WriteCall<T, E, SetsValue>) -> WriteCall<T, E, SetsValue> {
        match self.ttl {
            Some(ttl) => call.ttl(ttl),
            None => call,
        }
    }
}

impl<K, V, C: ValueCodec<V>> Map<K, V, C> {
    /// The bytes of a value, for a [`Batch`](crate::Batch).
    pub fn value(&self, value: &V) -> Result<Bytes, MapError> {
        Ok(C::encode(value)?)
    }

    /// Decodes a value, for instance that of a [`Conflict`](crate::kv::Conflict).
    pub fn decode(&self, bytes: &Bytes) -> Result<V, MapError> {
        Ok(C::decode(bytes)?)
    }

    /// Reads an entry.
    ///
    /// # Errors
    /// When awaited, [`MapError`]; errors of [`Kv::get`] as [`MapError::Call`].
    pub fn get<Q: AsKey<K> + ?Sized>(&self, key: &Q) -> Get<V> {
        Get::new(&self.kv, self.key(key), C::decode)
    }

    /// A strong read from this node's own state. Like [`Kv::get_local`], it can be called from any thread.
    ///
    /// # Errors
    /// [`MapError::NotLocal`] when this node can't serve the read now: then use [`get`](Self::get).
    /// [`MapError::Key`] or [`MapError::Value`] if the key can't be encoded or the value can't be decoded. Never
    /// [`MapError::Call`].
    pub fn get_local<Q: AsKey<K> + ?Sized>(&self, key: &Q) -> Result<Option<Versioned<V>>, MapError> {
        let Some(found) = self.kv.get_local(&self.key(key)?)? else { return Ok(None) };
        Ok(Some(Versioned { version: found.version, value: C::decode(&found.value)? }))
    }

    /// Sets an entry's value. When awaited, returns once all serving members hold the write.
    ///
    /// # Errors
    /// When awaited, [`MapError`]; errors of [`Kv::put`] as [`MapError::Call`].
    pub fn put<Q: AsKey<K> + ?Sized>(&self, key: &Q, value: &V) -> MapWrite<Committed, Error, SetsValue> {
        MapWrite(self.key(key).and_then(|key| Ok(self.expiring(self.kv.put(key, self.value(value)?)))))
    }

    /// Sets an entry's value if its newest version is `expected`; with [`Version::NONE`], if the entry is absent.
    ///
    /// # Errors
    /// When awaited, [`MapError::Conflict`] if the version is another one, and the errors of [`put`](Self::put). If the
    /// conflict has a [`current`](crate::kv::Conflict::current) value, [`decode`](Self::decode) reads its bytes.
    pub fn compare_and_swap<Q: AsKey<K> + ?Sized>(
        &self,
        key: &Q,
        expected: Version,
        value: &V,
    ) -> MapWrite<Committed, WriteError, SetsValue> {
        let call = |key| Ok(self.expiring(self.kv.compare_and_swap(key, expected, self.value(value)?)));
        MapWrite(self.key(key).and_then(call))
    }

    /// Reads an entry, and replaces its value by the result of `change`. `change` receives the value, or `None` if the
    /// entry is absent, and returns the new value, or `None` to delete the entry.
    ///
    /// The update reads strongly and swaps by version. If another write intervenes, it retries with that write's value,
    /// so `change` may be called several times; only the last call takes effect. The timeout covers all attempts
    /// together.
    ///
    /// # Errors
    /// When awaited, [`MapError`], also if the current value can't be decoded; errors of [`Kv::compare_and_swap`] as
    /// [`MapError::Call`]. `NotApplied` by a timeout may mean that each attempt met another write.
    pub fn update<'a, Q: AsKey<K> + ?Sized>(
        &self,
        key: &Q,
        change: impl FnMut(Option<V>) -> Option<V> + Send + 'a,
    ) -> MapUpdate<'a, V> {
        MapUpdate::new::<C>(&self.kv, self.key(key), self.ttl, Box::new(change))
    }
}

impl<K: DeserializeOwned, V, C: ValueCodec<V>> Map<K, V, C> {
    /// Scans all entries, in the order of their keys.
    pub fn scan(&self) -> MapScan<K, V> {
        MapScan::new(&self.kv, self.keys.clone(), Ok(self.keys.prefix().clone()), C::decode)
    }

    /// Scans the entries whose keys begin with these fields, in the order of their keys: for instance all orders of one
    /// customer.
    pub fn scan_prefix<const FIELDS: usize, Q>(&self, fields: &Q) -> MapScan<K, V>
    where
        Q: Leading<K, FIELDS> + ?Sized,
    {
        MapScan::new(&self.kv, self.keys.clone(), self.keys.leading(fields), C::decode)
    }

    /// Opens a watch of all entries ([`Kv::watch`]). When awaited, returns once the watch has begun: it returns every
    /// change that is committed from then on.
    ///
    /// # Errors
    /// When awaited, errors of [`Kv::watch`] as [`MapError::Call`].
    pub fn watch(&self) -> OpenMapWatch<K, V> {
        OpenMapWatch::new(&self.kv, self.keys.clone(), C::decode)
    }
}

impl<K> Map<K, i64, Decimal> {
    /// Adds to a number, and returns the new one. An absent entry is treated as 0.
    ///
    /// # Errors
    /// When awaited, [`MapError`]; errors of [`Kv::increment`] as [`MapError::Call`].
    pub fn increment<Q: AsKey<K> + ?Sized>(&self, key: &Q, by: i64) -> MapWrite<Committed<i64>, Error, SetsValue> {
        let call = |key| self.kv.increment(key, by);
        MapWrite(self.key(key).map(|key| match self.ttl {
            Some(ttl) => call(key).ttl_if_new(ttl),
            None => call(key),
        }))
    }
}

impl<K, V, C> Clone for Map<K, V, C> {
    fn clone(&self) -> Self {
        Self { kv: self.kv.clone(), keys: self.keys.clone(), ttl: self.ttl, types: PhantomData }
    }
}

impl<K, V, C> fmt::Debug for Map<K, V, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Map").field("keys", &self.keys).field("kv", &self.kv).finish_non_exhaustive()
    }
}
