use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
};

use super::{CoordinatorOutput, ProposalFate};
use crate::{
    ChainId, ClusterId, MemberId, Timestamp,
    control::{
        Configs, HeardStores, History, Term,
        log::LogIndex,
        message::{Renewal, Renewed, StoreHolding, Unsettled},
    },
    runner::{ChainOrder, Lease, Word},
};

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NodeInput {
    Log {
        /// The term in which this node leads, if it does.
        leads: Option<Term>,
        leader: Option<MemberId>,
        /// The configurations after the last entry applied here.
        configs: Arc<Configs>,
        voters: BTreeSet<MemberId>,
    },
    Confirmed {
        round: u64,
        /// Whether a quorum has confirmed that this node still led after the round began.
        leads: bool,
        /// Per node of the log's group: when the latest message that it has answered was sent.
        answered: BTreeMap<MemberId, Timestamp>,
    },
    /// A node has sent a message of the log's group on a connection that it dialled.
    Reached {
        by: MemberId,
    },
    /// [`CoordinatorOutput::Append`] has ended.
    Appended {
        at: LogIndex,
        fate: ProposalFate,
    },
    /// [`CoordinatorOutput::SetVoters`] has ended, successfully or not.
    VotersSet,
    /// A renewal from another node. Answered by [`CoordinatorOutput::Answer`] or [`NodeOutput::RolledBack`], or never.
    Renewal {
        /// The sender, verified by the driver.
        from: MemberId,
        renewal: Renewal,
    },
    /// A renewal of this node has ended.
    Renewed {
        /// The receiver of the renewal.
        from: MemberId,
        /// `None`: no answer will arrive.
        renewed: Option<Renewed>,
    },
    /// A report of one of this node's chains.
    Word {
        chain: ChainId,
        word: Word,
    },
    /// The membership has found a node of this cluster. This makes it a candidate to ask, nothing more.
    Met {
        id: MemberId,
        /// Addresses at which to dial it.
        addrs: Vec<SocketAddr>,
    },
    /// The membership has lost this incarnation.
    Gone(MemberId),
    /// This node listens on these addresses now. The next renewals pass them to the log.
    Moved(Vec<SocketAddr>),
    /// An operator's order of a chain's serving members. Answered by [`CoordinatorOutput::Reordered`].
    Reorder {
        token: u64,
        chain: ChainId,
        /// All of its serving members, head first.
        order: Vec<MemberId>,
    },
    /// An operator accepts the loss of every update of a chain that is missing from all available stores. Answered by
    /// [`CoordinatorOutput::Reopened`].
    AcceptLoss {
        token: u64,
        chain: ChainId,
    },
    /// A node of another cluster was met, and states that this node's cluster has given way to its own.
    GaveWay {
        by: ClusterId,
    },
    /// The cluster of this one's name and secret to which this one gives way if it is empty; `None`: no such cluster is
    /// met. The driver repeats the report, which expires after three leases, or three seconds if that is longer. Only
    /// the leader uses it.
    Outranked {
        by: Option<ClusterId>,
    },
    /// An operator gives this cluster up in favour of another one, and its data are lost. Answered by
    /// [`CoordinatorOutput::GivenUp`].
    GiveUp {
        token: u64,
    },
    /// The node should leave its chains as soon as a leader agrees. Answered by [`NodeOutput::Left`], unless the node
    /// stays.
    Leave {
        /// When the node stops trying and stays; `None`: the node should stop, and keeps asking until it may.
        until: Option<Timestamp>,
    },
    /// The node, which has a disk, should leave its chains as soon as a leader agrees, and will return in another
    /// incarnation: it stays a node and a voter. Answered by [`NodeOutput::Left`] once it has left, or after three
    /// leases.
    Withdraw,
    /// A node of another cluster was met, and names this node's cluster as one that its own succeeds.
    Succeeded {
        by: ClusterId,
    },
    /// The cluster continues in a newer history. This node's store may hold commits that are missing there.
    Parted {
        by: History,
    },
    /// The configurations of [`NodeOutput::Keep`] are on the disk.
    Kept,
    /// The directory of a node that started without `holds` is loaded.
    Loaded {
        /// The disk's copy of every chain, as it was at the start.
        holds: Vec<StoreHolding>,
    },
    Tick,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NodeOutput {
    /// Pass an order to a chain. The orders to one chain must stay in sequence.
    Order(ChainId, ChainOrder),
    /// Pass a lease to every chain: only the newest one is valid.
    Lease(Lease),
    /// Write these configurations, and their history, to the disk. Answered by [`NodeInput::Kept`]; only then do the
    /// chains get them. Never emitted without a disk.
    Keep(Arc<Configs>),
    /// Write the last known positions of other stores to the disk, at any time.
    KeepHeard(HeardStores),
    /// A renewal was sent by a store that has less than it had before, or by a second copy of a store: inform its node,
    /// which must stop. The renewal is ignored.
    RolledBack {
        to: MemberId,
        /// The renewal's number.
        number: u64,
    },
    /// A new history begins, or a loss was accepted, and the chains get these configurations next. Local readers must
    /// be informed first (trap 58).
    Begins(Arc<Configs>),
    /// All chains act by these configurations.
    Acts(Arc<Configs>),
    /// A decision of this node as the leader of the log, or an end of its leadership.
    Coordinator(CoordinatorOutput),
    /// The cluster has given way to another one, and the other nodes have had time to learn of it. The node may end;
    /// its next incarnation joins the other cluster.
    Over,
    /// The node may end: no configuration names it and the log can do without it, or further waiting gains nothing.
    Left,
    /// The node is ready, for the first time: any other node may be stopped now ([`NodeState::unready`]).
    Ready,
    /// Another cluster succeeds this one, and the node, which never served, reaches no member of its own. The node may
    /// end; its next incarnation should join the successor.
    Succeeded {
        by: ClusterId,
    },
    Event(NodeEvent),
}

/// An event for operators.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum NodeEvent {
    /// The node can't leave its chains now: it stays.
    Stays,
    /// The node has resigned but can't be removed from its chains now: it serves again.
    ServesAgain,
    /// The stopping node is the last serving member of a chain, or the last voter, and hands over to another node
    /// first.
    HandsOver,
    /// The stopping node is the last serving member of a chain, and no node could take its place.
    EndsChain,
    /// Like `EndsChain`, for a node with a disk: the chain opens again when a store that served last is back. Also if
    /// the node is the last voter, or the last serving member of a chain, and could not leave within three leases.
    ClosesChain,
    /// The stopping node ends because leaving took too long, although its chains may not be able to continue without it
    /// yet.
    GivesUp,
    /// The stopping node may be the last serving member of a chain, or is the last voter, and waits: no leader has
    /// chosen a replacement.
    Waits,
    /// No serving member answers in any incarnation, and this node never served: the cluster's data may be lost.
    Orphaned,
    /// This cluster has given way to another one of its name: this node ends soon, and joins that cluster.
    Over,
    /// Another cluster claims to succeed this one, but an answer in this one refutes it: this node keeps serving, and
    /// refuses the other cluster.
    Refuses { by: ClusterId },
    /// Another cluster succeeds this one, and no other node of this one answers; or it states that this one has given
    /// way to it, and no confirmed leader of this one answers. This node stops serving, and keeps its data.
    Yields { by: ClusterId },
    /// This node has received an answer from its own cluster: it serves again, although another cluster claims to
    /// succeed it.
    GoesOn { by: ClusterId },
}

/// A node's state, for status and metrics.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeState {
    /// The configurations by which all chains of the node act.
    pub configs: Arc<Configs>,
    /// The end of the newest lease, by the node's own clock; zero: the node never had one. A resignation doesn't reset
    /// it.
    pub lease: Timestamp,
    /// The leader that an answer to a renewal last named; `None`: no answer has named one yet.
    pub leader: Option<MemberId>,
    /// A node that knows a leader has answered.
    pub answered: bool,
    /// Why the node isn't ready now; `None`: it is ready.
    pub unready: Option<Unready>,
    /// When a leader with a confirmed quorum last answered.
    pub heard: Timestamp,
    /// The log has named the node's store as a serving member, or the store held a complete copy of a chain at the
    /// start.
    pub served: bool,
    /// When the last message of another node whose store serves, in any incarnation, was received.
    pub member_heard: Timestamp,
    /// No serving member answers in any incarnation, and this node never served.
    pub orphaned: bool,
    /// The cluster that claims to succeed this one, if any.
    pub successor: Option<Successor>,
    /// The newer history of the cluster, if commits in this node's store may be missing there.
    pub parted: Option<History>,
    /// This node knows that the cluster holds data, or has held some. Permanent.
    pub holds_data: bool,
    /// The cluster has given way to another one.
    pub is_over: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unready {
    /// The node's directory is still being loaded.
    #[error("this node loads its directory")]
    Loads,
    /// The node joins a chain, and doesn't serve yet.
    #[error("this node joins chain {}", chain.0)]
    Joins {
        /// The chain.
        chain: ChainId,
    },
    /// A chain that the node serves isn't open here.
    #[error("chain {} is not open at this node", chain.0)]
    Closed {
        /// The chain.
        chain: ChainId,
    },
    /// The node should serve, but has no lease.
    #[error("this node has no lease")]
    NoLease,
    /// No serving member answers in any incarnation, and this node never served.
    #[error("none of the nodes that served answers")]
    Orphaned,
    /// Another cluster succeeds the node's own: see [`NodeEvent::Yields`].
    #[error("cluster {by} succeeds this node's cluster, whose other nodes don't answer")]
    Yields { by: ClusterId },
    /// The cluster has given way to another one of its name: this node ends soon, and joins that cluster.
    #[error("this node's cluster has given way to another one of its name, which this node joins")]
    Over,
    /// The cluster continues in a newer history, where commits in this node's store may be missing.
    #[error(
        "the cluster continues without this node as history {by}, and commits in this node's store may be missing there: it waits for an operator"
    )]
    Parted { by: History },
    /// According to the leader's newest answer, no other node should be stopped; or no leader has answered for a lease.
    #[error(transparent)]
    Unsettled(#[from] Unsettled),
}

impl Default for Unready {
    fn default() -> Self {
        Self::Unsettled(Unsettled::Unled)
    }
}

/// A cluster that claims to succeed the node's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Successor {
    pub by: ClusterId,
    /// True: the node gives way, keeps its data, and serves nothing. False: it keeps serving, and refuses the other
    /// cluster.
    pub yields: bool,
}
