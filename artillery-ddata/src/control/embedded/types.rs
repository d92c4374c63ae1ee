//! The types that openraft uses for this log: its nodes, and the content of its entries.

use std::{fmt, io::Cursor};

use openraft::{Entry, LogId};
use serde::{Deserialize, Serialize};

use super::runtime::Runtime;
use crate::{
    Incarnation, MemberId, NodeId,
    control::{
        Bootstrap, NodeInfo, StorePosition,
        log::{ConfigChange, LogIndex},
    },
};

openraft::declare_raft_types!(
    pub(crate) TypeConfig:
        D = LogProposal,
        R = EntryOutcome,
        NodeId = RaftId,
        Node = RaftNode,
        Entry = Entry<TypeConfig>,
        SnapshotData = Cursor<Vec<u8>>,
        AsyncRuntime = Runtime,
);

pub(super) type Raft = openraft::Raft<TypeConfig>;
pub(super) type RaftLogId = LogId<RaftId>;
pub(super) type Membership = openraft::StoredMembership<RaftId, RaftNode>;
pub(super) type StorageError = openraft::StorageError<RaftId>;

/// A node of the group is a store of a node. A process that forgot its votes has another store, and is treated as
/// another node (docs/DESIGN.md §5.3, trap 21). The id is the first incarnation of the store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct RaftId(pub(super) MemberId);

impl RaftId {
    /// The node of the group that this incarnation belongs to.
    pub(super) fn of(id: MemberId) -> Self {
        Self(MemberId { incarnation: Incarnation { starts: 1, ..id.incarnation }, ..id })
    }
}

impl Default for RaftId {
    fn default() -> Self {
        let incarnation = Incarnation { store: 0, starts: 0 };
        Self(MemberId { node: NodeId::from_bytes([0; 16]), incarnation })
    }
}

impl fmt::Display for RaftId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for RaftId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct RaftNode(pub(super) NodeInfo);

impl Default for RaftNode {
    fn default() -> Self {
        Self(NodeInfo { id: RaftId::default().0, name: String::new(), addrs: Vec::new(), host: None })
    }
}

/// A configuration change in an entry of the group's log. It takes a place only if it was appended in the term `term`,
/// and `at` is the next place.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct LogProposal {
    pub(super) term: u64,
    pub(super) at: LogIndex,
    pub(super) change: ConfigChange,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum EntryOutcome {
    /// The entry carried no proposal.
    Nothing,
    Placed,
    /// The place of the proposal was not the next one. Holds the last place taken.
    Taken(LogIndex),
    /// The entry was appended in another term than the proposal names.
    WrongTerm,
}

/// The first voters: an odd number of founders, in their order, at most `most`.
///
/// Of two founders only the first votes: with both, the death of either would stop the log. Likewise a fourth voter
/// would add a node that can fail, but tolerate no additional failure.
pub(super) fn first_voters(founding: &Bootstrap, most: usize) -> &[NodeInfo] {
    let voters = founding.members.len().min(most);
    &founding.members[..if voters.is_multiple_of(2) { voters.saturating_sub(1) } else { voters }]
}

/// A node of the group in its current incarnation, and its store's position.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Speaker {
    pub(super) id: MemberId,
    pub(super) position: StorePosition,
}
