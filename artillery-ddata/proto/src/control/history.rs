//! The history of a cluster's data: the initial one, or a recovered one that branched off another (docs/DESIGN.md
//! §5.12).

use std::{fmt, str::FromStr};

use artillery_core::{
    error::ParseIdError,
    internal::text::{parse_hex, parsed},
};
use serde::{Deserialize, Serialize};

use super::index::LogIndex;
use crate::{ChainId, ClusterId, Epoch, Version};

/// The id of a history. A recovery begins another history, which may be missing acknowledged updates of the old one. So
/// nothing is compared or resent across the two. The text form is `GENERATION-ID`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug, Serialize, Deserialize)]
pub struct History {
    /// The number of recoveries that led to this history.
    pub generation: u64,
    /// The cluster id for the first history; random for a recovered one.
    pub id: u128,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relation {
    Same,
    /// This history was recovered later: the other one is obsolete.
    Newer,
    /// The other history was recovered later: this one is obsolete.
    Older,
    /// Operators recovered both independently, from two parts of the same cluster. Neither has the other's acknowledged
    /// updates.
    Parted,
}

/// How a node treats another node, by comparing their histories.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Met {
    /// Messages of the other node are accepted.
    Same,
    /// The other node's history is obsolete: send it this node's history, the payload.
    Over(History),
    /// This node's history is permanently obsolete: updates acknowledged in it may be missing from the newer one.
    LeftBehind,
    /// The cluster was recovered twice, independently: neither gives way.
    Parted,
}

/// The point at which a recovery branched off the previous history: the state that it kept.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Branch {
    /// The previous history.
    pub from: History,
    /// The kept state of each chain.
    pub chains: Vec<ChainBranch>,
}

/// The kept state of a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChainBranch {
    pub chain: ChainId,
    /// The epoch up to which the kept copy is known to have every committed update: see
    /// [`ChainStanding::served`](super::recovery::ChainStanding::served).
    pub epoch: Epoch,
    /// The store's newest version.
    pub last: Version,
    /// Whether the store certainly has every commit of the time in which it served. Always true without a disk.
    pub synced: bool,
}

impl History {
    /// How a node with history `mine` treats a node with history `theirs`. A node without a history adopts `theirs`.
    pub fn meet(mine: &mut Option<Self>, theirs: Self) -> Met {
        let mine = *mine.get_or_insert(theirs);
        match theirs.relation(mine) {
            Relation::Same => Met::Same,
            Relation::Older => Met::Over(mine),
            Relation::Newer => Met::LeftBehind,
            Relation::Parted => Met::Parted,
        }
    }

    pub fn first(cluster: ClusterId) -> Self {
        Self { generation: 0, id: cluster.0 }
    }

    /// The history of a recovery from this one, under a fresh random id.
    pub fn next(self, id: u128) -> Self {
        Self { generation: self.generation + 1, id }
    }

    pub fn relation(self, other: Self) -> Relation {
        match self.generation.cmp(&other.generation) {
            std::cmp::Ordering::Less => Relation::Older,
            std::cmp::Ordering::Greater => Relation::Newer,
            std::cmp::Ordering::Equal if self.id == other.id => Relation::Same,
            std::cmp::Ordering::Equal => Relation::Parted,
        }
    }

    /// The id that sessions and watches remember: the cluster's id until the first recovery, or the first accepted
    /// loss. `last_loss` is the log entry of the newest accepted loss.
    pub fn sessions_id(self, last_loss: LogIndex) -> ClusterId {
        ClusterId(self.id.wrapping_add(u128::from(last_loss.0)))
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:032x}", self.generation, self.id)
    }
}

impl FromStr for History {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = |text: &str| -> Option<Self> {
            let (generation, id) = text.split_once('-')?;
            Some(Self { generation: generation.parse().ok()?, id: parse_hex(id)? })
        };
        parsed(text, "id of a history: GENERATION-ID", parse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_recovery_is_newer() {
        let first = History::first(ClusterId(9));
        let (one, other) = (first.next(1), first.next(2));
        assert_eq!(first.relation(first), Relation::Same);
        assert_eq!((one.relation(first), first.relation(one)), (Relation::Newer, Relation::Older));
        assert_eq!((one.relation(other), other.relation(one)), (Relation::Parted, Relation::Parted));
        assert_eq!(other.next(0).relation(one), Relation::Newer);
        assert_eq!(first.sessions_id(LogIndex(0)), ClusterId(9));
    }

    #[test]
    fn text_and_back() {
        let history = History { generation: 3, id: 0xab };
        assert_eq!(history.to_string(), "3-000000000000000000000000000000ab");
        assert_eq!(history.to_string().parse(), Ok(history));
        for bad in ["", "3", "3-", "-ab", "x-ab", "3-xyz"] {
            assert!(bad.parse::<History>().is_err(), "{bad}");
        }
    }
}
