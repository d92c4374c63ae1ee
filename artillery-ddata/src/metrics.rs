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

/// A snapshot of all metrics of a node. Counters start at 0 with the node. They are read one after another, so
/// operations that end during the reading may be counted in only some of them.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct NodeMetrics {
    /// The node's status.
    pub status: NodeStatus,
    /// Operations that handles in this process or clients requested from this node, one entry per kind. A forwarded
    /// operation is counted only at the node that forwarded it. Local clean reads are counted only in
    /// [`ReadsStatus::local_clean`](crate::status::ReadsStatus::local_clean): a second counter would double their cost.
    pub operations: Vec<OperationMetrics>,
    /// The number of reads that each answered version query served.
    pub readers_per_query: Histogram,
    /// Members that changed places by a decision of this node, by reason.
    pub changes: Vec<(&'static str, u64)>,
    /// Connections dialled by peers that this node refused, by reason.
    pub refused: Vec<(&'static str, u64)>,
    /// The queues of requests and answers.
    pub queues: Vec<QueueMetrics>,
    /// The chains that this node is or was a member of.
    pub chains: Vec<ChainMetrics>,
    /// The records above the watermark that the last start found on disk and that have been settled since, of all
    /// chains, one entry per trigger.
    pub rereplications: Vec<RereplicationMetrics>,
    /// Traffic over the node's socket.
    pub traffic: Counters,
    /// Bytes of updates above the watermark that a head accepts before writers wait.
    pub window_limit_bytes: u64,
    /// Bytes of committed updates kept for resends.
    pub backlog_limit_bytes: u64,
}

/// Operations of one kind, by outcome.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct OperationMetrics {
    /// The kind.
    pub kind: OperationKind,
    /// Reads served, or writes committed.
    pub done: u64,
    /// Writes whose condition failed.
    pub conflict: u64,
    /// Operations that were refused: nothing was applied, and nothing will be.
    pub refused: u64,
    /// Operations whose outcome this node doesn't know, for example without an answer in time: a write may have been
    /// applied.
    pub unknown: u64,
    /// Seconds from arrival to answer, for every outcome.
    pub latency: Histogram,
}

/// A kind of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum OperationKind {
    /// A read of one key, other than a local clean read.
    Read,
    /// A read of several keys at one point of the history.
    ReadMany,
    /// A page of a scan.
    Scan,
    /// A watch's query, which waits for changes.
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

/// The bytes that wait in a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueMetrics {
    /// The queue's name; see `docs/metrics.md`.
    pub queue: &'static str,
    /// Bytes in the queue, rounded up to 1 KiB per item, summed over all chains or all connections.
    pub bytes: u64,
}

/// The state that a chain keeps in addition to its data.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChainMetrics {
    /// The chain's number.
    pub chain: u32,
    /// Client sessions.
    pub sessions: u64,
    /// Bytes of the client sessions, with the records of their requests.
    pub sessions_bytes: u64,
    /// Snapshots kept for scans.
    pub snapshots: u64,
    /// Pending queries of watches.
    pub watchers: u64,
    /// Time from the first epoch after the last start until the last record that was then unreplicated was settled, or
    /// until the latest one settled so far.
    pub rereplication_time: Duration,
}

/// Records above the watermark that the last start found on disk and that have been settled since, by the trigger of
/// the settling.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RereplicationMetrics {
    /// `start`: the start of an epoch; `read`: an earlier strong read of the record.
    pub trigger: &'static str,
    /// Records whose last update was committed.
    pub done: u64,
    /// Records whose last update is missing from the chain's history.
    pub superseded: u64,
    /// Seconds from the first epoch after the start, or from the read, until settled, with any result.
    pub latency: Histogram,
}
