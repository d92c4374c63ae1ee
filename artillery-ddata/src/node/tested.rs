//! Access for tests of applications.

use std::sync::Arc;

use super::handle::Node;
use crate::{MemberId, control::ConfigLog as _, replica::Status, rpc::observer::Observer, store::Store};

impl Node {
    /// Lets `observer` observe all handles of this node. Only the first call has an effect.
    pub(crate) fn observe(&self, observer: Observer) {
        drop(self.inner.kv.router.observer.set(observer));
    }

    /// The states of the chains in this process.
    pub(crate) async fn chain_states(&self) -> Vec<Status> {
        self.inner.data.chain_states().await
    }

    pub(crate) fn store(&self) -> Arc<dyn Store> {
        self.inner.data.store.clone()
    }

    /// The voters of the configuration log, as known here.
    pub(crate) fn voters(&self) -> Vec<MemberId> {
        let following = self.inner.data.stage.following();
        following.map_or_else(Vec::new, |following| following.control.log.voters().into_iter().collect())
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.inner.data.has_ended()
    }
}
