//! The handle to the data of a cluster.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;

use crate::{
    Place, Session,
    api::ReadMode,
    kv::Versioned,
    local::handle::ChainHandle,
    replica::NotLocal,
    rpc::router::{HowToRead, Router},
};

/// How long a call tries, unless the handle or the call says otherwise.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

/// The data of a cluster, by raw keys and values.
///
/// Clones are cheap and share everything but their defaults. Calls need a tokio runtime, except
/// [`get_local`](Self::get_local). Calls in flight together are pipelined and have no order among themselves.
#[derive(Clone)]
pub struct Kv {
    pub(super) router: Arc<Router>,
    pub(super) timeout: Duration,
    pub(super) mode: ReadMode,
    pub(super) session: Option<Session>,
}

impl Kv {
    pub(crate) fn new(router: Arc<Router>) -> Self {
        Self { router, timeout: DEFAULT_TIMEOUT, mode: ReadMode::Strong, session: None }
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

    /// The same data; calls through this handle are made in this session, where they don't say otherwise.
    #[must_use]
    pub fn in_session(&self, session: &Session) -> Self {
        Self { session: Some(session.clone()), ..self.clone() }
    }

    /// A strong read from this node's own state: a plain function for any thread, with or without a runtime. It waits
    /// for no more than the exchange of this key's versions, wakes no task and allocates nothing.
    ///
    /// # Errors
    /// [`NotLocal`] when this node can't serve it here and now; always [`NotLocal::NotHere`] at a remote client. Then
    /// [`get`](Self::get) knows other ways.
    pub fn get_local<K: AsRef<[u8]> + ?Sized>(&self, key: &K) -> Result<Option<Versioned<Bytes>>, NotLocal> {
        self.local(key.as_ref(), self.session.as_ref()).map(|(found, _)| found)
    }

    /// Whether its node or client has stopped.
    pub(crate) fn is_stopped(&self) -> bool {
        self.router.is_stopped()
    }

    /// The runtime that carries its requests.
    pub(crate) fn runtime(&self) -> &tokio::runtime::Handle {
        self.router.runtime()
    }

    /// How long its calls try, where they don't say otherwise.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    pub(super) fn local(
        &self,
        key: &[u8],
        session: Option<&Session>,
    ) -> Result<(Option<Versioned<Bytes>>, Place), NotLocal> {
        let local = self.router.local().ok_or(NotLocal::NotHere)?;
        #[cfg(feature = "testing")]
        let noted = match self.router.observer.get() {
            Some(observer) if observer.is_paused() => return Err(NotLocal::NotHere),
            observer => observer.map(|observer| observer.begin_local(key)),
        };
        let read = |handle: &ChainHandle, place| {
            let held = handle.local(key)?;
            if let Some(session) = session {
                // The watermark is loaded after the lookup: an absence raises the floor too. The history comes last
                // (`Local::life`): a session of another one is refused, by the chain, and no floor is taken for that of
                // another history (trap 58).
                let watermark = handle.gate.watermark();
                let life = local.history_id().ok_or(NotLocal::NotHere)?;
                session.floor(life, handle.chain).ok_or(NotLocal::NotHere)?;
                session.raise(life, handle.chain, watermark);
            }
            #[cfg(feature = "testing")]
            if let Some(noted) = noted {
                noted.end_local(handle.chain, &held, handle.gate.watermark());
            }
            Ok::<_, NotLocal>((held, place))
        };
        let (held, place) = local.with_chain_of(key, read).ok_or(NotLocal::NotHere)??;
        Ok((held.and_then(Versioned::visible), place))
    }
}

pub(super) fn how_to_read(kv: &Kv) -> HowToRead {
    HowToRead { mode: kv.mode, timeout: kv.timeout, session: kv.session.clone() }
}

impl fmt::Debug for Kv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kv").field("timeout", &self.timeout).field("mode", &self.mode).finish_non_exhaustive()
    }
}
