//! The inputs of one turn of a chain.

use std::sync::Arc;

use crate::{
    ChainConfig, ClusterId, Epoch, MemberId, Sequence, Timestamp,
    api::{Query, ReadMode, Refusal, Write},
    control::log::LogIndex,
    message::ChainFrame,
    types::update::RequestKey,
};

/// A lease of this node, on its own clock.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Lease {
    pub until: Timestamp,
    /// When the node requested the lease.
    pub asked: Timestamp,
    /// How many resignations the node had withdrawn when the lease was granted. A chain that resumes uses only leases
    /// of the new stretch, and so none from before its resignation (trap 62).
    pub stretch: u64,
}

/// An order of the node to a chain.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ChainOrder {
    /// This configuration names this member. Answered by [`Word::ActsBy`](super::Word::ActsBy).
    Enter {
        config: Arc<ChainConfig>,
        /// The history to which the configuration belongs.
        history: ClusterId,
        /// The index of the configuration log at which this is the newest configuration.
        upto: LogIndex,
    },
    /// The configuration of this epoch doesn't name this member. Answered by [`Word::ActsBy`](super::Word::ActsBy).
    Expelled {
        epoch: Epoch,
        /// The history to which the configuration belongs.
        history: ClusterId,
        /// The index of the configuration log at which that configuration is the newest.
        upto: LogIndex,
    },
    /// As head of this epoch, order nothing until the given time.
    Close {
        epoch: Epoch,
        /// The end of the closing, on this node's clock.
        until: Timestamp,
    },
    /// Use no leases from now on. Answered by [`Word::Resigned`](super::Word::Resigned).
    Resign,
    /// Use leases of this stretch again.
    Resume {
        /// See [`Lease::stretch`].
        stretch: u64,
    },
    /// Another cluster, or a newer history, replaces this one: refuse requests, use no lease, and keep all data.
    Yield {
        /// The refusal that callers get.
        refusal: Refusal,
    },
    /// Serve again after [`ChainOrder::Yield`].
    Proceed,
}

/// A change of the link to a peer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LinkChange {
    /// Frames can be sent from now on. Those sent earlier may be lost.
    Up(MemberId),
    /// Frames can no longer be sent.
    Down(MemberId),
}

#[derive(Clone, Debug)]
pub struct ReadRequest<C> {
    pub query: Query,
    pub mode: ReadMode,
    /// The floor of the caller's session, if it has one.
    pub floor: Option<Sequence>,
    /// The history to which the caller's session or watch belongs.
    pub history: Option<ClusterId>,
    /// When the caller stops waiting.
    pub deadline: Timestamp,
    pub caller: C,
}

#[derive(Clone, Debug)]
pub struct WriteRequest<C> {
    /// The request id. Without one, a retry is not recognized.
    pub request: Option<RequestKey>,
    /// The history to which the caller's session belongs.
    pub history: Option<ClusterId>,
    pub write: Write,
    /// When the caller stops waiting.
    pub deadline: Timestamp,
    pub caller: C,
}

/// Everything that was received for one turn.
#[derive(Debug)]
pub struct Turn<R, W> {
    /// The newest lease, if it has changed.
    pub lease: Option<Lease>,
    /// The number of the last durable record of the journal: [`JournalBatch::upto`](crate::replica::JournalBatch::upto)
    /// of the last batch that has become durable.
    pub durable: Option<u64>,
    /// Whether the chain must begin a checkpoint, so that the journal becomes shorter. Has no effect while a checkpoint
    /// or a resync is in progress.
    pub checkpoint: bool,
    /// Whether the node's disk is considered full.
    pub disk_full: bool,
    pub links: Vec<LinkChange>,
    pub orders: Vec<ChainOrder>,
    /// Frames with their senders, which the driver has authenticated.
    pub frames: Vec<(MemberId, ChainFrame)>,
    pub reads: Vec<R>,
    /// Writes of the [small line](super::WriteLine::Small).
    pub writes: Vec<W>,
    /// Writes of the [large line](super::WriteLine::Large).
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
    /// Whether frames or requests are left, which happens if a [turn](super::ChainRunner::take) ended early.
    pub fn has_inputs(&self) -> bool {
        !(self.frames.is_empty() && self.reads.is_empty() && self.writes.is_empty() && self.large_writes.is_empty())
    }
}
