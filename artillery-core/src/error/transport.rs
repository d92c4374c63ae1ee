//! Errors between two endpoints.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::id::{ClusterId, MemberId, NodeId};

/// Protocol versions that a node can talk, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionRange {
    /// The oldest.
    pub min: u16,
    /// The newest.
    pub max: u16,
}

impl VersionRange {
    /// The newest version that both can talk.
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

/// Why a node refuses a peer. The peer is told. No byte of an application was exchanged.
///
/// `here` is the side that refuses, `there` the side that is refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Their clusters have different names.
    #[error("of cluster {there:?}, this is cluster {here:?}")]
    DifferentClusterName {
        /// Name of the refusing side's cluster.
        here: String,
        /// Name of the refused side's cluster.
        there: String,
    },
    /// The names are the same, but the formations differ. Such clusters never become one.
    #[error("of cluster id {there}, this is cluster id {here}")]
    DifferentCluster {
        /// Id of the refusing side's cluster.
        here: ClusterId,
        /// Id that the refused side remembers.
        there: ClusterId,
    },
    /// The two have no protocol version in common.
    #[error("talks protocol versions {there}, this node {here}")]
    VersionMismatch {
        /// Versions of the refusing side.
        here: VersionRange,
        /// Versions of the refused side.
        there: VersionRange,
    },
    /// The peer claims to be another node than the one in its certificate.
    #[error("claims to be {claimed:?} with a certificate of {certificate:?}")]
    NotItsCertificate {
        /// Node name in the certificate.
        certificate: String,
        /// The node that it claims to be.
        claimed: NodeId,
    },
    /// The certificate is foreign, expired, or made from another secret.
    #[error("not trusted: {0}")]
    Untrusted(String),
    /// The peer said something else than a hello, too much, or a malformed hello.
    #[error("no hello: {0}")]
    Malformed(String),
    /// The peer did not say hello in time.
    #[error("no hello in time")]
    TimedOut,
    /// The peer is this node itself: a node dialled its own address, or two nodes have one name.
    #[error("{0:?} is this node itself")]
    Itself(MemberId),
    /// A newer process of the same node is known already.
    #[error("{newer:?} has taken its place")]
    Superseded {
        /// The incarnation that is known.
        newer: MemberId,
    },
    /// Too many connections.
    #[error("too many connections")]
    Busy,
    /// A reason of the service, or of a newer version.
    #[error("{0}")]
    Other(String),
    /// The one node keeps its data on disk, and the other one in memory alone.
    #[error("{}", if *.here { "keeps nothing on disk, this node does" } else { "keeps its data on disk, this node doesn't" })]
    OtherDurability {
        /// Whether this node keeps its data on disk.
        here: bool,
    },
    /// Another process with the name of the peer is running: it is connected with this node and answers.
    #[error("another process with this name is running: {by:?}")]
    NameTaken {
        /// The process that has the name.
        by: MemberId,
    },
}

impl Refusal {
    /// A word for each reason, for counters. It never changes.
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

    /// The index of its word in [`WORDS`](Self::WORDS).
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

    /// Its word in [`WORDS`](Self::WORDS).
    pub fn word(&self) -> &'static str {
        Self::WORDS[self.index()]
    }
}

/// Why no connection was made. Nothing of an application was sent, so another try is safe.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// One side does not trust the other's certificate: it comes from another secret, is foreign or has expired.
    #[error("not trusted: {0}")]
    Untrusted(String),
    /// The peer refused this node.
    #[error("refused: {0}")]
    Refused(Refusal),
    /// This node refused the peer.
    #[error("refused here: {0}")]
    Rejected(Refusal),
    /// Another node than the expected one answers there.
    #[error("{found} answers there, not {expected}")]
    WrongPeer {
        /// The node that was dialled.
        expected: NodeId,
        /// The node that answered.
        found: NodeId,
    },
    /// No answer came in time.
    #[error(
        "no answer in time: no node is at that address, a firewall drops its packets, or the path takes smaller ones only"
    )]
    TimedOut,
    /// The answer made no sense.
    #[error("no hello: {0}")]
    Malformed(String),
    /// The connection broke before it was ready.
    #[error("lost: {0}")]
    Lost(CloseReason),
    /// No address to dial is known.
    #[error("no address is known")]
    NoAddress,
    /// The address can't be dialled from this endpoint (another address family, port 0).
    #[error("{addr} can't be dialled: {reason}")]
    BadAddress {
        /// The address.
        addr: SocketAddr,
        /// Why.
        reason: String,
    },
    /// The endpoint was closed here.
    #[error("this endpoint is closed")]
    EndpointClosed,
}

/// Why a connection is gone. What was in flight may or may not have arrived.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// Closed on this side.
    #[error("closed here")]
    Here,
    /// The peer's endpoint was shut down.
    #[error("the peer shut down")]
    Shutdown,
    /// The peer closed the connection and gave a reason.
    #[error("closed by the peer: {reason} (code {code})")]
    Peer {
        /// A [`CloseCode`](crate::transport::CloseCode).
        code: u32,
        /// Its reason.
        reason: String,
    },
    /// One side refuses the other because it joined another formation after the hello.
    #[error("refused: {0}")]
    Refused(Refusal),
    /// The peer closed the connection before the handshake ended: it stopped, or its time limit passed.
    #[error("the peer closed the connection during the handshake: it stopped, or it received too little in time")]
    Handshake,
    /// Nothing was received for the idle timeout.
    #[error("nothing heard for too long")]
    TimedOut,
    /// Nothing that was sent was acknowledged for the idle timeout.
    #[error("nothing acknowledged for too long")]
    Unacknowledged,
    /// The peer does not know the connection: its process was restarted.
    #[error("the peer was started anew")]
    Reset,
    /// A certificate was refused.
    #[error("not trusted: {0}")]
    Untrusted(String),
    /// A violation of QUIC, found by either side.
    #[error("protocol error: {0}")]
    Protocol(String),
}

/// Why a stream brings no more frames. Frames that were read before are whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The bytes are no frame. The stream is useless.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The sender gave the stream up.
    #[error("given up by the sender (code {0})")]
    Reset(u64),
    /// The connection is gone.
    #[error("connection lost: {0}")]
    Lost(#[from] CloseReason),
}

/// Why a frame was not sent. Frames written before may or may not have arrived.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The frame is larger than the limit. Nothing of it was sent.
    #[error("a frame of {len} bytes, at most {limit} are allowed")]
    TooLarge {
        /// Bytes of header and body.
        len: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// The receiver wants no more of this stream.
    #[error("stopped by the receiver (code {0})")]
    Stopped(u64),
    /// The stream was finished or given up here.
    #[error("the stream is finished")]
    Finished,
    /// An earlier call was cancelled in the middle of a frame. The receiver sees the stream as given up.
    #[error("an earlier write was cancelled")]
    Interrupted,
    /// The connection is gone.
    #[error("connection lost: {0}")]
    Lost(#[from] CloseReason),
}

/// Why a datagram was not sent. Datagrams that were sent may be lost all the same.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DatagramError {
    /// The datagram does not fit into a packet on this path now. It was counted and dropped.
    #[error("a datagram of {len} bytes, at most {limit} fit")]
    TooLarge {
        /// Its bytes.
        len: usize,
        /// Bytes that fit.
        limit: usize,
    },
    /// The peer takes no datagrams.
    #[error("the peer takes no datagrams")]
    Unsupported,
    /// The connection is gone.
    #[error("connection lost: {0}")]
    Lost(#[from] CloseReason),
}

/// Why a stream holds no more frames. Each of these errors ends the stream: the boundaries of later frames are unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The announced length is above the receiver's limit.
    #[error("a frame of {len} bytes, at most {limit} are allowed")]
    TooLarge {
        /// Announced length in bytes.
        len: u64,
        /// The receiver's limit in bytes.
        limit: usize,
    },
    /// The announced header is longer than its frame, or than any header may be.
    #[error("a header of {header} bytes in a frame of {len}")]
    BadHeaderLength {
        /// Announced header length in bytes.
        header: u64,
        /// Announced frame length in bytes.
        len: u64,
    },
    /// The stream ended inside a frame.
    #[error("the stream ended {missing} or more bytes before its frame did")]
    Truncated {
        /// Bytes known to be missing.
        missing: u64,
    },
}
