//! The messages between a node and the leader of the configuration log, and the orders of operators.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    NodeInfo, StorePosition,
    log::{Configs, LogIndex},
};
use crate::{ChainId, ClusterId, Epoch, MemberId, Sequence, Version};

/// A node's periodic message to the leader, and to other nodes if the leader is unknown or silent: its state and its
/// requests. Cumulative: a renewal repeats everything that earlier ones reported.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Renewal {
    /// Counts the renewals of this incarnation. The granted lease starts when the renewal is sent.
    pub number: u64,
    /// The highest renewal that the receiver is known to have answered, as proof that this one was sent after that
    /// answer arrived (trap 42); 0: none.
    pub answered: u64,
    pub me: NodeInfo,
    /// The last entry of the configuration log that is in force at all of the sender's chains.
    pub applied: LogIndex,
    /// The sender's progress in leaving its chains.
    pub leave: Leave,
    pub promotions: Vec<Promotion>,
    pub reports: Vec<Report>,
    /// The sender's copies of chains that it doesn't serve: of each chain in which an earlier incarnation of its store
    /// serves by the newest configuration, and complete copies of others.
    pub holds: Vec<StoreHolding>,
    /// The position of the sender's store; `None`: it has no disk.
    pub position: Option<Box<StorePosition>>,
    /// The sender is alive but is still loading its directory: it takes part in no chain yet.
    pub loads: bool,
}

/// A node's copy of a chain that it doesn't serve. If an earlier incarnation of its store served, this is the state at
/// the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StoreHolding {
    pub chain: ChainId,
    /// Whether the copy is complete: no resync was in progress.
    pub whole: bool,
    pub last: Version,
    /// The stored commit watermark. The chain may have committed more.
    pub watermark: Sequence,
    /// Whether each batch was synced since the store became a serving member: then the copy has every committed update.
    pub synced: bool,
}

/// A node's progress in leaving its chains (docs/adr/0028-leaving-and-voters.md). A node's values never decrease in the
/// derived order, so a renewal with a lower value than an earlier one is an old message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize)]
pub struct Leave {
    /// Counts how often the node withdrew its request to leave, or its resignation.
    pub number: u32,
    pub stage: LeaveStage,
    /// The node will return with the data on its disk: it leaves only its chains, and stays a node and a voter.
    pub returns: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize)]
pub enum LeaveStage {
    #[default]
    Stays,
    /// The node has requested to leave, and serves until a leader agrees.
    Asks,
    /// The node serves nothing and uses no lease that it requested earlier, so it may be removed without waiting for
    /// one.
    Resigned,
}

impl Leave {
    /// Whether the node has requested to leave, including after its resignation.
    pub fn is_asked(self) -> bool {
        self.stage >= LeaveStage::Asks
    }

    pub fn has_resigned(self) -> bool {
        self.stage == LeaveStage::Resigned
    }

    pub fn resigned(self) -> Self {
        Self { stage: LeaveStage::Resigned, ..self }
    }

    pub fn is_for_good(self) -> bool {
        self.is_asked() && !self.returns
    }

    /// The value after the request or the resignation is withdrawn.
    pub fn back(self, stage: LeaveStage) -> Self {
        Self { number: self.number.saturating_add(1), stage, ..self }
    }
}

/// The state of one chain at one of its members, by that member's own knowledge and clock. The leader uses it to find
/// gray failures (docs/adr/0017-slow-members.md).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Report {
    pub chain: ChainId,
    /// The last epoch that the member entered.
    pub epoch: Epoch,
    pub open: bool,
    /// The newest sequence at the member.
    pub held: Sequence,
    pub watermark: Sequence,
    /// The round trip to the successor.
    pub hop: PathDelay,
    /// The time from an update's arrival at this member until the watermark covers the update.
    pub commit: PathDelay,
    /// The time of a write to the member's own disk; zero without a disk.
    pub disk: PathDelay,
    /// At a head: for how long throughput has been far lower than before, although updates were always in flight.
    pub slowed: Duration,
    /// At a head: it is closed, and every update that it ordered is committed.
    pub closed: bool,
    /// At a tail: for how long it has received nothing from its joiner, while the joiner isn't known to follow.
    pub unheard: Duration,
    /// The node permanently stopped serving this chain, whether it is a member or not.
    pub halted: bool,
}

/// The delay of a path, measured by consecutive probes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct PathDelay {
    /// An update that isn't covered yet, and for how long. The time for which an acknowledgement may be withheld is not
    /// included.
    pub waits: Option<(Sequence, Duration)>,
    /// The moving average of the completed probes in this epoch; zero: none.
    pub took: Duration,
    /// The lowest delay, with less weight for old probes.
    pub usual: Duration,
}

impl PathDelay {
    /// The current delay: the average, or the time for which an update has been waiting, if that is longer.
    pub fn takes(&self) -> Duration {
        self.took.max(self.waits_for())
    }

    pub fn waits_for(&self) -> Duration {
        self.waits.map_or(Duration::ZERO, |(_, age)| age)
    }
}

/// A request to the head of a chain to stop ordering updates in this epoch (docs/DESIGN.md §5.10). It expires.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Close {
    pub chain: ChainId,
    pub epoch: Epoch,
}

/// A tail's request to promote the joiner behind it (docs/DESIGN.md §5.6).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Promotion {
    pub chain: ChainId,
    /// The epoch of the request: it is valid in no other.
    pub epoch: Epoch,
    /// The joiner to be promoted.
    pub member: MemberId,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum AdminCommand {
    /// The node requests to leave its chains. If a leader agrees, this incarnation serves nothing more, but keeps
    /// forwarding requests. If the node can't leave within ten leases, it stays.
    Leave,
    /// The node, as the leader, arranges the serving members of a chain in this order.
    Reorder {
        /// The chain to reorder.
        chain: ChainId,
        /// All serving members, head first.
        order: Vec<MemberId>,
    },
    /// The node, as the leader, gives up its cluster in favour of another one of the same name that it has met. The
    /// data of its cluster are lost.
    GiveUp {
        /// The cluster to give up: the node's own.
        cluster: ClusterId,
    },
}

/// Why a node doesn't carry out an operator's order.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ArrangeError {
    /// The configuration is fixed, or not known yet.
    #[error("the configuration of this node never changes, or isn't known yet")]
    Fixed,
    /// Without this node a chain would have no serving member.
    #[error("it is the last serving member of chain {}", chain.0)]
    Last {
        /// The chain.
        chain: ChainId,
    },
    #[error(transparent)]
    Reorder(#[from] ReorderError),
    /// The node stops. It may have proposed the change, which may then still take effect.
    #[error("the node stops")]
    Stopped,
    /// The cluster was not given up.
    #[error(transparent)]
    GiveUp(#[from] NotGivenUp),
}

/// Why the members of a chain were not reordered. Nothing was changed, except possibly after `Undecided`.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ReorderError {
    /// The node that received the order is not the leader.
    #[error("this node isn't the leader of the configuration log")]
    NotLeading {
        /// The leader, if known.
        leader: Option<MemberId>,
    },
    /// The chain doesn't exist.
    #[error("there is no chain {}", chain.0)]
    NoChain {
        /// The named chain.
        chain: ChainId,
    },
    /// Only serving members can be ordered.
    #[error("{member} is no serving member of that chain")]
    NotServing {
        /// The named node that doesn't serve.
        member: MemberId,
    },
    /// Each serving member must be named exactly once.
    #[error("{named} members were named, and {serving} serve: each of them must be named once")]
    NotAll {
        /// The number of serving members.
        serving: u32,
        /// The number of named members.
        named: u32,
    },
    /// Another reorder is in progress: one runs at a time.
    #[error("another reorder is in progress")]
    Busy,
    /// Another proposal changed the configuration: check it, and repeat the order if needed.
    #[error("the configuration was changed by another proposal: check it and try again")]
    Overtaken,
    /// The head's updates were not all committed in time. The chain keeps its old order.
    #[error("pending updates were not committed in time: nothing was changed")]
    NotClosed,
    /// The leader lost its leadership while a proposal was in flight: the new order may still take effect.
    #[error("the leader lost its leadership: the new order may still take effect")]
    Undecided,
}

/// Why a cluster was not given up in favour of another one of its name. Nothing was changed, except possibly after
/// `Undecided`.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum NotGivenUp {
    /// The node that received the order is not the leader.
    #[error("this node isn't the leader of the configuration log")]
    NotLeading {
        /// The leader, if known.
        leader: Option<MemberId>,
    },
    /// The node that received the order belongs to another cluster.
    #[error("cluster {asked} was named, but this node belongs to {found}")]
    DifferentCluster {
        /// The named cluster.
        asked: ClusterId,
        /// The cluster of the node that received the order.
        found: ClusterId,
    },
    /// Neither this node nor, to its knowledge, another node of its cluster has recently met another cluster of the
    /// same name with data and a leader; or a node of this cluster runs a release that doesn't know this order; or the
    /// cluster's configuration is fixed.
    #[error("this node has recently met no other cluster of this name that holds data and has a leader")]
    Alone,
    #[error("another `give-up` of this cluster is in progress")]
    Busy,
    /// The log did not decide the order in time, or the leader lost its leadership while a proposal was in flight. The
    /// order may still take effect: check the cluster's status.
    #[error("the configuration log hasn't decided it yet")]
    Undecided,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Renewed {
    pub number: u64,
    /// The length of the lease, which started when the renewal was sent; `None`: no lease is granted.
    pub lease: Option<Duration>,
    /// The leader known to the answering node.
    pub leader: Option<MemberId>,
    /// The configurations, if the asking node has applied fewer entries.
    pub configs: Option<Box<Configs>>,
    /// `Ok`: the answering node leads, knows the asking incarnation, which has applied the entire log, and any one node
    /// may be stopped now. Otherwise the reason why no node should be stopped.
    pub settled: Result<(), Unsettled>,
    /// The answering node leads, and the log can be changed without the asking node, which leaves: it may end.
    pub released: bool,
    /// The leader's next step for the leaving node: to resign, since it can be removed; or to withdraw its resignation,
    /// since it can no longer be removed.
    pub leave: Option<Leave>,
    /// The leader's prediction for the chains of the leaving node.
    pub farewell: Option<Farewell>,
    /// Chains whose head, the asking node, must close; repeated in each answer.
    pub close: Vec<Close>,
    /// The position of the answering node's store; `None`: it has no disk.
    pub position: Option<Box<StorePosition>>,
}

#[cfg(test)]
impl Renewed {
    /// An answer that grants nothing and asks for nothing.
    pub(crate) fn bare(number: u64, leader: Option<MemberId>) -> Self {
        Self {
            number,
            lease: None,
            leader,
            configs: None,
            settled: Err(Unsettled::Unled),
            released: false,
            leave: None,
            farewell: None,
            close: Vec::new(),
            position: None,
        }
    }
}

/// The effect of a node's leave on its chains.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Farewell {
    GoesOn,
    /// The node is the last serving member of a chain, or the last voter, and another node takes its place, or may
    /// return and do so.
    HandsOver,
    /// The node is the last serving member of a chain, and no node can take its place.
    Ends,
}

/// Why no other node should be stopped now: a chain could lose its last member or its joiner, or the log its quorum.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Unsettled {
    /// No leader has led for long enough to have received renewals from all nodes.
    #[default]
    #[error("no leader has led for long enough to know all nodes")]
    Unled,
    /// This node isn't known to the leader yet, or hasn't applied the newest configuration.
    #[error("this node hasn't applied the newest configuration yet")]
    Behind,
    /// A chain has a joiner.
    #[error("{member} joins chain {}", chain.0)]
    Joins {
        /// The chain.
        chain: ChainId,
        member: MemberId,
    },
    /// A member is silent, or is about to be moved out.
    #[error("{member} is missing in chain {}", chain.0)]
    Missing {
        /// The chain.
        chain: ChainId,
        member: MemberId,
    },
    #[error("{member} leaves")]
    Leaves { member: MemberId },
    /// A chain has too few members, and a living node may join it. That node may be in quarantine because it recently
    /// stalled a chain.
    #[error("chain {} has fewer members than it should, and {member} may become one", chain.0)]
    Short {
        /// The chain.
        chain: ChainId,
        member: MemberId,
    },
    /// A node appeared recently.
    #[error("{member} appeared only recently")]
    New { member: MemberId },
    #[error("the voters of the configuration log are about to change")]
    Voters,
    #[error("a configuration is about to change")]
    Changes,
}
