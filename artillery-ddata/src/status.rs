//! The status that a node reports. `docs/json.md` describes its fields; fields are added but never removed.
//!
//! Nodes of several releases may run in one cluster. A field that an older node doesn't report has its default: `None`,
//! empty, or 0. Fields that only a newer node reports are ignored. A word that this release doesn't know is kept as
//! `Other`; an unknown role or id makes the status unreadable.

mod text;
mod words;

use std::net::SocketAddr;

use artillery_core::{ClusterId, MemberId};
use artillery_proto::control::History;
use serde::{Deserialize, Serialize};

pub use self::words::{ChainMode, Exhausted, GossipState, LoadingStep};
use crate::{Error, Place, Version};

/// Why a node's status is missing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StatusError {
    /// The node gave no answer.
    #[error(transparent)]
    Call(#[from] Error),
    /// The node's answer isn't a status that this release can read. Holds the error of the JSON parser.
    #[error("unreadable: {0}")]
    Unreadable(String),
}

/// The status of one node, and its view of the cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NodeStatus {
    /// The node's name.
    pub node: String,
    /// The id of the node's incarnation.
    #[serde(with = "text")]
    pub id: MemberId,
    /// The address at which other nodes reach it. `None`: the node doesn't listen yet.
    #[serde(with = "text::or_empty")]
    pub addr: Option<SocketAddr>,
    /// The cluster's name.
    pub cluster: String,
    /// The cluster's id. `None`: the node doesn't belong to a formed cluster yet, or still loads its directory.
    #[serde(default, with = "text::or_null")]
    pub cluster_id: Option<ClusterId>,
    /// The ids of the clusters that this one succeeds, oldest first. An operator abandoned each of them.
    #[serde(default, with = "text::list")]
    pub succeeds: Vec<ClusterId>,
    /// The node's place in the first chain whose configuration names it. A node that no chain names, or that doesn't
    /// belong to a cluster yet, is reported as a spare. In JSON the field is named `role`.
    #[serde(rename = "role", with = "place")]
    pub place: Place,
    /// Whether the node was ready and may serve now, by its own state: see
    /// [`Node::may_serve`](crate::Node::may_serve).
    pub ready: bool,
    /// The other nodes known by gossip, including nodes that were recently lost or have left.
    pub members: Vec<MemberStatus>,
    /// The chains that the node is a member of.
    pub chains: Vec<ChainStatus>,
    /// Reads that the node served, by path.
    pub reads: ReadsStatus,
    /// Traffic over its sockets.
    pub traffic: TrafficStatus,
    /// Bytes of keys and values at this node, of all chains and including old versions.
    #[serde(default)]
    pub memory_bytes: u64,
    /// The limit on [`memory_bytes`](Self::memory_bytes) at which its chains stop accepting values. `None`: no limit.
    #[serde(default)]
    pub max_memory_bytes: Option<u64>,
    /// The configuration log. `None`: the node has a fixed configuration, or its part of the log doesn't run yet.
    #[serde(default)]
    pub log: Option<LogStatus>,
    /// Progress of loading the data directory. `None`: the node has no directory, or it is loaded.
    #[serde(default)]
    pub loading: Option<LoadingStatus>,
    /// Reasons why the node isn't ready or no longer serves. Empty while it serves.
    #[serde(default)]
    pub waiting_for: Vec<String>,
}

/// Progress of a node that loads its data directory, as of its latest report. The node reports about once a second.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LoadingStatus {
    /// The step in progress.
    pub step: LoadingStep,
    /// Records processed in this step. A record that was written several times is counted each time.
    pub records: u64,
    /// Records per second in this step.
    pub records_per_second: u64,
    /// Bytes of the journal read in this step.
    pub read_bytes: u64,
    /// Total bytes that this step reads.
    pub total_bytes: u64,
    /// Milliseconds from the beginning of the first step to the report.
    pub elapsed_ms: u64,
    /// Estimated remaining time in milliseconds. `None`: unknown in the first step, and when the second one has just
    /// begun.
    pub left_ms: Option<u64>,
}

/// The configuration log, as known to this node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LogStatus {
    /// The index of the last log entry that this node's chains have adopted.
    pub applied: u64,
    /// The history that the log belongs to. Each recovery after a loss begins the next generation, under a new id.
    /// `None`: an older node doesn't report it.
    #[serde(default, with = "text::or_empty")]
    pub history: Option<History>,
    /// The name of the log's leader, if known.
    pub leader: Option<String>,
    /// The names of the log's voters.
    pub voters: Vec<String>,
    /// Remaining time of this node's lease in milliseconds. 0: it holds none.
    pub lease_ms: u64,
    /// Whether this node fulfils its role, and the leader's latest report permits stopping any one other node.
    #[serde(default)]
    pub settled: bool,
    /// Why the node isn't settled. `None`: it is.
    #[serde(default)]
    pub unready: Option<String>,
    /// Whether no incarnation that ever served answers, and this node never served: then the cluster's data may be
    /// lost. An operator can form a new cluster from the remaining nodes with `ctl create-anew`.
    #[serde(default)]
    pub orphaned: bool,
    /// The id of another cluster with the same name and secret, because of which this node isn't ready, and how to
    /// resolve the conflict. `None`: no such cluster is known, or it gives way to this one.
    #[serde(default)]
    pub another_cluster: Option<String>,
    /// A history in which other nodes of this cluster continue although commits may be missing from it: an operator
    /// must decide which history stays. `None`: no such history is known.
    #[serde(default, with = "text::or_null")]
    pub parted: Option<History>,
    /// The cluster that an operator created to replace this one. `None`: none is known.
    #[serde(default)]
    pub successor: Option<SuccessorStatus>,
}

/// A cluster that was created to replace this one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SuccessorStatus {
    /// Its cluster id.
    #[serde(with = "text")]
    pub cluster_id: ClusterId,
    /// Whether this node gives way to it, keeping its data but serving nothing. Otherwise this node continues to serve,
    /// and refuses members of the successor.
    pub yields: bool,
}

/// Another node, as known by gossip.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MemberStatus {
    /// Its name.
    pub node: String,
    /// The id of its incarnation.
    #[serde(with = "text")]
    pub id: MemberId,
    /// The address that it announces.
    #[serde(with = "text")]
    pub addr: SocketAddr,
    /// Its state, as this node sees it.
    pub state: GossipState,
}

/// A chain, as seen by one of its members.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ChainStatus {
    /// The chain's number.
    pub chain: u32,
    /// The epoch of the configuration that this member has entered.
    pub epoch: u64,
    /// Which serving members answer strong reads.
    pub mode: ChainMode,
    /// The names of the serving members, head first.
    pub members: Vec<String>,
    /// This member's place in the chain. In JSON the field is named `role`.
    #[serde(rename = "role", with = "place")]
    pub place: Place,
    /// Whether this member has opened the epoch.
    pub open: bool,
    /// The newest version at this member.
    #[serde(with = "text")]
    pub last: Version,
    /// This member's commit watermark: the highest sequence that it knows to be committed.
    pub watermark: u64,
    /// The number of updates above the watermark.
    pub dirty_updates: u64,
    /// Bytes of the updates above the watermark.
    pub in_flight_bytes: u64,
    /// Bytes of committed updates kept for resends.
    pub backlog_bytes: u64,
    /// Remaining time of the lease in milliseconds. `None`: it never expires.
    pub lease_ms: Option<u64>,
    /// The number of serving members that this node's membership considers alive or only suspects. Each holds every
    /// committed update.
    pub copies: u32,
    /// Reads waiting to be answered.
    pub parked_reads: u64,
    /// Writes waiting for their commit.
    pub waiting_writes: u64,
    /// Records that the last start loaded from disk and whose latest update isn't known to be committed since.
    #[serde(default)]
    pub unreplicated_records: u64,
    /// Why this member stopped serving permanently. `None`: it hasn't.
    pub halted: Option<String>,
    /// The name of the member that is catching up behind the tail, if any.
    #[serde(default)]
    pub syncing: Option<String>,
    /// Records already received of an incoming snapshot. `None`: no snapshot is incoming.
    #[serde(default)]
    pub receiving_records: Option<u64>,
    /// Records already sent of an outgoing snapshot. `None`: no snapshot is outgoing.
    #[serde(default)]
    pub sending_records: Option<u64>,
    /// How often this member has caught up by a snapshot.
    #[serde(default)]
    pub resyncs_full: u64,
    /// How often this member has caught up from the missing updates alone.
    #[serde(default)]
    pub resyncs_partial: u64,
    /// Keys whose newest version at this member, committed or not, is a value.
    #[serde(default)]
    pub keys: u64,
    /// Keys whose newest version at this member, committed or not, expires.
    #[serde(default)]
    pub expiring: u64,
    /// Bytes of the chain's keys and values at this member, including old versions.
    #[serde(default)]
    pub store_bytes: u64,
    /// This member's exhausted resource: until it is available again, the chain accepts no values. `None`: none is
    /// exhausted, or this member doesn't serve.
    #[serde(default)]
    pub full: Option<Exhausted>,
}

/// Reads that a node served, by path. A read that the task of a chain served from the node's own state, for example of
/// several clean keys, is in none of these counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ReadsStatus {
    /// Reads of one clean key, served from the node's own state without a message.
    pub local_clean: u64,
    /// Reads served after the tail's answer or a later watermark: the key was dirty, or the node held no lease.
    pub dirty: u64,
    /// Version queries that this node sent to the tail.
    pub version_query: u64,
    /// Reads that another read's version query answered.
    pub shared_query: u64,
    /// Requests, reads and writes, of this node's handles and clients that it passed to another node. Retries aren't
    /// counted.
    pub forwarded: u64,
    /// Reads served through the chain, behind a barrier.
    pub through_chain: u64,
}

/// Traffic over a node's sockets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TrafficStatus {
    /// Frames sent.
    pub frames_sent: u64,
    /// Bytes of the frames sent.
    pub frame_bytes_sent: u64,
    /// Frames received.
    pub frames_received: u64,
    /// Connections that this node refused: connections that peers dialled, and connections that it closed because the
    /// peer belongs to another formation.
    pub refused: u64,
}

/// Places as the words that `docs/json.md` specifies.
mod place {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use crate::Place;

    const WORDS: [(Place, &str); 5] = [
        (Place::Head, "head"),
        (Place::Middle, "middle"),
        (Place::Tail, "tail"),
        (Place::Syncing, "syncing"),
        (Place::Spare, "spare"),
    ];

    pub(super) fn serialize<S: Serializer>(place: &Place, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(place)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Place, D::Error> {
        let word = String::deserialize(deserializer)?;
        let known = WORDS.iter().find(|(_, known)| *known == word);
        known.map(|&(place, _)| place).ok_or_else(|| D::Error::custom(format!("{word:?} is not a role")))
    }
}

#[cfg(test)]
mod tests;
