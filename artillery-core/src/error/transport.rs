use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::id::{ClusterId, MemberId, NodeId};

/// Protocol versions that a node supports, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionRange {
    /// The oldest version.
    pub min: u16,
    /// The newest version.
    pub max: u16,
}

impl VersionRange {
    /// The newest version that both sides support. `None` if the ranges do not overlap.
    pub fn meet(self, other: Self) -> Option<u16> {
        let newest = self.max.min(other.max);
        (newest >= self.min.max(other.min)).then_some(newest)
    }
}

impl std::fmt::Display for VersionRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}–{}", self.min, self.max)
    }
}

/// Why a node refuses a peer.
///
/// `here` is the refusing side, `there` the refused one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The clusters have different names.
    #[error("cluster {there:?} instead of {here:?}")]
    DifferentClusterName {
        /// Name of the refusing side's cluster.
        here: String,
        /// Name of the refused side's cluster.
        there: String,
    },
    /// The names are equal, but the formations differ.
    #[error("cluster id {there} instead of {here}")]
    DifferentCluster {
        /// Id of the refusing side's formation.
        here: ClusterId,
        /// Id of the refused side's formation.
        there: ClusterId,
    },
    /// The sides have no protocol version in common.
    #[error("protocol versions {there} instead of {here}")]
    VersionMismatch {
        /// Versions of the refusing side.
        here: VersionRange,
        /// Versions of the refused side.
        there: VersionRange,
    },
    /// The peer's hello contains another id than that of the node in its certificate.
    #[error("claims to be {claimed:?} with a certificate of {certificate:?}")]
    NotItsCertificate {
        /// Node name in the certificate.
        certificate: String,
        /// The node id in the hello.
        claimed: NodeId,
    },
    /// The certificate is missing, foreign, expired, derived from another secret, names no node, or is no longer
    /// trusted after a change of the identity. Other failures of the TLS handshake are included.
    #[error("not trusted: {0}")]
    Untrusted(String),
    /// The peer sent no valid hello: something else, too many bytes, or nothing before the connection was lost.
    #[error("no valid hello: {0}")]
    Malformed(String),
    /// The peer did not complete the handshake and its hello in time.
    #[error("no hello in time")]
    TimedOut,
    /// The peer has the refusing node's name: a node dialled its own address, or two processes share one name. Contains
    /// the id of the refusing process.
    #[error("{0:?} is this node itself")]
    Itself(MemberId),
    /// A newer incarnation of the peer's node is already known. This release accepts this refusal but never sends it.
    #[error("replaced by the newer incarnation {newer:?}")]
    Superseded {
        /// The newer incarnation.
        newer: MemberId,
    },
    /// A limit of connections is reached.
    #[error("too many connections")]
    Busy,
    /// A reason given by the service, or one that this release cannot decode.
    #[error("{0}")]
    Other(String),
    /// One node keeps its data on disk, the other in memory only.
    #[error("{}", if *.here { "keeps nothing on disk, but this node does" } else { "keeps its data on disk, this node doesn't" })]
    OtherDurability {
        /// Whether the refusing node keeps its data on disk.
        here: bool,
    },
    /// Another process with the peer's name is running: it is connected to this node and answers.
    #[error("another process with this name is running: {by:?}")]
    NameTaken {
        /// The process that owns the name.
        by: MemberId,
    },
}

impl Refusal {
    /// The label of each reason, for counters. Labels never change.
    pub const WORDS: &[&str] = &[
        "different_cluster_name",
        "different_cluster",
        "version_mismatch",
        "not_its_certificate",
        "untrusted",
        "malformed",
        "timed_out",
        "itself",
        "superseded",
        "busy",
        "other",
        "other_durability",
        "name_taken",
    ];

    /// The index of the label in [`WORDS`](Self::WORDS).
    pub(crate) fn index(&self) -> usize {
        match self {
            Self::DifferentClusterName { .. } => 0,
            Self::DifferentCluster { .. } => 1,
            Self::VersionMismatch { .. } => 2,
            Self::NotItsCertificate { .. } => 3,
            Self::Untrusted(_) => 4,
            Self::Malformed(_) => 5,
            Self::TimedOut => 6,
            Self::Itself(_) => 7,
            Self::Superseded { .. } => 8,
            Self::Busy => 9,
            Self::Other(_) => 10,
            Self::OtherDurability { .. } => 11,
            Self::NameTaken { .. } => 12,
        }
    }

    /// The label in [`WORDS`](Self::WORDS).
    pub fn word(&self) -> &'static str {
        Self::WORDS[self.index()]
    }
}

/// Why no connection was established. No application data was sent, so a retry is safe. Exception: `LinkState::Down`
/// may contain the reason why an established connection was closed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// One side does not trust the other's certificate: it is derived from another secret, foreign, expired, or names
    /// no node. Other failures of the TLS handshake are included.
    #[error("not trusted: {0}")]
    Untrusted(String),
    /// The peer refused this node.
    #[error("refused: {0}")]
    Refused(Refusal),
    /// This node refused the peer.
    #[error("refused here: {0}")]
    Rejected(Refusal),
    /// A node other than the expected one answered at the address.
    #[error("{found} answers at this address, not {expected}")]
    WrongPeer {
        /// The node that was dialled.
        expected: NodeId,
        /// The node that answered.
        found: NodeId,
    },
    /// No answer was received in time.
    #[error(
        "no answer in time: no node is at that address, a firewall drops its packets, or the path takes smaller ones only"
    )]
    TimedOut,
    /// The peer sent no valid reply to the hello.
    #[error("no valid hello: {0}")]
    Malformed(String),
    /// The connection was lost before it was established. In `LinkState::Down`, it may have been established.
    #[error("lost: {0}")]
    Lost(CloseReason),
    /// No address to dial is known.
    #[error("no address is known")]
    NoAddress,
    /// The address cannot be dialled from this endpoint, for instance because of its address family or port 0.
    #[error("{addr} cannot be dialled: {reason}")]
    BadAddress {
        /// The address.
        addr: SocketAddr,
        /// The reason.
        reason: String,
    },
    /// The endpoint was closed on this side.
    #[error("this endpoint is closed")]
    EndpointClosed,
}

/// Why a connection was closed. Data in flight may or may not have arrived.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// Closed on this side.
    #[error("closed here")]
    Here,
    /// The peer's endpoint was shut down.
    #[error("the peer shut down")]
    Shutdown,
    /// The peer closed the connection with a reason.
    #[error("closed by the peer: {reason} (code {code})")]
    Peer {
        /// The peer's [`CloseCode`](crate::transport::CloseCode).
        code: u32,
        /// The peer's reason.
        reason: String,
    },
    /// The peer refused this node, for instance because one of them joined another formation after the hello.
    #[error("refused: {0}")]
    Refused(Refusal),
    /// The peer closed the connection before the handshake completed: it stopped, or its time limit passed.
    #[error("the peer closed the connection during the handshake: it stopped, or it received too little in time")]
    Handshake,
    /// Nothing was received during the idle timeout, or during three of QUIC's own timeouts if that is longer.
    #[error("nothing received for too long")]
    TimedOut,
    /// Nothing that was sent was acknowledged during the idle timeout, or for a shorter time after the peer has moved
    /// to another address. Only links report this: they close such connections.
    #[error("nothing acknowledged for too long")]
    Unacknowledged,
    /// The peer does not know the connection: its process was restarted.
    #[error("the peer was restarted")]
    Reset,
    /// The TLS handshake failed, usually because either side refused the other's certificate.
    #[error("not trusted: {0}")]
    Untrusted(String),
    /// A violation of the QUIC protocol, detected by either side, or another error of QUIC.
    #[error("protocol error: {0}")]
    Protocol(String),
}

/// Why a stream ended with an error. Frames read before are complete.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// A frame is malformed, too large, or cut off by the end of the stream. The stream is unusable.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The sender reset the stream.
    #[error("reset by the sender (code {0})")]
    Reset(u64),
    /// The connection was closed, or this side has stopped the stream (as [`CloseReason::Here`]).
    #[error("connection lost: {0}")]
    Lost(#[from] CloseReason),
}

/// Why a frame was not sent, or a stream not opened. Earlier frames may or may not have arrived.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The frame exceeds the limit. No part of it was sent.
    #[error("a frame of {len} bytes exceeds the limit of {limit}")]
    TooLarge {
        /// Size of header and body in bytes.
        len: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The receiver stopped the stream.
    #[error("stopped by the receiver (code {0})")]
    Stopped(u64),
    /// The stream was finished or reset on this side.
    #[error("the stream is finished")]
    Finished,
    /// An earlier call was cancelled, or failed with an error other than `TooLarge`, perhaps in the middle of a frame.
    /// Dropping the writer resets the stream.
    #[error("an earlier write was cancelled or failed")]
    Interrupted,
    /// The connection was closed.
    #[error("connection lost: {0}")]
    Lost(#[from] CloseReason),
}

/// Why a datagram was not sent. Datagrams that were sent may still get lost.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DatagramError {
    /// The datagram exceeds what currently fits into a packet on this path. It was dropped.
    #[error("a datagram of {len} bytes does not fit: the limit is {limit}")]
    TooLarge {
        /// Size of the datagram in bytes.
        len: usize,
        /// The current limit in bytes.
        limit: usize,
    },
    /// The peer does not support datagrams, or the network is simulated.
    #[error("the peer does not support datagrams")]
    Unsupported,
    /// The connection was closed.
    #[error("connection lost: {0}")]
    Lost(#[from] CloseReason),
}

/// Why a stream contains no further frames. Each error ends the stream, since later frame boundaries are unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// Header and body together exceed the receiver's limit.
    #[error("a frame of {len} bytes exceeds the limit of {limit}")]
    TooLarge {
        /// Announced length in bytes: header, body and the four bytes of the header length.
        len: u64,
        /// The receiver's limit in bytes.
        limit: usize,
    },
    /// The announced header is longer than its frame, or than any header may be, or the announced frame is too short
    /// for a header length.
    #[error("a header of {header} bytes in a frame of {len}")]
    BadHeaderLength {
        /// Announced header length in bytes.
        header: u64,
        /// Announced frame length in bytes, including the four bytes of the header length.
        len: u64,
    },
    /// The stream ended within a frame.
    #[error("the stream ended within a frame: at least {missing} bytes are missing")]
    Truncated {
        /// Bytes known to be missing.
        missing: u64,
    },
}
