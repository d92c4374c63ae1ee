//! Counts of the events of a run.

use artillery_proto::replica::Rereplication;

use super::{PowerCounts, ResyncCounts};
use crate::faults::Kind;

/// Counts of the events of a run.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Virtual nanoseconds.
    pub virtual_nanos: u64,
    /// Events handled.
    pub events: u64,
    /// Operations that clients began.
    pub operations: u64,
    /// Operations that ended in a refusal.
    pub refused: u64,
    /// Operations that ended without an answer.
    pub unanswered: u64,
    /// Operations begun after healing and before a member crashed.
    pub healed: u64,
    /// Operations among those of `healed` that were refused or not answered.
    pub healed_refused: u64,
    /// Writes acknowledged.
    pub acknowledged: u64,
    /// Acknowledged writes in each quarter of a virtual second.
    pub writes: Vec<u32>,
    /// Compare-and-swaps whose condition failed.
    pub conflicts: u64,
    /// Reads served without the replica.
    pub local_reads: u64,
    /// Reads served after a version query.
    pub dirty_reads: u64,
    /// Reads that shared the version query of another read.
    pub shared_queries: u64,
    /// Most operations under way at the same time.
    pub in_flight: u64,
    /// Version queries sent.
    pub version_queries: u64,
    /// Attempts after an unanswered one.
    pub retries: u64,
    /// Most retries of one operation.
    pub most_retries: u64,
    /// Most bytes of the table of sessions.
    pub session_bytes: u64,
    /// Answered writes that were repeated once more.
    pub duplicates: u64,
    /// Attempts refused because their session was evicted.
    pub expired_sessions: u64,
    /// Attempts refused because a window was full.
    pub busy: u64,
    /// Changes shown to watchers.
    pub watched: u64,
    /// Answers to watchers that ended within an update.
    pub watched_parts: u64,
    /// Answers to watchers that they had fallen behind.
    pub fell_behind: u64,
    /// Walks in hash order that came to their end.
    pub walks: u64,
    /// How long after healing every chain was whole and each member of it had served, in virtual nanoseconds.
    pub recovery: Option<u64>,
    /// The longest time in which no writes or no strong reads of a chain were served although all that they need was there, in
    /// virtual nanoseconds.
    pub away: u64,
    /// How long after healing the last node was ready, in virtual nanoseconds.
    pub ready: Option<u64>,
    /// Runs whose cluster gave way to another one.
    pub gave_way: u64,
    /// What happened to disks.
    pub disks: DiskEvents,
    /// Resyncs of the first chain.
    pub resync: ResyncCounts,
    /// What disks did, and the power cut at one of their operations.
    pub power: PowerCounts,
    /// Faults planned in this seed.
    pub planned: u64,
    /// Faults by kind that had an effect.
    pub faults: [u64; Kind::ALL.len()],
}

/// What happened to the disks of nodes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DiskEvents {
    /// Power cuts.
    pub cuts: u64,
    /// Power cuts after which a disk lacked something that was written, or had it in part.
    pub lossy: u64,
    /// Starts of nodes with what their disks held.
    pub starts: u64,
    /// Starts with an empty disk in the place of another one.
    pub emptied: u64,
    /// Chains that stores opened again after no member lived on.
    pub reopened: u64,
    /// Backups that were put in the place of a disk.
    pub restored: u64,
    /// Nodes that were refused, since their disk is an older copy.
    pub refused: u64,
    /// Runs that ended with a loss that `--sync never` allows.
    pub losses: u64,
    /// Records above the watermark of a restart that the start of an epoch settled.
    pub settled_by_start: u64,
    /// Those that a strong read met before.
    pub settled_by_read: u64,
    /// Those whose update the chain went on without.
    pub superseded: u64,
}

impl DiskEvents {
    /// A member has no unreplicated records any more.
    pub fn rereplicated(&mut self, Rereplication { by_start, by_read, .. }: &Rereplication) {
        self.settled_by_start += by_start.done;
        self.settled_by_read += by_read.done;
        self.superseded += by_start.superseded + by_read.superseded;
    }

    /// Adds those of another run.
    pub fn add(&mut self, other: Self) {
        let Self {
            cuts,
            lossy,
            starts,
            emptied,
            reopened,
            restored,
            refused,
            losses,
            settled_by_start,
            settled_by_read,
            superseded,
        } = self;
        *cuts += other.cuts;
        *lossy += other.lossy;
        *starts += other.starts;
        *emptied += other.emptied;
        *reopened += other.reopened;
        *restored += other.restored;
        *refused += other.refused;
        *losses += other.losses;
        *settled_by_start += other.settled_by_start;
        *settled_by_read += other.settled_by_read;
        *superseded += other.superseded;
    }
}

/// The outcome of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Served {
    /// The node that was asked first.
    pub node: usize,
    /// When it began, in virtual nanoseconds.
    pub begun: u64,
    /// When it ended, in virtual nanoseconds.
    pub over: u64,
    /// Whether it was done.
    pub done: bool,
    /// For a strong read of one key: whether that node served it from its own store, with or without a version query.
    pub itself: Option<bool>,
}

/// The span over which writes are counted, in nanoseconds.
const SPAN: u64 = 250_000_000;

impl Counts {
    pub(super) fn wrote(&mut self, now: u64) {
        let span = (now / SPAN) as usize;
        if self.writes.len() <= span {
            self.writes.resize(span + 1, 0);
        }
        self.writes[span] += 1;
    }

    /// Acknowledged writes per second between two times.
    pub fn writes_between(&self, from: u64, to: u64) -> f64 {
        let spans = (from / SPAN) as usize..(to / SPAN) as usize;
        let length = spans.len() as f64 * SPAN as f64 / 1e9;
        let done: u32 = spans.filter_map(|span| self.writes.get(span)).sum();
        f64::from(done) / length
    }
}
