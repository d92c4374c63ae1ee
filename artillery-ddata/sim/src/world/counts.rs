//! Counts of the events of a run.

use artillery_proto::replica::Rereplication;

use super::{PowerCounts, ResyncCounts};
use crate::faults::Kind;

/// Counts of the events of a run.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Length of the run in virtual nanoseconds.
    pub virtual_nanos: u64,
    /// Events handled.
    pub events: u64,
    /// Operations begun by clients.
    pub operations: u64,
    /// Writes that were refused without being applied.
    pub refused: u64,
    /// Reads that were not served, and writes with an unknown outcome.
    pub unanswered: u64,
    /// Operations begun after healing, and early enough to end before a planned crash.
    pub healed: u64,
    /// Operations counted in `healed` that were refused or not answered.
    pub healed_refused: u64,
    /// Acknowledged writes, and opened sessions.
    pub acknowledged: u64,
    /// The same in each quarter of a virtual second.
    pub writes: Vec<u32>,
    /// Compare-and-swaps, batches and scripts whose condition failed.
    pub conflicts: u64,
    /// Strong reads served by the gate, without the replica.
    pub local_reads: u64,
    /// Reads of dirty keys, served after a version query or a later watermark.
    pub dirty_reads: u64,
    /// Reads that shared the version query of another read.
    pub shared_queries: u64,
    /// Peak number of operations in progress.
    pub in_flight: u64,
    /// Version queries sent.
    pub version_queries: u64,
    /// Attempts made after an unanswered one.
    pub retries: u64,
    /// Highest number of retries of one operation.
    pub most_retries: u64,
    /// Peak size of the session table, in bytes.
    pub session_bytes: u64,
    /// Late duplicates of answered writes.
    pub duplicates: u64,
    /// Attempts refused because their session had been evicted.
    pub expired_sessions: u64,
    /// Attempts refused as `Busy`.
    pub busy: u64,
    /// Changes shown to watchers.
    pub watched: u64,
    /// Answers to watchers that ended within an update.
    pub watched_parts: u64,
    /// Answers that refuse a watcher because it fell behind.
    pub fell_behind: u64,
    /// Events of locks and of copies.
    pub locks: LockCounts,
    /// Completed walks in hash order.
    pub walks: u64,
    /// Time after healing until every chain was complete and each of its members had served, in virtual nanoseconds.
    pub recovery: Option<u64>,
    /// Longest time without served writes or strong reads in a chain that had all it needed, in virtual nanoseconds.
    pub away: u64,
    /// Time after healing until the last node was ready, in virtual nanoseconds.
    pub ready: Option<u64>,
    /// Runs whose cluster gave way to another one.
    pub gave_way: u64,
    /// Events of disks.
    pub disks: DiskEvents,
    /// Messages and events of the resyncs of the first chain.
    pub resync: ResyncCounts,
    /// Disk operations, and the power cut at one of them.
    pub power: PowerCounts,
    /// Faults planned for this seed.
    pub planned: u64,
    /// Faults that had an effect, by kind.
    pub faults: [u64; Kind::ALL.len()],
}

/// Counts of events of the nodes' disks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DiskEvents {
    /// Power cuts.
    pub cuts: u64,
    /// Power cuts after which a disk was missing written data, in whole or in part.
    pub lossy: u64,
    /// Node starts with data on disk.
    pub starts: u64,
    /// Disks replaced by an empty one.
    pub emptied: u64,
    /// Chains reopened by stores after all incarnations of their members had ended.
    pub reopened: u64,
    /// Disks replaced by a backup.
    pub restored: u64,
    /// Nodes that ended because their disk is an older copy, or contains updates that an accepted loss has removed.
    pub refused: u64,
    /// Runs that ended with a loss that `--sync never` permits.
    pub losses: u64,
    /// Unreplicated records of restarted members that the start of an epoch settled.
    pub settled_by_start: u64,
    /// Unreplicated records that a strong read settled earlier.
    pub settled_by_read: u64,
    /// Unreplicated records whose update was superseded.
    pub superseded: u64,
}

impl DiskEvents {
    /// Adds the counts of a member whose last unreplicated record is settled.
    pub fn rereplicated(&mut self, Rereplication { by_start, by_read, .. }: &Rereplication) {
        self.settled_by_start += by_start.done;
        self.settled_by_read += by_read.done;
        self.superseded += by_start.superseded + by_read.superseded;
    }

    /// Adds the counts of another run.
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

/// Counts of the events of locks, of the resources that they protect, and of copies.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LockCounts {
    /// Processes that contend for locks.
    pub contenders: u64,
    /// Keys that were put into a queue.
    pub placed: u64,
    /// Answers to waiting processes.
    pub watched: u64,
    /// Waiting processes whose changes were no longer kept.
    pub fell_behind: u64,
    /// Processes that began to hold a lock.
    pub holds: u64,
    /// Holders whose lease ended.
    pub lost: u64,
    /// Processes that waited for a renewal before they could hold a lock.
    pub confirms: u64,
    /// Acknowledged renewals.
    pub renewals: u64,
    /// Renewals with an unknown outcome.
    pub unknown_renewals: u64,
    /// Pauses of processes.
    pub pauses: u64,
    /// Pauses of holders.
    pub paused_holders: u64,
    /// Processes that died.
    pub deaths: u64,
    /// Processes cut off from all nodes.
    pub cuts: u64,
    /// Writes that a resource accepted.
    pub stored: u64,
    /// Writes that a resource refused because of their token.
    pub fenced: u64,
    /// Changes that copies reported.
    pub copied: u64,
    /// Copies read in whole.
    pub copies: u64,
    /// Followers that began again because their changes were no longer kept.
    pub restarts: u64,
}

impl LockCounts {
    /// Adds other counts.
    pub fn add(&mut self, other: Self) {
        self.contenders += other.contenders;
        self.placed += other.placed;
        self.watched += other.watched;
        self.fell_behind += other.fell_behind;
        self.holds += other.holds;
        self.lost += other.lost;
        self.confirms += other.confirms;
        self.renewals += other.renewals;
        self.unknown_renewals += other.unknown_renewals;
        self.pauses += other.pauses;
        self.paused_holders += other.paused_holders;
        self.deaths += other.deaths;
        self.cuts += other.cuts;
        self.stored += other.stored;
        self.fenced += other.fenced;
        self.copied += other.copied;
        self.copies += other.copies;
        self.restarts += other.restarts;
    }
}

/// The result of one operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Served {
    /// The node that got the first attempt.
    pub node: usize,
    /// When it began, in virtual nanoseconds.
    pub begun: u64,
    /// When it ended, in virtual nanoseconds.
    pub over: u64,
    /// Whether the operation succeeded.
    pub done: bool,
    /// For a strong read of one key: whether that node served it from its own store, with or without a version query.
    pub itself: Option<bool>,
}

/// Length of one entry of [`Counts::writes`], in nanoseconds.
const SPAN: u64 = 250_000_000;

impl Counts {
    pub(super) fn wrote(&mut self, now: u64) {
        let span = (now / SPAN) as usize;
        if self.writes.len() <= span {
            self.writes.resize(span + 1, 0);
        }
        self.writes[span] += 1;
    }

    /// Acknowledged writes per second between two times in virtual nanoseconds.
    pub fn writes_between(&self, from: u64, to: u64) -> f64 {
        let spans = (from / SPAN) as usize..(to / SPAN) as usize;
        let length = spans.len() as f64 * SPAN as f64 / 1e9;
        let done: u32 = spans.filter_map(|span| self.writes.get(span)).sum();
        f64::from(done) / length
    }
}
