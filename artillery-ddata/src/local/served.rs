//! State shared by a node's handles and its request server: the chains served here, and the routing to the others.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use artillery_core::internal::{clock::NodeClock, watch};
use crossbeam_utils::sync::{ShardedLock, ShardedLockReadGuard};

use super::handle::ChainHandle;
use crate::{ChainId, MemberId, Place, Routing, Timestamp, control::chain_of, metrics::Tally};

pub(crate) struct Local {
    pub(crate) me: MemberId,
    pub(crate) name: String,
    pub(crate) clock: NodeClock,
    /// All chains that are served here now or may be later, by chain id.
    handles: Mutex<Vec<Option<ChainHandle>>>,
    /// By chain id; `None` for chains that only other nodes serve. Empty before the cluster is formed, and after the
    /// node has stopped.
    ///
    /// Every local read locks only its thread's shard, so reading threads share no cache line. A change locks all
    /// shards.
    chains: ShardedLock<Vec<Option<Here>>>,
    routing: watch::Sender<Option<Arc<Routing>>>,
    /// Whether another cluster succeeds this node's; then this node serves nothing.
    yields: watch::Sender<bool>,
    forwarded: AtomicU64,
    pub(crate) tally: Arc<Tally>,
}

/// A chain that this node is a member of. The place is stored here so that local reads report it without a lookup.
#[derive(Clone)]
pub(crate) struct Here {
    pub(crate) handle: ChainHandle,
    pub(crate) me: MemberId,
    pub(crate) place: Place,
}

impl Local {
    pub(crate) fn new(me: MemberId, name: String) -> Self {
        let (handles, chains) = (Mutex::default(), ShardedLock::default());
        Self {
            me,
            name,
            clock: NodeClock::default(),
            handles,
            chains,
            routing: watch::Sender::new(None),
            yields: watch::Sender::new(false),
            forwarded: AtomicU64::new(0),
            tally: Arc::default(),
        }
    }

    /// Uses this clock.
    pub(crate) fn with_clock(self, clock: NodeClock) -> Self {
        Self { clock, ..self }
    }

    /// The chain, if this node is a member of it.
    pub(crate) fn here(&self, chain: ChainId) -> Option<Here> {
        self.chains().get(chain.0 as usize)?.clone()
    }

    /// The chain, if this node is its head.
    pub(crate) fn head(&self, chain: ChainId) -> Option<Here> {
        self.chains().get(chain.0 as usize)?.as_ref().filter(|here| here.place == Place::Head).cloned()
    }

    /// Calls `f` with the chain, without a clone, for local reads. `f` must not call this type's chain getters, which
    /// can deadlock: a pending change waits for this read, and the inner call would wait for that change.
    pub(crate) fn with_chain<T>(&self, chain: ChainId, f: impl FnOnce(&ChainHandle) -> T) -> Option<T> {
        self.chains().get(chain.0 as usize).and_then(Option::as_ref).map(|here| f(&here.handle))
    }

    /// Calls `f` with the chain that holds `key`; `None` if this node isn't a member. `f` is restricted as in
    /// [`with_chain`](Self::with_chain).
    pub(crate) fn with_chain_of<T>(&self, key: &[u8], f: impl FnOnce(&Here) -> T) -> Option<T> {
        let chains = self.chains();
        let chain = chain_of(key, chains.len() as u32);
        chains.get(chain.0 as usize).and_then(Option::as_ref).map(f)
    }

    pub(crate) fn lease(&self, chain: ChainId) -> Timestamp {
        self.with_chain(chain, |handle| handle.gate.lease_until()).unwrap_or_default()
    }

    pub(crate) fn place(&self, chain: ChainId) -> Place {
        self.chains().get(chain.0 as usize).and_then(Option::as_ref).map_or(Place::Spare, |here| here.place)
    }

    /// The history id of this node's chains, once the cluster is formed.
    ///
    /// It changes before the chains enter the new history. So a local reader that calls this *after* its lookup, and
    /// gets the old history, has read nothing of the new one (trap 58).
    pub(crate) fn history_id(&self) -> Option<crate::ClusterId> {
        self.routing.borrow().as_ref().map(|routing| routing.history_id())
    }

    pub(crate) fn cluster(&self) -> Option<crate::ClusterId> {
        self.routing.borrow().as_ref().map(|routing| routing.cluster)
    }

    /// The number of chains; 0 before the cluster is formed, and after the node has stopped.
    pub(crate) fn chain_count(&self) -> u32 {
        self.chains().len() as u32
    }

    /// Whether this node serves nothing because another cluster succeeds its own.
    pub(crate) fn yields(&self) -> bool {
        *self.yields.borrow()
    }

    pub(crate) fn follow_yields(&self) -> watch::Receiver<bool> {
        self.yields.subscribe()
    }

    pub(crate) fn set_yields(&self, yields: bool) {
        self.yields.send_if_modified(|known| std::mem::replace(known, yields) != yields);
    }

    pub(crate) fn routing(&self) -> watch::Receiver<Option<Arc<Routing>>> {
        self.routing.subscribe()
    }

    /// Sets the routing and the chains that are served here now or may be later. Called once by a node, when the
    /// cluster is formed.
    pub(crate) fn form(&self, routing: Routing, chains: Vec<Option<ChainHandle>>) {
        *self.handles() = chains;
        self.update(routing);
    }

    fn handles(&self) -> MutexGuard<'_, Vec<Option<ChainHandle>>> {
        // No code that holds the lock can panic halfway through a change.
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn chains(&self) -> ShardedLockReadGuard<'_, Vec<Option<Here>>> {
        self.chains.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_chains(&self, chains: Vec<Option<Here>>) {
        let replaced = std::mem::replace(&mut *self.chains.write().unwrap_or_else(PoisonError::into_inner), chains);
        // Drop the old value after the lock is released. Dropping a chain's last handle ends its task, and local reads
        // must not wait for that.
        drop(replaced);
    }

    /// Applies a new routing: chains, members or addresses may have changed.
    pub(crate) fn update(&self, routing: Routing) {
        // Hold the lock to the end, so that updates and a close exclude each other.
        let handles = self.handles();
        if self.routing.borrow().as_deref() == Some(&routing) {
            return;
        }
        let here = handles.iter().map(|handle| {
            let handle = handle.as_ref()?;
            let place = routing.chain(handle.chain).map_or(Place::Spare, |config| config.place(self.me));
            (place != Place::Spare).then(|| Here { handle: handle.clone(), me: self.me, place })
        });
        self.set_chains(here.collect());
        self.routing.send_replace(Some(Arc::new(routing)));
    }

    /// Drops the handles of all chains. A chain's task ends when its last handle is dropped.
    pub(crate) fn close(&self) {
        let mut handles = self.handles();
        handles.clear();
        self.set_chains(Vec::new());
    }

    pub(crate) fn clean_reads(&self) -> u64 {
        self.handles().iter().flatten().map(|handle| handle.gate.counters().total()).sum()
    }

    /// The bytes of the reads, and of the writes, that wait for the tasks of all chains.
    pub(crate) fn queued_bytes(&self) -> (usize, usize) {
        let handles = self.handles();
        let sum = |of: fn(&ChainHandle) -> usize| handles.iter().flatten().map(of).sum();
        (sum(|handle| handle.reads.waiting_bytes()), sum(|handle| handle.writes.waiting_bytes()))
    }

    pub(crate) fn count_forwarded(&self) {
        self.forwarded.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn forwarded(&self) -> u64 {
        self.forwarded.load(Ordering::Relaxed)
    }
}
