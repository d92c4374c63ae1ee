//! What a node is told, what it says, and how it stands.

use std::{collections::BTreeSet, net::SocketAddr, sync::Arc};

use super::{Fate, Reason, Successor, Unready};
use crate::{
    ChainId, ClusterId, Epoch, MemberId, Timestamp,
    control::{
        Configs, Term,
        log::{Change, LogIndex},
        message::{Renewal, Renewed, ReorderError},
    },
    runner::{Lease, Order, Word},
};

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Input {
    /// What this node knows of the log's group has changed.
    Log {
        /// The term in which this node leads, if it does.
        leads: Option<Term>,
        /// Which node leads, as far as is known.
        leader: Option<MemberId>,
        /// What the entries applied here come to.
        configs: Arc<Configs>,
        /// The nodes that keep the log.
        voters: BTreeSet<MemberId>,
    },
    /// What came of [`Output::Confirm`].
    Confirmed {
        /// Which round.
        round: u64,
        /// Whether a quorum has said that this node still led after the round began.
        leads: bool,
    },
    /// What came of [`Output::Append`].
    Appended {
        /// The place that it was to take.
        at: LogIndex,
        /// What became of it.
        fate: Fate,
    },
    /// [`Output::SetVoters`] has come to its end, however.
    VotersSet,
    /// Another node renews; the driver vouches for its identity. Answered by [`Output::Answer`], or never.
    Renewal {
        /// Which node.
        from: MemberId,
        /// What it says.
        renewal: Renewal,
    },
    /// What came of a renewal of this node; `None`: there is no answer, and none will come.
    Renewed {
        /// The node that was asked.
        from: MemberId,
        /// Its answer.
        renewed: Option<Renewed>,
    },
    /// A chain of this node says something.
    Word {
        /// Which chain.
        chain: ChainId,
        /// What.
        word: Word,
    },
    /// The membership tells of a node of this cluster. It only suggests a node that may be asked.
    Met {
        /// Which life of it.
        id: MemberId,
        /// Where it listens.
        addr: SocketAddr,
    },
    /// The membership tells of it no more.
    Gone(MemberId),
    /// An operator wants the serving members of a chain in this order. Answered by [`Output::Reordered`].
    Reorder {
        /// Names the wish.
        token: u64,
        /// Which chain.
        chain: ChainId,
        /// All of its serving members, head first.
        order: Vec<MemberId>,
    },
    /// The node is to leave its chains as soon as a leader agrees. Answered by [`Output::Left`], if that comes about.
    Leave {
        /// If the node couldn't leave until then it stays; `None`: it is to stop, and asks on until it may.
        until: Option<Timestamp>,
    },
    /// A node of another cluster, which names this one as one that it succeeds, was met.
    Succeeded {
        /// Which cluster.
        by: ClusterId,
    },
    /// Time has passed.
    Tick,
}

/// What the driver is to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Hand this to a chain. The orders to one chain keep their order.
    Order(ChainId, Order),
    /// Hand this lease to every chain: only the newest one counts.
    Lease(Lease),
    /// Another history begins, of which the chains are about to hear: local readers must know it first (trap 58).
    Begins(Arc<Configs>),
    /// All chains act by this.
    Acts(Arc<Configs>),
    /// Find out, beginning now, whether this node still leads in this term. One round at a time.
    Confirm {
        /// Names the round.
        round: u64,
        /// The term.
        term: Term,
    },
    /// Propose this to the log. One proposal at a time.
    Append {
        /// The term in which it counts.
        term: Term,
        /// The place that it must take.
        at: LogIndex,
        /// What.
        change: Change,
        /// Why, for people.
        why: Vec<Reason>,
    },
    /// Have the log kept by these nodes. One such change at a time.
    SetVoters {
        /// The term in which it counts.
        term: Term,
        /// The nodes.
        voters: BTreeSet<MemberId>,
    },
    /// Answer a renewal of another node.
    Answer {
        /// Which node's.
        to: MemberId,
        /// What.
        renewed: Renewed,
    },
    /// What came of [`Input::Reorder`].
    Reordered {
        /// Which wish.
        token: u64,
        /// The epoch in which they stand in that order.
        result: Result<Epoch, ReorderError>,
    },
    /// The node may end: no configuration names it any more and the log can do without it, or nothing is gained by waiting on.
    Left,
    /// The node is ready, for the first time: any other one may be stopped now ([`State::unready`]).
    Ready,
    /// The cluster was given up for this one, and the node, which never served, hears no member of its cluster: it may end, and its
    /// next life join that one.
    Succeeded {
        /// Which cluster.
        by: ClusterId,
    },
    /// For people to know.
    Event(Event),
}

/// Something worth telling.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Event {
    /// The node can't leave its chains now: it stays.
    Stays,
    /// The node has resigned and can't be removed from its chains now: it serves again.
    ServesAgain,
    /// The node is to stop, is the last that serves a chain or keeps the log, and hands that over to another one first.
    HandsOver,
    /// The node is to stop, is the last that serves a chain, and there is no node that could take that over.
    EndsChain,
    /// The node is to stop, and ends though its chains may not go on without it yet: that took too long.
    GivesUp,
    /// The node is to stop, is the last that serves a chain or keeps the log, and waits: no leader has another one take over.
    Waits,
    /// No life of a member that serves answers, and this node never served: what the cluster held may be lost.
    Orphaned,
    /// A cluster was founded in the place of this one, whose nodes are there: this node goes on, and refuses the other.
    Refuses {
        /// Which cluster.
        by: ClusterId,
    },
    /// A cluster was founded in the place of this one, of which no other node answers: this node serves nothing any more, and
    /// keeps what it holds.
    Yields {
        /// Which cluster.
        by: ClusterId,
    },
    /// Another node of its cluster was heard: this node serves again, although another cluster was founded in the place of this one.
    GoesOn {
        /// Which cluster.
        by: ClusterId,
    },
}

/// How the node stands, for others to see.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct State {
    /// What all chains of the node act by.
    pub configs: Arc<Configs>,
    /// Until when its lease runs, by its own clock.
    pub lease: Timestamp,
    /// The node that leads the log's group, as far as is known.
    pub leader: Option<MemberId>,
    /// Some node that knows a leader has answered.
    pub answered: bool,
    /// Why the node isn't ready now; `None`: it is.
    pub unready: Option<Unready>,
    /// When a leader, confirmed by a quorum, answered last.
    pub heard: Timestamp,
    /// The node has served a chain, or was to serve one by the log, in this life.
    pub served: bool,
    /// When another node that serves a chain was heard last.
    pub member_heard: Timestamp,
    /// No life of a member that serves answers, and this node never served.
    pub orphaned: bool,
    /// The cluster that succeeds this one, if one does.
    pub successor: Option<Successor>,
}
