//! The calls of [`Kv`], blocking.

use std::{fmt, future::poll_fn, pin::Pin, time::Duration};

use bytes::Bytes;
use futures_core::Stream;

use super::runtime::within_runtime;
use crate::{
    Batch, Error, Frontier, Kv, ReadMode, RequestId, Script, Session, Version,
    driven::Driven,
    error::NotApplied,
    kv::{Committed, GroupOutcome, KeyPage, MultiGet, Read, Resolution, Scan, Taken, Versioned, Watch, WriteError},
    replica::NotLocal,
};

/// The data of a cluster for plain threads: the calls of [`Kv`], with the same results and errors. Each blocks until
/// its result is known.
///
/// A call runs on the calling thread, and uses the sockets and timers of the runtime in which the node or client was
/// started. That runtime must be running, or the call waits indefinitely. A multi-threaded runtime always runs. A
/// current-thread runtime runs only while a thread blocks on it. A node's [own threads](crate::config::Threads::Own)
/// and a [`blocking::Client`](super::Client) run their own runtimes. A call within a runtime is refused with
/// [`NotApplied::WithinRuntime`].
///
/// # Panics
/// A call panics if the runtime shuts down during it: keep the runtime for as long as its handles. The runtime of a
/// node with [own threads](crate::config::Threads::Own) ends with the node; later calls are refused with
/// [`NotApplied::Stopped`].
#[derive(Clone, Debug)]
pub struct BlockingKv {
    kv: Kv,
    driven: Option<Driven>,
}

impl Kv {
    /// A handle to the same data for threads without a runtime.
    pub fn blocking(&self) -> BlockingKv {
        BlockingKv { kv: self.clone(), driven: None }
    }
}

impl BlockingKv {
    pub(super) fn driven(kv: Kv, driven: Driven) -> Self {
        Self { kv, driven: Some(driven) }
    }

    fn with(&self, kv: Kv) -> Self {
        Self { kv, driven: self.driven.clone() }
    }

    /// The asynchronous handle, which creates the calls and scans that [`wait`](Self::wait) and
    /// [`entries`](Self::entries) accept.
    ///
    /// It doesn't keep the thread of a [`blocking::Client`](super::Client) running.
    pub fn kv(&self) -> &Kv {
        &self.kv
    }

    /// A handle to the same data whose calls have this timeout.
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        self.with(self.kv.clone().with_timeout(timeout))
    }

    /// A handle to the same data whose reads are served in this mode.
    #[must_use]
    pub fn with_read_mode(&self, mode: ReadMode) -> Self {
        self.with(self.kv.clone().with_read_mode(mode))
    }

    /// A handle to the same data whose calls are made in this session.
    #[must_use]
    pub fn in_session(&self, session: &Session) -> Self {
        self.with(self.kv.in_session(session))
    }

    /// Makes a call of [`Kv`] or of a [`Map`](crate::Map), with its own settings, and waits for its result.
    ///
    /// # Errors
    /// Those of the call; [`NotApplied::WithinRuntime`] or [`NotApplied::Stopped`] if the call wasn't made.
    pub fn wait<T, E: From<Error>>(&self, call: impl IntoFuture<Output = Result<T, E>>) -> Result<T, E> {
        may_wait()?;
        if self.kv.is_stopped() {
            return Err(Error::not_applied(NotApplied::Stopped).into());
        }
        self.kv.runtime().block_on(call.into_future())
    }

    /// The entries of a scan, of [`Kv`] or of a [`Map`](crate::Map), as an iterator.
    pub fn entries<S>(&self, scan: S) -> Entries<S> {
        Entries { kv: self.clone(), scan, refused: false }
    }

    /// Blocking version of [`Kv::get`].
    pub fn get<K: AsRef<[u8]> + ?Sized>(&self, key: &K) -> Result<Read, Error> {
        self.wait(self.kv.get(key))
    }

    /// Blocking version of [`Kv::get_many`].
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> Result<MultiGet, Error> {
        self.wait(self.kv.get_many(keys))
    }

    /// Same as [`Kv::get_local`], which also works within a runtime.
    pub fn get_local<K: AsRef<[u8]> + ?Sized>(&self, key: &K) -> Result<Option<Versioned<Bytes>>, NotLocal> {
        self.kv.get_local(key)
    }

    /// Blocking version of [`Kv::scan`]. For a scan with settings: `kv.entries(kv.kv().scan(…).limit(…))`.
    pub fn scan(&self, prefix: impl AsRef<[u8]>) -> Entries<Scan> {
        self.entries(self.kv.scan(prefix))
    }

    /// Blocking version of [`Kv::scan_hashed`], for a page of at most `limit` keys, apart from keys with the same hash.
    /// With other settings: `kv.wait(kv.kv().scan_hashed(…).mode(…))`.
    ///
    /// # Errors
    /// [`Error::Refused`] or [`Error::NotApplied`].
    pub fn scan_hashed(&self, cursor: u64, limit: u32) -> Result<KeyPage, Error> {
        self.wait(self.kv.scan_hashed(cursor).limit(limit))
    }

    /// Blocking version of [`Kv::watch`]: returns once the watch has begun. The iterator blocks until the next change.
    /// For a watch from a position: `kv.changes(kv.wait(kv.kv().watch(…).from(…))?)`.
    ///
    /// # Errors
    /// [`Error::Refused`] or [`Error::NotApplied`].
    pub fn watch(&self, prefix: impl AsRef<[u8]>) -> Result<Entries<Watch>, Error> {
        Ok(self.changes(self.wait(self.kv.watch(prefix))?))
    }

    /// The changes that a watch returns, as an iterator.
    pub fn changes(&self, watch: Watch) -> Entries<Watch> {
        self.entries(watch)
    }

    /// Blocking version of [`Kv::put`].
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl Into<Bytes>) -> Result<Committed, Error> {
        self.wait(self.kv.put(key, value))
    }

    /// Blocking version of [`Kv::delete`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<Committed, Error> {
        self.wait(self.kv.delete(key))
    }

    /// Blocking version of [`Kv::compare_and_swap`].
    pub fn compare_and_swap(
        &self,
        key: impl AsRef<[u8]>,
        expected: Version,
        value: impl Into<Bytes>,
    ) -> Result<Committed, WriteError> {
        self.wait(self.kv.compare_and_swap(key, expected, value))
    }

    /// Blocking version of [`Kv::compare_and_delete`].
    pub fn compare_and_delete(&self, key: impl AsRef<[u8]>, expected: Version) -> Result<Committed, WriteError> {
        self.wait(self.kv.compare_and_delete(key, expected))
    }

    /// Blocking version of [`Kv::append`].
    pub fn append(&self, key: impl AsRef<[u8]>, value: impl Into<Bytes>) -> Result<Committed<u64>, Error> {
        self.wait(self.kv.append(key, value))
    }

    /// Blocking version of [`Kv::increment`].
    pub fn increment(&self, key: impl AsRef<[u8]>, by: i64) -> Result<Committed<i64>, Error> {
        self.wait(self.kv.increment(key, by))
    }

    /// Blocking version of [`Kv::prepend`].
    pub fn prepend(&self, key: impl AsRef<[u8]>, value: impl Into<Bytes>) -> Result<Committed<u64>, Error> {
        self.wait(self.kv.prepend(key, value))
    }

    /// Blocking version of [`Kv::put`] with a time to live.
    pub fn put_with_ttl(
        &self,
        key: impl AsRef<[u8]>,
        value: impl Into<Bytes>,
        ttl: Duration,
    ) -> Result<Committed, Error> {
        self.wait(self.kv.put(key, value).ttl(ttl))
    }

    /// Blocking version of [`Kv::put_sequential`].
    pub fn put_sequential(&self, prefix: impl AsRef<[u8]>, value: impl Into<Bytes>) -> Result<Committed<Bytes>, Error> {
        self.wait(self.kv.put_sequential(prefix, value))
    }

    /// Blocking version of [`Kv::expire`].
    pub fn expire(&self, key: impl AsRef<[u8]>, ttl: Duration) -> Result<Committed<bool>, Error> {
        self.wait(self.kv.expire(key, ttl))
    }

    /// Blocking version of [`Kv::persist`].
    pub fn persist(&self, key: impl AsRef<[u8]>) -> Result<Committed<bool>, Error> {
        self.wait(self.kv.persist(key))
    }

    /// Blocking version of [`Kv::delete_prefix`].
    pub fn delete_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<u64, Error> {
        self.wait(Box::pin(self.kv.delete_prefix(prefix)))
    }

    /// Blocking version of [`Kv::get_delete`].
    pub fn get_delete(&self, key: impl AsRef<[u8]>) -> Result<Committed<Taken>, Error> {
        self.wait(self.kv.get_delete(key))
    }

    /// Blocking version of [`Kv::write`].
    pub fn write(&self, batch: Batch) -> Result<Committed, WriteError> {
        self.wait(self.kv.write(batch))
    }

    /// Blocking version of [`Kv::run`].
    pub fn run(&self, script: Script) -> Result<Committed<Vec<GroupOutcome>>, WriteError> {
        self.wait(self.kv.run(script))
    }

    /// Blocking version of [`Kv::new_request_id`].
    pub fn new_request_id(&self, key: impl AsRef<[u8]>) -> Result<RequestId, Error> {
        self.wait(self.kv.new_request_id(key))
    }

    /// Blocking version of [`Kv::resolve`].
    pub fn resolve(&self, id: RequestId) -> Result<Resolution, Error> {
        self.wait(self.kv.resolve(id))
    }
}

fn may_wait() -> Result<(), Error> {
    if within_runtime() { Err(Error::not_applied(NotApplied::WithinRuntime)) } else { Ok(()) }
}

/// The entries of a scan, or the changes of a watch. Ends when the source does, or after [`NotApplied::WithinRuntime`].
#[must_use = "an iterator does nothing until its entries are asked for"]
pub struct Entries<S> {
    kv: BlockingKv,
    scan: S,
    refused: bool,
}

impl<S, T, E> Iterator for Entries<S>
where
    S: Stream<Item = Result<T, E>> + Unpin,
    E: From<Error>,
{
    type Item = Result<T, E>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.refused {
            return None;
        }
        if let Err(error) = may_wait() {
            self.refused = true;
            return Some(Err(error.into()));
        }
        let scan = &mut self.scan;
        self.kv.kv.runtime().block_on(poll_fn(|context| Pin::new(&mut *scan).poll_next(context)))
    }
}

impl Entries<Watch> {
    /// Same as [`Watch::position`]: the position up to which all changes were returned.
    pub fn position(&self) -> Frontier {
        self.scan.position()
    }
}

impl<S: fmt::Debug> fmt::Debug for Entries<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entries").field("scan", &self.scan).finish_non_exhaustive()
    }
}
