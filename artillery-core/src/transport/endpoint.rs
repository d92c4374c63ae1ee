//! The endpoint: one UDP socket, all connections of a node.

use std::{fmt, net::SocketAddr, sync::Arc, time::Duration};

use tokio::time::timeout;

use super::{
    CloseCode, Connection, Counters, Link, LocalInfo, PeerInfo, Service, accept,
    counters::CounterCells,
    dial, hello, quic, redial,
    reset::ResetKey,
    security::Security,
    shared::{EndpointCarrier, EndpointShared},
    socket::LinkFilter,
};
use crate::{
    config::TransportConfig,
    error::{BindError, ConfigError, ConnectError, IdentityError},
    id::{ClusterId, MemberId, NodeId},
    identity::Identity,
};

/// How long [`Endpoint::shutdown`] waits for peers to hear of it.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// A node's place in the network. Clones are the same endpoint; when the last one is dropped it stops, as in a crash.
#[derive(Clone)]
pub struct Endpoint {
    handle: Arc<EndpointHandle>,
}

/// Closes the endpoint when nobody holds it any more: its tasks hold only what is in here.
struct EndpointHandle {
    shared: Arc<EndpointShared>,
}

impl Drop for EndpointHandle {
    fn drop(&mut self) {
        self.shared.carrier.close(CloseCode::DONE);
    }
}

impl Endpoint {
    /// Binds the socket and begins to accept peers. Call it within a tokio runtime.
    ///
    /// # Errors
    /// [`BindError`].
    pub fn bind(
        config: TransportConfig,
        identity: Identity,
        local: LocalInfo,
        service: Arc<dyn Service>,
    ) -> Result<Self, BindError> {
        Self::open(config, &identity, local, service, None)
    }

    /// As [`Endpoint::bind`], with a filter for every packet.
    ///
    /// # Errors
    /// [`BindError`].
    #[doc(hidden)]
    pub fn bind_filtered(
        config: TransportConfig,
        identity: Identity,
        local: LocalInfo,
        service: Arc<dyn Service>,
        filter: LinkFilter,
    ) -> Result<Self, BindError> {
        Self::open(config, &identity, local, service, Some(filter))
    }

    fn open(
        config: TransportConfig,
        identity: &Identity,
        local: LocalInfo,
        service: Arc<dyn Service>,
        filter: Option<LinkFilter>,
    ) -> Result<Self, BindError> {
        check(&config, &local).map_err(BindError::Config)?;
        let counters = Arc::new(CounterCells::default());
        let resets = Arc::new(ResetKey::of(identity));
        let (quinn, dial) = quic::endpoint(&config, identity, Arc::clone(&resets), &counters, filter)?;
        let local_addr = quinn.local_addr().map_err(|source| BindError::Socket { addr: config.listen, source })?;
        let carrier = EndpointCarrier::Quic(quinn.clone(), Security::new(identity.clone(), dial, resets));
        let id = MemberId { node: identity.node(), incarnation: local.incarnation };
        let shared = EndpointShared::new(carrier, config, local, service, counters, id, local_addr);
        tokio::spawn(accept::run(Arc::clone(&shared), quinn));
        Ok(Self { handle: Arc::new(EndpointHandle { shared }) })
    }

    /// An endpoint on a network in this process, which has let others dial it there already.
    #[cfg(feature = "testing")]
    pub(super) fn simulated(shared: Arc<EndpointShared>) -> Self {
        Self { handle: Arc::new(EndpointHandle { shared }) }
    }

    fn shared(&self) -> &Arc<EndpointShared> {
        &self.handle.shared
    }

    /// This node, in this life.
    pub fn id(&self) -> MemberId {
        self.shared().id
    }

    /// The settings it was bound with.
    pub fn config(&self) -> &TransportConfig {
        &self.shared().config
    }

    /// The address of the socket.
    pub fn local_addr(&self) -> SocketAddr {
        self.shared().local_addr
    }

    /// The address that others are told to dial. If its IP is unspecified (`0.0.0.0`), they take the one that this
    /// node's packets come from.
    pub fn advertised_addr(&self) -> SocketAddr {
        self.shared().advertised
    }

    /// Sets the formations that the one of this node succeeds, each given up by an operator: peers that belong to one of them are
    /// told so when they are refused ([`Service::succeeded`]). To be called before [`set_cluster_id`](Self::set_cluster_id).
    pub fn set_predecessors(&self, line: Vec<ClusterId>) {
        self.shared().registry.set_predecessors(line);
    }

    /// Sets the formation that this node belongs to. Peers that belong to another one are refused from now on;
    /// connections with such a peer that were made before are closed.
    pub fn set_cluster_id(&self, id: ClusterId) {
        let consequences = self.shared().registry.set_cluster_id(id);
        for (connection, refusal) in consequences.foreign {
            connection.close_refused(&refusal);
            self.shared().refused(connection.peer().remote, &refusal);
        }
        for connection in consequences.to_tell {
            tokio::spawn(dial::tell_cluster_id(connection, id));
        }
    }

    /// From now on appears as, and trusts whom, `identity` says. Connections whose peers it doesn't trust are closed, and
    /// made anew by those who need them; all others stay as they are. Nothing changes on a network in this process.
    ///
    /// To replace a secret while all goes on, have every node trust both
    /// ([`Identity::also_trust_secret`]), then appear by the new one while it trusts both, then forget the old one; begin
    /// each step when all nodes have done the one before. What lets a peer believe that this node has forgotten a
    /// connection (a stateless reset of QUIC) comes from the secret by which it appears, so it is replaced in the second step.
    ///
    /// # Errors
    /// [`IdentityError::OtherName`], [`IdentityError::Unusable`]: nothing has changed.
    pub fn set_identity(&self, identity: Identity) -> Result<(), IdentityError> {
        let shared = self.shared();
        let (quinn, security) = match &shared.carrier {
            EndpointCarrier::Quic(quinn, security) => (quinn, security),
            #[cfg(feature = "testing")]
            EndpointCarrier::Simulated(..) => return Ok(()),
        };
        let before = security.identity();
        if identity.name() != before.name() {
            return Err(IdentityError::OtherName { here: before.name().into(), given: identity.name().into() });
        }
        let (accept, dial) = quic::sides(&shared.config, &identity)?;
        quinn.set_server_config(Some(accept));
        security.set(identity.clone(), dial);
        for connection in shared.registry.all() {
            if !connection.is_trusted_by(&identity) {
                tracing::info!(peer = %connection.peer().name, "a connection is closed: its certificate isn't trusted any more");
                connection.close(CloseCode::REPLACED, "the certificate shown isn't trusted any more");
            }
        }
        Ok(())
    }

    /// The formation that this node belongs to.
    pub fn cluster_id(&self) -> Option<ClusterId> {
        self.shared().registry.cluster_id()
    }

    /// Dials `addr`, whoever is there.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn connect(&self, addr: SocketAddr) -> Result<Connection, ConnectError> {
        dial::dial(self.shared(), addr, None).await
    }

    /// Dials `addr`, where `peer` is expected.
    ///
    /// # Errors
    /// [`ConnectError`]; [`ConnectError::WrongPeer`] if somebody else answers.
    pub async fn connect_to(&self, peer: NodeId, addr: SocketAddr) -> Result<Connection, ConnectError> {
        dial::dial(self.shared(), addr, Some(peer)).await
    }

    /// The link to `peer`, which is dialled at `addresses` and re-dialled for as long as somebody holds the link.
    ///
    /// There is one link for each peer: asking again gives the same one, with the new addresses unless they are empty.
    /// Call it within a tokio runtime.
    pub fn link(&self, peer: NodeId, addresses: Vec<SocketAddr>) -> Link {
        redial::link(self.shared(), peer, addresses)
    }

    /// The peer's connections to this node now, by what it said in their hellos.
    pub fn accepted_from(&self, peer: NodeId) -> Vec<Arc<PeerInfo>> {
        self.shared().registry.accepted_from(peer)
    }

    /// What was sent and received so far.
    pub fn counters(&self) -> Counters {
        self.shared().counters.read()
    }

    /// Connections that peers dialled and that were refused so far: every reason of
    /// [`Refusal::WORDS`](crate::error::Refusal::WORDS), and how often.
    pub fn refused(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.shared().refused.read()
    }

    /// Counts a datagram that had no connection to go by.
    pub(crate) fn count_dropped_datagram(&self) {
        self.shared().counters.datagrams_dropped.add(1);
    }

    /// Closes all connections, tells the peers, and waits until they know or a short time has passed.
    pub async fn shutdown(&self) {
        let carrier = &self.shared().carrier;
        carrier.close(CloseCode::SHUTDOWN);
        match carrier {
            // A peer that does not answer any more need not hear of it.
            EndpointCarrier::Quic(quinn, _) => drop(timeout(SHUTDOWN_TIMEOUT, quinn.wait_idle()).await),
            #[cfg(feature = "testing")]
            EndpointCarrier::Simulated(..) => {}
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("id", &self.id()).field("addr", &self.local_addr()).finish_non_exhaustive()
    }
}

fn check(config: &TransportConfig, local: &LocalInfo) -> Result<(), Vec<ConfigError>> {
    let mut problems = config.validate().err().unwrap_or_default();
    if !(1..=hello::MAX_CLUSTER_NAME_BYTES).contains(&local.cluster.len()) {
        problems.push(ConfigError { field: "cluster", problem: "must have 1 to 255 bytes".into() });
    }
    if local.versions.min > local.versions.max {
        problems.push(ConfigError { field: "versions", problem: format!("{} is no range", local.versions) });
    }
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}
