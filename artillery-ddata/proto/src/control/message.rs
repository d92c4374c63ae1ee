//! What nodes say to whoever leads the configuration log's group, and what they hear.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    Founder,
    log::{Configs, LogIndex},
};
use crate::{ChainId, Epoch, MemberId, Sequence};

/// What a node says again and again: that it lives, what it is by its own knowledge, and what it asks for. Cumulative: a
/// later one says all that an earlier one said.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Renewal {
    /// Counts the renewals of this life of the node; the lease that answers it runs from the moment it was sent.
    pub number: u64,
    /// The highest renewal that was answered: shows that this one was said after that answer came (trap 42).
    pub answered: u64,
    /// Who, in which life, and where it listens.
    pub me: Founder,
    /// The last entry of the configuration log that all of its chains act by.
    pub applied: LogIndex,
    /// Whether it wants to leave its chains, and how far that has come.
    pub leave: Leave,
    /// What its chains ask for as tails.
    pub promotions: Vec<Promotion>,
    /// How the chains stand here that it is a member of.
    pub reports: Vec<Report>,
}

/// How far a node has come with leaving its chains (docs/adr/0028-leaving-and-voters.md). What a node says of this never
/// goes back in the order of these values: a renewal that says less than an earlier one is an old message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize)]
pub struct Leave {
    /// Counts the times that the node took back that it leaves, or that it has resigned.
    pub number: u32,
    /// How far it has come since.
    pub stage: Stage,
}

/// The stages of leaving.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize)]
pub enum Stage {
    /// The node stays.
    #[default]
    Stays,
    /// It wants to leave, and serves until a leader agrees.
    Asks,
    /// It serves nothing, and acts by no lease that was asked for before this: it may be removed without waiting for one.
    Resigned,
}

impl Leave {
    /// Whether the node wants to leave, or has resigned already.
    pub fn is_asked(self) -> bool {
        self.stage >= Stage::Asks
    }

    /// Whether the node serves nothing.
    pub fn has_resigned(self) -> bool {
        self.stage == Stage::Resigned
    }

    /// What follows a leader's agreement.
    pub fn resigned(self) -> Self {
        Self { stage: Stage::Resigned, ..self }
    }

    /// What follows when this is taken back.
    pub fn back(self, stage: Stage) -> Self {
        Self { number: self.number.saturating_add(1), stage }
    }
}

/// How one chain stands at one of its members, by that member's own word and clock: what gray failures are seen by
/// (docs/adr/0017-slow-members.md).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Which chain.
    pub chain: ChainId,
    /// The epoch that it entered last.
    pub epoch: Epoch,
    /// Whether that is open here.
    pub open: bool,
    /// The newest sequence that it holds.
    pub held: Sequence,
    /// Its commit watermark.
    pub watermark: Sequence,
    /// The way to its successor and back.
    pub hop: Way,
    /// The way of an update from here to the tail, and of the watermark back.
    pub commit: Way,
    /// It is the head, and for so long far less was committed than before though something was under way all the time.
    pub slowed: Duration,
    /// It is the head, orders nothing, and all that it ordered is committed.
    pub closed: bool,
    /// It is the tail, and has heard nothing for so long of the joiner behind it, which isn't known to follow.
    pub unheard: Duration,
    /// It stopped serving this chain for good, member or not.
    pub halted: bool,
}

/// How long something takes, by one probe after the other.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Way {
    /// What is waited for now, and since how long.
    pub waits: Option<(Sequence, Duration)>,
    /// How long the last one took.
    pub took: Duration,
    /// How long it takes at best; what was long ago counts for less.
    pub usual: Duration,
}

impl Way {
    /// How long it takes now.
    pub fn takes(&self) -> Duration {
        self.took.max(self.waits.map_or(Duration::ZERO, |(_, age)| age))
    }
}

/// A head is to order nothing more in this epoch, for a moment (docs/DESIGN.md §5.10).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Close {
    /// Of which chain.
    pub chain: ChainId,
    /// In which epoch.
    pub epoch: Epoch,
}

/// The wish of a tail to have the member behind it serve (docs/DESIGN.md §5.6).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Promotion {
    /// Of which chain.
    pub chain: ChainId,
    /// In which epoch it was asked for: it counts in no other.
    pub epoch: Epoch,
    /// Who is to serve.
    pub member: MemberId,
}

/// What an operator wants of one node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Arrange {
    /// That it leaves its chains: it serves nothing more in this life, and goes on handing requests on.
    Leave,
    /// That it, as the one that decides, has the serving members of a chain stand in this order.
    Reorder {
        /// Which chain.
        chain: ChainId,
        /// All of them, head first.
        order: Vec<MemberId>,
    },
}

/// Why a node doesn't do what an operator wants.
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
    /// The members don't stand in another order.
    #[error(transparent)]
    Reorder(#[from] ReorderError),
    /// It stops.
    #[error("the node stops")]
    Stopped,
}

/// Why the members of a chain don't stand in another order now.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ReorderError {
    /// The node asked doesn't decide.
    #[error("this node doesn't decide on configurations")]
    NotLeading {
        /// Who does, as far as is known.
        leader: Option<MemberId>,
    },
    /// There is no such chain.
    #[error("there is no chain {}", chain.0)]
    NoChain {
        /// Which.
        chain: ChainId,
    },
    /// Only serving members have a place.
    #[error("{member} is no serving member of that chain")]
    NotServing {
        /// Who isn't one.
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
    /// One reorder at a time.
    #[error("another reorder is under way")]
    Busy,
    /// The configuration changed otherwise meanwhile: look at it, and ask again.
    #[error("the configuration was changed otherwise meanwhile")]
    Overtaken,
    /// What the head had ordered wasn't committed in time; it goes on in the order that was.
    #[error("what was under way was not committed in time: nothing was changed")]
    NotClosed,
}

/// The answer to a [`Renewal`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Renewed {
    /// The number of the renewal.
    pub number: u64,
    /// The lease, from the moment at which the renewal was sent; `None`: none is granted.
    pub lease: Option<Duration>,
    /// Who leads, as far as the answerer knows; `None`: it doesn't.
    pub leader: Option<MemberId>,
    /// What the log comes to, if the asker has applied less.
    pub configs: Option<Box<Configs>>,
    /// Any one node may be stopped now, as far as the answerer knows, which leads; or why it had better not be. The asker is known
    /// in this life, and acts by all that the log says.
    pub settled: Result<(), Unsettled>,
    /// The answerer leads, the asker has said that it leaves, and the log can be changed without it: it may end.
    pub released: bool,
    /// The answerer leads, and the asker is to go on to this: to resign, since the change without it can be made; or to take
    /// back that it has resigned, since that change can't be made any more.
    pub leave: Option<Leave>,
    /// The answerer leads, and this becomes of the chains of the asker, which leaves.
    pub farewell: Option<Farewell>,
    /// Chains whose head the asker is, and which it is to close: said again with each answer.
    pub close: Vec<Close>,
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
        }
    }
}

/// What becomes of the chains of a node that leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Farewell {
    /// They go on without it.
    GoesOn,
    /// It is the last that serves one of them, or that keeps the log, and another node takes that over.
    HandsOver,
    /// It is the last that serves one of them, and there is no node that could take that over.
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
    /// This node isn't known yet, or doesn't act by all that the log says.
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
    /// A node leaves that has a place in a chain or keeps the log.
    #[error("{member} leaves")]
    Leaves {
        /// The node.
        member: MemberId,
    },
    /// A chain has fewer members than it is to have, and a node that lives may become one: it may have held up a chain a while
    /// ago, and be kept away for a time.
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
    /// The log is to be kept by other nodes.
    #[error("other nodes are to keep the configuration log")]
    Voters,
    /// A configuration is about to change.
    #[error("a configuration is about to change")]
    Changes,
}
