//! What can go wrong between two endpoints.

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

/// Why a node does not let another in. It is told to the other one, and no byte of an application was exchanged.
///
/// `here` is the side that refuses, `there` the side that was refused.
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
    /// Same name, but different formations: they never become one cluster.
    #[error("of cluster id {there}, this is cluster id {here}")]
    DifferentCluster {
        /// Id of the refusing side's cluster.
        here: ClusterId,
        /// Id that the refused side remembers.
        there: ClusterId,
    },
    /// There is no protocol version that both can talk.
    #[error("talks protocol versions {there}, this node {here}")]
    VersionMismatch {
        /// What the refusing side can talk.
        here: VersionRange,
        /// What the refused side can talk.
        there: VersionRange,
    },
    /// The certificate belongs to another node than the one that it claims to be.
    #[error("claims to be {claimed:?} with a certificate of {certificate:?}")]
    NotItsCertificate {
        /// Node name in the certificate.
        certificate: String,
        /// The claim.
        claimed: NodeId,
    },
    /// The certificate is foreign, expired, or made from another secret.
    #[error("not trusted: {0}")]
    Untrusted(String),
    /// It said something else than a hello, too much, or a malformed one.
    #[error("no hello: {0}")]
    Malformed(String),
    /// It did not say hello in time.
    #[error("no hello in time")]
    TimedOut,
    /// It took itself for its peer: a node dialled its own address, or two have one name.
    #[error("{0:?} is this node itself")]
    Itself(MemberId),
    /// A newer process of the same node is known already.
    #[error("{newer:?} has taken its place")]
    Superseded {
        /// The life that is known.
        newer: MemberId,
    },
    /// Too many connections.
    #[error("too many connections")]
    Busy,
    /// A reason of the data half, or of a newer version.
    #[error("{0}")]
    Other(String),
}

impl Refusal {
    /// A word for each reason, which stays the same: to count by.
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
    ];

    /// The place of its word among [`WORDS`](Self::WORDS).
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
        }
    }

    /// Its word among [`WORDS`](Self::WORDS).
    pub fn word(&self) -> &'static str {
        Self::WORDS[self.index()]
    }
}

/// Why a connection could not be had. Nothing of an application was sent; another try is safe.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// One side does not trust the other's certificate: another secret, a foreign or an expired one.
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
        /// Who was dialled.
        expected: NodeId,
        /// Who answered.
        found: NodeId,
    },
    /// Nobody answered in time.
    #[error("no answer in time")]
    TimedOut,
    /// The answer made no sense.
    #[error("no hello: {0}")]
    Malformed(String),
    /// The connection broke before it was ready.
    #[error("lost: {0}")]
    Lost(CloseReason),
    /// There is no address to dial.
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

/// Why a connection is no more. What was in flight may or may not have arrived.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// Closed on this side.
    #[error("closed here")]
    Here,
    /// The peer's endpoint was shut down.
    #[error("the peer shut down")]
    Shutdown,
    /// The peer closed it, and said why.
    #[error("closed by the peer: {reason} (code {code})")]
    Peer {
        /// A [`CloseCode`](crate::transport::CloseCode).
        code: u32,
        /// Its words.
        reason: String,
    },
    /// One side refuses the other, which belongs to another formation as it turned out after the hello.
    #[error("refused: {0}")]
    Refused(Refusal),
    /// Nothing was heard for the idle timeout.
    #[error("nothing heard for too long")]
    TimedOut,
    /// Nothing of what was sent was acknowledged for the idle timeout.
    #[error("nothing acknowledged for too long")]
    Unacknowledged,
    /// The peer does not know the connection: its process was started anew.
    #[error("the peer was started anew")]
    Reset,
    /// The certificate was refused.
    #[error("not trusted: {0}")]
    Untrusted(String),
    /// A violation of QUIC, found on either side.
    #[error("protocol error: {0}")]
    Protocol(String),
}

/// Why a stream brings no more frames. Frames that were read before are whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// What arrived is no frame; the stream is useless.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The sender gave the stream up.
    #[error("given up by the sender (code {0})")]
    Reset(u64),
    /// The connection is gone.
    #[error("connection lost: {0}")]
    Lost(#[from] CloseReason),
}

/// Why a frame was not sent. Frames handed over before may or may not have arrived.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The frame is larger than frames may be; nothing of it was sent.
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
    /// An earlier call was cancelled in the middle of a frame; the receiver sees the stream as given up.
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
    /// It does not fit into a packet of the path as it is now; it was counted and dropped.
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

/// Why a stream holds no more frames. Each of them ends the stream: what follows can't be told apart any more.
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
    /// The announced header is longer than its frame or than any header may be.
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
