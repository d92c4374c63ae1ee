use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::{
    error::VersionRange,
    id::{ClusterId, Incarnation, MemberId},
};

/// Protocol versions that this library supports. Version 2 added digests.
pub const PROTOCOL_VERSIONS: VersionRange = VersionRange { min: 1, max: 2 };

/// The role of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerKind {
    /// A node that keeps no data on disk. It can be dialled too.
    Node,
    /// A client, which dials and is never dialled.
    Client,
    /// A node that keeps its data on disk. It can be dialled too. Either all nodes of a cluster do so, or none.
    DurableNode,
}

impl PeerKind {
    /// Whether the peer is a node, durable or not.
    pub const fn is_node(self) -> bool {
        matches!(self, Self::Node | Self::DurableNode)
    }
}

/// A peer, as described by its certificate and hello. The certificate proves name and node id. `remote` and `version`
/// describe the connection. Everything else is the peer's own statement.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerInfo {
    /// The peer's name, from its certificate.
    pub name: String,
    /// The node id, which is derived from the name, and the incarnation.
    pub id: MemberId,
    /// The role: client, node, or node that keeps its data on disk.
    pub kind: PeerKind,
    /// The address that the peer states, with the IP of its packets if the stated IP is unspecified. A node can be
    /// dialled there.
    pub addr: SocketAddr,
    /// The source address of the peer's packets when the connection was established.
    pub remote: SocketAddr,
    /// The formation in the peer's hello. It is not updated if the peer joins one later: see `Service::joined_cluster`.
    pub cluster_id: Option<ClusterId>,
    /// The protocol version of this connection.
    pub version: u16,
}

/// A node of another formation with the same cluster name.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ForeignPeer {
    /// The node's formation.
    pub cluster: ClusterId,
    /// Whether the node states that its formation has ever held data. `false` if it does not know or states nothing.
    pub holds_data: bool,
    /// Whether the node states that its formation has a leader confirmed by a quorum.
    pub is_led: bool,
    /// The node's name, from its certificate.
    pub name: String,
    /// The address at which the node can be dialled.
    pub addr: SocketAddr,
}

/// How a node or client describes itself to peers. Its name and node id are not included: they follow from its
/// identity.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LocalInfo {
    /// The cluster's name, 1 to 255 bytes. Peers of other clusters are refused.
    pub cluster: String,
    /// The formation that the node already belongs to, if any.
    pub cluster_id: Option<ClusterId>,
    /// The incarnation of the node.
    pub incarnation: Incarnation,
    /// The role: client, node, or node that keeps its data on disk.
    pub kind: PeerKind,
    /// Supported protocol versions, by default [`PROTOCOL_VERSIONS`].
    pub versions: VersionRange,
}

impl LocalInfo {
    /// Describes a node or client of the cluster with this name, without a formation.
    pub fn new(cluster: impl Into<String>, incarnation: Incarnation, kind: PeerKind) -> Self {
        Self { cluster: cluster.into(), cluster_id: None, incarnation, kind, versions: PROTOCOL_VERSIONS }
    }

    /// Sets the formation.
    #[must_use]
    pub fn with_cluster_id(self, cluster_id: Option<ClusterId>) -> Self {
        Self { cluster_id, ..self }
    }
}
