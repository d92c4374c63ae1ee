//! The metrics of a node, as plain values. The application decides how to export them (docs/adr/0022-metrics.md).
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

/// A reading of all metrics of a node. Counters begin at 0 with the node. They are read one by one, so they may differ
/// by operations that end meanwhile.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct NodeMetrics {
    /// The node's status.
    pub status: NodeStatus,
    /// Operations that callers asked of this node, by handles in its process or by clients: one entry for each kind. A
    /// forwarded operation is counted only at the node that forwarded it. A local clean read is counted only in
    /// [`ReadsStatus::local_clean`](crate::status::ReadsStatus::local_clean): a second counter would double its cost.
    pub operations: Vec<OperationMetrics>,
    /// How many reads each answered version query served.
    pub readers_per_query: Histogram,
    /// Changes of members' places in chains that this node decided on, by reason.
    pub changes: Vec<(&'static str, u64)>,
    /// Connections that peers dialled and this node refused, by reason.
    pub refused: Vec<(&'static str, u64)>,
    /// The queues of requests and answers.
    pub queues: Vec<QueueMetrics>,
    /// The chains of which this node is or was a member.
    pub chains: Vec<ChainMetrics>,
    /// Records that the last start found on disk above the watermark, of all chains: one entry for each trigger.
    pub rereplications: Vec<RereplicationMetrics>,
    /// Traffic over the node's socket.
    pub traffic: Counters,
    /// The bytes of updates above the watermark that a head accepts before writers wait.
    pub window_limit_bytes: u64,
    /// The bytes of committed updates that are kept for resends.
    pub backlog_limit_bytes: u64,
}

/// Operations of one kind, by outcome.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct OperationMetrics {
    /// The kind.
    pub kind: OperationKind,
    /// Reads that were served, or writes that were committed.
    pub done: u64,
    /// Writes whose condition failed.
    pub conflict: u64,
    /// Operations that were refused: nothing was applied, and nothing will be.
    pub refused: u64,
    /// Operations without an answer in time: a write may have been applied.
    pub unknown: u64,
    /// How long operations took from arrival to answer, in seconds, with any outcome.
    pub latency: Histogram,
}

/// A kind of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum OperationKind {
    /// A read of one key that wasn't a local clean read.
    Read,
    /// A read of many keys at one point of the history.
    ReadMany,
    /// A page of a scan.
    Scan,
    /// A watch's query for changes, which waits for some.
    Changes,
    /// Sets a key's value.
    Put,
    /// Deletes a key.
    Delete,
    /// Sets or deletes a key's value if its version is as expected.
    CompareAndSwap,
    /// Appends to a value.
    Append,
    /// Adds to a number.
    Increment,
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
    /// The upper bounds of the ranges, inclusive. The last range has no bound.
    pub bounds: Vec<f64>,
    /// The number of values in each range: one count more than there are bounds.
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

/// The size of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueMetrics {
    /// The queue's name: see `docs/metrics.md`.
    pub queue: &'static str,
    /// The bytes in the queue, rounded up to 1 KiB for each item, summed over all chains or all connections.
    pub bytes: u64,
}

/// What a chain keeps beside its data.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChainMetrics {
    /// The chain's number.
    pub chain: u32,
    /// Client sessions.
    pub sessions: u64,
    /// Bytes of the client sessions, with the records of their requests.
    pub sessions_bytes: u64,
    /// Snapshots that are kept for scans.
    pub snapshots: u64,
    /// Queries of watches that wait for changes.
    pub watchers: u64,
    /// From the first epoch after the last start until the last record that was unreplicated then was settled, or the last one
    /// so far.
    pub rereplication_time: Duration,
}

/// Records that the last start found on disk above the watermark, and that are settled, by what settled them.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RereplicationMetrics {
    /// `start`: the start of an epoch; `read`: a strong read met the record before.
    pub trigger: &'static str,
    /// Records whose last update is committed.
    pub done: u64,
    /// Records whose last update the chain went on without.
    pub superseded: u64,
    /// How long it took since the first epoch after the start, or since the read, in seconds, with any result.
    pub latency: Histogram,
}
