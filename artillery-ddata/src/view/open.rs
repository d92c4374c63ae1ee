//! Opens views.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use bytes::Bytes;
use tokio::time::timeout_at;

use super::{
    View, ViewChange, ViewError,
    handle::Keeper,
    listener::{Listener, OnChange},
};
use crate::{
    Error, Kv, Routing,
    error::NotApplied,
    kv::Call,
    rpc::router::{check_key, from_now},
};

/// The memory that the copy of a view may need (256 MiB), unless [`OpenView::max_bytes`] sets another limit.
pub const DEFAULT_MAX_BYTES: u64 = 256 << 20;

/// Opens a [`View`]. Set the options that differ from the defaults, and await it.
#[must_use = "a view isn't opened until this is awaited"]
pub struct OpenView {
    kv: Kv,
    prefix: Bytes,
    timeout: Duration,
    max_bytes: u64,
    on_change: Option<OnChange>,
}

impl Kv {
    /// Opens a [view](crate::view) of the keys that begin with `prefix`: a copy in this process, which follows all
    /// changes. If the prefix has a whole `{…}`, the copy has only the chain of these keys.
    ///
    /// When awaited, returns once the copy is complete and level with the members that it was read from. If this handle
    /// is in a session, the copy then also shows each update that the session has seen. Views of one prefix share a
    /// copy, so opening another one costs little. A view doesn't keep the read mode of this handle.
    ///
    /// # Errors
    /// When awaited, [`ViewError`]. Those of [`Kv::get`] that no further attempt can avoid as [`ViewError::Call`].
    pub fn view(&self, prefix: impl AsRef<[u8]>) -> OpenView {
        OpenView {
            kv: self.clone(),
            prefix: Bytes::copy_from_slice(prefix.as_ref()),
            timeout: self.timeout(),
            max_bytes: DEFAULT_MAX_BYTES,
            on_change: None,
        }
    }
}

impl OpenView {
    /// Sets how long opening may take, until the copy is complete (the handle's timeout). It has no effect afterwards.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets how much memory the copy may need, in bytes ([`DEFAULT_MAX_BYTES`]). The actual memory is measured
    /// approximately, and includes a state that is being read again. If it grows beyond this, the view ends with
    /// [`ViewError::TooLarge`].
    ///
    /// Views with different limits don't share a copy.
    pub fn max_bytes(mut self, max_bytes: u64) -> Self {
        self.max_bytes = max_bytes;
        self
    }

    /// Calls `on_change` for each key that exists, before opening returns, and then for every change that the view
    /// shows: once, and in the order of the key's chain. All changes together are always the view's state.
    ///
    /// When a change is reported, the view shows it already. The task that keeps the copy makes the calls, so a call
    /// must not block: until it returns, all views of this prefix wait for further changes. After a panic there are no
    /// further calls. The callback is dropped with the view and its clones; if they are dropped on another thread during
    /// a call, the calls for the same update still follow.
    pub fn on_change(mut self, on_change: impl FnMut(&ViewChange) + Send + 'static) -> Self {
        self.on_change = Some(Box::new(on_change));
        self
    }

    async fn open(self) -> Result<View, ViewError> {
        let Self { kv, prefix, timeout, max_bytes, on_change } = self;
        kv.router.begin_call().await?;
        check_key(&prefix).map_err(|reason| Error::refused(reason, None))?;
        let deadline = from_now(timeout);
        let routing = kv.router.routing(deadline).await.map_err(|error| match kv.is_stopped() {
            true => ViewError::Call(Error::not_applied(NotApplied::Stopped)),
            false => ViewError::TimedOut { last: Some(error) },
        })?;
        let keeper = kv.router.attached(Views::default).keeper(&kv, prefix, max_bytes, &routing);
        let shared = keeper.shared.clone();
        let listener = on_change.map(|on_change| Arc::new(Listener::new(on_change)));
        listener.iter().for_each(|listener| shared.add(listener));
        let is_shown = || listener.as_ref().is_none_or(|listener| listener.complete() == shared.copies.len());
        let opened = shared.until(|| shared.end().is_some() || (shared.is_level() && is_shown()));
        let timed_out = |_| ViewError::TimedOut { last: shared.last_error() };
        timeout_at(deadline, opened).await.map_err(timed_out)?;
        if let Some(end) = shared.end() {
            return Err(end.clone());
        }
        let view = View::new(keeper, listener);
        if let Some(session) = &kv.session {
            timeout_at(deadline, view.caught_up_to_session(session)).await.map_err(timed_out)??;
        }
        Ok(view)
    }
}

impl IntoFuture for OpenView {
    type Output = Result<View, ViewError>;
    type IntoFuture = Call<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.open())
    }
}

impl fmt::Debug for OpenView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenView")
            .field("prefix", &self.prefix)
            .field("timeout", &self.timeout)
            .field("max_bytes", &self.max_bytes)
            .finish_non_exhaustive()
    }
}

/// The shared views of a process. It doesn't keep them open.
#[derive(Default)]
struct Views(Mutex<BTreeMap<(Bytes, u64), Weak<Keeper>>>);

impl Views {
    fn keeper(&self, kv: &Kv, prefix: Bytes, max_bytes: u64, routing: &Routing) -> Arc<Keeper> {
        let mut views = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        views.retain(|_, keeper| keeper.strong_count() > 0);
        let key = (prefix, max_bytes);
        let open = views.get(&key).and_then(Weak::upgrade).filter(|keeper| keeper.shared.end().is_none());
        open.unwrap_or_else(|| {
            let keeper = Arc::new(Keeper::start(kv, key.0.clone(), max_bytes, routing));
            views.insert(key, Arc::downgrade(&keeper));
            keeper
        })
    }
}
