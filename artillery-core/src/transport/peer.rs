//! What two sides of a connection know of each other.

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
    /// A client: it dials, and is never dialled.
    Client,
}

/// Who is at the other end of a connection. Its name was proved by its certificate, the rest is what it says.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerInfo {
    /// Its name, from its certificate.
    pub name: String,
    /// Its node id, which belongs to the name, and its incarnation.
    pub id: MemberId,
    /// Node or client.
    pub kind: PeerKind,
    /// Where it says that it can be dialled.
    pub addr: SocketAddr,
    /// Where its packets come from.
    pub remote: SocketAddr,
    /// The cluster that it belongs to, if it belonged to one when it said hello.
    pub cluster_id: Option<ClusterId>,
    /// The protocol version that both talk.
    pub version: u16,
}

/// What a node says of itself when it meets another. Its name and node id come from its identity.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LocalInfo {
    /// Name of the cluster, 1 to 255 bytes; others are refused.
    pub cluster: String,
    /// The formation it belongs to, if it belongs to one already.
    pub cluster_id: Option<ClusterId>,
    /// Which life of the node this is.
    pub incarnation: Incarnation,
    /// Node or client.
    pub kind: PeerKind,
    /// Protocol versions that it can talk: [`PROTOCOL_VERSIONS`].
    pub versions: VersionRange,
}

impl LocalInfo {
    /// A member of the cluster of this name, in this life, that belongs to no formation yet.
    pub fn new(cluster: impl Into<String>, incarnation: Incarnation, kind: PeerKind) -> Self {
        Self { cluster: cluster.into(), cluster_id: None, incarnation, kind, versions: PROTOCOL_VERSIONS }
    }

    /// The same, of this formation.
    #[must_use]
    pub fn with_cluster_id(self, cluster_id: Option<ClusterId>) -> Self {
        Self { cluster_id, ..self }
    }
}
