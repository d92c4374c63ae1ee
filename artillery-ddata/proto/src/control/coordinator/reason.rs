//! Why a configuration changes.

use std::fmt;

use crate::{ChainId, MemberId};

/// Why a chain's configuration changes, for operators.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChangeReason {
    /// Which chain.
    pub chain: ChainId,
    /// The member whose place changes.
    pub member: MemberId,
    /// Why.
    pub why: Why,
}

/// Why a member's place changes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Why {
    /// Nothing was heard of the member for too long: it is removed.
    Silent,
    /// The member asked to leave, and has resigned: it is removed.
    Left,
    /// The member is heard, but hears nothing, and so has no lease: it is removed.
    Deaf,
    /// The predecessor's updates don't reach the member, though both live: it is removed, and may return in another place.
    Unreached,
    /// The member alone makes the chain slow: it is removed, and returns later.
    Slow,
    /// The member's disk alone makes the chain slow, or stops it: the member is removed, and returns later.
    Disk,
    /// The chain has a free place: the node joins, behind the tail.
    Joins,
    /// The joiner has caught up: it serves.
    Promoted,
    /// The member is the head of an order that an operator wants.
    Reordered,
    /// The member stopped serving for good: it is removed, and returns in another incarnation.
    Halted,
    /// No member of the chain lives on, and this node is back with a store that served last: it serves.
    Reopened,
    /// No store of those that served last comes back, and an operator accepts the loss: this node serves with what it has.
    AcceptedLoss,
    /// Another cluster of the same name is met: the chain, whose head the member is, refuses writes until it is certain that this
    /// cluster is empty.
    Sealed,
    /// The cluster doesn't give way after all: the chain, whose head the member is, takes writes again.
    Unsealed,
    /// The cluster gives way to another one of the same name, empty or by an operator's order.
    GaveWay,
}

impl Why {
    /// All reasons, in their order.
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
