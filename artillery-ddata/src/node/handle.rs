//! The handle to a node.

use std::{net::SocketAddr, sync::Arc};

use artillery_core::{Cluster, MemberId, error::IdentityError, identity::Identity, transport::Counters};

use super::{data::Data, threads::Workers};
use crate::{
    ClusterId, Kv, Place, Routing,
    control::Timing,
    driver::phase::{NeverReady, NodePhase, Ready, Stopped},
    metrics::NodeMetrics,
    status::NodeStatus,
};

/// A member of a cluster, or a spare, in this process. Clones are the same node; dropping the last one is a crash.
#[derive(Clone)]
pub struct Node {
    pub(super) inner: Arc<NodeInner>,
}

pub(super) struct NodeInner {
    pub(super) cluster: Cluster,
    pub(super) data: Arc<Data>,
    pub(super) kv: Kv,
    /// They end with the node.
    pub(super) _threads: Workers,
}

impl Drop for NodeInner {
    fn drop(&mut self) {
        self.data.stop(Stopped::Dropped);
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("name", &self.name()).field("addr", &self.addr()).finish_non_exhaustive()
    }
}

impl Node {
    /// Waits until the node can answer a strong read: as a member of an open chain, or, a spare, by asking one.
    ///
    /// # Errors
    /// Why it never will.
    pub async fn ready(&self) -> Result<Ready, NeverReady> {
        let mut phases = self.inner.data.phases();
        loop {
            match &*phases.borrow_and_update() {
                NodePhase::Ready(ready) => return Ok(*ready),
                NodePhase::Failed(why) => return Err(why.clone()),
                NodePhase::Stopped(Stopped::LeftBehind) => return Err(NeverReady::LeftBehind),
                NodePhase::Stopped(Stopped::LogFailed) => return Err(NeverReady::LogFailed),
                NodePhase::Stopped(Stopped::Founds) => return Err(NeverReady::Founds),
                NodePhase::Stopped(Stopped::Succeeded) => return Err(NeverReady::Succeeded),
                NodePhase::Stopped(_) => return Err(NeverReady::Stopped),
                NodePhase::Seeking | NodePhase::Formed => {}
            }
            if phases.changed().await.is_err() {
                return Err(NeverReady::Stopped);
            }
        }
    }

    /// The data, by raw bytes.
    pub fn kv(&self) -> Kv {
        self.inner.kv.clone()
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        self.inner.data.name()
    }

    /// The node in this life.
    pub fn id(&self) -> MemberId {
        self.inner.data.id()
    }

    /// Where others reach it.
    pub fn addr(&self) -> SocketAddr {
        self.inner.cluster.endpoint().advertised_addr()
    }

    /// What it is, in the first chain that it serves.
    pub fn role(&self) -> Place {
        self.inner.data.role()
    }

    /// Chains, members and addresses as they are known here now, by a spare too: perhaps old, never invented. `None`: no
    /// cluster has formed yet.
    pub fn routing(&self) -> Option<Arc<Routing>> {
        self.inner.data.routing()
    }

    /// The times that its cluster settled when it was formed. This node goes by them, not by those that it was started with.
    /// `None`: no cluster has formed yet.
    pub fn timing(&self) -> Option<Timing> {
        self.inner.data.timing()
    }

    /// What a cluster in the place of this node's names as those that it succeeds, the oldest first: what
    /// [`NodeBuilder::found_after`](crate::NodeBuilder::found_after) and [`NodeBuilder::join_after`](crate::NodeBuilder::join_after) are given. Empty: the node belongs to no cluster yet.
    pub fn lineage(&self) -> Vec<ClusterId> {
        self.inner.data.lineage()
    }

    /// The membership below the data: who seems to be there.
    pub fn cluster(&self) -> &Cluster {
        &self.inner.cluster
    }

    /// From now on appears as, and trusts whom, `identity` says; see
    /// [`Endpoint::set_identity`](artillery_core::transport::Endpoint::set_identity) for how a secret is replaced without a stop.
    /// Calls under way by connections that are closed for it are asked again.
    ///
    /// # Errors
    /// [`IdentityError::OtherName`], [`IdentityError::Unusable`]: nothing has changed.
    pub fn set_identity(&self, identity: Identity) -> Result<(), IdentityError> {
        self.inner.cluster.endpoint().set_identity(identity)
    }

    /// How it stands. It asks the tasks of its chains, which answer as soon as they come to it.
    pub async fn status(&self) -> NodeStatus {
        self.inner.data.status().await
    }

    /// Everything that it counts and measures. As [`status`](Self::status), it asks the tasks of its chains.
    pub async fn metrics(&self) -> NodeMetrics {
        self.inner.data.metrics().await
    }

    /// Whether it may serve now: it has been [`ready`](Self::ready), and as a member it has a lease and its chains are open,
    /// as a spare it has heard of members lately. It asks nobody. A moment later it may be otherwise.
    pub fn may_serve(&self) -> bool {
        self.inner.data.may_serve()
    }

    /// What went over its socket so far.
    pub fn traffic(&self) -> Counters {
        self.inner.cluster.endpoint().counters()
    }

    /// Waits until the node has stopped, and says why.
    pub async fn stopped(&self) -> Stopped {
        let mut phases = self.inner.data.phases();
        loop {
            if let NodePhase::Stopped(why) = &*phases.borrow_and_update() {
                return *why;
            }
            if phases.changed().await.is_err() {
                return Stopped::Dropped;
            }
        }
    }

    /// Tells the others that it goes, waits a little until its chains go on without it, then stops. With a fixed
    /// configuration they miss it from then on.
    pub async fn leave(&self) {
        self.inner.data.resign().await;
        self.inner.cluster.leave().await;
        self.inner.data.stop(Stopped::Left);
        self.inner.cluster.shutdown().await;
    }

    /// Stops without a word: to the others it looks like a node that is gone.
    pub async fn shutdown(&self) {
        self.inner.data.stop(Stopped::ShutDown);
        self.inner.cluster.shutdown().await;
    }
}
