//! What a replica is told and what it says: plain data.

use std::{sync::Arc, time::Duration};

use super::ResyncProgress;
use crate::{
    ChainConfig, Epoch, MemberId, Sequence, Timestamp, Version,
    api::{Query, ReadMode, Reply, Write},
    guards::Guards,
    message::{ChainFrame, MAX_CHUNK},
    store::{Size, StoreError},
    types::update::RequestKey,
};

/// Names a request of the driver's own; given back with its reply.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Token(pub u64);

/// Settings of a replica.
#[derive(Clone, Debug)]
pub struct ReplicaSettings {
    /// Bytes of updates above the watermark that a head takes in before it answers [`Refusal::Busy`](crate::Refusal::Busy).
    pub window: usize,
    /// Bytes of committed updates that are kept for resends.
    pub backlog: usize,
    /// Bytes of client sessions and their records that are kept to know retries by (docs/DESIGN.md §9). Beyond it the
    /// session that was used the longest time ago is evicted. Committed ones never take up more than this and one record,
    /// or session, whose update is followed by the eviction at once; those of updates under way come on top, and are
    /// bounded by the window.
    pub sessions: usize,
    /// The largest value, in bytes.
    pub max_value: usize,
    /// Updates with more bytes of keys and values than these go to the successor in pieces of so many, at least 1 and at
    /// most [`MAX_CHUNK`].
    pub chunk: usize,
    /// An answer of many entries holds no more bytes of keys, values and headers than these, but one entry at
    /// least. What it has no room for is asked for by the next question.
    pub answer: usize,
    /// Bytes of watches that may wait for changes at a time; beyond them, another one is answered
    /// [`Busy`](crate::Refusal::Busy).
    pub watches: usize,
    /// So many changes are looked at for one question of a watch, and those of one update more: however long the history is, others
    /// have their turn.
    pub watch_steps: usize,
    /// Bytes of values that a head puts together in one go, at least 1: what is more goes in steps, between which others have their
    /// turn.
    pub join: usize,
    /// A snapshot of which no page was asked for so long is kept no longer.
    pub snapshot_age: Duration,
    /// A snapshot is kept while no more bytes than these were written since it began.
    pub snapshot_bytes: usize,
    /// The promotion of a joiner is asked for once it lacks no more bytes of updates than these.
    pub close_behind: usize,
    /// Bytes of updates that a joiner keeps until the last part of its snapshot is there. What is beyond them waits in the
    /// source's backlog.
    pub joiner_buffer: usize,
    /// A joiner clears so many keys of its store at a time, at least 1, before it takes in a snapshot.
    pub clear_keys: usize,
    /// How often cumulative state is repeated to peers that haven't shown to know it.
    pub heartbeat: Duration,
    /// Send again what a successor hasn't acknowledged for so long. `None` for links that lose nothing while they are
    /// up, as QUIC streams: there it would only repeat what is still on its way.
    pub resend: Option<Duration>,
    /// The guards that stand.
    pub guards: Guards,
}

impl ReplicaSettings {
    /// What the values of one update may come to, in bytes.
    pub(super) fn largest_update(&self) -> usize {
        self.max_value.max(self.window / 2)
    }

    /// From how many bytes on a write is large.
    pub(crate) fn large_write(&self) -> usize {
        (self.window / 16).max(1)
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
            snapshot_age: Duration::from_secs(60),
            snapshot_bytes: 64 << 20,
            close_behind: 1 << 20,
            joiner_buffer: 32 << 20,
            clear_keys: 64,
            heartbeat: Duration::from_millis(100),
            resend: None,
            guards: Guards::default(),
        }
    }
}

/// What happened.
#[derive(Debug)]
pub(crate) enum ReplicaInput {
    /// A newer configuration names this member: enter its epoch. Older or equal ones are ignored.
    Enter(Arc<ChainConfig>),
    /// A newer configuration, the one of this epoch, doesn't name this member. It serves nothing but eventual reads until
    /// it enters a newer one still, and keeps what it has.
    Expelled(Epoch),
    /// Frames to this peer can be sent from now on; what was sent before may be lost.
    Connected(MemberId),
    /// Frames to this peer go nowhere from now on.
    Disconnected(MemberId),
    /// A peer said something; the driver vouches for who it was.
    Receive {
        /// Who, by its certificate and handshake.
        from: MemberId,
        /// What.
        frame: ChainFrame,
    },
    /// A client writes here.
    Write {
        /// Comes back with the reply.
        token: Token,
        /// Under which request id; without one it isn't known again when it is repeated.
        request: Option<RequestKey>,
        /// What.
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
        /// Of what.
        query: Query,
        /// How it may be served.
        mode: ReadMode,
        /// The floor of the client's session, if it is in one: then it is served committed versions only, at or above
        /// the floor.
        floor: Option<Sequence>,
        /// When the client stops waiting.
        deadline: Timestamp,
    },
    /// The lease of this node runs until then, by its own clock.
    Lease(Timestamp),
    /// At this moment of its own clock this node was a serving member, by the word of whoever grants leases: so it held
    /// all that was committed then. It is the moment at which the lease was asked for, not that of the answer.
    Served(Timestamp),
    /// As head of this epoch: order nothing more until then, or until the epoch is over.
    Close {
        /// The epoch.
        epoch: Epoch,
        /// The end of it by this node's clock.
        until: Timestamp,
    },
    /// Time has passed.
    Tick,
}

/// What the driver is to do.
#[derive(Debug, PartialEq, Eq)]
#[cfg_attr(feature = "mutants", derive(Clone))]
pub(crate) enum ReplicaOutput {
    /// Answer the request with this token. Each request gets exactly one.
    Reply(Token, Reply),
    /// Tell whoever watches.
    Event(ReplicaEvent),
    /// Have the configuration that replaces this epoch's name this member, which is syncing now, as serving. Said with
    /// each heartbeat until the epoch is over.
    Promote {
        /// The epoch to be replaced.
        epoch: Epoch,
        /// The joiner.
        member: MemberId,
    },
}

/// Something worth telling.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplicaEvent {
    /// The member entered this epoch.
    Entered(Epoch),
    /// The epoch is open here.
    Opened(Epoch),
    /// The configuration of this epoch doesn't name the member.
    Expelled(Epoch),
    /// The head orders nothing for a moment, and all that it has ordered in this epoch is committed.
    Closed(Epoch),
    /// A snapshot for a joiner begins here.
    SnapshotBegun {
        /// The joiner.
        to: MemberId,
        /// It shows the history up to here.
        at: Sequence,
    },
    /// A snapshot begins to come: what was here before doesn't count any more.
    Resyncing,
    /// A snapshot is through, and what has come beside it applied.
    Resynced {
        /// The newest version here.
        upto: Version,
    },
    /// What should never be: the member stopped serving, keeps its store, and reports.
    Halted(Halt),
}

/// Why a member stopped serving: an invariant doesn't hold, or its store failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
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
    /// The predecessor wants updates dropped that are committed.
    #[error("asked to drop updates above {to}, though all up to {watermark} are committed")]
    DropCommitted {
        /// The last sequence that would stay.
        to: Sequence,
        /// The commit watermark.
        watermark: Sequence,
    },
    /// The predecessor wants updates dropped of a history that it had said to be a prefix of its own.
    #[error("asked to drop what lies between {keep} and {said}, which the predecessor had said to hold")]
    CutPrefix {
        /// The newest update here.
        said: Version,
        /// The last update that would stay.
        keep: Version,
    },
    /// It is named as serving in the middle of a snapshot.
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
    /// Client sessions, and their bytes with their records.
    pub sessions: usize,
    /// Bytes of client sessions and their records.
    pub sessions_bytes: usize,
    /// Those of them that uncommitted updates add.
    pub pending_sessions_bytes: usize,
    /// Snapshots of scans that are kept.
    pub snapshots: usize,
    /// Questions for changes that wait for some.
    pub watchers: usize,
    /// Reads by the way that they were served.
    pub reads: ReadCounts,
    /// The epoch whose configuration doesn't name this member, until it enters a newer one.
    pub expelled: Option<Epoch>,
    /// Full resyncs that it went through as a joiner.
    pub resyncs_full: u64,
    /// Resyncs from its predecessor's backlog alone.
    pub resyncs_partial: u64,
    /// How far the snapshot has come that it receives.
    pub receiving: Option<ResyncProgress>,
    /// How far the snapshot has come that it sends.
    pub sending: Option<ResyncProgress>,
    /// Why it stopped serving.
    pub halted: Option<Halt>,
    /// What its store holds of the chain.
    pub size: Size,
}

/// Reads served by a replica, by their way; local clean ones are counted by its gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ReadCounts {
    /// Version queries that were sent, whether their answers were still needed or not; one that is repeated counts once.
    pub version_queries: u64,
    /// Reads that shared such an answer with another one: all but the first of each.
    pub shared_queries: u64,
    /// Reads served after an answer, or after the own watermark had come far enough.
    pub dirty: u64,
    /// Reads served behind a barrier.
    pub through_chain: u64,
    /// Answers to version queries by how many reads each served: up to as many as stand in [`READERS_PER_QUERY`], the last
    /// more than that. An answer that nobody waited for any more isn't among them.
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
