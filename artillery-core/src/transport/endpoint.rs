//! The endpoint: one UDP socket and all connections of a node.

use std::{fmt, net::SocketAddr, sync::Arc, time::Duration};

use tokio::{sync::watch, time::timeout};

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

/// How long [`Endpoint::shutdown`] waits for peers to acknowledge it.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// A node's place in the network. Clones are the same endpoint. When the last clone is dropped the endpoint stops, as
/// in a crash.
#[derive(Clone)]
pub struct Endpoint {
    handle: Arc<EndpointHandle>,
}

/// Closes the endpoint when its last clone is dropped. Tasks hold `shared` only, so they do not keep the endpoint.
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
        let (quinn, dial) =
            quic::endpoint(&config, identity, local.kind.is_node(), Arc::clone(&resets), &counters, filter)?;
        let local_addr = quinn.local_addr().map_err(|source| BindError::Socket { addr: config.listen, source })?;
        let carrier = EndpointCarrier::Quic(quinn.clone(), Security::new(identity.clone(), dial, resets));
        let id = MemberId { node: identity.node(), incarnation: local.incarnation };
        let shared = EndpointShared::new(carrier, config, local, service, counters, id, local_addr);
        tokio::spawn(accept::run(Arc::clone(&shared), quinn));
        Ok(Self { handle: Arc::new(EndpointHandle { shared }) })
    }

    /// An endpoint on a network in this process. Others can dial it there already.
    #[cfg(feature = "testing")]
    pub(super) fn simulated(shared: Arc<EndpointShared>) -> Self {
        Self { handle: Arc::new(EndpointHandle { shared }) }
    }

    fn shared(&self) -> &Arc<EndpointShared> {
        &self.handle.shared
    }

    /// This node, in this incarnation.
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

    /// The first address that this endpoint advertises to peers.
    pub fn advertised_addr(&self) -> SocketAddr {
        self.shared().advertised()
    }

    /// The addresses that this endpoint advertises to peers.
    pub fn advertised_addrs(&self) -> Vec<SocketAddr> {
        self.shared().advertised.borrow().clone()
    }

    /// Sets the addresses that this endpoint advertises to peers from now on. An empty list changes nothing. A hello states the
    /// first, unless this endpoint was bound to advertise an unspecified IP (`0.0.0.0`, `::`): then peers use the source IP of
    /// its packets.
    pub fn set_advertised_addrs(&self, addrs: Vec<SocketAddr>) {
        self.shared().advertised.send_if_modified(|advertised| {
            let changes = !addrs.is_empty() && *advertised != addrs;
            if changes {
                *advertised = addrs;
            }
            changes
        });
    }

    /// Watches the addresses that this endpoint advertises to peers.
    pub fn watch_advertised_addrs(&self) -> watch::Receiver<Vec<SocketAddr>> {
        self.shared().advertised.subscribe()
    }

    /// Sets the formations that this node's formation succeeds, each given up by an operator. A peer that belongs to
    /// one of them is told so when it is refused ([`Service::succeeded`]). Call it before
    /// [`set_cluster_id`](Self::set_cluster_id).
    pub fn set_predecessors(&self, line: Vec<ClusterId>) {
        self.shared().registry.set_predecessors(line);
    }

    /// Sets the formations that have given way to this node's. A node of one of them is notified when it is met
    /// ([`Service::gave_way`]). At most the newest four are stated.
    pub fn set_gave_way(&self, line: Vec<ClusterId>) {
        self.shared().registry.set_gave_way(line);
    }

    /// From now on hellos state whether this node's formation has a leader that a quorum has confirmed (no).
    pub fn set_led(&self, is_led: bool) {
        self.shared().registry.set_led(is_led);
    }

    /// From now on hellos state that this node's formation holds data, or held some earlier. A node of another formation is notified when
    /// it is met ([`Service::met_foreign`]). There is no way back.
    pub fn set_holds_data(&self) {
        self.shared().registry.set_holds_data();
    }

    /// Sets the formation that this node belongs to. Peers of another formation are refused from now on, and existing
    /// connections with them are closed.
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

    /// Replaces the identity: which node this one claims to be, and which certificates it trusts. Connections whose
    /// peers it does not trust are closed, and links dial them again. All other connections stay. On a simulated
    /// network nothing changes.
    ///
    /// To replace a secret without a stop, let every node trust both secrets ([`Identity::also_trust_secret`]); then
    /// let every node appear by the new one while it trusts both; then drop the old one. Begin each step when all nodes
    /// have finished the step before. The key of stateless resets, by which a peer believes that this node has
    /// forgotten a connection, comes from the secret by which the node appears. So it is replaced in the second step.
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
        quinn.set_server_config(shared.local.kind.is_node().then_some(accept));
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

    /// Dials `addr` and accepts any node of the cluster there.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn connect(&self, addr: SocketAddr) -> Result<Connection, ConnectError> {
        dial::dial(self.shared(), addr, None).await
    }

    /// Dials `addr`, where `peer` is expected.
    ///
    /// # Errors
    /// [`ConnectError`]; [`ConnectError::WrongPeer`] if another node answers.
    pub async fn connect_to(&self, peer: NodeId, addr: SocketAddr) -> Result<Connection, ConnectError> {
        dial::dial(self.shared(), addr, Some(peer)).await
    }

    /// The link to `peer`, which is dialled at `addresses`, and again whenever the connection breaks, for as long as a
    /// handle of the link exists.
    ///
    /// There is one link for each peer. Asking again returns the same link and replaces its addresses unless the new
    /// ones are empty. Call it within a tokio runtime.
    pub fn link(&self, peer: NodeId, addresses: Vec<SocketAddr>) -> Link {
        redial::link(self.shared(), peer, addresses)
    }

    /// The connections that a peer has dialled and that are up, as their hellos described them.
    pub fn accepted_from(&self, peer: NodeId) -> Vec<Arc<PeerInfo>> {
        self.shared().registry.accepted_from(peer)
    }

    /// What was sent and received so far.
    pub fn counters(&self) -> Counters {
        self.shared().counters.read()
    }

    /// Connections that peers dialled and that were refused so far: the count for each reason of
    /// [`Refusal::WORDS`](crate::error::Refusal::WORDS).
    pub fn refused(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.shared().refused.read()
    }

    /// Counts a datagram that was dropped for want of a connection.
    pub(crate) fn count_dropped_datagram(&self) {
        self.shared().counters.datagrams_dropped.add(1);
    }

    /// Closes all connections and tells the peers. Returns when they have acknowledged it, or a short time has passed.
    pub async fn shutdown(&self) {
        let carrier = &self.shared().carrier;
        carrier.close(CloseCode::SHUTDOWN);
        match carrier {
            // A peer that does not answer is not waited for.
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
