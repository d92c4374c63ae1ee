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

/// How long [`Endpoint::shutdown`] waits for acknowledgements.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// The endpoint of a node or client on the network. Clones share the endpoint. Dropping the last clone closes all
/// connections, without waiting for acknowledgements.
#[derive(Clone)]
pub struct Endpoint {
    handle: Arc<EndpointHandle>,
}

/// Closes the endpoint when the last clone of [`Endpoint`] is dropped. Tasks hold only `shared`, so they do not keep
/// the endpoint open.
struct EndpointHandle {
    shared: Arc<EndpointShared>,
}

impl Drop for EndpointHandle {
    fn drop(&mut self) {
        self.shared.carrier.close(CloseCode::DONE);
    }
}

impl Endpoint {
    /// Binds the socket. A node starts accepting peers. Must be called within a tokio runtime.
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

    /// Like [`Endpoint::bind`], with a filter for every packet.
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

    /// An endpoint on a simulated network, where others can already dial it.
    #[cfg(feature = "testing")]
    pub(super) fn simulated(shared: Arc<EndpointShared>) -> Self {
        Self { handle: Arc::new(EndpointHandle { shared }) }
    }

    fn shared(&self) -> &Arc<EndpointShared> {
        &self.handle.shared
    }

    /// The id of this node and of its current incarnation.
    pub fn id(&self) -> MemberId {
        self.shared().id
    }

    /// The settings with which the endpoint was bound.
    pub fn config(&self) -> &TransportConfig {
        &self.shared().config
    }

    /// The local address of the socket.
    pub fn local_addr(&self) -> SocketAddr {
        self.shared().local_addr
    }

    /// The first address that this endpoint advertises to peers.
    pub fn advertised_addr(&self) -> SocketAddr {
        self.shared().advertised()
    }

    /// The addresses that this endpoint advertises to peers. Initially this is [`TransportConfig::advertise`], or the
    /// local address. Its IP may be unspecified.
    pub fn advertised_addrs(&self) -> Vec<SocketAddr> {
        self.shared().advertised.borrow().clone()
    }

    /// Sets the addresses that this endpoint advertises to peers from now on. An empty list changes nothing. A hello
    /// states the first address, unless this endpoint was bound to advertise an unspecified IP (`0.0.0.0`, `::`): peers
    /// then use the source IP of its packets.
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

    /// Sets the formations that this node's formation succeeds, each retired by an operator. A peer of one of them is
    /// notified of this when it is refused ([`Service::succeeded`]). Of a longer list, only the newest 9 to 16 are
    /// stated, depending on the other statements. Call it before [`set_cluster_id`](Self::set_cluster_id).
    pub fn set_predecessors(&self, line: Vec<ClusterId>) {
        self.shared().registry.set_predecessors(line);
    }

    /// Sets the formations that have given way to this node's. A node of one of them is notified when they meet
    /// ([`Service::gave_way`]). At most the newest four are stated.
    pub fn set_gave_way(&self, line: Vec<ClusterId>) {
        self.shared().registry.set_gave_way(line);
    }

    /// Sets whether hellos state that this node's formation has a leader confirmed by a quorum. Initially they don't.
    pub fn set_led(&self, is_led: bool) {
        self.shared().registry.set_led(is_led);
    }

    /// From now on, hellos state that this node's formation holds data or has held some. A node of another formation is
    /// notified when they meet ([`Service::met_foreign`]). This cannot be undone.
    pub fn set_holds_data(&self) {
        self.shared().registry.set_holds_data();
    }

    /// Sets the formation that this node belongs to. Peers of another formation are refused from now on, and existing
    /// connections to them are closed.
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

    /// Replaces the identity: the certificate that this node presents, and the certificates that it trusts. Connections
    /// to peers that are no longer trusted are closed, and links redial them. All other connections stay. On a
    /// simulated network nothing changes.
    ///
    /// To replace a secret without downtime, first let every node trust both secrets ([`Identity::also_trust_secret`]),
    /// then let every node present a certificate of the new secret while trusting both, then drop the old secret. Start
    /// each step after all nodes have completed the previous one. The key of stateless resets, which convince a peer
    /// that this node has forgotten a connection, is derived from the secret of the presented certificate, or from its
    /// private key if the identity was read from PEM. So it changes in the second step.
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
                tracing::info!(peer = %connection.peer().name, "closing a connection: the peer's certificate is no longer trusted");
                connection.close(CloseCode::REPLACED, "the certificate is no longer trusted");
            }
        }
        Ok(())
    }

    /// The formation that this node belongs to. `None` before it belongs to one.
    pub fn cluster_id(&self) -> Option<ClusterId> {
        self.shared().registry.cluster_id()
    }

    /// Dials `addr` and accepts any node of the cluster. A link-local IPv6 address without a zone is dialled on up to
    /// eight interfaces at once.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn connect(&self, addr: SocketAddr) -> Result<Connection, ConnectError> {
        dial::dial(self.shared(), addr, None).await
    }

    /// Like [`connect`](Self::connect), but expects `peer` at `addr`.
    ///
    /// # Errors
    /// [`ConnectError`]; [`ConnectError::WrongPeer`] if another node answers.
    pub async fn connect_to(&self, peer: NodeId, addr: SocketAddr) -> Result<Connection, ConnectError> {
        dial::dial(self.shared(), addr, Some(peer)).await
    }

    /// The link to `peer`. It dials `addresses`, and redials whenever the connection breaks, while a clone of it
    /// exists.
    ///
    /// There is one link per peer. A further call returns the same link, and replaces its addresses unless the new ones
    /// are empty. The link runs in the runtime in which the endpoint was bound.
    pub fn link(&self, peer: NodeId, addresses: Vec<SocketAddr>) -> Link {
        redial::link(self.shared(), peer, addresses)
    }

    /// The descriptions of `peer` in the hellos of its open connections to this node, one for each connection.
    pub fn accepted_from(&self, peer: NodeId) -> Vec<Arc<PeerInfo>> {
        self.shared().registry.accepted_from(peer)
    }

    /// The counters of traffic and connections.
    pub fn counters(&self) -> Counters {
        self.shared().counters.read()
    }

    /// The number of refused connections ([`Counters::refused`]), for each reason of
    /// [`Refusal::WORDS`](crate::error::Refusal::WORDS).
    pub fn refused(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.shared().refused.read()
    }

    pub(crate) fn count_dropped_datagram(&self) {
        self.shared().counters.datagrams_dropped.add(1);
    }

    /// Closes all connections and notifies the peers. Returns once they have acknowledged it, after at most a second.
    pub async fn shutdown(&self) {
        let carrier = &self.shared().carrier;
        carrier.close(CloseCode::SHUTDOWN);
        match carrier {
            // Peers that do not answer in time are not waited for.
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
        problems.push(ConfigError { field: "versions", problem: format!("{} is an empty range", local.versions) });
    }
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}
