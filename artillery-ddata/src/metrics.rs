//! What a node counts and measures, as plain values: whoever shows them decides how (docs/adr/0022-metrics.md).
//!
//! ```no_run
//! # async fn example(node: artillery_ddata::Node) {
//! for operation in node.metrics().await.operations {
//!     println!("{}: {} done", operation.kind, operation.done);
//! }
//! # }
//! ```

mod tally;

use std::fmt;

use artillery_core::transport::Counters;

pub(crate) use self::tally::{OperationTimer, Tally};
use crate::status::NodeStatus;

/// A reading of everything that a node counts and measures. Counters begin at 0 with the node, and are read one by one.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct NodeMetrics {
    /// How it stands.
    pub status: NodeStatus,
    /// What callers asked of this node, one of each kind: by handles in this process and by clients. What another node
    /// handed on is counted there. A local clean read is counted nowhere here but in
    /// [`ReadsStatus::local_clean`](crate::status::ReadsStatus::local_clean): a second counter would double its cost.
    pub operations: Vec<OperationMetrics>,
    /// How many reads each answered version query served.
    pub readers_per_query: Histogram,
    /// Why members of chains changed places, and how often, where this node decided on it.
    pub changes: Vec<(&'static str, u64)>,
    /// Connections that peers dialled and that were refused, by reason.
    pub refused: Vec<(&'static str, u64)>,
    /// What waits, in bytes.
    pub queues: Vec<QueueMetrics>,
    /// The chains that this node has been a member of.
    pub chains: Vec<ChainMetrics>,
    /// What went over its socket.
    pub traffic: Counters,
    /// Bytes of updates above the watermark that a head takes in.
    pub window_limit_bytes: u64,
    /// Bytes of committed updates that are kept for resends.
    pub backlog_limit_bytes: u64,
}

/// Operations of one kind, by what came of them.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct OperationMetrics {
    /// Which kind.
    pub kind: OperationKind,
    /// Served, or committed.
    pub done: u64,
    /// The condition failed.
    pub conflict: u64,
    /// Nothing was applied, and nothing will be.
    pub refused: u64,
    /// Nobody answered in time: a write may have been applied.
    pub unknown: u64,
    /// How long they took here, in seconds, whatever came of them.
    pub latency: Histogram,
}

/// What is asked of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum OperationKind {
    /// One key.
    Read,
    /// Many keys at one cut.
    ReadMany,
    /// A page of a scan.
    Scan,
    /// A question for changes, which waits for some.
    Changes,
    /// A value for a key.
    Put,
    /// A key made absent.
    Delete,
    /// A value if the version is as expected.
    CompareAndSwap,
    /// More at the end of a value.
    Append,
    /// A number made larger.
    Increment,
    /// A key made absent for what it held.
    GetDelete,
    /// Many steps at once.
    Batch,
    /// What became of an earlier write.
    Resolve,
}

impl OperationKind {
    /// All of them, in their order.
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

/// How often something measured was in which range.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Histogram {
    /// The upper bounds of the ranges, inclusive, but for the last range, which has none.
    pub bounds: Vec<f64>,
    /// How often it was in each: one more than there are bounds.
    pub counts: Vec<u64>,
    /// The sum of all that was measured.
    pub sum: f64,
}

impl Histogram {
    /// How often it was measured.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// Room that is taken.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueMetrics {
    /// Its name: see `docs/metrics.md`.
    pub queue: &'static str,
    /// Bytes taken, rounded up to 1 KiB for each item; of all chains, or of all connections.
    pub bytes: u64,
}

/// What a chain keeps beside its data.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChainMetrics {
    /// Number of the chain.
    pub chain: u32,
    /// Client sessions.
    pub sessions: u64,
    /// Their bytes, with the records of their requests.
    pub sessions_bytes: u64,
    /// Snapshots of scans.
    pub snapshots: u64,
    /// Questions for changes that wait for some.
    pub watchers: u64,
}
