//! The results that a chain runner returns to its driver and its node.

use crate::{
    Epoch,
    api::Reply,
    control::{log::LogIndex, message::Promotion},
    replica::{ChainProgress, Halt, ReplicaEvent},
};

/// A notification of a chain to its node.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Word {
    /// The chain has applied the configuration log up to this index.
    ActsBy(LogIndex),
    /// The chain no longer uses any lease.
    Resigned,
    /// The head is closed, and every update that it ordered is committed. The leader waits for this, so report it soon.
    Closed,
    /// The tail requests the promotion of its successor.
    Promote(Promotion),
}

/// An output for the driver.
#[derive(PartialEq, Eq, Debug)]
pub enum RunnerOutput<C> {
    /// Send this reply to this caller. Each caller gets exactly one.
    Reply(C, Reply),
    Event(ReplicaEvent),
}

/// The state of a chain at this node.
#[derive(Clone, Debug, Default)]
pub struct ChainReadiness {
    /// The epoch in which the chain is open here, if it is.
    pub open: Option<Epoch>,
    /// Why the replica stopped serving, if it did.
    pub halted: Option<Halt>,
    pub progress: ChainProgress,
}
