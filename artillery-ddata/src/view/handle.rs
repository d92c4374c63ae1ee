//! The handle of a view.

use std::{fmt, sync::Arc, time::Duration};

use artillery_proto::follower::CopyEntry;
use bytes::Bytes;
use tokio::{
    task::{JoinSet, coop},
    time::{Instant, timeout},
};

use super::{
    ViewError, ViewState, ViewStatus,
    follow::follow,
    listener::Listener,
    shared::{ChainCopy, SharedView, versioned},
};
use crate::{
    Error, Frontier, Kv, Refusal, Routing, Session, Version,
    kv::{DEFAULT_TIMEOUT, Entry, Versioned},
    rpc::router::from_now,
};

/// How long a caller waits for a position before the tasks ask for it.
const PATIENCE: Duration = Duration::from_millis(50);

/// A copy of the keys with a prefix, kept current: see the [module](crate::view).
///
/// Clones are cheap. They share the copy and the callback; each has its own [`changed`](Self::changed).
#[derive(Clone)]
pub struct View {
    /// The same as that of the keeper: a look-up saves a step.
    shared: Arc<SharedView>,
    keeper: Arc<Keeper>,
    listener: Option<Arc<Listener>>,
    /// The number of changes as of the last [`changed`](Self::changed).
    seen: u64,
}

/// Keeps a shared view open.
pub(super) struct Keeper {
    kv: Kv,
    pub(super) shared: Arc<SharedView>,
    /// Aborted when the keeper is dropped.
    _tasks: JoinSet<()>,
}

impl Keeper {
    /// Starts the task of each chain.
    pub(super) fn start(kv: &Kv, prefix: Bytes, max_bytes: u64, routing: &Routing) -> Self {
        let kv = Kv::new(kv.router.clone());
        let shared = Arc::new(SharedView::new(prefix, max_bytes, routing));
        let mut tasks = JoinSet::new();
        for index in 0..shared.copies.len() {
            tasks.spawn_on(follow(kv.clone(), shared.clone(), index), kv.runtime());
        }
        Self { kv, shared, _tasks: tasks }
    }
}

impl View {
    pub(super) fn new(keeper: Arc<Keeper>, listener: Option<Arc<Listener>>) -> Self {
        let shared = keeper.shared.clone();
        let seen = shared.changes();
        Self { shared, keeper, listener, seen }
    }

    /// A key's value. `None`: the key is absent from the copy. A key without the view's prefix always is.
    pub fn get<K: AsRef<[u8]> + ?Sized>(&self, key: &K) -> Option<Versioned<Bytes>> {
        let key = key.as_ref();
        self.shared.copy_of(key)?.shown().copy.get(key).map(versioned)
    }

    /// Whether the copy has this key.
    pub fn contains_key<K: AsRef<[u8]> + ?Sized>(&self, key: &K) -> bool {
        let key = key.as_ref();
        self.shared.copy_of(key).is_some_and(|copy| copy.shown().copy.get(key).is_some())
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.shared.copies.iter().map(|copy| copy.shown().copy.len()).sum()
    }

    /// Whether the copy has no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All entries in key order. Those of one chain show one committed state of it. Later changes don't affect the
    /// iterator, which holds references to all keys and values.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Entry> + DoubleEndedIterator + use<> {
        let mut entries = Vec::new();
        for copy in &self.shared.copies {
            let entry =
                |(key, entry): (&Bytes, &CopyEntry)| Entry::new(key.clone(), entry.version, entry.value.clone());
            entries.extend(copy.shown().copy.iter().map(entry));
        }
        entries.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        entries.into_iter()
    }

    /// The position up to which the view shows all changes of each chain, for instance for a
    /// [session](Session::resume) that reads no older state. While no key with the prefix changes, it may lie up to 10
    /// seconds back. After a recovery it has only chains that were read in the new history.
    pub fn position(&self) -> Frontier {
        let known = self.keeper.kv.router.known().map(|routing| routing.history_id());
        let positions: Vec<_> = self.shared.copies.iter().filter_map(position).collect();
        let is_any_new = positions.iter().any(|(history, ..)| known == Some(*history));
        let mut frontier = Frontier::default();
        for (history, chain, at) in positions {
            if !is_any_new || known == Some(history) {
                frontier.raise(history, chain, at);
            }
        }
        frontier
    }

    /// The newest version among the changes and entries that the view has shown; [`Version::NONE`] if it has shown
    /// none. Versions of different chains don't compare.
    pub fn version(&self) -> Version {
        self.shared.copies.iter().map(|copy| copy.shown().newest).max().unwrap_or(Version::NONE)
    }

    /// Waits until the state differs from the one at the last call of this; at first, from the one at which the view
    /// was opened. Several changes may be one for a caller. Dropping the future loses no change.
    ///
    /// # Errors
    /// The error with which the view ended, after its last change.
    pub async fn changed(&mut self) -> Result<(), ViewError> {
        coop::consume_budget().await;
        let (shared, seen) = (&self.shared, self.seen);
        shared.until(|| shared.changes() != seen || shared.end().is_some()).await;
        match (shared.changes(), shared.end()) {
            (changes, Some(end)) if changes == seen => Err(end.clone()),
            (changes, _) => {
                self.seen = changes;
                Ok(())
            }
        }
    }

    /// Waits until the view shows its chain up to the update with this version, however long that takes. If the latest
    /// updates of the chain changed no key with the prefix, it takes about 300 milliseconds.
    ///
    /// The version must belong to the cluster's present history, as this process knows it. After a recovery, use
    /// [`caught_up_to_session`](Self::caught_up_to_session), which knows the history of a write.
    ///
    /// # Errors
    /// [`Refusal::ManyChains`] as [`ViewError::Call`] if the keys belong to several chains: use
    /// [`caught_up_to_session`](Self::caught_up_to_session). Or the error with which the view ended.
    pub async fn caught_up_to(&self, version: Version) -> Result<(), ViewError> {
        coop::consume_budget().await;
        let [copy] = &self.shared.copies[..] else {
            return Err(Error::refused(Refusal::ManyChains, None).into());
        };
        let router = &self.keeper.kv.router;
        let history = || router.known().map(|routing| routing.history_id());
        self.catch_up(|| copy.has_reached(history(), version.sequence)).await
    }

    /// Waits until the view shows each update that the session has seen, however long that takes. If the latest
    /// updates of a chain changed no key with the prefix, it takes about 300 milliseconds.
    ///
    /// # Errors
    /// [`Refusal::OtherHistory`] as [`ViewError::Call`] if the session has seen another history of the cluster. Or the
    /// error with which the view ended.
    pub async fn caught_up_to_session(&self, session: &Session) -> Result<(), ViewError> {
        coop::consume_budget().await;
        let (router, frontier) = (&self.keeper.kv.router, session.frontier());
        let Some(history) = frontier.cluster() else { return Ok(()) };
        let is_reached = |copy: &ChainCopy| copy.has_reached(Some(history), frontier.floor(copy.chain));
        let is_up = || self.shared.copies.iter().all(is_reached);
        let is_other = || router.known().is_some_and(|routing| routing.history_id() != history);
        while !is_up() {
            router.routing_of(Some(history), from_now(DEFAULT_TIMEOUT)).await?;
            self.catch_up(|| is_up() || is_other()).await?;
        }
        Ok(())
    }

    async fn catch_up(&self, is_up: impl Fn() -> bool) -> Result<(), ViewError> {
        let shared = &self.shared;
        if is_up() {
            return Ok(());
        }
        self.keeper.kv.router.may_begin()?;
        let mut caught_up = std::pin::pin!(shared.until(|| is_up() || shared.end().is_some()));
        if timeout(PATIENCE, &mut caught_up).await.is_err() {
            let _hurry = shared.hurry();
            caught_up.await;
        }
        match shared.end() {
            Some(end) if !is_up() => Err(end.clone()),
            _ => Ok(()),
        }
    }

    #[cfg(test)]
    pub(super) fn shares_copy(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    #[cfg(test)]
    pub(super) fn weak(&self) -> std::sync::Weak<SharedView> {
        Arc::downgrade(&self.shared)
    }

    /// The condition of the view.
    pub fn status(&self) -> ViewStatus {
        let shared = &self.shared;
        let standings: Vec<_> = shared.copies.iter().map(|copy| copy.standing().clone()).collect();
        let now = Instant::now();
        let state = match (shared.end(), standings.iter().filter_map(|standing| standing.behind_for()).max()) {
            (Some(end), _) => ViewState::Ended(end.clone()),
            (None, Some(since)) => ViewState::Behind { since },
            (None, None) => ViewState::Level,
        };
        ViewStatus {
            state,
            checked: standings.iter().map(|standing| now - standing.answered).max().unwrap_or_default(),
            entries: self.len() as u64,
            bytes: shared.bytes(),
            resyncs: standings.iter().map(|standing| standing.resyncs).sum(),
            last_error: shared.last_error(),
        }
    }
}

fn position(copy: &ChainCopy) -> Option<(crate::ClusterId, crate::ChainId, crate::Sequence)> {
    let shown = copy.shown();
    Some((shown.history?, copy.chain, shown.copy.at()?))
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View")
            .field("prefix", &self.shared.prefix)
            .field("has_callback", &self.listener.is_some())
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}
