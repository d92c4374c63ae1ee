//! The endpoint: one UDP socket, all connections of a node.

use std::{fmt, net::SocketAddr, sync::Arc, time::Duration};

use rand::RngExt;
use tokio::{runtime, sync::Semaphore, time::timeout};

use super::{
    CloseCode, Connection, Counters, Link, PeerInfo, PeerKind, Service, accept, connection,
    counters::{Cells, Refused},
    dial,
    hello::{self, Hello},
    link::Links,
    quic,
    registry::Registry,
    reset::ResetKey,
    security::Security,
};
use crate::{
    config::TransportConfig,
    error::{BindError, ConfigError, ConnectError, Refusal, VersionRange},
    id::{ClusterId, Incarnation, MemberId, NodeId},
    identity::Identity,
};

/// How long [`Endpoint::shutdown`] waits for peers to hear of it.
const GOODBYE: Duration = Duration::from_secs(1);

/// What a node says of itself when it meets another. Its name and node id come from its identity.
#[derive(Debug, Clone)]
pub struct LocalInfo {
    /// Name of the cluster, 1 to 255 bytes; others are refused.
    pub cluster: String,
    /// The formation it belongs to, if it belongs to one already.
    pub cluster_id: Option<ClusterId>,
    /// Which life of the node this is.
    pub incarnation: Incarnation,
    /// Node or client.
    pub kind: PeerKind,
    /// Protocol versions that it can talk: [`PROTOCOL_VERSIONS`](super::PROTOCOL_VERSIONS).
    pub versions: VersionRange,
}

/// Tells whether packets to and from an address may pass: for tests, which cut links with it.
pub type LinkFilter = Arc<dyn Fn(SocketAddr) -> bool + Send + Sync>;

/// A node's place in the network. Clones are the same endpoint; when the last one is dropped it stops, as in a crash.
#[derive(Clone)]
pub struct Endpoint {
    handle: Arc<Handle>,
}

/// Closes the endpoint when nobody holds it any more: its tasks hold only what is in here.
struct Handle {
    shared: Arc<Shared>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.carrier.close(CloseCode::DONE);
    }
}

/// What all tasks of an endpoint share.
pub(super) struct Shared {
    pub(super) carrier: Carrier,
    pub(super) config: TransportConfig,
    pub(super) local: LocalInfo,
    pub(super) service: Arc<dyn Service>,
    pub(super) counters: Arc<Cells>,
    pub(super) refused: Refused,
    pub(super) registry: Registry,
    pub(super) links: Links,
    pub(super) handshakes: Arc<Semaphore>,
    pub(super) connections: Arc<Semaphore>,
    pub(super) id: MemberId,
    /// The runtime in which it was bound: links are kept there, whichever runtime asks for them.
    pub(super) runtime: runtime::Handle,
    local_addr: SocketAddr,
    pub(super) advertised: SocketAddr,
}

/// What carries the connections of an endpoint.
pub(super) enum Carrier {
    /// QUIC on a socket, and how it dials.
    Quic(quinn::Endpoint, Security),
    /// A network in this process.
    #[cfg(feature = "testing")]
    Simulated(super::simulated::Port),
}

impl Carrier {
    /// Closes all connections, and takes no new ones.
    fn close(&self, code: CloseCode) {
        match self {
            Self::Quic(quinn, _) => quinn.close(code.0.into(), b""),
            #[cfg(feature = "testing")]
            Self::Simulated(port) => port.close(code),
        }
    }
}

impl Carrier {
    #[cfg(feature = "testing")]
    pub(super) fn port(&self) -> Option<&super::simulated::Port> {
        match self {
            Self::Quic(..) => None,
            Self::Simulated(port) => Some(port),
        }
    }

    /// A number from 0 up to 1, so that nodes don't dial in step.
    pub(super) fn chance(&self) -> f64 {
        match self {
            #[allow(clippy::disallowed_methods, reason = "nodes that dial in step would go on so for ever")]
            Self::Quic(..) => rand::rng().random(),
            #[cfg(feature = "testing")]
            Self::Simulated(port) => port.chance(),
        }
    }
}

impl Shared {
    /// What this node says of itself now.
    pub(super) fn hello(&self) -> Hello {
        Hello {
            cluster: self.local.cluster.clone(),
            cluster_id: self.registry.cluster_id(),
            member: self.id,
            kind: self.local.kind,
            addr: self.advertised,
        }
    }

    /// A peer was met that belongs to another cluster, and says which clusters that succeeds.
    pub(super) fn met_foreign(&self, by: ClusterId, succeeds: &[ClusterId]) {
        if self.registry.cluster_id().is_some_and(|mine| mine != by && succeeds.contains(&mine)) {
            self.service.succeeded(by);
        }
    }

    pub(super) fn connection(&self, carrier: impl Into<connection::Carrier>, peer: Arc<PeerInfo>) -> Connection {
        Connection::new(carrier.into(), peer, self.config.max_frame_bytes, Arc::clone(&self.counters))
    }

    pub(super) fn refused(&self, addr: SocketAddr, reason: &Refusal) {
        self.counters.refused.add(1);
        self.refused.add(reason);
        tracing::debug!(%addr, %reason, "refused a peer");
        self.service.refused(addr, reason);
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
        let counters = Arc::new(Cells::default());
        let resets = Arc::new(ResetKey::of(identity));
        let (quinn, dial) = quic::endpoint(&config, identity, Arc::clone(&resets), &counters, filter)?;
        let local_addr = quinn.local_addr().map_err(|source| BindError::Socket { addr: config.listen, source })?;
        let shared = Arc::new(Shared {
            carrier: Carrier::Quic(quinn.clone(), Security::new(identity.clone(), dial, resets)),
            service,
            counters,
            refused: Refused::default(),
            registry: Registry::new(local.cluster_id),
            links: Links::default(),
            handshakes: Arc::new(Semaphore::new(config.max_handshakes as usize)),
            connections: Arc::new(Semaphore::new(config.max_connections as usize)),
            id: MemberId { node: identity.node(), incarnation: local.incarnation },
            runtime: runtime::Handle::current(),
            local_addr,
            advertised: match config.advertise {
                Some(addr) if addr.port() == 0 => (addr.ip(), local_addr.port()).into(),
                addr => addr.unwrap_or(local_addr),
            },
            config,
            local,
        });
        tokio::spawn(accept::run(Arc::clone(&shared), quinn));
        Ok(Self { handle: Arc::new(Handle { shared }) })
    }

    /// An endpoint on a network in this process.
    #[cfg(feature = "testing")]
    pub(super) fn simulated(
        id: MemberId,
        addr: SocketAddr,
        local: LocalInfo,
        service: Arc<dyn Service>,
        port: super::simulated::Port,
    ) -> Self {
        let config = TransportConfig { listen: addr, ..TransportConfig::default() };
        let shared = Arc::new(Shared {
            carrier: Carrier::Simulated(port),
            service,
            counters: Arc::default(),
            refused: Refused::default(),
            registry: Registry::new(local.cluster_id),
            links: Links::default(),
            handshakes: Arc::new(Semaphore::new(config.max_handshakes as usize)),
            connections: Arc::new(Semaphore::new(config.max_connections as usize)),
            id,
            runtime: runtime::Handle::current(),
            local_addr: addr,
            advertised: addr,
            config,
            local,
        });
        if let Carrier::Simulated(port) = &shared.carrier {
            port.listen(&shared);
        }
        Self { handle: Arc::new(Handle { shared }) }
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.handle.shared
    }

    /// This node, in this life.
    pub fn id(&self) -> MemberId {
        self.handle.shared.id
    }

    /// The settings it was bound with.
    pub fn config(&self) -> &TransportConfig {
        &self.handle.shared.config
    }

    /// The address of the socket.
    pub fn local_addr(&self) -> SocketAddr {
        self.handle.shared.local_addr
    }

    /// The address that others are told to dial. If its IP is unspecified (`0.0.0.0`), they take the one that this
    /// node's packets come from.
    pub fn advertised_addr(&self) -> SocketAddr {
        self.handle.shared.advertised
    }

    /// Sets the formations that the one of this node succeeds, each given up by an operator: peers that belong to one of them are
    /// told so when they are refused ([`Service::succeeded`]). To be called before [`set_cluster_id`](Self::set_cluster_id).
    pub fn set_predecessors(&self, line: Vec<ClusterId>) {
        self.handle.shared.registry.set_predecessors(line);
    }

    /// Sets the formation that this node belongs to. Peers that belong to another one are refused from now on;
    /// connections with such a peer that were made before are closed.
    pub fn set_cluster_id(&self, id: ClusterId) {
        let consequences = self.handle.shared.registry.set_cluster_id(id);
        for (connection, refusal) in consequences.foreign {
            connection.close_refused(&refusal);
            self.handle.shared.refused(connection.peer().remote, &refusal);
        }
        for connection in consequences.to_tell {
            tokio::spawn(dial::tell_cluster_id(connection, id));
        }
    }

    /// The formation that this node belongs to.
    pub fn cluster_id(&self) -> Option<ClusterId> {
        self.handle.shared.registry.cluster_id()
    }

    /// Dials `addr`, whoever is there.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn connect(&self, addr: SocketAddr) -> Result<Connection, ConnectError> {
        dial::dial(&self.handle.shared, addr, None).await
    }

    /// Dials `addr`, where `peer` is expected.
    ///
    /// # Errors
    /// [`ConnectError`]; [`ConnectError::WrongPeer`] if somebody else answers.
    pub async fn connect_to(&self, peer: NodeId, addr: SocketAddr) -> Result<Connection, ConnectError> {
        dial::dial(&self.handle.shared, addr, Some(peer)).await
    }

    /// The link to `peer`, which is dialled at `addresses` and re-dialled for as long as somebody holds the link.
    ///
    /// There is one link for each peer: asking again gives the same one, with the new addresses unless they are empty.
    /// Call it within a tokio runtime.
    pub fn link(&self, peer: NodeId, addresses: Vec<SocketAddr>) -> Link {
        Links::get(&self.handle.shared, peer, addresses)
    }

    /// The peer's connections to this node now, by what it said in their hellos.
    pub fn accepted_from(&self, peer: NodeId) -> Vec<Arc<PeerInfo>> {
        self.handle.shared.registry.accepted_from(peer)
    }

    /// What was sent and received so far.
    pub fn counters(&self) -> Counters {
        self.handle.shared.counters.read()
    }

    /// Connections that peers dialled and that were refused so far: every reason of [`Refusal::WORDS`], and how often.
    pub fn refused(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.handle.shared.refused.read()
    }

    /// Counts a datagram that had no connection to go by.
    pub(crate) fn count_dropped_datagram(&self) {
        self.handle.shared.counters.datagrams_dropped.add(1);
    }

    /// Closes all connections, tells the peers, and waits until they know or a short time has passed.
    pub async fn shutdown(&self) {
        let carrier = &self.handle.shared.carrier;
        carrier.close(CloseCode::SHUTDOWN);
        match carrier {
            // A peer that does not answer any more need not hear of it.
            Carrier::Quic(quinn, _) => drop(timeout(GOODBYE, quinn.wait_idle()).await),
            #[cfg(feature = "testing")]
            Carrier::Simulated(_) => {}
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
    if !(1..=hello::MAX_CLUSTER_NAME).contains(&local.cluster.len()) {
        problems.push(ConfigError { field: "cluster", problem: "must have 1 to 255 bytes".into() });
    }
    if local.versions.min > local.versions.max {
        problems.push(ConfigError { field: "versions", problem: format!("{} is no range", local.versions) });
    }
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}
