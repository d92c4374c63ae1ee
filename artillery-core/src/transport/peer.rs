//! What the two sides of a connection know of each other.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::{
    error::VersionRange,
    id::{ClusterId, Incarnation, MemberId},
};

/// Protocol versions that this library can talk.
pub const PROTOCOL_VERSIONS: VersionRange = VersionRange { min: 1, max: 1 };

/// What a peer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerKind {
    /// A node of the cluster, which can be dialled too.
    Node,
    /// A client, which dials and is never dialled.
    Client,
    /// A node that keeps its data on disk. All nodes of a cluster do, or none does.
    DurableNode,
}

impl PeerKind {
    /// Whether it is a node.
    pub const fn is_node(self) -> bool {
        matches!(self, Self::Node | Self::DurableNode)
    }
}

/// A peer, as its certificate and its hello describe it. The certificate has proved name and node id. `remote` and
/// `version` belong to the connection. The rest is the peer's own statement.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerInfo {
    /// Its name, from its certificate.
    pub name: String,
    /// Its node id, which belongs to the name, and its incarnation.
    pub id: MemberId,
    /// Node or client.
    pub kind: PeerKind,
    /// The address that it states, with the IP of its packets if it states none. A node can be dialled there.
    pub addr: SocketAddr,
    /// The address from which its packets come.
    pub remote: SocketAddr,
    /// The formation that it belonged to when it said hello.
    pub cluster_id: Option<ClusterId>,
    /// The protocol version of this connection.
    pub version: u16,
}

/// A node of another formation of this cluster's name.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ForeignPeer {
    /// Its formation.
    pub cluster: ClusterId,
    /// Whether it states that its formation holds data, or has held some. `false` if it doesn't know, or states nothing.
    pub holds_data: bool,
    /// Whether it states that its formation has a leader that a quorum has confirmed.
    pub is_led: bool,
    /// Its name, from its certificate.
    pub name: String,
    /// Where it can be dialled.
    pub addr: SocketAddr,
}

/// What a node or client states about itself. Name and node id come from its identity.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LocalInfo {
    /// Name of the cluster, 1 to 255 bytes. Peers of other clusters are refused.
    pub cluster: String,
    /// The formation that it belongs to already, if any.
    pub cluster_id: Option<ClusterId>,
    /// The incarnation of the node.
    pub incarnation: Incarnation,
    /// Node or client.
    pub kind: PeerKind,
    /// Protocol versions that it can talk: [`PROTOCOL_VERSIONS`].
    pub versions: VersionRange,
}

impl LocalInfo {
    /// A node or client of the cluster of this name that belongs to no formation yet.
    pub fn new(cluster: impl Into<String>, incarnation: Incarnation, kind: PeerKind) -> Self {
        Self { cluster: cluster.into(), cluster_id: None, incarnation, kind, versions: PROTOCOL_VERSIONS }
    }

    /// The same, belonging to this formation.
    #[must_use]
    pub fn with_cluster_id(self, cluster_id: Option<ClusterId>) -> Self {
        Self { cluster_id, ..self }
    }
}
