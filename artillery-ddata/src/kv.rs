//! Keys and values as bytes: the same handle inside a node and beside it.

mod batch;
mod fetched;
mod get;
mod hashed;
mod many;
mod result;
mod scan;
mod script;
#[cfg(test)]
mod tests;
mod watch;
mod write;

use std::{fmt, pin::Pin, sync::Arc, time::Duration};

pub use batch::Batch;
use bytes::Bytes;
pub use get::{Get, GetFuture};
pub use hashed::{KeyPage, ScanHashed};
pub use many::{Cut, GetMany};
pub use result::{Committed, Conflict, Read, ReadState, Record, Resolution, Served, Taken, Versioned};
pub use scan::{Entry, Scan};
pub use script::{Group, Script};
pub use watch::{Change, Watch};
pub use write::{Append, CompareAndSwap, Delete, GetDelete, Increment, Put, RunScript, WriteBatch};

use crate::{
    Error, Place, Refusal, RequestId, Session, Version,
    api::ReadMode,
    error::Unknown,
    local::handle::ChainHandle,
    replica::NotLocal,
    rpc::router::{HowToRead, Router},
    types::keep::{SHORT, copied},
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
    session: Option<Session>,
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

    /// Reads a key.
    ///
    /// In mode [`ReadMode::Strong`] the first poll tries [`get_local`](Self::get_local), and is ready at once if that
    /// serves; otherwise a member is asked.
    ///
    /// # Errors
    /// When awaited, [`Error::Refused`] or [`Error::NotApplied`].
    pub fn get<'a, K: AsRef<[u8]> + ?Sized>(&'a self, key: &'a K) -> Get<'a> {
        Get::new(self, key.as_ref())
    }

    /// Gives a key a value. Returns, when awaited, once the write is on all serving members.
    ///
    /// # Errors
    /// When awaited, any [`Error`]. A call dropped before its end leaves an unknown outcome: use its
    /// timeout instead.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl Into<Bytes>) -> Put {
        let (key, value) = pair(key, value);
        Put::new(self, key, value)
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
        let (key, value) = pair(key, value);
        CompareAndSwap::new(self, key, expected, Some(value))
    }

    /// Makes a key absent if its newest version is `expected`.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn compare_and_delete(&self, key: impl AsRef<[u8]>, expected: Version) -> CompareAndSwap {
        CompareAndSwap::new(self, copy(key), expected, None)
    }

    /// Appends to a value; an absent key counts as empty.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn append(&self, key: impl AsRef<[u8]>, value: impl Into<Bytes>) -> Append {
        Append::new(self, copy(key), value.into())
    }

    /// Adds to a number, which is kept as decimal text; an absent key counts as 0.
    ///
    /// # Errors
    /// As [`put`](Self::put); [`Refusal::NotANumber`] and [`Refusal::Overflow`] if it can't be done.
    pub fn increment(&self, key: impl AsRef<[u8]>, by: i64) -> Increment {
        Increment::new(self, copy(key), by)
    }

    /// Makes a key absent, and says what it held.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn get_delete(&self, key: impl AsRef<[u8]>) -> GetDelete {
        GetDelete::new(self, copy(key))
    }

    /// Writes a batch: all of it or nothing. Its keys belong to one chain.
    ///
    /// The inner result says whether its requirements held.
    ///
    /// # Errors
    /// As [`put`](Self::put); [`Refusal::ManyChains`] and [`Refusal::BatchSize`].
    pub fn write(&self, batch: Batch) -> WriteBatch {
        WriteBatch::new(self, batch)
    }

    /// Runs a script: its steps one after the other, with nothing between them, and says what came of each group.
    ///
    /// The inner result says whether the script's own requirements held; [`Conflict::step`] counts those. The groups'
    /// outcomes are told once, to this call: if the answer is lost on its way and a retry finds the record, the outcome is
    /// [`Unknown::ResultsLost`], and the script has run.
    ///
    /// # Errors
    /// As [`put`](Self::put); [`Refusal::ManyChains`], [`Refusal::BatchSize`], and [`Refusal::ResultsTooLarge`] if it would
    /// tell more bytes than a value may have.
    pub fn run(&self, script: Script) -> RunScript {
        RunScript::new(self, script)
    }

    /// Reads keys of one chain, all at one point of its history: never half of a batch.
    ///
    /// # Errors
    /// As [`get`](Self::get); [`Refusal::ManyChains`] and [`Refusal::BatchSize`].
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> GetMany {
        GetMany::new(self, keys.into_iter().map(copy).collect())
    }

    /// The keys that begin with `prefix`, in the order of their bytes, with their values.
    pub fn scan(&self, prefix: impl AsRef<[u8]>) -> Scan {
        Scan::new(self, copy(prefix))
    }

    /// A page of all keys in the order of a fixed 64-bit hash, beginning at `cursor`; 0: at the first.
    ///
    /// The cursor is a position in that order and no more: no member keeps anything for it, each knows it, and it is good
    /// for ever. Who goes on with what each page names until that is 0 meets every key that is there throughout at least
    /// once; one that comes or goes meanwhile perhaps. It is no snapshot. When keys are first asked for in this order, a
    /// member has to bring its own into it, some thousands a call: until then pages are empty, and name the same cursor.
    ///
    /// # Errors
    /// When awaited, [`Error::Refused`] or [`Error::NotApplied`].
    pub fn scan_hashed(&self, cursor: u64) -> ScanHashed {
        ScanHashed::new(self, cursor)
    }

    /// Every committed change of the keys that begin with `prefix`, once and in order, from now on or from a given
    /// position.
    pub fn watch(&self, prefix: impl AsRef<[u8]>) -> Watch {
        Watch::new(self, copy(prefix))
    }

    /// An id for a write of `key` that is to be made later: store it first where the write must happen once even if this
    /// process ends meanwhile. The chain keeps what it needs for that until it has to make room for others.
    ///
    /// # Errors
    /// [`Error::Refused`] or [`Error::NotApplied`]; nothing of yours was applied.
    pub async fn new_request_id(&self, key: impl AsRef<[u8]>) -> Result<RequestId, Error> {
        self.router.new_request_id(key.as_ref(), self.timeout).await
    }

    /// What became of a write whose outcome is unknown. The answer is true for ever: what wasn't applied by now never
    /// will be.
    ///
    /// # Errors
    /// Any [`Error`]; then nothing is settled yet, and this may be called again.
    pub async fn resolve(&self, id: RequestId) -> Result<Resolution, Error> {
        let outcome = match self.router.resolve(id, self.timeout).await {
            Ok(answer) => write::outcome(answer, id),
            Err(error) => Err(error),
        };
        match outcome {
            Ok(Ok(done)) => Ok(Resolution::Applied(Record::new(done.version, done.result))),
            Ok(Err(conflict)) => Ok(Resolution::Conflict(conflict)),
            // Its record says that it changed nothing.
            Err(Error::Refused {
                reason:
                    Refusal::Barred
                    | Refusal::NotANumber
                    | Refusal::Overflow
                    | Refusal::ResultsTooLarge { .. }
                    | Refusal::UpdateTooLarge { .. },
                ..
            }) => Ok(Resolution::NeverApplied),
            Err(Error::OutcomeUnknown { reason: Unknown::SessionExpired, .. }) => Ok(Resolution::Forgotten),
            Err(error) => Err(error),
        }
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

    fn local(&self, key: &[u8], session: Option<&Session>) -> Result<(Option<Versioned<Bytes>>, Place), NotLocal> {
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
                let life = local.life().ok_or(NotLocal::NotHere)?;
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

fn how_to_read(kv: &Kv) -> HowToRead {
    HowToRead { mode: kv.mode, timeout: kv.timeout, session: kv.session.clone() }
}

fn copy(key: impl AsRef<[u8]>) -> Bytes {
    copied(key.as_ref())
}

/// A copy of a key, and the value that it is given. Where both are short that is copied too: together they take one
/// allocation for as long as the chain keeps them, and nothing that the value came with.
fn pair(key: impl AsRef<[u8]>, value: impl Into<Bytes>) -> (Bytes, Bytes) {
    let (key, value) = (key.as_ref(), value.into());
    let mut both = [0; SHORT];
    let Some(place) = both.get_mut(..key.len() + value.len()) else { return (copied(key), value) };
    let (key_place, value_place) = place.split_at_mut(key.len());
    key_place.copy_from_slice(key);
    value_place.copy_from_slice(&value);
    let mut copy = copied(place);
    let value = copy.split_off(key.len());
    (copy, value)
}

impl fmt::Debug for Kv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kv").field("timeout", &self.timeout).field("mode", &self.mode).finish_non_exhaustive()
    }
}
