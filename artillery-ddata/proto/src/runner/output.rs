//! What a chain runner returns to its driver and its node.

use crate::{
    Epoch,
    api::Reply,
    control::{log::LogIndex, message::Promotion},
    replica::{ChainProgress, Halt, ReplicaEvent},
};

/// What a chain says to its node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Word {
    /// The chain has applied the configuration log up to this index.
    ActsBy(LogIndex),
    /// The chain serves by no lease any more.
    Resigned,
    /// The head is closed, and every update that it ordered is committed. Report it soon: the leader waits for it.
    Closed,
    /// The tail asks for a promotion.
    Promote(Promotion),
}

/// What a runner asks of its driver.
#[derive(PartialEq, Eq, Debug)]
pub enum RunnerOutput<C> {
    /// Answer this caller. Each gets exactly one reply.
    Reply(C, Reply),
    /// Report this event.
    Event(ReplicaEvent),
}

/// How a chain stands at this node.
#[derive(Clone, Debug, Default)]
pub struct ChainReadiness {
    /// The epoch in which it is open here.
    pub open: Option<Epoch>,
    /// Why it stopped serving.
    pub halted: Option<Halt>,
    /// Its progress, for reports.
    pub progress: ChainProgress,
}
