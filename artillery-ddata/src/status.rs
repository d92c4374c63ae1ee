//! What a node tells of itself; described in `docs/json.md`, and only ever added to.

use serde::{Deserialize, Serialize};

use crate::Place;

/// One node, as it sees itself and its cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NodeStatus {
    /// The node's name.
    pub node: String,
    /// Its id in this life.
    pub id: String,
    /// Where others reach it.
    pub addr: String,
    /// Name of the cluster.
    pub cluster: String,
    /// Id of the formation it belongs to, if it belongs to one.
    pub cluster_id: Option<String>,
    /// The clusters that this one succeeds, the oldest first: an operator gave each of them up.
    #[serde(default)]
    pub succeeds: Vec<String>,
    /// What it is in the first chain that it serves; a spare too while it belongs to no cluster.
    #[serde(with = "place")]
    pub role: Place,
    /// Whether it can answer a strong read now, itself or by asking a member.
    pub ready: bool,
    /// The other nodes that it knows of.
    pub members: Vec<MemberStatus>,
    /// The chains of which it is a member.
    pub chains: Vec<ChainStatus>,
    /// Reads by the way in which they were served here.
    pub reads: ReadsStatus,
    /// What went over its sockets.
    pub traffic: TrafficStatus,
    /// The log of configurations; `null` where they never change.
    #[serde(default)]
    pub log: Option<LogStatus>,
}

/// The log of configurations, as this node knows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LogStatus {
    /// The last entry that the chains of this node act by.
    pub applied: u64,
    /// Which history it belongs to, `GENERATION-ID`: how often the cluster was recovered after a loss, and which.
    #[serde(default)]
    pub history: String,
    /// Name of the node that leads those who keep it, as far as is known.
    pub leader: Option<String>,
    /// Names of those who keep it.
    pub voters: Vec<String>,
    /// Milliseconds for which this node's lease still runs; 0: it has none.
    pub lease_ms: u64,
    /// This node does what its place is for, and by the leader's last word any other one may be stopped now.
    #[serde(default)]
    pub settled: bool,
    /// Why it isn't settled; `null`: it is.
    #[serde(default)]
    pub unready: Option<String>,
    /// No life of a node that served answers, and this one never served: what the cluster held may be lost. `ctl found` has the nodes
    /// that are there form a new one.
    #[serde(default)]
    pub orphaned: bool,
    /// The cluster that succeeds this one, if an operator has had one founded; `null`: none is known.
    #[serde(default)]
    pub successor: Option<SuccessorStatus>,
}

/// A cluster that was founded in the place of this one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SuccessorStatus {
    /// Its id.
    pub cluster_id: String,
    /// This node gives way to it: it keeps what it holds, and serves nothing. Otherwise it goes on, and refuses the other.
    pub yields: bool,
}

/// Another node, by the membership protocol: a suggestion.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MemberStatus {
    /// Its name.
    pub node: String,
    /// Its id in this life.
    pub id: String,
    /// Where it says that it can be reached.
    pub addr: String,
    /// `alive`, `suspect`, `down` or `left`.
    pub state: String,
}

/// A chain, as one of its members sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ChainStatus {
    /// Number of the chain.
    pub chain: u32,
    /// Number of its configuration.
    pub epoch: u64,
    /// `craq` or `classic`.
    pub mode: String,
    /// Names of the serving members, head first.
    pub members: Vec<String>,
    /// This member's role.
    #[serde(with = "place")]
    pub role: Place,
    /// Whether the epoch is open here.
    pub open: bool,
    /// The newest version here, `EPOCH.SEQUENCE`.
    pub last: String,
    /// The commit watermark here.
    pub watermark: u64,
    /// Updates here that are not known to be committed.
    pub dirty_updates: u64,
    /// Their bytes.
    pub in_flight_bytes: u64,
    /// Bytes of committed updates kept for resends.
    pub backlog_bytes: u64,
    /// Milliseconds for which the lease still runs; `null`: it never ends.
    pub lease_ms: Option<u64>,
    /// On how many members each committed update is.
    pub copies: u32,
    /// Reads that wait for an answer.
    pub parked_reads: u64,
    /// Writes that wait for their commit.
    pub waiting_writes: u64,
    /// Why it stopped serving.
    pub halted: Option<String>,
    /// Name of the member that is catching up behind the tail, if there is one.
    #[serde(default)]
    pub syncing: Option<String>,
    /// Records of a snapshot that have come here; `null`: none is coming.
    #[serde(default)]
    pub receiving_records: Option<u64>,
    /// Records of a snapshot that were sent from here; `null`: none is being sent.
    #[serde(default)]
    pub sending_records: Option<u64>,
    /// Snapshots that this member has come back by.
    #[serde(default)]
    pub resyncs_full: u64,
    /// How often it has come back by what it lacked alone.
    #[serde(default)]
    pub resyncs_partial: u64,
    /// Keys whose newest version here, committed or not, is a value.
    #[serde(default)]
    pub keys: u64,
    /// Bytes of the chain's keys and values here, old versions included.
    #[serde(default)]
    pub store_bytes: u64,
}

/// Reads by the way in which they were served.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ReadsStatus {
    /// From this node's own clean version, without a word to anybody.
    pub local_clean: u64,
    /// Dirty reads, served after the tail's word or a later watermark.
    pub dirty: u64,
    /// Version queries that this node sent.
    pub version_query: u64,
    /// Reads that shared such an answer with another one.
    pub shared_query: u64,
    /// Requests handed on to another node.
    pub forwarded: u64,
    /// Reads served behind a barrier.
    pub through_chain: u64,
}

/// What went over a node's sockets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TrafficStatus {
    /// Frames sent.
    pub frames_sent: u64,
    /// Their bytes.
    pub frame_bytes_sent: u64,
    /// Frames received.
    pub frames_received: u64,
    /// Connections that peers dialled and that were refused.
    pub refused: u64,
}

/// Roles as the words that people use for them.
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
