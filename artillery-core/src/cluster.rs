//! Discovery, membership and transport put together: a node that finds others and is found by them.
//!
//! What is found is dialled, whoever passes the handshake is told to the membership, and membership packets travel as
//! QUIC datagrams over links that this node dials itself. All of it only suggests: that a member is `Down` here does
//! not mean that it is dead, and nothing may be decided by it alone.

mod builder;
mod dialer;
mod driver;
mod hub;
mod links;
mod member;
mod record;
mod router;
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
pub use record::{SeedState, SeedStatus};

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
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use artillery_core::{Cluster, MemberEvent};
///
/// let secret = std::env::var("SHOP_SECRET")?;
/// let cluster = Cluster::builder().cluster("shop").secret(secret).payload("role=web").start().await?;
/// let mut events = cluster.events();
/// while let Some(event) = events.next().await {
///     match event {
///         MemberEvent::Up(m) => println!("{} at {} says {:?}", m.name, m.addr, m.payload),
///         MemberEvent::Suspect(m) | MemberEvent::Down(m) | MemberEvent::Left(m) => println!("{} {:?}", m.id, m.state),
///         MemberEvent::Lagged { missed } => println!("{missed} missed; events.members() is right again"),
///         _ => {}
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Cluster {
    inner: Arc<ClusterInner>,
}

struct ClusterInner {
    endpoint: Endpoint,
    name: String,
    cluster: String,
    addr: SocketAddr,
    hub: Arc<MemberHub>,
    record: Arc<DiscoveryRecord>,
    router: Arc<ServiceRouter>,
    inputs: mpsc::Sender<MembershipInput>,
    /// Aborted when this is dropped.
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

    /// This node, in this life.
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

    /// Where others dial this node.
    pub fn addr(&self) -> SocketAddr {
        self.inner.addr
    }

    /// The node's endpoint, for streams, links and counters.
    pub fn endpoint(&self) -> &Endpoint {
        &self.inner.endpoint
    }

    /// The other members as they seem to be now, by node id; also those that are down or have left, for a while.
    pub fn members(&self) -> Vec<Member> {
        self.inner.hub.members()
    }

    /// The other member that is `node`, if it is known.
    pub fn member(&self, node: NodeId) -> Option<Member> {
        self.inner.hub.member(node)
    }

    /// All changes from now on. They are kept for slow readers, but not for ever: see [`MemberEvent::Lagged`].
    pub fn events(&self) -> MemberEvents {
        MemberHub::subscribe(&self.inner.hub)
    }

    /// Which source told of a node first, `None` if it was known before any did: it dialled this node, or other members
    /// told of it.
    pub fn found_by(&self, node: NodeId) -> Option<Source> {
        self.inner.record.found_by(node)
    }

    /// What became of each seed.
    pub fn seeds(&self) -> Vec<SeedStatus> {
        self.inner.record.seeds()
    }

    /// Waits until every seed has refused this node, while it has never met a member, and says what they said. Does
    /// not return otherwise, nor if there are no seeds.
    pub async fn refused_by_all_seeds(&self) -> Vec<SeedStatus> {
        self.inner.record.refused_by_all().await
    }

    /// Changes what this node says of itself; all members see it after a while.
    ///
    /// # Errors
    /// [`PayloadError::TooLarge`] above [`Member::MAX_PAYLOAD`] bytes, [`PayloadError::Stopped`].
    pub async fn set_payload(&self, payload: impl Into<Bytes>) -> Result<(), PayloadError> {
        let payload = payload.into();
        member::check(&payload)?;
        self.ask(|done| MembershipInput::Payload(payload, done)).await.ok_or(PayloadError::Stopped)
    }

    /// Sets the formation that this node belongs to: peers of another one are refused from now on, and the others are
    /// told.
    pub async fn set_cluster_id(&self, id: ClusterId) {
        self.inner.endpoint.set_cluster_id(id);
        // When the node has stopped there is nobody to be told.
        let _ = self.ask(|done| MembershipInput::ClusterId(id, done)).await;
    }

    /// Sets the formations that the one of this node succeeds; see [`Endpoint::set_predecessors`].
    pub fn set_predecessors(&self, line: Vec<ClusterId>) {
        self.inner.endpoint.set_predecessors(line);
    }

    /// The formation that this node belongs to.
    pub fn cluster_id(&self) -> Option<ClusterId> {
        self.inner.endpoint.cluster_id()
    }

    /// Hands streams of kinds from [`StreamKind::FIRST_FREE`](crate::transport::StreamKind::FIRST_FREE) on, and all
    /// other calls, to `service` from now on. Streams that come before are refused: their senders try again. Give it
    /// to [`ClusterBuilder::service`] where nothing may be missed.
    ///
    /// A service must not hold this handle, or the node never stops by being dropped.
    pub fn serve(&self, service: Arc<dyn Service>) {
        self.inner.router.serve(service);
    }

    /// Says farewell, so that the others need not suspect anything, and stops.
    pub async fn leave(&self) {
        // Nothing to say if the node has stopped.
        let _ = self.ask(MembershipInput::Leave).await;
        self.shutdown().await;
    }

    /// Stops, and closes all connections. To the others it is as if the node had crashed; it may come back.
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
            .field("addr", &self.inner.addr)
            .finish_non_exhaustive()
    }
}
