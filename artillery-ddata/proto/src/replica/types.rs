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

/// The most updates in one frame: their headers must stay far below the limit for headers.
pub(super) const MAX_UPDATES: usize = 4096;

/// Names a request of the driver. The reply carries the same token.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Token(pub u64);

/// Settings of a replica.
#[derive(Clone, Debug)]
pub struct ReplicaSettings {
    /// Bytes of updates above the watermark that a head takes in before it answers
    /// [`Refusal::Busy`](crate::Refusal::Busy).
    pub window: usize,
    /// Bytes of committed updates that are kept for resends.
    pub backlog: usize,
    /// Bytes of client sessions and of their records, by which a retry is known (docs/DESIGN.md §9). Beyond this limit
    /// the session that was used longest ago is evicted. Committed ones never exceed it by more than the one record, or
    /// session, whose update the eviction follows at once. Updates under way add to that; the window bounds what they
    /// add.
    pub sessions: usize,
    /// The largest value, in bytes.
    pub max_value: usize,
    /// An update with more bytes of keys and values than this goes to the successor in pieces of this size: at least 1,
    /// at most [`MAX_CHUNK`].
    pub chunk: usize,
    /// Bytes of keys, values and headers in an answer of many entries; one entry always fits. The next query asks for
    /// the rest.
    pub answer: usize,
    /// Bytes of watch queries that may wait for changes at a time. One more is answered [`Busy`](crate::Refusal::Busy).
    pub watches: usize,
    /// Changes that are examined for one watch query, beside the rest of the last update. So a long history does not
    /// keep other requests waiting.
    pub watch_steps: usize,
    /// Bytes of values that a head puts together in one step, at least 1. Other requests have their turn between two
    /// steps.
    pub join: usize,
    /// The bounds of the snapshots that a member keeps for scans.
    pub snapshots: SnapshotLimits,
    /// The tail asks for the promotion of a joiner that lacks at most this many bytes of updates.
    pub close_behind: usize,
    /// Bytes of updates that a joiner keeps until they can be applied over its snapshot. Further ones wait in the
    /// source's backlog.
    pub joiner_buffer: usize,
    /// Keys that a joiner clears from its store in one step, at least 1, before it takes in a snapshot.
    pub clear_keys: usize,
    /// Kept updates that a joiner applies in one step, at least 1, after the last part of its snapshot.
    pub catch_up: usize,
    /// How long a chain takes in inputs until the other tasks of its thread have their turn, its node's renewals among them.
    /// A turn ends with the input during which this time has passed.
    pub turn: Duration,
    /// How often cumulative state is repeated to peers that haven't shown to know it.
    pub heartbeat: Duration,
    /// Send again what a successor hasn't acknowledged for this time. `None` for links that lose nothing while they are
    /// up, as QUIC streams: there it would only repeat what is still on its way.
    pub resend: Option<Duration>,
    /// The member keeps a journal, and an update is committed once it is durable at every serving member. All members of a
    /// chain have the same here.
    pub durable: bool,
    /// A serving member counts as full when its store holds so many bytes of keys and values, those of other chains included.
    /// `None`: it never does.
    pub max_memory: Option<u64>,
    /// The guards that stand.
    pub guards: Guards,
}

impl ReplicaSettings {
    /// The limit of all values of one update together, in bytes.
    pub(super) fn largest_update(&self) -> usize {
        self.max_value.max(self.window / 2)
    }

    /// The bytes of a piece.
    pub(super) fn chunk(&self) -> usize {
        self.chunk.clamp(1, MAX_CHUNK)
    }

    /// A write is large from this many bytes on.
    pub(crate) fn large_write(&self) -> usize {
        (self.window / 16).max(1)
    }
}

/// When a member drops a snapshot of a scan.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SnapshotLimits {
    /// No page of it was requested in this time.
    pub age: Duration,
    /// More bytes than this were written since it began.
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

/// What a replica is told.
#[derive(Debug)]
pub(crate) enum ReplicaInput {
    /// A newer configuration names this member: enter its epoch. Older or equal ones are ignored.
    Enter(Arc<ChainConfig>),
    /// The newer configuration of this epoch doesn't name this member. It keeps its data and serves eventual reads
    /// only, until it enters a still newer one.
    Expelled(Epoch),
    /// Frames to this peer can be sent from now on; what was sent before may be lost.
    Connected(MemberId),
    /// Frames to this peer go nowhere from now on.
    Disconnected(MemberId),
    /// A frame came. The driver has authenticated its sender.
    Receive {
        /// The sender, by its certificate and handshake.
        from: MemberId,
        /// The frame.
        frame: ChainFrame,
    },
    /// A client writes here.
    Write {
        /// Comes back with the reply.
        token: Token,
        /// The request id. Without one a repetition isn't recognized.
        request: Option<RequestKey>,
        /// The write.
        write: Write,
        /// When the client stops waiting.
        deadline: Timestamp,
        /// The driver's wall clock in milliseconds since the Unix epoch, for the chain time.
        wall_clock: u64,
    },
    /// A client reads here.
    Read {
        /// Comes back with the reply.
        token: Token,
        /// The query.
        query: Query,
        /// How it may be served.
        mode: ReadMode,
        /// The floor of the client's session, if it has one. Then only committed versions are served, by a watermark at
        /// or above the floor.
        floor: Option<Sequence>,
        /// When the client stops waiting.
        deadline: Timestamp,
    },
    /// The lease of this node runs until then, by its own clock.
    Lease(Timestamp),
    /// The granter confirmed that this node was a serving member at this moment of its own clock: so it held every
    /// update that was committed then. It is the moment at which the node asked for the lease, not that of the answer.
    Served(Timestamp),
    /// As head of this epoch: order nothing more until then, or until the epoch is over.
    Close {
        /// The epoch.
        epoch: Epoch,
        /// The end of the closing by this node's clock.
        until: Timestamp,
    },
    /// All records of the journal up to this number are durable.
    Durable(u64),
    /// Time has passed.
    Tick,
}

/// What a replica asks of its driver.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ReplicaOutput {
    /// Answer the request with this token. Each request gets exactly one.
    Reply(Token, Reply),
    /// Report this event.
    Event(ReplicaEvent),
    /// Ask for a configuration that names this syncing member as serving. Repeated with each heartbeat until the epoch
    /// is over.
    Promote {
        /// The epoch to be replaced.
        epoch: Epoch,
        /// The joiner.
        member: MemberId,
    },
}

/// Something that observers are told.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReplicaEvent {
    /// The member entered this epoch.
    Entered(Epoch),
    /// The epoch is open here.
    Opened(Epoch),
    /// The configuration of this epoch doesn't name the member.
    Expelled(Epoch),
    /// The head is closed, and every update that it has ordered in this epoch is committed.
    Closed(Epoch),
    /// A snapshot for a joiner begins here.
    SnapshotBegun {
        /// The joiner.
        to: MemberId,
        /// The watermark at which it began.
        at: Sequence,
    },
    /// A snapshot begins to arrive: the data held before doesn't count any more.
    Resyncing,
    /// The snapshot is complete, and the updates that came beside it are applied.
    Resynced {
        /// The newest version here.
        upto: Version,
    },
    /// How far the records that a restart found above the watermark are settled: now and then while some are left, and once none
    /// is.
    Rereplicating(Box<Rereplication>),
    /// An invariant is broken or the store failed: the member stopped serving and keeps its store.
    Halted(Halt),
}

/// Why a member stopped serving: an invariant doesn't hold, or its store failed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Halt {
    /// A watermark covers an update that this serving member doesn't hold.
    #[error("the watermark {watermark} is above the newest update {last} of a serving member")]
    WatermarkAhead {
        /// The watermark that came.
        watermark: Sequence,
        /// The newest update here.
        last: Sequence,
    },
    /// A watermark covers an update that this serving member's disk doesn't hold.
    #[error("the watermark {watermark} is above what this serving member's disk holds")]
    NotDurable {
        /// The watermark that came.
        watermark: Sequence,
    },
    /// The predecessor wants updates dropped that are committed.
    #[error("asked to drop updates above {to}, though all up to {watermark} are committed")]
    DropCommitted {
        /// The last sequence that would stay.
        to: Sequence,
        /// The commit watermark.
        watermark: Sequence,
    },
    /// The predecessor wants updates dropped from a history that it had confirmed to be a prefix of its own.
    #[error("asked to drop what lies between {keep} and {said}, which the predecessor had said to hold")]
    CutPrefix {
        /// The newest update here.
        said: Version,
        /// The last update that would stay.
        keep: Version,
    },
    /// The member is named as serving in the middle of a snapshot.
    #[error("named as serving though its resync isn't through")]
    NotWhole,
    /// An update of a kind that this release doesn't know.
    #[error("an update of the unknown kind {0}")]
    UnknownKind(u8),
    /// A successor needs history that is no longer kept.
    #[error("the successor needs {needed}, the backlog begins at {first}")]
    BacklogTooShort {
        /// The first update needed.
        needed: Sequence,
        /// The first update kept.
        first: Sequence,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The progress of a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ResyncProgress {
    /// Records: sent by the source, or received by the joiner.
    pub records: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
}

/// Resyncs of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResyncStatus {
    /// Full resyncs that it has completed as a joiner.
    pub full: u64,
    /// Resyncs from the predecessor's backlog alone.
    pub partial: u64,
    /// Progress of the snapshot that it receives.
    pub receiving: Option<ResyncProgress>,
    /// Progress of the snapshot that it sends.
    pub sending: Option<ResyncProgress>,
}

/// The table of client sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionStatus {
    /// Sessions.
    pub count: usize,
    /// Bytes of sessions and their records, those of uncommitted updates included.
    pub bytes: usize,
    /// Bytes of the records of uncommitted updates.
    pub pending_bytes: usize,
}

/// A replica as an observer sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The configuration entered last.
    pub config: Option<Arc<ChainConfig>>,
    /// Whether the epoch is open here.
    pub open: bool,
    /// The newest version applied.
    pub last: Version,
    /// The commit watermark here.
    pub watermark: Sequence,
    /// Bytes of updates above the watermark.
    pub in_flight: usize,
    /// Bytes of committed updates kept for resends.
    pub backlog: usize,
    /// Reads that wait for an answer.
    pub parked_reads: usize,
    /// Writes that wait for their commit.
    pub waiting_writes: usize,
    /// Client sessions.
    pub sessions: SessionStatus,
    /// Snapshots that are kept for scans.
    pub snapshots: usize,
    /// Watch queries that wait for changes.
    pub watchers: usize,
    /// Reads by the path by which they were served.
    pub reads: ReadCounts,
    /// The epoch whose configuration doesn't name this member, until it enters a newer one.
    pub expelled: Option<Epoch>,
    /// Resyncs of this member, and of the joiner behind it.
    pub resync: ResyncStatus,
    /// Why it stopped serving.
    pub halted: Option<Halt>,
    /// Up to where this member's disk holds everything; `None`: it has no disk.
    pub durable: Option<Sequence>,
    /// What became of the records that a restart found above the watermark.
    pub rereplication: Rereplication,
    /// What the store holds of the chain.
    pub size: Size,
    /// What this member has no room in.
    pub full: Fullness,
}

/// Reads served by a replica, by their path. Its gate counts the local clean ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct ReadCounts {
    /// Version queries that were sent, also those whose answers weren't needed any more. A repeated one counts once.
    pub version_queries: u64,
    /// Reads that shared the answer to another read's version query.
    pub shared_queries: u64,
    /// Reads served after an answer, or after the own watermark had come far enough.
    pub dirty: u64,
    /// Reads served behind a barrier.
    pub through_chain: u64,
    /// Answers to version queries by the number of reads that each served. [`READERS_PER_QUERY`] has the upper bounds
    /// of the ranges; the last range has none. An answer that served no read isn't counted.
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
