/// The purpose of a stream. Kinds below 16 belong to this crate, the others to the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamKind(pub u8);

impl StreamKind {
    /// The first stream of a connection, which carries the hello.
    pub const HELLO: Self = Self(0);
    /// Carries the formation that the sender joined after its hello.
    pub(super) const CLUSTER_ID: Self = Self(1);
    /// Carries membership packets that must arrive, or that are too large for a datagram.
    pub(crate) const MEMBERSHIP: Self = Self(2);
    /// The first kind available to applications.
    pub const FIRST_FREE: Self = Self(16);
}

/// Why a side closes a connection. Codes below 16 belong to this crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CloseCode(pub u32);

impl CloseCode {
    /// The connection is no longer needed.
    pub const DONE: Self = Self(0);
    /// The endpoint is shut down.
    pub const SHUTDOWN: Self = Self(1);
    /// The peer is refused. The reason is an encoded [`Refusal`](crate::error::Refusal) (on a simulated network its
    /// text).
    pub(super) const REFUSED: Self = Self(2);
    /// The peer violated the protocol.
    pub const VIOLATION: Self = Self(3);
    /// The connection is no longer usable, for example because another process of the node has connected,
    /// acknowledgements ceased, or a certificate is no longer trusted. The peer may be dialled again.
    pub const REPLACED: Self = Self(4);
}
