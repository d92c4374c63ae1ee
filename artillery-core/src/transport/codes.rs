//! Numbers that say what a stream is for, and why a connection is closed.

/// What a stream is for. Kinds below 16 belong to this crate, the others to the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamKind(pub u8);

impl StreamKind {
    /// The first stream of a connection, which carries the hello.
    pub const HELLO: Self = Self(0);
    /// Tells the formation of the sender, if it joined one after its hello.
    pub(super) const CLUSTER_ID: Self = Self(1);
    /// Carries membership packets that must arrive, or that are too large for a datagram.
    pub(crate) const MEMBERSHIP: Self = Self(2);
    /// The first kind that is free for applications.
    pub const FIRST_FREE: Self = Self(16);
}

/// Why a side closes a connection, as a number. Numbers below 16 belong to this crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CloseCode(pub u32);

impl CloseCode {
    /// It is not needed any more.
    pub const DONE: Self = Self(0);
    /// The endpoint is shut down.
    pub const SHUTDOWN: Self = Self(1);
    /// The peer is refused. The reason is an encoded [`Refusal`](crate::error::Refusal),
    /// on a simulated network its text.
    pub(super) const REFUSED: Self = Self(2);
    /// The peer broke the rules.
    pub const VIOLATION: Self = Self(3);
    /// This connection is of no more use. A newer one takes its place, or one that is dialled anew.
    pub const REPLACED: Self = Self(4);
}
