//! What a chain is handed in one turn.

use std::sync::Arc;

use crate::{
    ChainConfig, ClusterId, Epoch, MemberId, Sequence, Timestamp,
    api::{Query, ReadMode, Write},
    control::log::LogIndex,
    message::ChainFrame,
    types::update::RequestKey,
};

/// A lease of this node, by its own clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lease {
    /// When it ends.
    pub until: Timestamp,
    /// When it was asked for.
    pub asked: Timestamp,
    /// How often the node had taken a resignation back when it was granted: a chain that takes leases again acts by those that
    /// were granted since, and by none of before (trap 62).
    pub stretch: u64,
}

/// What the node orders a chain to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ChainOrder {
    /// This configuration names this member. Answered by [`Word::ActsBy`](super::Word::ActsBy).
    Enter {
        /// The configuration.
        config: Arc<ChainConfig>,
        /// The history that it belongs to.
        history: ClusterId,
        /// What the log comes to, of which it is a part.
        upto: LogIndex,
    },
    /// The configuration of this epoch doesn't name this member. Answered by [`Word::ActsBy`](super::Word::ActsBy).
    Expelled {
        /// The epoch.
        epoch: Epoch,
        /// What the log comes to, of which that configuration is a part.
        upto: LogIndex,
    },
    /// As head of this epoch, order nothing until then.
    Close {
        /// The epoch.
        epoch: Epoch,
        /// The end of it by this node's clock.
        until: Timestamp,
    },
    /// Take no lease any more, and act by none. Answered by [`Word::Resigned`](super::Word::Resigned).
    Resign,
    /// Take leases again, those of this stretch.
    Resume {
        /// Which.
        stretch: u64,
    },
    /// Another cluster succeeds this one: take in no request and act by no lease, and keep what is there.
    Yield {
        /// Which cluster.
        by: ClusterId,
    },
    /// Serve again after [`ChainOrder::Yield`].
    Proceed,
}

/// What is new about the way to a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkChange {
    /// Frames can be sent from now on; what was sent before may be lost.
    Up(MemberId),
    /// Frames go nowhere from now on.
    Down(MemberId),
}

/// A read, and who waits for it.
#[derive(Clone, Debug)]
pub struct ReadRequest<C> {
    /// Of what.
    pub query: Query,
    /// How it may be served.
    pub mode: ReadMode,
    /// The floor of its session, if it is in one.
    pub floor: Option<Sequence>,
    /// The history that its session, or its watch, belongs to.
    pub history: Option<ClusterId>,
    /// When the caller stops waiting.
    pub deadline: Timestamp,
    /// Who waits.
    pub caller: C,
}

/// A write, and who waits for it.
#[derive(Clone, Debug)]
pub struct WriteRequest<C> {
    /// Under which request id; without one it isn't known again when it is repeated.
    pub request: Option<RequestKey>,
    /// The history that its session belongs to.
    pub history: Option<ClusterId>,
    /// What.
    pub write: Write,
    /// When the caller stops waiting.
    pub deadline: Timestamp,
    /// Who waits.
    pub caller: C,
}

/// Everything that was received for one turn.
#[derive(Debug)]
pub struct Turn<R, W> {
    /// The newest lease, if another one than before.
    pub lease: Option<Lease>,
    /// What is new about the ways to peers.
    pub links: Vec<LinkChange>,
    /// What the node orders.
    pub orders: Vec<ChainOrder>,
    /// What peers said; the driver vouches for who it was.
    pub frames: Vec<(MemberId, ChainFrame)>,
    /// Reads.
    pub reads: Vec<R>,
    /// Writes, but for those of the [line](super::WriteLine) of large ones.
    pub writes: Vec<W>,
    /// Large writes.
    pub large_writes: Vec<W>,
}

impl<R, W> Default for Turn<R, W> {
    fn default() -> Self {
        Self {
            lease: None,
            links: Vec::new(),
            orders: Vec::new(),
            frames: Vec::new(),
            reads: Vec::new(),
            writes: Vec::new(),
            large_writes: Vec::new(),
        }
    }
}
