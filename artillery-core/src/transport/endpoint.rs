//! The endpoint: one UDP socket, all connections of a node.

use std::{net::SocketAddr, sync::Arc};

use super::{Connection, Counters, Link, PeerKind, Service};
use crate::{
    config::TransportConfig,
    error::{BindError, ConnectError, VersionRange},
    id::{ClusterId, Incarnation, MemberId, NodeId},
    identity::Identity,
};

/// What a node says of itself when it meets another. Its name and node id come from its identity.
#[derive(Debug, Clone)]
pub struct LocalInfo {
    /// Name of the cluster; others are refused.
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
#[derive(Debug, Clone)]
pub struct Endpoint {}

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
        let _ = (config, identity, local, service);
        todo!()
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
        let _ = (config, identity, local, service, filter);
        todo!()
    }

    /// This node, in this life.
    pub fn id(&self) -> MemberId {
        todo!()
    }

    /// The settings it was bound with.
    pub fn config(&self) -> &TransportConfig {
        todo!()
    }

    /// The address of the socket.
    pub fn local_addr(&self) -> SocketAddr {
        todo!()
    }

    /// The address that others are told to dial.
    pub fn advertised_addr(&self) -> SocketAddr {
        todo!()
    }

    /// Sets the formation that this node belongs to. Peers that belong to another one are refused from now on;
    /// connections with such a peer that were made before are closed.
    pub fn set_cluster_id(&self, id: ClusterId) {
        let _ = id;
        todo!()
    }

    /// The formation that this node belongs to.
    pub fn cluster_id(&self) -> Option<ClusterId> {
        todo!()
    }

    /// Dials `addr`, whoever is there.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn connect(&self, addr: SocketAddr) -> Result<Connection, ConnectError> {
        let _ = addr;
        todo!()
    }

    /// Dials `addr`, where `peer` is expected.
    ///
    /// # Errors
    /// [`ConnectError`]; [`ConnectError::WrongPeer`] if somebody else answers.
    pub async fn connect_to(&self, peer: NodeId, addr: SocketAddr) -> Result<Connection, ConnectError> {
        let _ = (peer, addr);
        todo!()
    }

    /// The link to `peer`, which is dialled at `addresses` and re-dialled for as long as somebody holds the link.
    ///
    /// There is one link for each peer: asking again gives the same one, with the new addresses unless they are empty.
    pub fn link(&self, peer: NodeId, addresses: Vec<SocketAddr>) -> Link {
        let _ = (peer, addresses);
        todo!()
    }

    /// What was sent and received so far.
    pub fn counters(&self) -> Counters {
        todo!()
    }

    /// Closes all connections, tells the peers, and waits until they know or a short time has passed.
    pub async fn shutdown(&self) {
        todo!()
    }
}
