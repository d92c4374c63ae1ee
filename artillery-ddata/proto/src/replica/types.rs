//! Inputs, outputs, settings and status of a replica: plain data.

mod rereplication;

use std::{sync::Arc, time::Duration};

pub use self::rereplication::{REREPLICATION_MILLIS, Rereplication, SettledRecords};

use crate::{
    ChainConfig, Epoch, MemberId, Sequence, Timestamp, Version,
    api::{Query, ReadMode, Reply, Write},
    guards::Guards,
    message::{ChainFrame, Fullness, MAX_CHUNK},
    store::{Size, StoreError},
    types::update::RequestKey,
};

/// The maximum number of updates in one frame.
pub(super) const MAX_UPDATES: usize = 4096;

/// Identifies a request of the driver. The reply carries the same token.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Token(pub u64);

#[derive(Clone, Debug)]
pub struct ReplicaSettings {
    /// Bytes of updates above the watermark, and of results that wait for their commit, at which a head starts to
    /// refuse writes with [`Refusal::Busy`](crate::Refusal::Busy).
    pub window: usize,
    /// The most bytes of committed updates that are kept for resends and watches.
    pub backlog: usize,
    /// Bytes of client sessions and of the records by which retries are recognized (docs/DESIGN.md §9). Above this
    /// limit, the head evicts the least recently used sessions, but never the last one. One session may use a quarter.
    pub sessions: usize,
    /// The largest value, in bytes. Also the limit of the values in the results of a script, and in the reply to a read
    /// of several keys, together.
    pub max_value: usize,
    /// An update with more bytes of keys and values than this is sent to the successor in pieces of this size: at least
    /// 1, at most [`MAX_CHUNK`].
    pub chunk: usize,
    /// Bytes of keys, values and headers in an answer with many entries. One entry always fits. The next query requests
    /// the rest.
    pub answer: usize,
    /// Bytes of watch queries that may wait for changes at the same time. Further ones are answered
    /// [`Busy`](crate::Refusal::Busy).
    pub watches: usize,
    /// Steps of one watch query, or of all waiting ones after a commit: updates, changes and prefixes that are
    /// examined, in addition to the rest of the last update. The bound keeps a long history from delaying other
    /// requests.
    pub watch_steps: usize,
    /// Bytes of values that a head assembles in one step, at least 1. Other requests are handled between two steps.
    pub join: usize,
    pub snapshots: SnapshotLimits,
    /// The tail requests the promotion of a joiner that is behind by at most this many bytes of updates.
    pub close_behind: usize,
    /// Bytes of updates that a joiner buffers until they can be applied over its snapshot. Further ones stay in the
    /// source's backlog. After the last part, an empty buffer accepts one larger update. A joiner with a journal also
    /// accepts no updates while more than twice this many bytes wait for its disk.
    pub joiner_buffer: usize,
    /// The most keys that a joiner clears from its store in one step, at least 1, before it receives a snapshot. A step
    /// also ends with the key that reaches 8 MiB of values.
    pub clear_keys: usize,
    /// The most buffered updates that a joiner applies in one step, at least 1, after the last part of its snapshot. A
    /// step also ends with the update that reaches 256 KiB.
    pub catch_up: usize,
    /// How long a chain handles inputs before it yields to the other tasks of its thread, such as its node's renewals.
    /// The turn ends with the input that exceeds this time.
    pub turn: Duration,
    /// How often cumulative state is repeated to peers that haven't confirmed it.
    pub heartbeat: Duration,
    /// Resend updates that the successor hasn't acknowledged for this time. `None` for links that are lossless while
    /// they are up, such as QUIC streams: there a resend would only duplicate data in flight.
    pub resend: Option<Duration>,
    /// The member keeps a journal, and an update is committed once it is durable at every serving member. All members
    /// of a chain have the same setting.
    pub durable: bool,
    /// A serving member is full when its store holds this many bytes of keys and values, including those of other
    /// chains. `None`: no limit.
    pub max_memory: Option<u64>,
    pub guards: Guards,
}

impl ReplicaSettings {
    /// The limit of all values of one update together, in bytes.
    pub(super) fn largest_update(&self) -> usize {
        self.max_value.max(self.window / 2)
    }

    pub(super) fn chunk(&self) -> usize {
        self.chunk.clamp(1, MAX_CHUNK)
    }

    /// A write is large from this many bytes on.
    pub(crate) fn large_write(&self) -> usize {
        (self.window / 16).max(1)
    }
}

/// A member drops a snapshot of a scan above either limit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SnapshotLimits {
    /// Time since the last request for a page.
    pub age: Duration,
    /// Bytes of updates applied since the snapshot began.
    pub bytes: usize,
}

impl Default for SnapshotLimits {
    fn default() -> Self {
        Self { age: Duration::from_secs(60), bytes: 64 << 20 }
    }
}

impl Default for ReplicaSettings {
    fn default() -> Self {
        Self {
            window: 64 << 20,
            backlog: 256 << 20,
            sessions: 16 << 20,
            max_value: 64 << 20,
            chunk: MAX_CHUNK,
            answer: 256 << 10,
            watch_steps: 16 << 10,
            join: 4 << 20,
            watches: 64 << 20,
            snapshots: SnapshotLimits::default(),
            close_behind: 1 << 20,
            joiner_buffer: 32 << 20,
            clear_keys: 64,
            catch_up: 256,
            turn: Duration::from_millis(2),
            heartbeat: Duration::from_millis(100),
            resend: None,
            durable: false,
            max_memory: None,
            guards: Guards::default(),
        }
    }
}

#[derive(Debug)]
pub(crate) enum ReplicaInput {
    /// A newer configuration names this member: enter its epoch. Older or equal ones are ignored.
    Enter(Arc<ChainConfig>),
    /// The newer configuration of this epoch doesn't name this member. The member keeps its data. Until it enters a
    /// newer configuration, it serves only eventual reads.
    Expelled(Epoch),
    /// Frames to this peer can be sent from now on. Earlier frames may be lost.
    Connected(MemberId),
    /// Frames to this peer are lost from now on.
    Disconnected(MemberId),
    /// A frame was received. The driver has authenticated its sender.
    Receive {
        from: MemberId,
        frame: ChainFrame,
    },
    Write {
        token: Token,
        /// The request id. Without one, a retry isn't recognized.
        request: Option<RequestKey>,
        write: Write,
        deadline: Timestamp,
    },
    Read {
        token: Token,
        query: Query,
        mode: ReadMode,
        /// The floor of the client's session, if any. With a floor, only committed versions are served, at a watermark
        /// at or above the floor.
        floor: Option<Sequence>,
        deadline: Timestamp,
    },
    /// This node's lease is valid until this time of its own clock.
    Lease(Timestamp),
    /// The granter confirmed that this node was a serving member at this time of its own clock, so the node held every
    /// update that was committed then. This is the time at which the node requested the lease, not that of the answer.
    Served(Timestamp),
    /// If this member is the head of this epoch, it orders nothing more until `until` or the end of the epoch.
    Close {
        epoch: Epoch,
        /// The end of the closing, by this node's clock.
        until: Timestamp,
    },
    /// All records of the journal up to this number are durable.
    Durable(u64),
    Tick,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ReplicaOutput {
    /// Answer the request with this token. Each request gets exactly one reply.
    Reply(Token, Reply),
    Event(ReplicaEvent),
    /// Request a configuration that names this syncing member as serving. Repeated with each heartbeat until the epoch
    /// ends.
    Promote {
        epoch: Epoch,
        member: MemberId,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReplicaEvent {
    Entered(Epoch),
    /// The epoch is open here.
    Opened(Epoch),
    Expelled(Epoch),
    /// The head is closed, and every update that it ordered in this epoch is committed.
    Closed(Epoch),
    /// The member started to send a snapshot to a joiner.
    SnapshotBegun {
        to: MemberId,
        /// The watermark at which the snapshot began.
        at: Sequence,
    },
    /// The member started to receive a snapshot. Its earlier data is no longer valid.
    Resyncing,
    /// The snapshot is complete, and the committed updates received alongside it are applied.
    Resynced {
        /// The newest version of the member.
        upto: Version,
    },
    /// Progress of settling the records that a restart found above the watermark. Reported every 10 s while some are
    /// left, and once when none is left.
    Rereplicating(Box<Rereplication>),
    /// An invariant is broken, the store failed, or an update is unknown to this release. The member stopped serving
    /// and keeps its store.
    Halted(Halt),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Halt {
    #[error("the watermark {watermark} is above the newest update {last} of a serving member")]
    WatermarkAhead {
        watermark: Sequence,
        /// The newest update of this member.
        last: Sequence,
    },
    #[error("the watermark {watermark} exceeds the updates on this serving member's disk")]
    NotDurable { watermark: Sequence },
    /// The predecessor requested that committed updates be dropped.
    #[error("asked to drop updates above {to}, but every update up to {watermark} is committed")]
    DropCommitted {
        /// The last sequence to keep.
        to: Sequence,
        watermark: Sequence,
    },
    /// The predecessor requested a cut of a history that it had confirmed to be a prefix of its own.
    #[error("asked to drop the updates between {keep} and {said}, which the predecessor had confirmed to hold")]
    CutPrefix {
        /// The newest update of this member.
        said: Version,
        /// The last update to keep.
        keep: Version,
    },
    #[error("named as serving before its resync was complete")]
    NotWhole,
    /// The update's kind is unknown to this release.
    #[error("an update of the unknown kind {0}")]
    UnknownKind(u8),
    #[error("the successor needs {needed}, the backlog begins at {first}")]
    BacklogTooShort {
        /// The first update that the successor needs.
        needed: Sequence,
        /// The first update in the backlog.
        first: Sequence,
    },
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ResyncProgress {
    /// Records sent by the source, or received by the joiner.
    pub records: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResyncStatus {
    /// Resyncs with a snapshot that this member completed as a joiner.
    pub full: u64,
    /// Epochs in which this member, as a joiner, needed no snapshot: its history was a prefix of its predecessor's,
    /// possibly after a cut.
    pub partial: u64,
    /// The snapshot that this member receives.
    pub receiving: Option<ResyncProgress>,
    /// The snapshot that this member sends.
    pub sending: Option<ResyncProgress>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionStatus {
    pub count: usize,
    /// Bytes of sessions and their records, including those of uncommitted updates.
    pub bytes: usize,
    /// Bytes of the records and sessions of uncommitted updates.
    pub pending_bytes: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The newest configuration that the member entered; `None` also while it is expelled.
    pub config: Option<Arc<ChainConfig>>,
    /// Whether the epoch is open at this member.
    pub open: bool,
    /// The newest version applied.
    pub last: Version,
    /// The commit watermark that this member knows.
    pub watermark: Sequence,
    /// Bytes of updates above the watermark.
    pub in_flight: usize,
    /// Bytes of committed updates kept for resends.
    pub backlog: usize,
    /// Reads waiting for the answer to a version query, for a barrier, or for the watermark.
    pub parked_reads: usize,
    /// Callers that wait for the commit of a write; retries of one write are counted separately.
    pub waiting_writes: usize,
    pub sessions: SessionStatus,
    /// Snapshots kept for scans.
    pub snapshots: usize,
    /// Watch queries waiting for changes.
    pub watchers: usize,
    pub reads: ReadCounts,
    /// The epoch whose configuration excluded this member. Cleared when the member enters a newer one.
    pub expelled: Option<Epoch>,
    /// Resyncs of this member and of the joiner that it serves.
    pub resync: ResyncStatus,
    pub halted: Option<Halt>,
    /// Every update up to this sequence is on this member's disk; `None`: the member keeps no journal.
    pub durable: Option<Sequence>,
    /// Progress of settling the records that a restart found above the watermark.
    pub rereplication: Rereplication,
    /// Size of the chain in the store.
    pub size: Size,
    /// The resource of this member that is full; [`Fullness::Nothing`] also if the member doesn't serve.
    pub full: Fullness,
}

/// Reads for which a replica waited, by path. Local clean reads are counted by its gate; reads that the replica serves
/// at once are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct ReadCounts {
    /// Version queries sent, including those whose answers were no longer needed. Repetitions are not counted.
    pub version_queries: u64,
    /// Reads answered by another read's version query.
    pub shared_queries: u64,
    /// Reads served after an answer, or once the member's own watermark had advanced far enough.
    pub dirty: u64,
    /// Reads served after a barrier.
    pub through_chain: u64,
    /// Answers to version queries, by the number of reads that each one served. [`READERS_PER_QUERY`] has the upper
    /// bounds of the ranges; the last range is unbounded. An answer that served no read isn't counted.
    pub readers: [u64; READERS_PER_QUERY.len() + 1],
}

impl ReadCounts {
    pub(super) fn answered(&mut self, readers: usize) {
        let Some(others) = readers.checked_sub(1) else { return };
        self.shared_queries += others as u64;
        let range = READERS_PER_QUERY.iter().position(|&bound| readers as u64 <= bound);
        self.readers[range.unwrap_or(READERS_PER_QUERY.len())] += 1;
    }
}

/// Upper bounds of the ranges of [`ReadCounts::readers`].
pub const READERS_PER_QUERY: [u64; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
