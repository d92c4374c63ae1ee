//! The status that a node reports of itself. `docs/json.md` describes its fields; fields are only ever added.

use serde::{Deserialize, Serialize};

use crate::Place;

/// The status of one node, as that node sees itself and its cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NodeStatus {
    /// The node's name.
    pub node: String,
    /// The id of its incarnation, `NODE/STORE.START`.
    pub id: String,
    /// The address, `IP:PORT`, at which other nodes reach it.
    pub addr: String,
    /// The cluster's name.
    pub cluster: String,
    /// The cluster's id. `None`: the node belongs to no formed cluster yet.
    pub cluster_id: Option<String>,
    /// The ids of the clusters that this one succeeds, the oldest first: an operator gave each of them up.
    #[serde(default)]
    pub succeeds: Vec<String>,
    /// Its place in the first chain that it serves. A node that belongs to no cluster yet counts as a spare.
    #[serde(with = "place")]
    pub role: Place,
    /// Whether it can answer a strong read now, from its own state or by asking a member.
    pub ready: bool,
    /// The other nodes that it knows by gossip.
    pub members: Vec<MemberStatus>,
    /// The chains of which it is a member.
    pub chains: Vec<ChainStatus>,
    /// Reads that it served, by path.
    pub reads: ReadsStatus,
    /// Traffic over its sockets.
    pub traffic: TrafficStatus,
    /// Bytes of keys and values that it holds, those of all chains and old versions included.
    #[serde(default)]
    pub memory_bytes: u64,
    /// At so many its chains add no values. `None`: there is no bound.
    #[serde(default)]
    pub max_memory_bytes: Option<u64>,
    /// The configuration log. `None`: the node keeps to a fixed configuration, or belongs to no cluster yet.
    #[serde(default)]
    pub log: Option<LogStatus>,
    /// How far its directory is loaded. `None`: it has none, or that is loaded.
    #[serde(default)]
    pub loading: Option<LoadingStatus>,
    /// Why it isn't ready, or no longer serves, one reason a text; empty, if it serves.
    #[serde(default)]
    pub waiting_for: Vec<String>,
}

/// How far a node has loaded its directory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LoadingStatus {
    /// `check` while the journal is checked, and then `take_in`.
    pub step: String,
    /// Records that this step has found so far, those that are written more than once included.
    pub records: u64,
    /// Records a second, in this step.
    pub records_per_second: u64,
    /// Bytes of the journal that were read so far, in this step.
    pub read_bytes: u64,
    /// Bytes that this step reads.
    pub total_bytes: u64,
    /// Since the loading began.
    pub elapsed_ms: u64,
    /// About how long it will take yet. `None`: that isn't known before the second step.
    pub left_ms: Option<u64>,
}

/// The configuration log, as this node knows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LogStatus {
    /// The index of the last entry that the chains of this node act by.
    pub applied: u64,
    /// The history that the log belongs to, `GENERATION-ID`. Each recovery after a loss begins the next generation,
    /// under a new id.
    #[serde(default)]
    pub history: String,
    /// The name of the log's leader, if this node knows one.
    pub leader: Option<String>,
    /// The names of the nodes that keep the log.
    pub voters: Vec<String>,
    /// Milliseconds for which this node's lease still runs. 0: it holds none.
    pub lease_ms: u64,
    /// Whether this node does what its place is for, and the leader last said that any one other node may be stopped.
    #[serde(default)]
    pub settled: bool,
    /// Why the node isn't settled. `None`: it is.
    #[serde(default)]
    pub unready: Option<String>,
    /// No incarnation of a node that ever served answers, and this node never served: the cluster's data may be lost.
    /// An operator can make the nodes that are left form a new cluster by `ctl found`.
    #[serde(default)]
    pub orphaned: bool,
    /// Another history of this cluster, in which it goes on elsewhere though commits may be missing there: an operator must
    /// decide which one stays. `None`: none was met.
    #[serde(default)]
    pub parted: Option<String>,
    /// The cluster that an operator founded in the place of this one. `None`: none is known.
    #[serde(default)]
    pub successor: Option<SuccessorStatus>,
}

/// A cluster that was founded in the place of this one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SuccessorStatus {
    /// Its cluster id.
    pub cluster_id: String,
    /// Whether this node gives way to it: then it keeps its data and serves nothing. Otherwise it goes on, and refuses
    /// members of the successor.
    pub yields: bool,
}

/// Another node, by gossip: a suggestion, never a decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MemberStatus {
    /// Its name.
    pub node: String,
    /// The id of its incarnation, `NODE/STORE.START`.
    pub id: String,
    /// The address that it announces.
    pub addr: String,
    /// `alive`, `suspect`, `down` or `left`.
    pub state: String,
}

/// A chain, as one of its members sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ChainStatus {
    /// The chain's number.
    pub chain: u32,
    /// The number of its configuration.
    pub epoch: u64,
    /// `craq`, or `classic`: strong reads are served by the tail alone.
    pub mode: String,
    /// The names of the serving members, head first.
    pub members: Vec<String>,
    /// This member's role.
    #[serde(with = "place")]
    pub role: Place,
    /// Whether the epoch is open here.
    pub open: bool,
    /// The newest version at this member, `EPOCH.SEQUENCE`.
    pub last: String,
    /// This member's commit watermark: the highest sequence that it knows to be committed.
    pub watermark: u64,
    /// Updates above the watermark.
    pub dirty_updates: u64,
    /// Bytes of the updates above the watermark.
    pub in_flight_bytes: u64,
    /// Bytes of committed updates that are kept for resends.
    pub backlog_bytes: u64,
    /// Milliseconds for which the lease still runs. `None`: it never ends.
    pub lease_ms: Option<u64>,
    /// The number of living members that hold every committed update, according to the gossip that this node receives.
    pub copies: u32,
    /// Reads that wait for an answer.
    pub parked_reads: u64,
    /// Writes that wait for their commit.
    pub waiting_writes: u64,
    /// Records that the last start found on disk, and whose last update isn't known to be committed since.
    #[serde(default)]
    pub unreplicated_records: u64,
    /// Why this member stopped serving for good. `None`: it hasn't.
    pub halted: Option<String>,
    /// The name of the member that is catching up behind the tail, if there is one.
    #[serde(default)]
    pub syncing: Option<String>,
    /// Records received so far of the snapshot that is coming. `None`: none is coming.
    #[serde(default)]
    pub receiving_records: Option<u64>,
    /// Records sent so far of the snapshot that is being sent. `None`: none is being sent.
    #[serde(default)]
    pub sending_records: Option<u64>,
    /// How often this member has caught up by a snapshot.
    #[serde(default)]
    pub resyncs_full: u64,
    /// How often this member has caught up by the missing updates alone.
    #[serde(default)]
    pub resyncs_partial: u64,
    /// Keys whose newest version at this member, committed or not, is a value.
    #[serde(default)]
    pub keys: u64,
    /// Bytes of the chain's keys and values at this member, old versions included.
    #[serde(default)]
    pub store_bytes: u64,
    /// What this member has no room in, `disk` or `memory`: its chain adds no values meanwhile. `None`: it has room.
    #[serde(default)]
    pub full: Option<String>,
}

/// Linearizable reads that a node served, by path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ReadsStatus {
    /// Reads of clean keys, served from the node's own state without a message.
    pub local_clean: u64,
    /// Reads of dirty keys, served after the tail's answer or a later watermark.
    pub dirty: u64,
    /// Version queries that this node sent to the tail.
    pub version_query: u64,
    /// Reads that shared the answer to a version query with another read.
    pub shared_query: u64,
    /// Requests that this node forwarded to another node.
    pub forwarded: u64,
    /// Reads served behind a barrier: through the chain.
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
    /// Connections that peers dialled and this node refused.
    pub refused: u64,
}

/// Places as words: `docs/json.md` fixes them.
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
        known.map(|&(place, _)| place).ok_or_else(|| D::Error::custom(format!("{word:?} is no role")))
    }
}
