use std::fmt;

use crate::{ChainId, MemberId};

/// The reason for a change of a chain's configuration, for operators.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChangeReason {
    pub chain: ChainId,
    /// The member whose place changes, or the head if the change concerns the whole chain.
    pub member: MemberId,
    pub why: Why,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Why {
    /// No renewal of the member was received for too long: it is removed.
    Silent,
    /// The member asked to leave, and has resigned: it is removed.
    Left,
    /// The member sends messages but receives none, and so has no lease: it is removed.
    Deaf,
    /// The path between the member and a neighbour is broken, although both are alive: the member is removed, and may
    /// return, at first only behind another tail.
    Unreached,
    /// The member alone makes the chain slow: it is removed, and may return later.
    Slow,
    /// The member's disk alone makes the chain slow, or stalls it: the member is removed, and may return later.
    Disk,
    /// The chain has a free place, or all its members are leaving: the node joins behind the tail.
    Joins,
    /// The joiner has caught up: it serves.
    Promoted,
    /// The serving members are in a new order, which an operator requested: the member is their head.
    Reordered,
    /// The member permanently stopped serving: it is removed, and may return in another incarnation.
    Halted,
    /// No member of the chain survived, and this node is back with a store that served last: it serves.
    Reopened,
    /// No store that served last is available and known to be complete, and an operator accepts the loss: this node
    /// serves with the data that it has.
    AcceptedLoss,
    /// Another cluster of the same name is met: the chain, whose head is the member, refuses writes until it is decided
    /// whether this cluster gives way.
    Sealed,
    /// The cluster doesn't give way after all: the chain, whose head is the member, accepts writes again.
    Unsealed,
    /// The cluster gives way to another one of the same name, because it is empty or by an operator's order.
    GaveWay,
}

impl Why {
    /// All reasons, in the derived order.
    pub const ALL: &[Self] = &[
        Self::Silent,
        Self::Left,
        Self::Deaf,
        Self::Unreached,
        Self::Slow,
        Self::Disk,
        Self::Joins,
        Self::Promoted,
        Self::Reordered,
        Self::Halted,
        Self::Reopened,
        Self::AcceptedLoss,
        Self::Sealed,
        Self::Unsealed,
        Self::GaveWay,
    ];

    /// The reason in one stable word, for metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::Silent => "silent",
            Self::Left => "left",
            Self::Deaf => "deaf",
            Self::Unreached => "unreached",
            Self::Slow => "slow",
            Self::Disk => "disk",
            Self::Joins => "joins",
            Self::Promoted => "promoted",
            Self::Reordered => "reordered",
            Self::Halted => "halted",
            Self::Reopened => "reopened",
            Self::AcceptedLoss => "accepted_loss",
            Self::Sealed => "sealed",
            Self::Unsealed => "unsealed",
            Self::GaveWay => "gave_way",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl fmt::Display for ChangeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "chain {}: {} {}", self.chain.0, self.member, self.why)
    }
}
