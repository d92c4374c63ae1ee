//! What a chain says.

use crate::{
    Epoch,
    api::Reply,
    control::{log::LogIndex, message::Promotion},
    replica::{ChainProgress, Halt, ReplicaEvent},
};

/// What a chain says to its node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Word {
    /// It acts by what the log comes to up to here.
    ActsBy(LogIndex),
    /// It acts by no lease.
    Resigned,
    /// Its head has closed: who waits for that is to hear of it soon.
    Closed,
    /// As tail it asks for a promotion.
    Promote(Promotion),
}

/// What is to be done.
#[derive(PartialEq, Eq, Debug)]
pub enum RunnerOutput<C> {
    /// Answer this caller. Each gets exactly one reply.
    Reply(C, Reply),
    /// Tell whoever watches.
    Event(ReplicaEvent),
}

/// How a chain stands at this node: what others wait for.
#[derive(Clone, Debug, Default)]
pub struct ChainReadiness {
    /// The epoch in which it is open here.
    pub open: Option<Epoch>,
    /// Why it stopped serving.
    pub halted: Option<Halt>,
    /// How far it has come.
    pub progress: ChainProgress,
}
