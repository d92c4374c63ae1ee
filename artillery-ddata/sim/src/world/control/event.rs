//! Events of the configuration, and the nodes that handle them.

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

/// A future event of the configuration.
#[derive(Debug)]
pub(crate) enum Event {
    /// Checks whether there is a leader, and whether it goes on.
    Look,
    /// Nodes of this cluster and of another one meet.
    Meet,
    /// A node learns whether a cluster is met that outranks its own.
    Met { node: usize, id: MemberId, by: Option<ClusterId> },
    /// A node meets one that has gone over to the cluster to which its own has given way.
    GaveWay { node: usize, id: MemberId, by: ClusterId },
    /// The clients begin.
    BeginClients,
    /// An incarnation begins with the state of the founding.
    Begin { node: usize, id: MemberId },
    /// A node has loaded its directory.
    Loaded { node: usize, id: MemberId },
    /// A node that keeps the log learns its news.
    Log { node: usize, id: MemberId },
    /// A node reads the clock, and may have a renewal to send.
    Tick { node: usize, id: MemberId, number: u64 },
    /// A chain of a node gets an order.
    Order { node: usize, id: MemberId, slot: usize, order: ChainOrder },
    /// A chain of a node reads the newest lease.
    Lease { node: usize, id: MemberId, slot: usize },
    /// A word of a chain reaches its node.
    Word { node: usize, id: MemberId, slot: usize, word: Word },
    /// A node stops waiting for the answer to a renewal.
    Unanswered { node: usize, id: MemberId, to: MemberId, number: u64 },
    /// A round of confirmation ends.
    Confirmed { node: usize, id: MemberId, round: u64, leads: bool, answered: BTreeMap<MemberId, Timestamp> },
    /// A proposal reaches the log.
    Append { node: usize, id: MemberId, term: Term, at: LogIndex, change: Box<ConfigChange> },
    /// The proposer learns the fate of its proposal.
    Appended { node: usize, id: MemberId, at: LogIndex, fate: ProposalFate },
    /// A leader hands the log to other nodes.
    SetVoters { node: usize, id: MemberId, term: Term, voters: BTreeSet<MemberId> },
    /// A message arrives.
    Message { from: usize, to: usize, ends: [MemberId; 2], flight: Flight, message: Box<Message> },
    /// A node starts another incarnation.
    Start(usize),
    /// A node is told to stop, like all others.
    Stop(usize),
    /// A node is drained while all others are told to stop.
    Drain(usize),
    /// A link comes back.
    Mend(usize, usize),
    /// The operator that restarts nodes checks them.
    Operate,
    /// Most nodes that keep the log are lost.
    Disaster,
    /// All stores that serve a chain are lost.
    LoseStores,
    /// An operator accepts that, or what isn't so.
    WantReopening,
    /// An operator tries to recover the cluster.
    WantRecovery,
    /// A node that was ordered to go on alone surveys once more.
    Recover { node: usize, id: MemberId, since: u64 },
    /// An operator tries to found another cluster, if no incarnation that ever served answers.
    WantFounding,
    /// A node that was ordered to found it surveys once more.
    Found { node: usize, id: MemberId, since: u64 },
    /// Nodes of the other cluster meet nodes of this one.
    Greet,
    /// A node has met a node of the other cluster.
    Greeted { node: usize, id: MemberId, by: ClusterId },
    /// A node's disk is to keep these configurations.
    Keep { node: usize, id: MemberId, configs: Arc<Configs> },
    /// A node's disk is to keep what was heard of other stores.
    KeepHeard { node: usize, id: MemberId, heard: HeardStores },
    /// An operator reorders the members of the first chain.
    Reorder { node: usize, id: MemberId, order: Vec<MemberId> },
}

impl Event {
    /// The node that handles the event. While that node is paused, the event waits.
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
