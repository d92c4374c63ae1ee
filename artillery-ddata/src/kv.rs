//! Keys and values as bytes: the same handle inside a node and beside it.

mod get;
mod result;
#[cfg(test)]
mod tests;
mod write;

use std::{fmt, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
pub use get::{Get, GetFuture};
pub use result::{Committed, Conflict, Read, ReadState, Served, Versioned};
pub use write::{CompareAndSwap, Delete, Put};

use crate::{
    Place, Version,
    client::router::Router,
    driver::handle::ChainHandle,
    replica::{NotLocal, ReadMode},
};

/// How long a call tries, unless the handle or the call says otherwise.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

/// A call under way. It owns what it needs, so it may be spawned.
pub type Call<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The data of a cluster, by raw keys and values.
///
/// Clones are cheap and share everything but their defaults. Calls need a tokio runtime, except
/// [`get_local`](Self::get_local). Calls in flight together are pipelined and have no order among themselves.
#[derive(Clone)]
pub struct Kv {
    router: Arc<Router>,
    timeout: Duration,
    mode: ReadMode,
}

impl Kv {
    pub(crate) fn new(router: Arc<Router>) -> Self {
        Self { router, timeout: DEFAULT_TIMEOUT, mode: ReadMode::Strong }
    }

    /// The same data; calls through this handle try for so long, where they don't say otherwise.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The same data; reads through this handle are served in this mode, where they don't say otherwise.
    #[must_use]
    pub fn with_read_mode(mut self, mode: ReadMode) -> Self {
        self.mode = mode;
        self
    }

    /// Reads a key.
    ///
    /// In mode [`ReadMode::Strong`] the first poll tries [`get_local`](Self::get_local), and is ready at once if that
    /// serves; otherwise a member is asked.
    ///
    /// # Errors
    /// When awaited, [`Error::Refused`](crate::Error::Refused) or [`Error::NotApplied`](crate::Error::NotApplied).
    pub fn get<'a, K: AsRef<[u8]> + ?Sized>(&'a self, key: &'a K) -> Get<'a> {
        Get::new(self, key.as_ref())
    }

    /// Gives a key a value. Returns, when awaited, once the write is on all serving members.
    ///
    /// # Errors
    /// When awaited, any [`Error`](crate::Error). A call dropped before its end leaves an unknown outcome: use its
    /// timeout instead.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl Into<Bytes>) -> Put {
        Put::new(self, copy(key), value.into())
    }

    /// Makes a key absent, whether it was there or not.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Delete {
        Delete::new(self, copy(key))
    }

    /// Gives a key a value if its newest version is `expected`; [`Version::NONE`]: if it is absent.
    ///
    /// The inner result says whether it was: a [`Conflict`] is an answer, not a fault.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn compare_and_swap(
        &self,
        key: impl AsRef<[u8]>,
        expected: Version,
        value: impl Into<Bytes>,
    ) -> CompareAndSwap {
        CompareAndSwap::new(self, copy(key), expected, Some(value.into()))
    }

    /// Makes a key absent if its newest version is `expected`.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn compare_and_delete(&self, key: impl AsRef<[u8]>, expected: Version) -> CompareAndSwap {
        CompareAndSwap::new(self, copy(key), expected, None)
    }

    /// A strong read from this node's own state: a plain function for any thread, with or without a runtime. It takes
    /// no lock, wakes no task and allocates nothing.
    ///
    /// # Errors
    /// [`NotLocal`] when this node can't serve it here and now; always [`NotLocal::NotHere`] at a remote client. Then
    /// [`get`](Self::get) knows other ways.
    pub fn get_local<K: AsRef<[u8]> + ?Sized>(&self, key: &K) -> Result<Option<Versioned<Bytes>>, NotLocal> {
        self.local(key.as_ref()).map(|(found, _)| found)
    }

    fn local(&self, key: &[u8]) -> Result<(Option<Versioned<Bytes>>, Place), NotLocal> {
        let read = |handle: &ChainHandle, place| handle.local(key).map(|held| (held, place));
        let local = self.router.local().ok_or(NotLocal::NotHere)?;
        let (held, place) = local.with_chain_of(key, read).ok_or(NotLocal::NotHere)??;
        Ok((held.and_then(Versioned::visible), place))
    }
}

fn copy(key: impl AsRef<[u8]>) -> Bytes {
    Bytes::copy_from_slice(key.as_ref())
}

impl fmt::Debug for Kv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kv").field("timeout", &self.timeout).field("mode", &self.mode).finish_non_exhaustive()
    }
}
