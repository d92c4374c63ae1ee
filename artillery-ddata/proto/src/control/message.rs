//! The messages between a node and the leader of the configuration log's group.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    NodeInfo, StorePosition,
    log::{Configs, LogIndex},
};
use crate::{ChainId, ClusterId, Epoch, MemberId, Sequence, Version};

/// A node's periodic message to the leader: it lives, this is its state, and this is what it asks for. Cumulative: a later
/// renewal repeats all that an earlier one said.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Renewal {
    /// Counts the renewals of this incarnation. The lease that answers a renewal runs from the moment it was sent.
    pub number: u64,
    /// The highest renewal that the receiver has answered: shows that this one was sent after that answer came (trap 42).
    pub answered: u64,
    /// The sender, in its incarnation, and its addresses.
    pub me: NodeInfo,
    /// The last entry of the configuration log that all of its chains act by.
    pub applied: LogIndex,
    /// Whether the sender wants to leave its chains, and how far it has come.
    pub leave: Leave,
    /// The promotions that its chains ask for as tails.
    pub promotions: Vec<Promotion>,
    /// A report on each chain that the sender is a member of.
    pub reports: Vec<Report>,
    /// What the sender holds of chains that it doesn't serve: of each one in which an earlier life of its store serves by the newest
    /// configuration, and whole copies of others.
    pub holds: Vec<StoreHolding>,
    /// How far the sender's store has come; `None`: it has no disk.
    pub position: Option<Box<StorePosition>>,
    /// The sender is still loading its directory: it lives, and has a part in no chain yet.
    pub loads: bool,
}

/// What a node holds of a chain that it doesn't serve. If an earlier life of its store served, as it was found at the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StoreHolding {
    /// Which chain.
    pub chain: ChainId,
    /// Whether the store is whole: no resync was under way.
    pub whole: bool,
    /// The newest version.
    pub last: Version,
    /// The commit watermark that it names. The chain may have committed more.
    pub watermark: Sequence,
    /// Whether each batch was synced since the store became a serving member: then it has all that was committed.
    pub synced: bool,
}

/// How far a node has come with leaving its chains (docs/adr/0028-leaving-and-voters.md). A node's values never go back in
/// their order, so a renewal with a lower value than an earlier one is an old message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize)]
pub struct Leave {
    /// Counts how often the node took back its wish to leave, or its resignation.
    pub number: u32,
    /// How far the node has come since.
    pub stage: LeaveStage,
    /// The node comes back with what its disk holds: it gives up its places in the chains alone, and stays a node and a voter.
    pub returns: bool,
}

/// The stages of leaving.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize)]
pub enum LeaveStage {
    /// The node stays.
    #[default]
    Stays,
    /// The node wants to leave, and serves until a leader agrees.
    Asks,
    /// The node serves nothing, and acts by no lease that it asked for before: it may be removed without waiting for one.
    Resigned,
}

impl Leave {
    /// Whether the node wants to leave, or has resigned already.
    pub fn is_asked(self) -> bool {
        self.stage >= LeaveStage::Asks
    }

    /// Whether the node serves nothing.
    pub fn has_resigned(self) -> bool {
        self.stage == LeaveStage::Resigned
    }

    /// The value after the leader's agreement.
    pub fn resigned(self) -> Self {
        Self { stage: LeaveStage::Resigned, ..self }
    }

    /// Whether the node wants to leave and doesn't come back, or has resigned so.
    pub fn is_for_good(self) -> bool {
        self.is_asked() && !self.returns
    }

    /// The value after this one is taken back.
    pub fn back(self, stage: LeaveStage) -> Self {
        Self { number: self.number.saturating_add(1), stage, ..self }
    }
}

/// The state of one chain at one of its members, by that member's own knowledge and clock. The leader finds gray failures by
/// it (docs/adr/0017-slow-members.md).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Which chain.
    pub chain: ChainId,
    /// The epoch that the member entered last.
    pub epoch: Epoch,
    /// Whether that epoch is open here.
    pub open: bool,
    /// The newest sequence that the member holds.
    pub held: Sequence,
    /// The member's commit watermark.
    pub watermark: Sequence,
    /// The time to the successor and back.
    pub hop: PathDelay,
    /// The time of an update from here to the tail, and of the watermark back.
    pub commit: PathDelay,
    /// The time of an update from here to the member's own disk; zero, if it has none.
    pub disk: PathDelay,
    /// At a head: for so long far less was committed than before, though something was under way all the time.
    pub slowed: Duration,
    /// At a head: it is closed, orders nothing, and all that it ordered is committed.
    pub closed: bool,
    /// At a tail: for so long it has heard nothing of the joiner behind it, which isn't known to follow.
    pub unheard: Duration,
    /// The node stopped serving this chain for good, whether it is a member or not.
    pub halted: bool,
}

/// How long a path takes, by one probe after the other.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct PathDelay {
    /// The sequence that is waited for, and for how long so far.
    pub waits: Option<(Sequence, Duration)>,
    /// How long the last probe took.
    pub took: Duration,
    /// How long a probe takes at best; old probes count for less.
    pub usual: Duration,
}

impl PathDelay {
    /// How long the path takes now.
    pub fn takes(&self) -> Duration {
        self.took.max(self.waits_for())
    }

    /// For how long something has been waited for.
    pub fn waits_for(&self) -> Duration {
        self.waits.map_or(Duration::ZERO, |(_, age)| age)
    }
}

/// The head of a chain is to order nothing more in this epoch, for a moment (docs/DESIGN.md §5.10).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Close {
    /// Which chain.
    pub chain: ChainId,
    /// Which epoch.
    pub epoch: Epoch,
}

/// A tail's request to promote the joiner behind it (docs/DESIGN.md §5.6).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Promotion {
    /// Which chain.
    pub chain: ChainId,
    /// The epoch of the request: it counts in no other.
    pub epoch: Epoch,
    /// The joiner that is to serve.
    pub member: MemberId,
}

/// An operator's order to one node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum AdminCommand {
    /// The node leaves its chains: this incarnation serves nothing more, and goes on forwarding requests.
    Leave,
    /// The node, as the leader, brings the serving members of a chain into this order.
    Reorder {
        /// Which chain.
        chain: ChainId,
        /// All serving members, head first.
        order: Vec<MemberId>,
    },
    /// The node, as the leader, gives its cluster up for another one of the same name that it has met. Its data are lost.
    GiveUp {
        /// The cluster that is given up: the node's own.
        cluster: ClusterId,
    },
}

/// Why a node doesn't carry out an operator's order.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ArrangeError {
    /// The configuration never changes, or there is none yet.
    #[error("the configuration of this node never changes, or isn't known yet")]
    Fixed,
    /// Without this node a chain would have no serving member.
    #[error("it is the last serving member of chain {}", chain.0)]
    Last {
        /// Which chain.
        chain: ChainId,
    },
    /// The members were not reordered.
    #[error(transparent)]
    Reorder(#[from] ReorderError),
    /// The node stops.
    #[error("the node stops")]
    Stopped,
    /// The cluster was not given up.
    #[error(transparent)]
    GiveUp(#[from] NotGivenUp),
}

/// Why the members of a chain were not reordered.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ReorderError {
    /// The node that was asked is not the leader.
    #[error("this node doesn't decide on configurations")]
    NotLeading {
        /// The leader, as far as is known.
        leader: Option<MemberId>,
    },
    /// There is no such chain.
    #[error("there is no chain {}", chain.0)]
    NoChain {
        /// The named chain.
        chain: ChainId,
    },
    /// Only serving members have a place.
    #[error("{member} is no serving member of that chain")]
    NotServing {
        /// The named node that isn't one.
        member: MemberId,
    },
    /// Each serving member must be named exactly once.
    #[error("{named} members were named, and {serving} serve: each of them must be named once")]
    NotAll {
        /// How many serve.
        serving: u32,
        /// How many were named.
        named: u32,
    },
    /// Another reorder is under way: there is one at a time.
    #[error("another reorder is under way")]
    Busy,
    /// The configuration was changed in another way meanwhile: look at it, and ask again.
    #[error("the configuration was changed otherwise meanwhile")]
    Overtaken,
    /// The head's updates were not all committed in time. The chain goes on in its old order.
    #[error("what was under way was not committed in time: nothing was changed")]
    NotClosed,
}

/// Why a cluster is not given up for another one of its name. Nothing was changed, except possibly after `Undecided`.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum NotGivenUp {
    /// The node that was asked is not the leader.
    #[error("this node doesn't decide on configurations")]
    NotLeading {
        /// The leader, as far as is known.
        leader: Option<MemberId>,
    },
    /// The node that was asked belongs to another cluster.
    #[error("cluster {asked} was named, and {found} is there")]
    DifferentCluster {
        /// The named cluster.
        asked: ClusterId,
        /// The cluster of the node that was asked.
        found: ClusterId,
    },
    /// No other cluster of the same name, with data and a leader, was met within the last moments; or a node of this cluster is of a
    /// release without this order; or the cluster's configuration is fixed.
    #[error(
        "no other cluster of this name that holds data and has a leader was met by this node within the last moments"
    )]
    Alone,
    /// Another such order is pending.
    #[error("it is being given up already")]
    Busy,
    /// The log has not taken the order in time. It may still do so: look at the cluster again.
    #[error("the configuration log hasn't decided it yet")]
    Undecided,
}

/// The answer to a [`Renewal`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Renewed {
    /// The number of the renewal.
    pub number: u64,
    /// The length of the lease, from the moment at which the renewal was sent; `None`: no lease is granted.
    pub lease: Option<Duration>,
    /// The leader, as far as the answering node knows; `None`: unknown.
    pub leader: Option<MemberId>,
    /// The configurations, if the asking node has applied fewer entries.
    pub configs: Option<Box<Configs>>,
    /// `Ok`: the answering node leads, and any one node may be stopped now. It knows the asking incarnation, which acts by all
    /// of the log. Else why no node should be stopped.
    pub settled: Result<(), Unsettled>,
    /// The answering node leads, the asking one leaves, and the log can be changed without it: it may end.
    pub released: bool,
    /// The next step of the leaving node, from the leader: resign, since its removal can be made; or take its resignation back,
    /// since the removal can't be made any more.
    pub leave: Option<Leave>,
    /// What becomes of the chains of the leaving node, from the leader.
    pub farewell: Option<Farewell>,
    /// Chains that the asking node heads and is to close; repeated with each answer.
    pub close: Vec<Close>,
    /// How far the answering node's store has come; `None`: it has no disk.
    pub position: Option<Box<StorePosition>>,
}

#[cfg(test)]
impl Renewed {
    /// Test-only: an answer that grants nothing and asks for nothing.
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

/// What becomes of the chains of a node that leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Farewell {
    /// The chains go on without the node.
    GoesOn,
    /// The node is the last serving member of a chain, or the last voter, and another node takes over.
    HandsOver,
    /// The node is the last serving member of a chain, and no node could take over.
    Ends,
}

/// Why no other node should be stopped now: a chain might lose its last member or its joiner, or the log its quorum.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Unsettled {
    /// No leader has led for long enough to have heard of all nodes.
    #[default]
    #[error("no leader has led for long enough to know all nodes")]
    Unled,
    /// This node isn't known yet, or acts by an older configuration.
    #[error("this node doesn't act by the newest configuration yet")]
    Behind,
    /// A member joins a chain.
    #[error("{member} joins chain {}", chain.0)]
    Joins {
        /// Which chain.
        chain: ChainId,
        /// The joiner.
        member: MemberId,
    },
    /// A member is silent, or is about to be moved out.
    #[error("{member} is missing in chain {}", chain.0)]
    Missing {
        /// Which chain.
        chain: ChainId,
        /// The member.
        member: MemberId,
    },
    /// A member of a chain, or a voter, leaves.
    #[error("{member} leaves")]
    Leaves {
        /// The node.
        member: MemberId,
    },
    /// A chain has fewer members than it should, and a living node may become one. The node may be in quarantine, because it
    /// held up a chain a while ago.
    #[error("chain {} has fewer members than it should, and {member} may become one", chain.0)]
    Short {
        /// Which chain.
        chain: ChainId,
        /// The node.
        member: MemberId,
    },
    /// A node has just come.
    #[error("{member} has just come")]
    New {
        /// The node.
        member: MemberId,
    },
    /// The voters of the log's group are to change.
    #[error("other nodes are to keep the configuration log")]
    Voters,
    /// A configuration is about to change.
    #[error("a configuration is about to change")]
    Changes,
}
