//! Events of the control half, and the nodes that handle them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use artillery_proto::{
    ClusterId, MemberId, Timestamp,
    control::{
        HeardStores,
        log::{ConfigChange, Configs, LogIndex, Term},
    },
    node::ProposalFate,
    runner::{ChainOrder, Word},
};

use super::messages::Message;
use crate::network::Flight;

/// An event of the control half.
#[derive(Debug)]
pub(crate) enum Event {
    // Checks for a leader, and whether it still leads.
    Look,
    // Nodes of this cluster meet nodes of another one.
    Meet,
    // A node learns whether it meets a cluster that outranks its own.
    Met { node: usize, id: MemberId, by: Option<ClusterId> },
    // A node meets one that has moved to the cluster to which its own has given way.
    GaveWay { node: usize, id: MemberId, by: ClusterId },
    BeginClients,
    // An incarnation begins with the configurations on its disk, or else with those of the founding.
    Begin { node: usize, id: MemberId },
    Loaded { node: usize, id: MemberId },
    // A node is notified of the state of the log.
    Log { node: usize, id: MemberId },
    Tick { node: usize, id: MemberId, number: u64 },
    Order { node: usize, id: MemberId, slot: usize, order: ChainOrder },
    Lease { node: usize, id: MemberId, slot: usize },
    Word { node: usize, id: MemberId, slot: usize, word: Word },
    Unanswered { node: usize, id: MemberId, to: MemberId, number: u64 },
    Confirmed { node: usize, id: MemberId, round: u64, leads: bool, answered: BTreeMap<MemberId, Timestamp> },
    // A proposal reaches the log.
    Append { node: usize, id: MemberId, term: Term, at: LogIndex, change: Box<ConfigChange> },
    Appended { node: usize, id: MemberId, at: LogIndex, fate: ProposalFate },
    SetVoters { node: usize, id: MemberId, term: Term, voters: BTreeSet<MemberId> },
    Message { from: usize, to: usize, ends: [MemberId; 2], flight: Flight, message: Box<Message> },
    Start(usize),
    // A node is asked to stop, while the whole cluster is stopped.
    Stop(usize),
    // A node is drained, while all others are stopped.
    Drain(usize),
    Mend(usize, usize),
    // The operator that restarts nodes takes its next step.
    Operate,
    Disaster,
    LoseStores,
    // An operator orders a reopening, whether or not stores were lost.
    WantReopening,
    WantRecovery,
    // A recovery order is executed by its node.
    Recover { node: usize, id: MemberId, since: u64 },
    WantFounding,
    // An order to create or join the other cluster is executed by its node.
    Found { node: usize, id: MemberId, since: u64 },
    // Nodes that have moved to the other cluster meet nodes of this one.
    Greet,
    Greeted { node: usize, id: MemberId, by: ClusterId },
    Keep { node: usize, id: MemberId, configs: Arc<Configs> },
    KeepHeard { node: usize, id: MemberId, heard: HeardStores },
    Reorder { node: usize, id: MemberId, order: Vec<MemberId> },
}

impl Event {
    /// The node that must be running to handle the event. The event waits while that node is paused or busy.
    pub(crate) fn waits_for(&self) -> Option<usize> {
        match self {
            Self::Begin { node, .. }
            | Self::Loaded { node, .. }
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
            | Self::Met { node, .. }
            | Self::GaveWay { node, .. }
            | Self::Recover { node, .. }
            | Self::Greeted { node, .. }
            | Self::Keep { node, .. }
            | Self::KeepHeard { node, .. }
            | Self::SetVoters { node, .. } => Some(*node),
            Self::Message { to, .. } => Some(*to),
            Self::Look
            | Self::Operate
            | Self::Disaster
            | Self::LoseStores
            | Self::WantReopening
            | Self::WantRecovery
            | Self::WantFounding
            | Self::Greet
            | Self::Meet
            | Self::BeginClients
            | Self::Append { .. }
            | Self::Start(_)
            | Self::Stop(_)
            | Self::Drain(_)
            | Self::Mend(..) => None,
        }
    }
}
