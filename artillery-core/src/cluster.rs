//! A node in a cluster: discovery, membership and transport combined.
//!
//! The node dials the addresses that discovery finds. A node that passes the handshake is reported to the membership,
//! which announces this node to it. Membership packets travel over links that this node dials itself: as QUIC
//! datagrams, or on streams if they are too large or announce a departure.
//!
//! The membership is only a hint: a member that is `Down` here may be alive. No decision may rest on it alone.

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

/// A running node of a cluster. Clones share the node. Dropping the last clone stops it, as in a crash. See the
/// [documentation of the crate](crate) for an example.
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
    /// Describes a node, to be started by [`ClusterBuilder::start`].
    pub fn builder() -> ClusterBuilder {
        ClusterBuilder::new()
    }

    /// The id of this node and of its current incarnation.
    pub fn id(&self) -> MemberId {
        self.inner.endpoint.id()
    }

    /// This node's stable name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The name of the cluster. Nodes of other clusters are refused.
    pub fn cluster_name(&self) -> &str {
        &self.inner.cluster
    }

    /// The preferred address at which other nodes dial this node. It changes with the addresses of its host name, if it
    /// has one. Otherwise it changes with the addresses of this machine, if the node was given an unspecified address
    /// to advertise, or none while it listens on all addresses.
    pub fn addr(&self) -> SocketAddr {
        self.inner.endpoint.advertised_addr()
    }

    /// The node's endpoint, for streams, links and counters.
    pub fn endpoint(&self) -> &Endpoint {
        &self.inner.endpoint
    }

    /// The other members as this node currently sees them, ordered by node id. Members that are down or have left stay
    /// listed for [`SwimSettings::forget_after`](crate::config::SwimSettings::forget_after).
    pub fn members(&self) -> Vec<Member> {
        self.inner.hub.members()
    }

    /// The other member with this node id, if it is known.
    pub fn member(&self, node: NodeId) -> Option<Member> {
        self.inner.hub.member(node)
    }

    /// Every change from this call on. Changes are kept for slow readers, up to a bound: see [`MemberEvent::Lagged`].
    pub fn events(&self) -> MemberEvents {
        MemberHub::subscribe(&self.inner.hub)
    }

    /// The source that first led to `node`. `None` if no source is recorded, for instance because `node` dialled this
    /// node.
    pub fn found_by(&self, node: NodeId) -> Option<Source> {
        self.inner.record.found_by(node)
    }

    /// The latest result of each seed.
    pub fn seeds(&self) -> Vec<SeedStatus> {
        self.inner.record.seeds()
    }

    /// Whether this node was started with multicast DNS (even if it is unavailable), seeds or another source of
    /// addresses.
    pub fn looks_for_others(&self) -> bool {
        self.inner.looks
    }

    /// Whether this node still awaits an answer from a seed, announced node or listed place. A refusal that a retry
    /// would not change is an answer. Seeds and listed places that also resolve to this node, and announced nodes that
    /// it has stopped dialling after many failures, are excluded.
    pub fn is_searching(&self) -> bool {
        self.inner.record.is_unanswered()
    }

    /// The peers that dialled and were refused by this node, and the announced peers that refused it or were refused,
    /// with the newest reason for each address. A failed handshake is a refusal too. The first 64 addresses are listed,
    /// and entries stay after a peer is accepted. For seeds, see [`seeds`](Self::seeds).
    pub fn refused_peers(&self) -> Vec<RefusedPeer> {
        self.inner.record.refused()
    }

    /// Why multicast DNS could not be started. `None` if it was started, even if it failed later, or is switched off.
    pub fn no_multicast(&self) -> Option<String> {
        self.inner.record.no_multicast()
    }

    /// Waits until every seed is [`SeedState::Refused`] while this node has met no member, and returns their states.
    /// Otherwise, and without seeds, it never returns.
    pub async fn refused_by_all_seeds(&self) -> Vec<SeedStatus> {
        self.inner.record.refused_by_all().await
    }

    /// Waits until peers refuse this process because another running process has its name, or that process itself does,
    /// and returns that process. Otherwise it never returns, also if this process had the name first: see
    /// [`Service::name_taken`]. Stop this process when it returns: peers keep refusing this process.
    pub async fn name_taken(&self) -> MemberId {
        self.inner.record.name_taken().await
    }

    /// Replaces the payload that this node publishes. It is sent to all active members at once. A member that misses it
    /// receives it later. After [`MemberEvent::Superseded`] the call has no effect.
    ///
    /// # Errors
    /// [`PayloadError::TooLarge`] above [`Member::MAX_PAYLOAD`] bytes, and [`PayloadError::Stopped`] if the node has
    /// stopped.
    pub async fn set_payload(&self, payload: impl Into<Bytes>) -> Result<(), PayloadError> {
        let payload = payload.into();
        member::check(&payload)?;
        self.ask(|done| MembershipInput::Payload(payload, done)).await.ok_or(PayloadError::Stopped)
    }

    /// Sets the formation that this node belongs to, and publishes it to the other members. Peers of another formation
    /// are refused from now on.
    pub async fn set_cluster_id(&self, id: ClusterId) {
        self.inner.endpoint.set_cluster_id(id);
        let _ = self.ask(|done| MembershipInput::ClusterId(id, done)).await;
    }

    /// Sets the formations that this node's formation succeeds; see [`Endpoint::set_predecessors`].
    pub fn set_predecessors(&self, line: Vec<ClusterId>) {
        self.inner.endpoint.set_predecessors(line);
    }

    /// Sets the formations that have given way to this node's; see [`Endpoint::set_gave_way`].
    pub fn set_gave_way(&self, line: Vec<ClusterId>) {
        self.inner.endpoint.set_gave_way(line);
    }

    /// Sets whether hellos state that this node's formation has a confirmed leader; see [`Endpoint::set_led`].
    pub fn set_led(&self, is_led: bool) {
        self.inner.endpoint.set_led(is_led);
    }

    /// Makes hellos state that this node's formation holds data; see [`Endpoint::set_holds_data`].
    pub fn set_holds_data(&self) {
        self.inner.endpoint.set_holds_data();
    }

    /// The formation that this node belongs to. `None` before it belongs to one.
    pub fn cluster_id(&self) -> Option<ClusterId> {
        self.inner.endpoint.cluster_id()
    }

    /// From now on, passes peers' streams (of kinds from
    /// [`StreamKind::FIRST_FREE`](crate::transport::StreamKind::FIRST_FREE) on) and all other calls to `service`.
    /// Streams that arrive while no service is set are refused. Use [`ClusterBuilder::service`] if no call may be
    /// missed. Datagrams whose first byte is 2 carry membership packets and are not passed to the service.
    ///
    /// A service must not hold this handle: dropping the other handles would then never stop the node.
    pub fn serve(&self, service: Arc<dyn Service>) {
        self.inner.router.serve(service);
    }

    /// Announces the departure, so that members need not suspect this node, and stops.
    pub async fn leave(&self) {
        // A node that has already stopped announces nothing.
        let _ = self.ask(MembershipInput::Leave).await;
        self.shutdown().await;
    }

    /// Stops, and closes all connections. The departure is not announced, so the other members detect it as they would
    /// a crash.
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
