//! The copies that all views of one prefix in a process share.

use std::{
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use artillery_proto::{
    follower::{Copy, CopyEntry},
    guards::Guards,
};
use bytes::Bytes;
use tokio::{sync::Notify, time::Instant};

use super::{ViewError, listener::Listener};
use crate::{
    ChainId, ClusterId, Error, Routing, Sequence, Version,
    control::{chain_of, chain_of_prefix},
    kv::Versioned,
};

pub(super) struct SharedView {
    pub(super) prefix: Bytes,
    max_bytes: u64,
    /// The number of chains of the cluster.
    pub(super) chains: u32,
    /// One copy for each chain that keys with the prefix may belong to.
    pub(super) copies: Vec<ChainCopy>,
    /// Counts the changes of the state.
    changes: AtomicU64,
    end: OnceLock<ViewError>,
    /// Notified whenever a copy changes, moves or fails. It wakes its waiters in order, unlike a `watch`, so that a
    /// simulated run is reproducible.
    progress: Notify,
}

/// The copy of one chain's keys.
pub(super) struct ChainCopy {
    pub(super) chain: ChainId,
    shown: RwLock<Shown>,
    standing: Mutex<Standing>,
    /// The approximate memory, including that of a state that is being read.
    bytes: AtomicU64,
    /// Callbacks that the chain's task doesn't know yet.
    new: Mutex<Vec<Weak<Listener>>>,
    /// Wakes the chain's task.
    pub(super) wake: Notify,
    /// The number of callers that wait until the copy has reached a position.
    waiting: AtomicUsize,
}

/// The state that views show.
pub(super) struct Shown {
    pub(super) copy: Copy,
    /// The history to which the copy's position belongs; `None`: the copy was never complete.
    pub(super) history: Option<ClusterId>,
    /// The newest version ever shown.
    pub(super) newest: Version,
}

#[derive(Clone)]
pub(super) struct Standing {
    /// `None`: the copy is level.
    pub(super) behind: Option<Instant>,
    pub(super) answered: Instant,
    pub(super) resyncs: u64,
    pub(super) last_error: Option<(Instant, Error)>,
}

impl SharedView {
    pub(super) fn new(prefix: Bytes, max_bytes: u64, routing: &Routing) -> Self {
        let chains = routing.chains.len() as u32;
        let only = chain_of_prefix(&prefix, chains);
        let all = routing.chains.iter().map(|config| config.chain);
        let copies = all.filter(|&chain| only.is_none_or(|only| only == chain)).map(ChainCopy::new).collect();
        Self {
            prefix,
            max_bytes,
            chains,
            copies,
            changes: AtomicU64::new(0),
            end: OnceLock::new(),
            progress: Notify::new(),
        }
    }

    /// The copy that has this key if any has it.
    pub(super) fn copy_of(&self, key: &[u8]) -> Option<&ChainCopy> {
        match &self.copies[..] {
            [only] => Some(only),
            all => all.get(chain_of(key, self.chains).0 as usize),
        }
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    pub(super) fn progressed(&self, has_changed: bool) {
        if has_changed {
            self.changes.fetch_add(1, Ordering::AcqRel);
        }
        self.progress.notify_waiters();
    }

    pub(super) fn end(&self) -> Option<&ViewError> {
        self.end.get()
    }

    /// Ends all views, unless they have ended.
    pub(super) fn end_with(&self, error: ViewError) {
        // The first error is kept.
        let _ = self.end.set(error);
        self.copies.iter().for_each(|copy| copy.wake.notify_one());
        self.progress.notify_waiters();
    }

    /// Waits until `wanted` holds, which is checked at each progress.
    pub(super) async fn until(&self, wanted: impl Fn() -> bool) {
        loop {
            let mut progress = pin!(self.progress.notified());
            // From here on, no notification is missed.
            progress.as_mut().enable();
            if wanted() {
                return;
            }
            progress.await;
        }
    }

    pub(super) fn is_level(&self) -> bool {
        self.copies.iter().all(|copy| copy.standing().behind.is_none())
    }

    pub(super) fn last_error(&self) -> Option<Error> {
        let errors = self.copies.iter().filter_map(|copy| copy.standing().last_error.clone());
        errors.max_by_key(|(at, _)| *at).map(|(_, error)| error)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.copies.iter().map(|copy| copy.bytes.load(Ordering::Relaxed)).sum()
    }

    /// Notes the memory of one copy.
    ///
    /// # Errors
    /// If all together need more than allowed.
    pub(super) fn measure(&self, copy: &ChainCopy, bytes: usize) -> Result<(), ViewError> {
        copy.bytes.store(bytes as u64, Ordering::Relaxed);
        if self.bytes() > self.max_bytes {
            return Err(ViewError::TooLarge { limit: self.max_bytes });
        }
        Ok(())
    }

    /// Adds a callback. The chains' tasks call it first with the present entries.
    pub(super) fn add(&self, listener: &Arc<Listener>) {
        for copy in &self.copies {
            lock(&copy.new).push(Arc::downgrade(listener));
            copy.wake.notify_one();
        }
    }

    /// Makes the chains' tasks ask for their positions often, until the result is dropped.
    pub(super) fn hurry(&self) -> Hurry<'_> {
        for copy in &self.copies {
            copy.waiting.fetch_add(1, Ordering::AcqRel);
            copy.wake.notify_one();
        }
        Hurry(self)
    }
}

/// See [`SharedView::hurry`].
pub(super) struct Hurry<'a>(&'a SharedView);

impl Drop for Hurry<'_> {
    fn drop(&mut self) {
        for copy in &self.0.copies {
            copy.waiting.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl ChainCopy {
    fn new(chain: ChainId) -> Self {
        let now = Instant::now();
        let shown = Shown { copy: Copy::new(Guards::ALL), history: None, newest: Version::NONE };
        let standing = Standing { behind: Some(now), answered: now, resyncs: 0, last_error: None };
        Self {
            chain,
            shown: RwLock::new(shown),
            standing: Mutex::new(standing),
            bytes: AtomicU64::new(0),
            new: Mutex::default(),
            wake: Notify::new(),
            waiting: AtomicUsize::new(0),
        }
    }

    pub(super) fn shown(&self) -> RwLockReadGuard<'_, Shown> {
        // Only the chain's task changes it, by code that doesn't panic.
        self.shown.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn change(&self) -> RwLockWriteGuard<'_, Shown> {
        self.shown.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn standing(&self) -> MutexGuard<'_, Standing> {
        lock(&self.standing)
    }

    pub(super) fn take_new(&self) -> Vec<Weak<Listener>> {
        std::mem::take(&mut *lock(&self.new))
    }

    pub(super) fn is_in_hurry(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }

    /// Whether the copy shows this history up to this sequence.
    pub(super) fn has_reached(&self, history: Option<ClusterId>, sequence: Sequence) -> bool {
        let shown = self.shown();
        (history.is_none() || shown.history == history) && shown.copy.at().is_some_and(|at| at >= sequence)
    }
}

impl Standing {
    pub(super) fn answered(&mut self, is_level: bool) {
        let now = Instant::now();
        self.answered = now;
        self.behind = if is_level { None } else { self.behind.or(Some(now)) };
    }

    pub(super) fn failed(&mut self, error: Error) {
        let now = Instant::now();
        self.behind = self.behind.or(Some(now));
        self.last_error = Some((now, error));
    }

    pub(super) fn behind_for(&self) -> Option<Duration> {
        self.behind.map(|since| since.elapsed())
    }
}

pub(super) fn versioned(entry: &CopyEntry) -> Versioned<Bytes> {
    Versioned { version: entry.version, value: entry.value.clone() }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code that holds these locks can panic halfway through a change.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
