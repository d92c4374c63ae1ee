//! The metrics of a node, as plain values. The application chooses how to export them (docs/adr/0022-metrics.md).
//!
//! ```no_run
//! # async fn example(node: artillery_ddata::Node) {
//! for operation in node.metrics().await.operations {
//!     println!("{}: {} done", operation.kind, operation.done);
//! }
//! # }
//! ```

mod tally;

use std::{fmt, time::Duration};

pub use artillery_core::transport::Counters;

pub(crate) use self::tally::{OperationTimer, Tally};
use crate::status::NodeStatus;

/// All metrics of a node. Counters are 0 when the node starts. They are read one after another, not at one instant: an
/// operation that ends during the reading may be counted in only some of them.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct NodeMetrics {
    /// The same status that [`Node::status`](crate::Node::status) returns, except that `waiting_for` is empty.
    pub status: NodeStatus,
    /// Finished operations that handles in this process or clients requested from this node, one entry per kind. A
    /// forwarded operation is counted only at the node that forwarded it. Local clean reads are counted only in
    /// [`ReadsStatus::local_clean`](crate::status::ReadsStatus::local_clean): a second counter would double their cost.
    pub operations: Vec<OperationMetrics>,
    /// The number of reads that each answered version query served. An answer that served no read isn't counted.
    pub readers_per_query: Histogram,
    /// Changes of chain configurations that this node decided, by reason: one for each member that was removed, joined
    /// or was promoted, and one for each chain that was changed as a whole (reordered, continued after an accepted
    /// loss, or closed because another cluster was met).
    pub changes: Vec<(&'static str, u64)>,
    /// Connections that this node refused, by reason: connections that peers dialled, and connections that it closed
    /// because the peer belongs to another formation.
    pub refused: Vec<(&'static str, u64)>,
    /// The queues of requests and answers.
    pub queues: Vec<QueueMetrics>,
    /// The chains that this node is a member of.
    pub chains: Vec<ChainMetrics>,
    /// Records of all chains whose last update was not known to be committed when this node last started, and that have
    /// been settled since. One entry per trigger.
    pub rereplications: Vec<RereplicationMetrics>,
    /// Traffic over the node's socket.
    pub traffic: Counters,
    /// Bytes of updates above the watermark, and of results that wait for their commit, that the head of a chain
    /// accepts before writers wait.
    pub window_limit_bytes: u64,
    /// Bytes of committed updates that each chain keeps for resends.
    pub backlog_limit_bytes: u64,
}

/// Operations of one kind, by outcome.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct OperationMetrics {
    /// The kind that the operations have in common.
    pub kind: OperationKind,
    /// Reads served, or writes committed.
    pub done: u64,
    /// Writes whose condition failed.
    pub conflict: u64,
    /// Operations that ended without effect: refused, or never accepted by a node. For a client's request only this
    /// attempt had no effect: an earlier attempt of the same request may have been applied.
    pub refused: u64,
    /// Operations that timed out, and writes whose outcome this node doesn't know. A write among them may have been
    /// applied.
    pub unknown: u64,
    /// Seconds from arrival to answer, for every outcome.
    pub latency: Histogram,
}

/// What an operation does. `Display` writes the label that metrics use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum OperationKind {
    /// A read of one key, other than a local clean read.
    Read,
    /// A read of several keys at one point of the history.
    ReadMany,
    /// A page of a scan, in the order of the keys or of their hashes.
    Scan,
    /// A watch's query, which waits for changes.
    Changes,
    /// Sets a key's value.
    Put,
    /// Deletes a key without returning its value.
    Delete,
    /// Sets or deletes a key's value if its version is as expected.
    CompareAndSwap,
    /// Appends bytes to a key's value, or puts them in front of it.
    Append,
    /// Adds to the integer that is a key's value.
    Increment,
    /// Sets or removes a key's expiry.
    Expire,
    /// Deletes a key and returns its value.
    GetDelete,
    /// A batch or a script.
    Batch,
    /// Settles the outcome of an earlier write.
    Resolve,
}

impl OperationKind {
    /// All kinds, in the order of their declaration.
    pub const ALL: &[Self] = &[
        Self::Read,
        Self::ReadMany,
        Self::Scan,
        Self::Changes,
        Self::Put,
        Self::Delete,
        Self::CompareAndSwap,
        Self::Append,
        Self::Increment,
        Self::Expire,
        Self::GetDelete,
        Self::Batch,
        Self::Resolve,
    ];
}

impl fmt::Display for OperationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::ReadMany => "read_many",
            Self::Scan => "scan",
            Self::Changes => "changes",
            Self::Put => "put",
            Self::Delete => "delete",
            Self::CompareAndSwap => "compare_and_swap",
            Self::Append => "append",
            Self::Increment => "increment",
            Self::Expire => "expire",
            Self::GetDelete => "get_delete",
            Self::Batch => "batch",
            Self::Resolve => "resolve",
        })
    }
}

/// Counts of measured values by range.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Histogram {
    /// The inclusive upper bounds of the ranges. The last range is unbounded.
    pub bounds: Vec<f64>,
    /// The number of values in each range: one more count than there are bounds.
    pub counts: Vec<u64>,
    /// The sum of all values.
    pub sum: f64,
}

impl Histogram {
    /// The number of values.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// How much of the capacity of one queue is in use.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueMetrics {
    /// The queue's name; see `docs/metrics.md`.
    pub queue: &'static str,
    /// Capacity in use by all chains or by all connections, in bytes, in steps of 1 KiB per item. A write request uses
    /// capacity for its answer from its arrival.
    pub bytes: u64,
}

/// The state that this node keeps for a chain in addition to the chain's data.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChainMetrics {
    /// The chain's number.
    pub chain: u32,
    /// Client sessions that are kept to recognize retries.
    pub sessions: u64,
    /// Bytes of the client sessions, with the records of their requests.
    pub sessions_bytes: u64,
    /// Snapshots kept for scans.
    pub snapshots: u64,
    /// Pending queries of watches.
    pub watchers: u64,
    /// How long re-replication took after the last start: from the first epoch until the last unreplicated record was
    /// settled. While some are left: until the most recent one was settled.
    pub rereplication_time: Duration,
}

/// Unreplicated records that have been settled since the last start, for one trigger.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RereplicationMetrics {
    /// `read`: a strong read waited for the record, or for another record of the same update. `start`: no read did.
    pub trigger: &'static str,
    /// Records whose last update was committed.
    pub done: u64,
    /// Records whose last update was dropped because the chain had continued without it, or whose store a snapshot
    /// replaced. A record with several unreplicated updates may be counted several times.
    pub superseded: u64,
    /// Seconds until a record was settled, with either result. Measured from the first epoch after the start, or, for
    /// `read`, from the read.
    pub latency: Histogram,
}
