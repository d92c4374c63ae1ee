//! The inputs, outputs and state of a node.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
};

use super::{ChangeReason, LogWarning, ProposalFate};
use crate::{
    ChainId, ClusterId, Epoch, MemberId, Timestamp,
    control::{
        Configs, HeardStores, History, Term,
        log::{ConfigChange, LogIndex},
        message::{NotGivenUp, Renewal, Renewed, ReorderError, StoreHolding, Unsettled},
        reopening::{NotReopened, Reopened},
    },
    runner::{ChainOrder, Lease, Word},
};

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NodeInput {
    /// This node's view of the log's group has changed.
    Log {
        /// The term in which this node leads, if it does.
        leads: Option<Term>,
        /// The leader, as far as is known.
        leader: Option<MemberId>,
        /// The configurations after the last entry applied here.
        configs: Arc<Configs>,
        /// The voters of the log's group.
        voters: BTreeSet<MemberId>,
    },
    /// The round of [`NodeOutput::Confirm`] has ended.
    Confirmed {
        /// Which round.
        round: u64,
        /// Whether a quorum has confirmed that this node still led after the round began.
        leads: bool,
        /// For each node of the log's group, when the latest message was sent that it has answered.
        answered: BTreeMap<MemberId, Timestamp>,
    },
    /// A node has sent a message of the log's group on a connection that it dialled.
    Reached {
        /// The sender.
        by: MemberId,
    },
    /// [`NodeOutput::Append`] has ended.
    Appended {
        /// The place that the proposal was to take.
        at: LogIndex,
        /// What became of the proposal.
        fate: ProposalFate,
    },
    /// [`NodeOutput::SetVoters`] has ended, with success or without.
    VotersSet,
    /// Another node renews. Answered by [`NodeOutput::Answer`], or never.
    Renewal {
        /// The sender; the driver has checked that it is this one.
        from: MemberId,
        /// Its renewal.
        renewal: Renewal,
    },
    /// A renewal of this node has ended.
    Renewed {
        /// The node that was asked.
        from: MemberId,
        /// Its answer; `None`: none will come.
        renewed: Option<Renewed>,
    },
    /// A chain of this node reports something.
    Word {
        /// Which chain.
        chain: ChainId,
        /// The report.
        word: Word,
    },
    /// The membership has found a node of this cluster: a candidate to ask, no more.
    Met {
        /// The incarnation.
        id: MemberId,
        /// Where it may be dialled.
        addrs: Vec<SocketAddr>,
    },
    /// The membership has lost this incarnation.
    Gone(MemberId),
    /// This node listens at these addresses now. The log takes them in, by the next renewals.
    Moved(Vec<SocketAddr>),
    /// An operator wants the serving members of a chain in this order. Answered by [`NodeOutput::Reordered`].
    Reorder {
        /// Names the request.
        token: u64,
        /// Which chain.
        chain: ChainId,
        /// All of its serving members, head first.
        order: Vec<MemberId>,
    },
    /// An operator accepts that a chain loses what no store has any more. Answered by [`NodeOutput::Reopened`].
    AcceptLoss {
        /// Names the order.
        token: u64,
        /// Which chain.
        chain: ChainId,
    },
    /// A node was met of a cluster to which this one has given way, as it states.
    GaveWay {
        /// The other cluster.
        by: ClusterId,
    },
    /// Another cluster of this one's name and secret is met, to which this one gives way if it is empty; `None`: none is met. The
    /// driver repeats it: it is valid for three leases. Only the leader acts by it.
    Outranked {
        /// The other cluster.
        by: Option<ClusterId>,
    },
    /// An operator gives this cluster up for another one, and its data are lost. Answered by [`NodeOutput::GivenUp`].
    GiveUp {
        /// Names the order.
        token: u64,
    },
    /// The node is to leave its chains as soon as a leader agrees. Answered by [`NodeOutput::Left`] once it has left.
    Leave {
        /// When the node gives leaving up and stays; `None`: it is to stop, and asks on until it may.
        until: Option<Timestamp>,
    },
    /// The node, which has a disk, is to leave its chains as soon as a leader agrees, and comes back in another life: it stays a
    /// node and a voter. Answered by [`NodeOutput::Left`] once it has left, or after three leases.
    Withdraw,
    /// A node of another cluster was met, which names this cluster as one that it succeeds.
    Succeeded {
        /// The other cluster.
        by: ClusterId,
    },
    /// The cluster goes on in a newer history. This node's store may hold commits which that lacks.
    Parted {
        /// The newer history.
        by: History,
    },
    /// The disk keeps what [`NodeOutput::Keep`] named.
    Kept,
    /// The directory of a node that began without it is loaded, and holds this of the chains in which its store served.
    Loaded {
        /// What it holds.
        holds: Vec<StoreHolding>,
    },
    /// Time has passed.
    Tick,
}

/// What the driver is to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NodeOutput {
    /// Pass an order to a chain. The orders to one chain keep their order.
    Order(ChainId, ChainOrder),
    /// Pass a lease to every chain: only the newest one counts.
    Lease(Lease),
    /// Keep these configurations, and their history, on the disk. Answered by [`NodeInput::Kept`]; the chains are told then. A
    /// node without a disk is never asked to.
    Keep(Arc<Configs>),
    /// Keep what was heard of other stores on the disk, at some time.
    KeepHeard(HeardStores),
    /// A renewal came from a store that has less than it had before, or from a second copy of it: tell its node, which is to
    /// stop. The renewal doesn't count.
    RolledBack {
        /// The sender of the renewal.
        to: MemberId,
        /// The renewal's number.
        number: u64,
    },
    /// Another history begins, and the chains are told next. Local readers must know it first (trap 58).
    Begins(Arc<Configs>),
    /// All chains act by these configurations.
    Acts(Arc<Configs>),
    /// Find out, beginning now, whether this node still leads in this term. One round at a time.
    Confirm {
        /// Names the round.
        round: u64,
        /// The term.
        term: Term,
    },
    /// Propose a change to the log. One proposal at a time.
    Append {
        /// The term in which it counts.
        term: Term,
        /// The place that it must take.
        at: LogIndex,
        /// The change.
        change: ConfigChange,
        /// Why, for operators.
        why: Vec<ChangeReason>,
    },
    /// Replace the voters of the log's group. One such change at a time.
    SetVoters {
        /// The term in which it counts.
        term: Term,
        /// The new voters.
        voters: BTreeSet<MemberId>,
    },
    /// No other node can reach this one: give up the leadership in this term, so that another node is elected, and stand in no
    /// election until [`NodeOutput::Stand`].
    Resign {
        /// The term.
        term: Term,
    },
    /// This node may lead again, in another term.
    Stand,
    /// Tell operators of the voters.
    Warn(LogWarning),
    /// Answer a renewal of another node.
    Answer {
        /// The sender of the renewal.
        to: MemberId,
        /// The answer.
        renewed: Renewed,
    },
    /// The answer to [`NodeInput::Reorder`].
    Reordered {
        /// The request's token.
        token: u64,
        /// The epoch in which the members stand in that order.
        result: Result<Epoch, ReorderError>,
    },
    /// The answer to [`NodeInput::AcceptLoss`].
    Reopened {
        /// The order's token.
        token: u64,
        /// What the chain goes on with.
        result: Result<Reopened, NotReopened>,
    },
    /// The answer to [`NodeInput::GiveUp`].
    GivenUp {
        /// The order's token.
        token: u64,
        /// Whether the cluster is over.
        result: Result<(), NotGivenUp>,
    },
    /// The cluster has given way to another one, and the other nodes have had time to learn of it. The node may end; its next
    /// incarnation joins the other cluster.
    Over,
    /// The node may end: no configuration names it any more and the log can spare it, or waiting on gains nothing.
    Left,
    /// The node is ready, for the first time: any other node may be stopped now ([`NodeState::unready`]).
    Ready,
    /// The cluster was given up, and the node, which never served, hears no member of it. The node may end; its next incarnation
    /// is to join the successor.
    Succeeded {
        /// The successor.
        by: ClusterId,
    },
    /// Tell operators of an event.
    Event(NodeEvent),
}

/// Something that operators should know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum NodeEvent {
    /// The node can't leave its chains now: it stays.
    Stays,
    /// The node has resigned and can't be removed from its chains now: it serves again.
    ServesAgain,
    /// The stopping node is the last serving member of a chain, or the last voter, and hands over to another node first.
    HandsOver,
    /// The stopping node is the last serving member of a chain, and no node could take over.
    EndsChain,
    /// The same of a node whose disk keeps the chain: the chain opens again when a store of those that served last is back.
    ClosesChain,
    /// The stopping node ends though its chains may not go on without it yet: that took too long.
    GivesUp,
    /// The stopping node is the last serving member of a chain, or the last voter, and waits: no leader has another node take
    /// over.
    Waits,
    /// No serving member answers in any incarnation, and this node never served: the cluster's data may be lost.
    Orphaned,
    /// This cluster has given way to another one of its name: this node soon ends, and joins that.
    Over,
    /// Another cluster succeeds this one, whose nodes are there: this node goes on, and refuses the other cluster.
    Refuses {
        /// The other cluster.
        by: ClusterId,
    },
    /// Another cluster succeeds this one, of which no other node answers: this node serves nothing any more, and keeps its data.
    Yields {
        /// The other cluster.
        by: ClusterId,
    },
    /// This node has heard another node of its cluster: it serves again, although another cluster succeeds this one.
    GoesOn {
        /// The other cluster.
        by: ClusterId,
    },
}

/// The node's state, for status and metrics.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeState {
    /// The configurations that all chains of the node act by.
    pub configs: Arc<Configs>,
    /// When its lease ends, by its own clock.
    pub lease: Timestamp,
    /// The node that leads the log's group, as far as is known.
    pub leader: Option<MemberId>,
    /// A node that knows a leader has answered.
    pub answered: bool,
    /// Why the node isn't ready now; `None`: it is.
    pub unready: Option<Unready>,
    /// When a leader, confirmed by a quorum, answered last.
    pub heard: Timestamp,
    /// This incarnation has served a chain, or was to serve one by the log, or its store holds a copy of one.
    pub served: bool,
    /// When another node that serves a chain was heard last.
    pub member_heard: Timestamp,
    /// No serving member answers in any incarnation, and this node never served.
    pub orphaned: bool,
    /// The cluster that succeeds this one, if one does.
    pub successor: Option<Successor>,
    /// The newer history in which the cluster goes on, if that may lack commits that this node's store holds.
    pub parted: Option<History>,
    /// The cluster is known to this node to hold data, or to have held some. Never taken back.
    pub holds_data: bool,
    /// The cluster has given way to another one.
    pub is_over: bool,
}

/// Why a node isn't ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unready {
    /// The node's directory is still being loaded.
    #[error("this node loads its directory")]
    Loads,
    /// The node joins a chain, and doesn't serve yet.
    #[error("this node joins chain {}", chain.0)]
    Joins {
        /// Which chain.
        chain: ChainId,
    },
    /// A chain that the node serves isn't open here.
    #[error("chain {} is not open at this node", chain.0)]
    Closed {
        /// Which chain.
        chain: ChainId,
    },
    /// The node is to serve, and has no lease.
    #[error("this node has no lease")]
    NoLease,
    /// No serving member answers in any incarnation, and this node never served.
    #[error("no life of a node that served answers")]
    Orphaned,
    /// The node's cluster was given up for another one, and the node hears no other node of its own.
    #[error("cluster {by} succeeds this node's, of which no other node answers")]
    Yields {
        /// The other cluster.
        by: ClusterId,
    },
    /// The cluster has given way to another one of its name: this node soon ends, and joins that.
    #[error("this node's cluster has given way to another one of its name, which this node joins")]
    Over,
    /// The cluster goes on in a newer history, which may lack commits that this node's store holds.
    #[error(
        "the cluster goes on without this node as history {by}, and this node's store may hold what that lacks: it waits for an operator"
    )]
    Parted {
        /// The newer history.
        by: History,
    },
    /// By the leader's newest answer no other node should be stopped.
    #[error(transparent)]
    Unsettled(#[from] Unsettled),
}

impl Default for Unready {
    fn default() -> Self {
        Self::Unsettled(Unsettled::Unled)
    }
}

/// The cluster that succeeds the one of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Successor {
    /// The succeeding cluster.
    pub by: ClusterId,
    /// True: the node gives way, keeps its data, and serves nothing. False: it goes on, and refuses the other cluster.
    pub yields: bool,
}
