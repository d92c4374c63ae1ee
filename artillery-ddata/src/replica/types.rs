//! What a replica is told and what it says: plain data.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;

use crate::{
    ChainConfig, Epoch, MemberId, Sequence, Timestamp, Version,
    store::{Held, StoreError},
    wire::message::ChainFrame,
};

/// Names a request of the driver's own; given back with its reply.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Token(pub u64);

/// Settings of a replica.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Bytes of updates above the watermark that a head takes in before it answers [`Refusal::Busy`].
    pub window: usize,
    /// Bytes of committed updates that are kept for resends.
    pub backlog: usize,
    /// How often cumulative state is repeated to peers that haven't shown to know it.
    pub heartbeat: Duration,
    /// Send again what a successor hasn't acknowledged for so long. `None` for links that lose nothing while they are
    /// up, as QUIC streams: there it would only repeat what is still on its way.
    pub resend: Option<Duration>,
    /// A guard to leave out.
    #[cfg(feature = "mutants")]
    pub mutant: Option<super::Mutant>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            window: 64 << 20,
            backlog: 256 << 20,
            heartbeat: Duration::from_millis(100),
            resend: None,
            #[cfg(feature = "mutants")]
            mutant: None,
        }
    }
}

/// A write as it is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Write {
    /// The key has this value from now on.
    Put {
        /// The key.
        key: Bytes,
        /// The value.
        value: Bytes,
    },
    /// The key is absent from now on.
    Delete {
        /// The key.
        key: Bytes,
    },
    /// Changes the key if its newest version is `expected` ([`Version::NONE`]: if it is absent).
    CompareAndSwap {
        /// The key.
        key: Bytes,
        /// The version that it must have.
        expected: Version,
        /// The new value; `None` deletes.
        value: Option<Bytes>,
    },
}

/// How a read may be served.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub enum ReadMode {
    /// Linearizable, from any member: local when clean, otherwise after one version query to the tail.
    #[default]
    Strong,
    /// Linearizable, behind a barrier that passes the whole chain: trusts no clock.
    ThroughChain,
    /// The newest version here, perhaps uncommitted; the result says so.
    Eventual,
}

/// What happened.
#[derive(Debug)]
pub enum Input {
    /// A newer configuration names this member: enter its epoch. Older or equal ones are ignored.
    Enter(Arc<ChainConfig>),
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
        /// The key.
        key: Bytes,
        /// How it may be served.
        mode: ReadMode,
        /// When the client stops waiting.
        deadline: Timestamp,
    },
    /// The lease of this node runs until then, by its own clock.
    Lease(Timestamp),
    /// Time has passed.
    Tick,
}

/// What the driver is to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Output {
    /// Answer the request with this token. Each request gets exactly one.
    Reply(Token, Reply),
    /// Tell whoever watches.
    Event(Event),
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The write is committed: on all serving members.
    Committed(Committed),
    /// The condition of the write failed, and what it saw is committed: the key's version and value then.
    Conflict {
        /// The update that records the failure.
        at: Version,
        /// What the key held; `None`: it was absent.
        current: Option<Held>,
    },
    /// The read is served.
    Read(Read),
    /// Nothing was done and nothing will be.
    Refused(Refusal),
    /// The deadline came first. A read is over; of a write the outcome is unknown.
    Expired,
}

/// A committed write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The version that it made.
    pub version: Version,
    /// On how many members it is.
    pub copies: u32,
}

/// A served read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// The version that was found, tombstones shown as `None`.
    pub held: Option<Held>,
    /// Whether that version was known here to be committed.
    pub clean: bool,
    /// By which way it was served.
    pub way: Way,
}

/// The way in which a read was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub enum Way {
    /// From this member's own state.
    Local,
    /// After a version query.
    Query,
    /// After a barrier.
    Chain,
}

/// Why nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// This member is in no configuration, or stopped.
    #[error("this node serves no chain with that key")]
    NoChain,
    /// Writes are taken by the head.
    #[error("writes are taken by the head")]
    NotHead(Option<MemberId>),
    /// In classic mode strong reads are served by the tail.
    #[error("strong reads are served by the tail")]
    NotTail(Option<MemberId>),
    /// Its lease is out.
    #[error("this node holds no lease")]
    NoLease,
    /// The window is full.
    #[error("too many bytes are in flight")]
    Busy,
    /// Fewer members serve than the configuration wants for writes.
    #[error("{have} members serve, writes need {need}")]
    TooFewMembers {
        /// Serving members.
        have: u32,
        /// Members needed.
        need: u32,
    },
    /// The key is too long.
    #[error("a key of {len} bytes, at most {limit} are allowed")]
    KeyTooLong {
        /// Its length in bytes.
        len: u64,
        /// The longest allowed, in bytes.
        limit: u64,
    },
    /// The store failed.
    #[error("the store failed")]
    StoreFailed,
    /// The value is larger than the node allows.
    #[error("a value of {len} bytes, at most {limit} are allowed (max_value_bytes)")]
    ValueTooLarge {
        /// Its length in bytes.
        len: u64,
        /// The largest allowed, in bytes.
        limit: u64,
    },
}

/// Something worth telling.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The member entered this epoch.
    Entered(Epoch),
    /// The epoch is open here.
    Opened(Epoch),
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
    /// Reads by the way that they were served.
    pub reads: ReadCounts,
    /// Why it stopped serving.
    pub halted: Option<Halt>,
}

/// Reads served by a replica, by their way; local clean ones are counted by its gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ReadCounts {
    /// Version queries that were answered.
    pub version_queries: u64,
    /// Reads that shared such an answer with another one: all but the first of each.
    pub shared_queries: u64,
    /// Reads served after an answer, or after the own watermark had come far enough.
    pub dirty: u64,
    /// Reads served behind a barrier.
    pub through_chain: u64,
}
