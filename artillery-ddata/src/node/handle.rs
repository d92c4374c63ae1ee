//! The handle to a node.

use std::{net::SocketAddr, sync::Arc};

use artillery_core::{Cluster, MemberId, error::IdentityError, identity::Identity, transport::Counters};

use super::{data::Data, events::NodeEvents, threads::Workers, waiting::WaitingFor};
use crate::{
    ClusterId, Kv, Place, Routing,
    control::Timing,
    driver::phase::{NeverReady, NodePhase, Ready, Stopped},
    metrics::NodeMetrics,
    recipes::Leaving,
    status::NodeStatus,
};

/// A member of a cluster, or a spare, in this process. Clones refer to the same node. End it with
/// [`shutdown`](Self::shutdown). To other nodes, dropping the last clone looks like a crash.
#[derive(Clone)]
pub struct Node {
    pub(super) inner: Arc<NodeInner>,
}

pub(super) struct NodeInner {
    pub(super) cluster: Cluster,
    pub(super) data: Arc<Data>,
    pub(super) kv: Kv,
    /// The node's threads; they end with it.
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
    /// Waits until the node can answer a strong read: as a member of open chains, or, as a spare, by asking a member.
    /// With failover, also waits until the leader confirms that no other node joins, leaves or is missing. Also waits
    /// while it isn't settled which of two clusters of the same name stays. Once the node was ready, this returns at
    /// once, even if the node can't serve now: see [`may_serve`](Self::may_serve).
    ///
    /// # Errors
    /// The reason why the node will never be ready, or why it has stopped, even if it was ready before.
    pub async fn ready(&self) -> Result<Ready, NeverReady> {
        let mut phases = self.inner.data.phases();
        loop {
            match &*phases.borrow_and_update() {
                NodePhase::Ready(ready) => return Ok(*ready),
                NodePhase::Failed(why) => return Err(why.clone()),
                NodePhase::Stopped(Stopped::NameTaken) => return Err(NeverReady::NameTaken),
                NodePhase::Stopped(Stopped::Unformed) => return Err(NeverReady::Unformed),
                NodePhase::Stopped(Stopped::LeftBehind) => return Err(NeverReady::LeftBehind),
                NodePhase::Stopped(Stopped::LogFailed) => return Err(NeverReady::LogFailed),
                NodePhase::Stopped(Stopped::DiskFailed) => return Err(NeverReady::DiskFailed),
                NodePhase::Stopped(Stopped::RolledBack) => return Err(NeverReady::RolledBack),
                NodePhase::Stopped(Stopped::Retired) => return Err(NeverReady::Retired),
                NodePhase::Stopped(Stopped::Superseded) => return Err(NeverReady::Superseded),
                NodePhase::Stopped(_) => return Err(NeverReady::Stopped),
                NodePhase::Seeking | NodePhase::Formed => {}
            }
            if phases.changed().await.is_err() {
                return Err(NeverReady::Stopped);
            }
        }
    }

    /// The data, as raw bytes.
    pub fn kv(&self) -> Kv {
        self.inner.kv.clone()
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        self.inner.data.name()
    }

    /// The node's id, with its incarnation.
    pub fn id(&self) -> MemberId {
        self.inner.data.id()
    }

    /// The preferred address at which other nodes dial this one. It may change: see [`Cluster::addr`].
    pub fn addr(&self) -> SocketAddr {
        self.inner.cluster.endpoint().advertised_addr()
    }

    /// The node's place in the first chain in which it isn't a spare; [`Place::Spare`], if there is none.
    pub fn place(&self) -> Place {
        self.inner.data.place()
    }

    /// Chains, members and addresses as known here, at a spare, too. They may be outdated, but were correct once.
    /// `None` until this node belongs to a cluster, and perhaps while it loads its directory.
    pub fn routing(&self) -> Option<Arc<Routing>> {
        self.inner.data.routing()
    }

    /// The timing that was agreed when the cluster was formed. This node uses it instead of its own settings. `None`
    /// until this node belongs to a cluster.
    pub fn timing(&self) -> Option<Timing> {
        self.inner.data.timing()
    }

    /// The clusters that a successor of this node's cluster must name, oldest first: the argument of
    /// [`NodeBuilder::create_after`](crate::NodeBuilder::create_after) and
    /// [`NodeBuilder::join_after`](crate::NodeBuilder::join_after). Empty until the node belongs to a cluster.
    pub fn lineage(&self) -> Vec<ClusterId> {
        self.inner.data.lineage()
    }

    /// The membership layer below the data: the nodes that seem to be alive. Don't call [`Cluster::set_payload`]: the
    /// node uses the payload.
    pub fn cluster(&self) -> &Cluster {
        &self.inner.cluster
    }

    /// Replaces the node's own certificate and the trusted ones by those of `identity`.
    /// [`Endpoint::set_identity`](artillery_core::transport::Endpoint::set_identity) explains how to replace a secret
    /// without downtime. Calls on connections that this closes are retried.
    ///
    /// # Errors
    /// [`IdentityError::OtherName`], [`IdentityError::Unusable`]: nothing has changed.
    pub fn set_identity(&self, identity: Identity) -> Result<(), IdentityError> {
        self.inner.cluster.endpoint().set_identity(identity)
    }

    /// The node's status. Queries the tasks of the node's chains, which answer in their next turn.
    pub async fn status(&self) -> NodeStatus {
        self.inner.data.status().await
    }

    /// The node's metrics. Like [`status`](Self::status), queries the tasks of the node's chains.
    pub async fn metrics(&self) -> NodeMetrics {
        self.inner.data.metrics().await
    }

    /// Whether the node may serve now. It must have been [`ready`](Self::ready). Each chain that it serves must be
    /// open, and its lease must run. If it doesn't serve some chain, it needs an answer of a leader within the last
    /// three leases. With a fixed configuration it needs neither a lease nor a leader. The answer is `false` while the
    /// node joins a chain, after a chain has permanently stopped serving here, and while it isn't settled which of two
    /// clusters of the same name stays. The answer is derived from local state, and may be outdated at once.
    pub fn may_serve(&self) -> bool {
        self.inner.data.may_serve()
    }

    /// Why the node isn't [`ready`](Self::ready), or why it no longer serves: one value for each reason. Empty while it
    /// [may serve](Self::may_serve). Only a node that copies the data of a chain queries the tasks of its chains.
    pub async fn waiting_for(&self) -> Vec<WaitingFor> {
        self.inner.data.waiting_for().await
    }

    /// The events of the node and its cluster from now on, as this node knows them. Except for
    /// [`NodeEvent::Lagged`](crate::node::NodeEvent::Lagged), each one is also an event of `tracing`, with the target
    /// `artillery_ddata::events`: a loss as a warning, a recovery as information, an orderly end at the level debug.
    /// The stream ends when the node stops.
    pub fn events(&self) -> NodeEvents {
        self.inner.data.reporting.hub.subscribe()
    }

    /// Traffic counters of the node's socket.
    pub fn traffic(&self) -> Counters {
        self.inner.cluster.endpoint().counters()
    }

    /// Waits until the node has stopped, and returns the reason. A node that will never be ready may still run: if
    /// [`ready`](Self::ready) returns an error, end the node with [`shutdown`](Self::shutdown).
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

    /// Stops gracefully: for the ordinary end of a program, such as a deployment.
    ///
    /// With a directory, the node's chains continue at once with the other serving members, and the node stays a voter
    /// of the configuration log. Its next start joins the chains again, and copies the updates that it missed. This
    /// waits at most three leases for the chains. If the node is still the last serving member of a chain, or all
    /// members stop at the same time, the chain is closed until one of the stores that served it last is back.
    ///
    /// Without a directory, the node leaves and waits as in [`leave`](Self::leave), since its next start has no data.
    ///
    /// When this returns, another node may use the directory, and calls fail with
    /// [`NotApplied::Stopped`](crate::error::NotApplied::Stopped). If the disk takes longer than 10 s for its last
    /// operation, this returns all the same and logs an error; the directory is in use until that operation has ended.
    /// The same applies to [`leave`](Self::leave) and [`abort`](Self::abort).
    ///
    /// Before that, calls that wait for a lock end, and their keys and those of dropped guards are deleted. This takes at
    /// most one second, and [`leave`](Self::leave) does it too.
    pub async fn shutdown(&self) {
        Leaving::close(&self.inner.kv.router).await;
        match self.inner.data.dir {
            Some(_) => self.inner.data.withdraw().await,
            None => self.inner.data.resign().await,
        }
        self.inner.cluster.leave().await;
        self.end(Stopped::ShutDown).await;
    }

    /// Leaves permanently: waits until the node's chains can continue without it, notifies the other nodes, then stops.
    /// The node is then no voter of the configuration log. This is for a node that won't start again; for all others
    /// use [`shutdown`](Self::shutdown).
    ///
    /// The wait is limited, except for the last serving member of a chain. With a fixed configuration there is no such
    /// wait, and the chains miss the node from then on.
    pub async fn leave(&self) {
        Leaving::close(&self.inner.kv.router).await;
        self.inner.data.resign().await;
        self.inner.cluster.leave().await;
        self.end(Stopped::Left).await;
    }

    /// Stops without a message, as a crash does: the other nodes wait until they consider the node dead. For tests, and
    /// for a program that must not wait for other nodes.
    pub async fn abort(&self) {
        self.end(Stopped::Aborted).await;
    }

    async fn end(&self, why: Stopped) {
        self.inner.data.stop(why);
        self.inner.cluster.shutdown().await;
        if let Some(dir) = &self.inner.data.dir {
            dir.release().await;
        }
    }
}
