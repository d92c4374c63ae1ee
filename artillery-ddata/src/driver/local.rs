//! What a node's handles and its request server share: which chains are served here, and the way to the others.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use arc_swap::ArcSwap;
use tokio::sync::watch;

use super::handle::ChainHandle;
use crate::{ChainId, MemberId, routing::Routing};

pub(crate) struct Local {
    /// This node, in this life.
    pub(crate) me: MemberId,
    /// Its name.
    pub(crate) name: String,
    /// By chain id; `None` where another node serves, empty until the cluster is formed.
    chains: ArcSwap<Vec<Option<ChainHandle>>>,
    /// `None` until the cluster is formed.
    routing: watch::Sender<Option<Arc<Routing>>>,
    /// Requests that were handed on to another node.
    forwarded: AtomicU64,
}

impl Local {
    pub(crate) fn new(me: MemberId, name: String) -> Self {
        Self { me, name, chains: ArcSwap::default(), routing: watch::Sender::new(None), forwarded: AtomicU64::new(0) }
    }

    /// The chain, if this node is a member of it.
    pub(crate) fn chain(&self, chain: ChainId) -> Option<ChainHandle> {
        self.chains.load().get(chain.0 as usize).cloned().flatten()
    }

    /// Calls `f` with the chain, without a clone: for the path of local reads.
    pub(crate) fn with_chain<T>(&self, chain: ChainId, f: impl FnOnce(&ChainHandle) -> T) -> Option<T> {
        self.chains.load().get(chain.0 as usize).and_then(Option::as_ref).map(f)
    }

    /// How many chains there are; 0 until the cluster is formed.
    pub(crate) fn chain_count(&self) -> u32 {
        self.chains.load().len() as u32
    }

    pub(crate) fn routing(&self) -> watch::Receiver<Option<Arc<Routing>>> {
        self.routing.subscribe()
    }

    pub(crate) fn form(&self, routing: Routing, chains: Vec<Option<ChainHandle>>) {
        self.chains.store(Arc::new(chains));
        self.routing.send_replace(Some(Arc::new(routing)));
    }

    pub(crate) fn count_forwarded(&self) {
        self.forwarded.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn forwarded(&self) -> u64 {
        self.forwarded.load(Ordering::Relaxed)
    }
}
