//! The inputs of one turn of a chain.

use std::sync::Arc;

use crate::{
    ChainConfig, ClusterId, Epoch, MemberId, Sequence, Timestamp,
    api::{Query, ReadMode, Refusal, Write},
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
    /// How many resignations the node had taken back when the lease was granted. A chain that resumes uses only leases
    /// granted since then, and none from before its resignation (trap 62).
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
        /// The index of the configuration log at which it is the newest.
        upto: LogIndex,
    },
    /// The configuration of this epoch doesn't name this member. Answered by [`Word::ActsBy`](super::Word::ActsBy).
    Expelled {
        /// The epoch.
        epoch: Epoch,
        /// The history that it belongs to.
        history: ClusterId,
        /// The index of the configuration log at which that configuration is the newest.
        upto: LogIndex,
    },
    /// As head of this epoch, order nothing until then.
    Close {
        /// The epoch.
        epoch: Epoch,
        /// The end of the closing by this node's clock.
        until: Timestamp,
    },
    /// Take no more leases, and serve by none. Answered by [`Word::Resigned`](super::Word::Resigned).
    Resign,
    /// Take leases of this stretch again.
    Resume {
        /// The stretch.
        stretch: u64,
    },
    /// Another cluster, or a newer history of this one, goes on instead: refuse requests, serve by no lease, and keep all data.
    Yield {
        /// What callers are told.
        refusal: Refusal,
    },
    /// Serve again after [`ChainOrder::Yield`].
    Proceed,
}

/// A change of the link to a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkChange {
    /// Frames can be sent from now on; what was sent before may be lost.
    Up(MemberId),
    /// Frames go nowhere from now on.
    Down(MemberId),
}

/// A read and its caller.
#[derive(Clone, Debug)]
pub struct ReadRequest<C> {
    /// The query.
    pub query: Query,
    /// How it may be served.
    pub mode: ReadMode,
    /// The floor of its session, if it has one.
    pub floor: Option<Sequence>,
    /// The history that its session, or its watch, belongs to.
    pub history: Option<ClusterId>,
    /// When the caller stops waiting.
    pub deadline: Timestamp,
    /// The caller.
    pub caller: C,
}

/// A write and its caller.
#[derive(Clone, Debug)]
pub struct WriteRequest<C> {
    /// The request id. Without one a repetition isn't recognized.
    pub request: Option<RequestKey>,
    /// The history that its session belongs to.
    pub history: Option<ClusterId>,
    /// The write.
    pub write: Write,
    /// When the caller stops waiting.
    pub deadline: Timestamp,
    /// The caller.
    pub caller: C,
}

/// Everything that was received for one turn.
#[derive(Debug)]
pub struct Turn<R, W> {
    /// The newest lease, if it has changed.
    pub lease: Option<Lease>,
    /// The number of the last [batch](crate::replica::JournalBatch) that has become durable.
    pub durable: Option<u64>,
    /// The journal is to get shorter: the chain begins a checkpoint, unless one is under way.
    pub checkpoint: bool,
    /// The node's disk counts as full.
    pub disk_full: bool,
    /// Changes of the links to peers.
    pub links: Vec<LinkChange>,
    /// The node's orders.
    pub orders: Vec<ChainOrder>,
    /// Frames and their senders, which the driver has authenticated.
    pub frames: Vec<(MemberId, ChainFrame)>,
    /// Reads.
    pub reads: Vec<R>,
    /// Writes of the [small line](super::WriteLine::Small).
    pub writes: Vec<W>,
    /// Large writes.
    pub large_writes: Vec<W>,
}

impl<R, W> Default for Turn<R, W> {
    fn default() -> Self {
        Self {
            lease: None,
            durable: None,
            checkpoint: false,
            disk_full: false,
            links: Vec::new(),
            orders: Vec::new(),
            frames: Vec::new(),
            reads: Vec::new(),
            writes: Vec::new(),
            large_writes: Vec::new(),
        }
    }
}

impl<R, W> Turn<R, W> {
    /// Whether it has frames or requests: what was received and not yet taken in, if a [turn](super::ChainRunner::take) has ended.
    pub fn has_inputs(&self) -> bool {
        !(self.frames.is_empty() && self.reads.is_empty() && self.writes.is_empty() && self.large_writes.is_empty())
    }
}
