//! The handle to the data of a cluster.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;

use crate::{
    NodeId, Place, Session,
    api::ReadMode,
    kv::Versioned,
    local::Here,
    replica::NotLocal,
    rpc::router::{HowToRead, Router},
};

/// The timeout of a call (5 s), unless the handle or the call sets another.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

/// The data of a cluster, as raw keys and values.
///
/// Clones are cheap, and share everything except their defaults. Calls need a tokio runtime, except
/// [`get_local`](Self::get_local). Concurrent calls are pipelined, and may be applied in any order.
#[derive(Clone)]
pub struct Kv {
    pub(crate) router: Arc<Router>,
    pub(super) timeout: Duration,
    pub(super) mode: ReadMode,
    pub(crate) session: Option<Session>,
}

impl Kv {
    pub(crate) fn new(router: Arc<Router>) -> Self {
        Self { router, timeout: DEFAULT_TIMEOUT, mode: ReadMode::Strong, session: None }
    }

    /// Sets the timeout of this handle's calls that don't set their own.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the mode of this handle's reads that don't set their own.
    #[must_use]
    pub fn with_read_mode(mut self, mode: ReadMode) -> Self {
        self.mode = mode;
        self
    }

    /// A handle to the same data whose calls are made in this session, unless they set another.
    #[must_use]
    pub fn in_session(&self, session: &Session) -> Self {
        Self { session: Some(session.clone()), ..self.clone() }
    }

    /// A handle to the same data with strong reads, outside of sessions.
    pub(crate) fn plain(&self) -> Self {
        Self { mode: ReadMode::Strong, session: None, ..self.clone() }
    }

    /// A strong read from this node's own state, for any thread, with or without a runtime. `None`: the key is absent.
    /// It may wait briefly for a thread that is changing this key or the routing. It wakes no task, and outside a
    /// session it allocates nothing.
    ///
    /// # Errors
    /// [`NotLocal`] when this node can't serve the read now, and always [`NotLocal::NotHere`] for a
    /// [`Client`](crate::Client). Then use [`get`](Self::get), which asks this node's chain or another member.
    pub fn get_local<K: AsRef<[u8]> + ?Sized>(&self, key: &K) -> Result<Option<Versioned<Bytes>>, NotLocal> {
        match self.local(key.as_ref(), self.session.as_ref(), |_| ()) {
            LocalRead::Clean { found, .. } => Ok(found),
            LocalRead::Dirty(()) => Err(NotLocal::Dirty),
            LocalRead::Not(why) => Err(why),
        }
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.router.is_stopped()
    }

    pub(crate) fn runtime(&self) -> &tokio::runtime::Handle {
        self.router.runtime()
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Looks the key up in this node's own state. Calls `dirty` with the chain if the key is dirty there; `dirty` is
    /// restricted as in `Local::with_chain`.
    pub(super) fn local<D>(
        &self,
        key: &[u8],
        session: Option<&Session>,
        dirty: impl FnOnce(&Here) -> D,
    ) -> LocalRead<D> {
        let Some(local) = self.router.local() else { return LocalRead::Not(NotLocal::NotHere) };
        #[cfg(feature = "testing")]
        let noted = match self.router.observer.get() {
            Some(observer) if observer.is_paused() => return LocalRead::Not(NotLocal::NotHere),
            observer => observer.map(|observer| observer.begin_local(key)),
        };
        let read = |Here { handle, me, place }: &Here| {
            let held = handle.local(key)?;
            if let Some(session) = session {
                // Load the watermark after the lookup, so that an absent key raises the floor too. Load the history id
                // last: a watermark of one history must not become a floor in another (`Local::history_id`, trap 58).
                // `NotHere` sends a session of another history to the chain, which refuses it.
                let watermark = handle.gate.watermark();
                let history = local.history_id().ok_or(NotLocal::NotHere)?;
                session.floor(history, handle.chain).ok_or(NotLocal::NotHere)?;
                session.raise(history, handle.chain, watermark);
            }
            #[cfg(feature = "testing")]
            if let Some(noted) = noted {
                noted.end_local(handle.chain, &held, handle.gate.watermark());
            }
            Ok::<_, NotLocal>(LocalRead::Clean {
                expires_in: held.as_ref().and_then(|held| handle.expires_in(held)),
                found: held.and_then(Versioned::visible),
                node: me.node,
                place: *place,
            })
        };
        let looked = local.with_chain_of(key, |here| match read(here) {
            Err(NotLocal::Dirty) => LocalRead::Dirty(dirty(here)),
            Err(why) => LocalRead::Not(why),
            Ok(clean) => clean,
        });
        looked.unwrap_or(LocalRead::Not(NotLocal::NotHere))
    }
}

/// A strong read from this node's own state.
pub(super) enum LocalRead<D> {
    Clean {
        found: Option<Versioned<Bytes>>,
        expires_in: Option<Duration>,
        node: NodeId,
        place: Place,
    },
    /// The key is dirty. The chain's task may serve the read.
    Dirty(D),
    Not(NotLocal),
}

pub(crate) fn how_to_read(kv: &Kv) -> HowToRead {
    HowToRead { mode: kv.mode, timeout: kv.timeout, session: kv.session.clone() }
}

impl fmt::Debug for Kv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kv").field("timeout", &self.timeout).field("mode", &self.mode).finish_non_exhaustive()
    }
}
