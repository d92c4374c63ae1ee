//! Discovery, membership and transport put together: a node that finds others and is found by them.
//!
//! Addresses that discovery finds are dialled. A peer that passes the handshake is announced to the membership.
//! Membership packets travel as QUIC datagrams over links that this node dials itself.
//!
//! All of it only suggests. A member that is `Down` here may be alive, so nothing may be decided by that alone.

mod addresses;
mod builder;
mod dialer;
mod driver;
mod hub;
mod links;
mod member;
mod places;
mod record;
mod round;
mod router;
mod solitude;
mod targets;

use std::{
    fmt,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
};

pub use builder::ClusterBuilder;
pub use hub::MemberEvents;
pub use member::{Member, MemberEvent};
pub use record::{RefusedPeer, SeedState, SeedStatus};

use crate::{
    discovery::Source,
    error::PayloadError,
    id::{ClusterId, MemberId, NodeId},
    transport::{Endpoint, Service},
};
use driver::MembershipInput;
use hub::MemberHub;
use record::DiscoveryRecord;
use router::ServiceRouter;

/// A node among others. Clones are the same node; when the last one is dropped it stops, as in a crash.
/// See the [documentation of the crate](crate) for an example.
#[derive(Clone)]
pub struct Cluster {
    inner: Arc<ClusterInner>,
}

struct ClusterInner {
    endpoint: Endpoint,
    name: String,
    cluster: String,
    hub: Arc<MemberHub>,
    record: Arc<DiscoveryRecord>,
    /// Whether this node has any source of addresses.
    looks: bool,
    router: Arc<ServiceRouter>,
    inputs: mpsc::Sender<MembershipInput>,
    /// Dropping the set aborts the tasks.
    tasks: Mutex<JoinSet<()>>,
}

impl Drop for ClusterInner {
    fn drop(&mut self) {
        self.router.retire();
        self.hub.close();
    }
}

impl Cluster {
    /// Describes a node that is to be started.
    pub fn builder() -> ClusterBuilder {
        ClusterBuilder::new()
    }

    /// This node, in this incarnation.
    pub fn id(&self) -> MemberId {
        self.inner.endpoint.id()
    }

    /// This node's name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The name of the cluster.
    pub fn cluster_name(&self) -> &str {
        &self.inner.cluster
    }

    /// Where others dial this node. It changes with the addresses of this machine if the node listens on all of them and
    /// no address to advertise was given.
    pub fn addr(&self) -> SocketAddr {
        self.inner.endpoint.advertised_addr()
    }

    /// The node's endpoint, for streams, links and counters.
    pub fn endpoint(&self) -> &Endpoint {
        &self.inner.endpoint
    }

    /// The other members as they seem to be now, by node id. Members that are down or have left stay listed for a
    /// while.
    pub fn members(&self) -> Vec<Member> {
        self.inner.hub.members()
    }

    /// The other member that is `node`, if it is known.
    pub fn member(&self, node: NodeId) -> Option<Member> {
        self.inner.hub.member(node)
    }

    /// All changes from now on. Changes are kept for slow readers, up to a bound: see [`MemberEvent::Lagged`].
    pub fn events(&self) -> MemberEvents {
        MemberHub::subscribe(&self.inner.hub)
    }

    /// Which source named a node first. `None` if the node was known before any source named it: it dialled this node,
    /// or other members told of it.
    pub fn found_by(&self, node: NodeId) -> Option<Source> {
        self.inner.record.found_by(node)
    }

    /// How each seed has answered so far.
    pub fn seeds(&self) -> Vec<SeedStatus> {
        self.inner.record.seeds()
    }

    /// Whether this node looks for others: by multicast DNS, by seeds or by other sources.
    pub fn looks_for_others(&self) -> bool {
        self.inner.looks
    }

    /// Whether a seed, an announced node or a listed place hasn't answered yet. A seed with an address of this node isn't waited for.
    pub fn is_searching(&self) -> bool {
        self.inner.record.is_unanswered()
    }

    /// The peers that this node refused, and the announced ones that refused it, with the newest reason for each address. The
    /// list is bounded: with many peers some are missing.
    pub fn refused_peers(&self) -> Vec<RefusedPeer> {
        self.inner.record.refused()
    }

    /// Why multicast DNS is not available; `None`: it is, or it is switched off.
    pub fn no_multicast(&self) -> Option<String> {
        self.inner.record.no_multicast()
    }

    /// Waits until every seed has refused this node while no member was ever met, and returns their answers. Never
    /// returns otherwise, nor without seeds.
    pub async fn refused_by_all_seeds(&self) -> Vec<SeedStatus> {
        self.inner.record.refused_by_all().await
    }

    /// Waits until peers refuse this process because another living one has its name, and returns that. Never returns
    /// otherwise. Stop this process then: it will not be let in.
    pub async fn name_taken(&self) -> MemberId {
        self.inner.record.name_taken().await
    }

    /// Changes what this node says of itself. All members see it after a while.
    ///
    /// # Errors
    /// [`PayloadError::TooLarge`] above [`Member::MAX_PAYLOAD`] bytes, [`PayloadError::Stopped`].
    pub async fn set_payload(&self, payload: impl Into<Bytes>) -> Result<(), PayloadError> {
        let payload = payload.into();
        member::check(&payload)?;
        self.ask(|done| MembershipInput::Payload(payload, done)).await.ok_or(PayloadError::Stopped)
    }

    /// Sets the formation that this node belongs to. Peers of another formation are refused from now on. The other
    /// members are told.
    pub async fn set_cluster_id(&self, id: ClusterId) {
        self.inner.endpoint.set_cluster_id(id);
        // A node that has stopped has no member to tell.
        let _ = self.ask(|done| MembershipInput::ClusterId(id, done)).await;
    }

    /// Sets the formations that this node's formation succeeds; see [`Endpoint::set_predecessors`].
    pub fn set_predecessors(&self, line: Vec<ClusterId>) {
        self.inner.endpoint.set_predecessors(line);
    }

    /// The formation that this node belongs to.
    pub fn cluster_id(&self) -> Option<ClusterId> {
        self.inner.endpoint.cluster_id()
    }

    /// From now on hands streams of kinds from [`StreamKind::FIRST_FREE`](crate::transport::StreamKind::FIRST_FREE) on,
    /// and all other calls, to `service`. Streams that arrive before this call are refused, and their senders try
    /// again. Where no call may be missed, use [`ClusterBuilder::service`].
    ///
    /// A service must not hold this handle: the node would then never stop by being dropped.
    pub fn serve(&self, service: Arc<dyn Service>) {
        self.inner.router.serve(service);
    }

    /// Says farewell, so that no member suspects this node, and stops.
    pub async fn leave(&self) {
        // A node that has stopped says no farewell.
        let _ = self.ask(MembershipInput::Leave).await;
        self.shutdown().await;
    }

    /// Stops, and closes all connections. To the other members it looks like a crash. The node may come back.
    pub async fn shutdown(&self) {
        let _ = self.ask(MembershipInput::Stop).await;
        self.inner.tasks.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
        self.inner.endpoint.shutdown().await;
        self.inner.router.retire();
        self.inner.hub.close();
    }

    async fn ask(&self, input: impl FnOnce(oneshot::Sender<()>) -> MembershipInput) -> Option<()> {
        let (done, wait) = oneshot::channel();
        self.inner.inputs.send(input(done)).await.ok()?;
        wait.await.ok()
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("name", &self.inner.name)
            .field("id", &self.id())
            .field("addr", &self.addr())
            .finish_non_exhaustive()
    }
}
