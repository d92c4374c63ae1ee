//! Local clean reads without a task, channel or allocation. The only lock is that of the key (docs/DESIGN.md §4).

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering, fence};

use crate::{
    ChainId, Epoch, Sequence, Timestamp,
    guards::Guards,
    store::{Held, Store, StoreError},
};

#[cfg(any(test, feature = "mutants"))]
mod halves;
#[cfg(feature = "mutants")]
pub use halves::Begun;

/// The state that local readers of a chain share with its replica: three atomics that decide whether they may read.
#[derive(Debug)]
pub struct Gate {
    pub(super) chain: ChainId,
    /// The epoch in which this member may serve strong reads from its own state, or 0. [`HELD_BIT`] is set while
    /// updates that other nodes may know are missing from the store.
    serving: AtomicU64,
    watermark: AtomicU64,
    lease_until: AtomicU64,
    /// The time on this node's clock at which chain time was 0, in nanoseconds.
    chain_time: AtomicI64,
    counters: ReadCounters,
    guards: Guards,
    /// The time of the replica's last input.
    #[cfg(any(test, feature = "mutants"))]
    noted: AtomicU64,
}

/// The bit of `serving` that sends local readers to the replica.
const HELD_BIT: u64 = 1 << 63;

/// The result of a local lookup. It must not be returned before [`Gate::leave`] has checked it.
#[derive(Debug)]
struct Looked {
    epoch: u64,
    newest: Option<Held>,
}

/// Why a read can't be served locally at present. The node can still serve the read by another path.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum NotLocal {
    /// The newest version here isn't known to be committed, or updates that other nodes may know are missing from the
    /// store.
    #[error("the newest version here is not known to be committed")]
    Dirty,
    /// The lease has expired, or this node has none.
    #[error("this node holds no lease")]
    NoLease,
    /// The member serves no local reads at present: it doesn't serve in its configuration, isn't the tail of a chain in
    /// classic mode, or its epoch changed during the lookup.
    #[error("no chain with that key is served here")]
    NotHere,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Counts local reads with little contention: the threads are spread over several cache lines.
#[derive(Debug, Default)]
pub struct ReadCounters {
    stripes: [Stripe; STRIPES],
}

const STRIPES: usize = 16;

#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe(AtomicU64);

impl ReadCounters {
    fn add(&self) {
        use std::{cell::Cell, sync::atomic::AtomicUsize};
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local!(static STRIPE: Cell<usize> = const { Cell::new(usize::MAX) });
        let stripe = STRIPE.with(|stripe| {
            if stripe.get() == usize::MAX {
                stripe.set(NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES);
            }
            stripe.get()
        });
        self.stripes[stripe].0.fetch_add(1, Ordering::Relaxed);
    }

    pub fn total(&self) -> u64 {
        self.stripes.iter().map(|stripe| stripe.0.load(Ordering::Relaxed)).sum()
    }
}

impl Gate {
    /// A closed gate.
    pub fn new(chain: ChainId) -> Self {
        Self {
            chain,
            serving: AtomicU64::new(0),
            watermark: AtomicU64::new(0),
            lease_until: AtomicU64::new(0),
            chain_time: AtomicI64::new(0),
            counters: ReadCounters::default(),
            guards: Guards::default(),
            #[cfg(any(test, feature = "mutants"))]
            noted: AtomicU64::new(0),
        }
    }

    /// The same gate with these guards, which must equal those of its replica.
    #[must_use]
    pub fn with_guards(self, guards: Guards) -> Self {
        Self { guards, ..self }
    }

    pub(super) fn set_chain_time(&self, origin: i64) {
        self.chain_time.store(origin, Ordering::Relaxed);
    }

    /// The chain time at this member, in milliseconds. Readers derive from it how long a key will stay.
    pub fn chain_time(&self, now: Timestamp) -> u64 {
        let now = i64::try_from(now.as_nanos()).unwrap_or(i64::MAX);
        let passed = now.saturating_sub(self.chain_time.load(Ordering::Relaxed));
        u64::try_from(passed / 1_000_000).unwrap_or(0)
    }

    pub(super) fn guards(&self) -> Guards {
        self.guards
    }

    /// Returns the newest version of `key`, if it is committed and this member may serve it. Tombstones are returned.
    ///
    /// `now` is called after the lookup: the lease must cover the time at which the value is returned (docs/DESIGN.md
    /// §6). `serving` is loaded both before the lookup and at the end: in between, the member may be removed and return
    /// (trap 28).
    ///
    /// # Errors
    /// [`NotLocal`]: the read must be served by another path.
    pub fn read(
        &self,
        store: &dyn Store,
        key: &[u8],
        now: impl FnOnce() -> Timestamp,
    ) -> Result<Option<Held>, NotLocal> {
        self.leave(self.look(store, key)?, now)
    }

    fn look(&self, store: &dyn Store, key: &[u8]) -> Result<Looked, NotLocal> {
        let epoch = self.serving.load(Ordering::Acquire);
        if epoch & !HELD_BIT == 0 {
            return Err(NotLocal::NotHere);
        }
        if epoch & HELD_BIT != 0 {
            return Err(NotLocal::Dirty);
        }
        // Load the watermark before the lookup. A cut may drop the version that the lookup finds, and another version
        // may be committed under its sequence. A later watermark would then make the dropped version look committed
        // (trap 53).
        let watermark = self.watermark();
        let newest = store.read(self.chain, key, Sequence::MAX)?;
        let watermark = if allows!(self.guards, LoadWatermarkLate) { self.watermark() } else { watermark };
        if newest.as_ref().is_some_and(|held| held.version.sequence > watermark) {
            return Err(NotLocal::Dirty);
        }
        Ok(Looked { epoch, newest })
    }

    fn leave(&self, looked: Looked, now: impl FnOnce() -> Timestamp) -> Result<Option<Held>, NotLocal> {
        #[cfg(any(test, feature = "mutants"))]
        let now = || self.noted_time().unwrap_or_else(now);
        let now = now();
        if now.as_nanos() >= self.lease_until.load(Ordering::Acquire) {
            return Err(NotLocal::NoLease);
        }
        // Keeps the lookup from being reordered after this load.
        fence(Ordering::SeqCst);
        let serving = self.serving.load(Ordering::Relaxed);
        if serving & !HELD_BIT != looked.epoch && !allows!(self.guards, LookOnce) {
            return Err(NotLocal::NotHere);
        }
        self.counters.add();
        Ok(looked.newest)
    }

    /// The epoch in which this member may serve.
    pub fn serving(&self) -> Option<Epoch> {
        Some(Epoch(self.serving.load(Ordering::Acquire) & !HELD_BIT)).filter(|&epoch| epoch != Epoch(0))
    }

    pub fn watermark(&self) -> Sequence {
        Sequence(self.watermark.load(Ordering::Acquire))
    }

    /// When the lease ends, by this node's clock; [`Timestamp::MAX`]: never.
    pub fn lease_until(&self) -> Timestamp {
        Timestamp::from_nanos(self.lease_until.load(Ordering::Acquire))
    }

    pub fn counters(&self) -> &ReadCounters {
        &self.counters
    }

    /// Opens the gate in `epoch`, or closes it. A reader whose second load of `serving` is later sees the change, and
    /// doesn't return a value of the old epoch.
    pub(crate) fn serve(&self, epoch: Option<Epoch>) {
        let held = self.serving.load(Ordering::Relaxed) & HELD_BIT;
        self.serving.store(epoch.map_or(0, |epoch| epoch.0) | held, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Sends all new readers to the replica, until [`release`](Self::release). A reader that has already finished its
    /// lookup may still return: no other node knows the missing updates yet.
    pub(crate) fn hold(&self) {
        self.serving.store(self.serving.load(Ordering::Relaxed) | HELD_BIT, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    #[cfg(feature = "mutants")]
    pub(super) fn is_held(&self) -> bool {
        self.serving.load(Ordering::Relaxed) & HELD_BIT != 0
    }

    /// Ends the hold. The store must contain every update that other nodes may know.
    pub(crate) fn release(&self) {
        self.serving.store(self.serving.load(Ordering::Relaxed) & !HELD_BIT, Ordering::Release);
    }

    /// Sets the watermark. The store must already contain all updates that it covers.
    pub(crate) fn commit(&self, watermark: Sequence) {
        self.watermark.store(watermark.0, Ordering::Release);
    }

    pub(crate) fn lease(&self, until: Timestamp) {
        self.lease_until.store(until.as_nanos(), Ordering::Release);
    }
}

#[cfg(feature = "mutants")]
impl Gate {
    /// A gate in the same state, with counters at zero.
    pub fn fork(&self) -> Self {
        let fork = Self::new(self.chain).with_guards(self.guards());
        fork.serve(self.serving());
        if self.is_held() {
            fork.hold();
        }
        fork.commit(self.watermark());
        fork.lease(self.lease_until());
        fork
    }
}

#[cfg(test)]
mod tests;
