//! What is going to happen about the configuration, and the node for which it waits.

use std::collections::BTreeSet;

use artillery_proto::{
    ClusterId, MemberId,
    control::log::{Change, LogIndex, Term},
    node::Fate,
    runner::{Order, Word},
};

use super::messages::Message;
use crate::network::Flight;

/// What is going to happen about the configuration.
#[derive(Debug)]
pub(crate) enum Event {
    /// Whether there is a leader, and whether it goes on.
    Look,
    /// A life of a node begins with what the founding says.
    Begin { node: usize, id: MemberId },
    /// A node that keeps the log learns what is new about it.
    Log { node: usize, id: MemberId },
    /// A node looks at the clock, and may have a renewal to send.
    Tick { node: usize, id: MemberId, number: u64 },
    /// A chain of a node gets an order.
    Order { node: usize, id: MemberId, slot: usize, order: Order },
    /// A chain of a node looks at the newest lease.
    Lease { node: usize, id: MemberId, slot: usize },
    /// A chain says something to its node.
    Word { node: usize, id: MemberId, slot: usize, word: Word },
    /// A node waits no more for the answer to a renewal.
    Unanswered { node: usize, id: MemberId, to: MemberId, number: u64 },
    /// A round of confirmation ends.
    Confirmed { node: usize, id: MemberId, round: u64, leads: bool },
    /// A proposal reaches the log.
    Append { node: usize, id: MemberId, term: Term, at: LogIndex, change: Box<Change> },
    /// Its fate is known to its proposer.
    Appended { node: usize, id: MemberId, at: LogIndex, fate: Fate },
    /// Other nodes keep the log from now on.
    SetVoters { node: usize, id: MemberId, term: Term, voters: BTreeSet<MemberId> },
    /// A message arrives.
    Message { from: usize, to: usize, ends: [MemberId; 2], flight: Flight, message: Box<Message> },
    /// A node starts another life.
    Start(usize),
    /// A node is told to stop, as all the others are.
    Stop(usize),
    /// A node is drained while all the others are told to stop.
    Drain(usize),
    /// A link comes back.
    Mend(usize, usize),
    /// The operator who restarts nodes looks at them.
    Operate,
    /// Most of those that keep the log are lost.
    Disaster,
    /// An operator wants what is left to go on.
    WantRecovery,
    /// A node that is to go on alone looks once more.
    Recover { node: usize, id: MemberId, since: u64 },
    /// An operator wants another cluster founded, if no life is there that served.
    WantFounding,
    /// A node that is to found it looks once more.
    Found { node: usize, id: MemberId, since: u64 },
    /// Nodes of the other cluster meet nodes of this one.
    Greet,
    /// A node has met one of the other cluster.
    Greeted { node: usize, id: MemberId, by: ClusterId },
    /// An operator wants the members of the first chain in another order.
    Reorder { node: usize, id: MemberId, order: Vec<MemberId> },
}

impl Event {
    /// The node that it waits for, if that does nothing at the moment.
    pub(crate) fn waits_for(&self) -> Option<usize> {
        match self {
            Self::Begin { node, .. }
            | Self::Log { node, .. }
            | Self::Tick { node, .. }
            | Self::Order { node, .. }
            | Self::Lease { node, .. }
            | Self::Word { node, .. }
            | Self::Unanswered { node, .. }
            | Self::Confirmed { node, .. }
            | Self::Appended { node, .. }
            | Self::Reorder { node, .. }
            | Self::Found { node, .. }
            | Self::Recover { node, .. }
            | Self::Greeted { node, .. }
            | Self::SetVoters { node, .. } => Some(*node),
            Self::Message { to, .. } => Some(*to),
            Self::Look
            | Self::Operate
            | Self::Disaster
            | Self::WantRecovery
            | Self::WantFounding
            | Self::Greet
            | Self::Append { .. }
            | Self::Start(_)
            | Self::Stop(_)
            | Self::Drain(_)
            | Self::Mend(..) => None,
        }
    }
}
