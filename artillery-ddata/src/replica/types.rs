//! What a replica is told and what it says: plain data.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;

use crate::{
    ChainConfig, Epoch, MemberId, Sequence, Timestamp, Version,
    store::{Held, Record, StoreError},
    update::RequestKey,
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
    /// Bytes of client sessions and their records that are kept to know retries by (docs/DESIGN.md §9). Beyond it the
    /// session that was used the longest time ago is evicted.
    pub sessions: usize,
    /// The largest value, in bytes.
    pub max_value: usize,
    /// A snapshot of which no page was asked for so long is kept no longer.
    pub snapshot_age: Duration,
    /// A snapshot is kept while no more bytes than these were written since it began.
    pub snapshot_bytes: usize,
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
            sessions: 16 << 20,
            max_value: 64 << 20,
            snapshot_age: Duration::from_secs(60),
            snapshot_bytes: 64 << 20,
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
    /// The value gets these bytes at its end; an absent key counts as empty.
    Append {
        /// The key.
        key: Bytes,
        /// What is appended.
        value: Bytes,
    },
    /// The value, a decimal number, gets larger by this much; an absent key counts as 0.
    Increment {
        /// The key.
        key: Bytes,
        /// How much, perhaps negative.
        by: i64,
    },
    /// The key is absent from now on, and what it held comes back.
    GetDelete {
        /// The key.
        key: Bytes,
    },
    /// All of these steps or none, in this order, each seeing what those before it did.
    Batch(Vec<Step>),
    /// Opens a client session. Its id is the version of the update.
    OpenSession,
    /// Settles a request: answers with its record, or bars it for ever. It must come with that request's key.
    Resolve,
}

impl Write {
    /// The keys that it is about.
    pub fn keys(&self) -> impl Iterator<Item = &Bytes> {
        let (one, steps): (Option<&Bytes>, &[Step]) = match self {
            Self::Put { key, .. }
            | Self::Delete { key }
            | Self::CompareAndSwap { key, .. }
            | Self::Append { key, .. }
            | Self::Increment { key, .. }
            | Self::GetDelete { key } => (Some(key), &[]),
            Self::Batch(steps) => (None, steps),
            Self::OpenSession | Self::Resolve => (None, &[]),
        };
        one.into_iter().chain(steps.iter().map(Step::key))
    }

    /// The values that it carries.
    pub fn values(&self) -> impl Iterator<Item = &Bytes> {
        let (one, steps): (Option<&Bytes>, &[Step]) = match self {
            Self::Put { value, .. } | Self::Append { value, .. } => (Some(value), &[]),
            Self::CompareAndSwap { value, .. } => (value.as_ref(), &[]),
            Self::Batch(steps) => (None, steps),
            _ => (None, &[]),
        };
        one.into_iter().chain(steps.iter().filter_map(Step::value))
    }
}

impl Step {
    /// The key that it is about.
    pub fn key(&self) -> &Bytes {
        match self {
            Self::Require { key, .. }
            | Self::Put { key, .. }
            | Self::Delete { key }
            | Self::Append { key, .. }
            | Self::Increment { key, .. } => key,
        }
    }

    /// The value that it carries.
    pub fn value(&self) -> Option<&Bytes> {
        match self {
            Self::Put { value, .. } | Self::Append { value, .. } => Some(value),
            _ => None,
        }
    }
}

impl Query {
    /// The keys that it is about; of a scan or of changes, none.
    pub fn keys(&self) -> &[Bytes] {
        match self {
            Self::Key(key) => std::slice::from_ref(key),
            Self::Keys(keys) => keys,
            Self::Scan(_) | Self::Changes(_) => &[],
        }
    }
}

/// One step of a [`Write::Batch`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Nothing of the batch happens unless the key is as expected.
    Require {
        /// The key.
        key: Bytes,
        /// How it must be.
        expected: Expected,
    },
    /// As [`Write::Put`].
    Put {
        /// The key.
        key: Bytes,
        /// The value.
        value: Bytes,
    },
    /// As [`Write::Delete`].
    Delete {
        /// The key.
        key: Bytes,
    },
    /// As [`Write::Append`].
    Append {
        /// The key.
        key: Bytes,
        /// What is appended.
        value: Bytes,
    },
    /// As [`Write::Increment`].
    Increment {
        /// The key.
        key: Bytes,
        /// How much.
        by: i64,
    },
}

/// How a key must be for a batch to happen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub enum Expected {
    /// It has no value.
    Absent,
    /// It has one.
    Present,
    /// It has a value of this version.
    Version(Version),
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
    /// The newest version here, with at most so many uncommitted versions of the key, by a member that has shown within
    /// this time of its own clock that it is not further behind; otherwise as [`Strong`](Self::Strong).
    Bounded {
        /// Uncommitted versions of the key at most.
        versions: u32,
        /// How long ago the member may have heard from the tail.
        age: Duration,
    },
}

/// What a read is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Query {
    /// One key.
    Key(Bytes),
    /// These keys, all at one point of the history.
    Keys(Vec<Bytes>),
    /// A page of keys in order, at one point of the history.
    Scan(Scan),
    /// Committed changes in the order of the history. Answered when there are some, at the latest at the deadline.
    Changes(Watch),
}

/// Which changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Watch {
    /// Only of keys that begin with this.
    pub prefix: Bytes,
    /// Only behind this position; `None`: from now on, which is answered at once, by the position that now is.
    pub after: Option<Sequence>,
}

/// Which page of which keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scan {
    /// Only keys that begin with this.
    pub prefix: Bytes,
    /// Only keys behind this one; `None`: from the first.
    pub after: Option<Bytes>,
    /// At most so many entries.
    pub limit: u32,
    /// Of which point of the history.
    pub snapshot: Snapshot,
}

/// Which point of the history the pages of a scan show.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub enum Snapshot {
    /// Each page another one.
    No,
    /// This page begins a snapshot: the member keeps what the following pages need, for a while.
    Begin,
    /// The one that this member began under this number.
    Of(u64),
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
        /// Which requirement of a batch it was, counted from 0.
        step: u32,
        /// The version that the key had; [`Version::NONE`]: it was absent.
        version: Version,
        /// The value of that version, unless this answers a retry and nobody holds it any more.
        value: Option<Bytes>,
        /// Whether an earlier attempt of the same request did it.
        replayed: bool,
    },
    /// The read is served.
    Read(Read),
    /// The read of many keys is served.
    Cut(Cut),
    /// The page of a scan is served.
    Page(Page),
    /// Committed changes.
    Changes(Changes),
    /// Nothing was done and nothing will be.
    Refused(Refusal),
    /// The deadline came first. A read is over; of a write the outcome is unknown.
    Expired,
}

/// A committed write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The version that it made.
    pub version: Version,
    /// On how many members it is.
    pub copies: u32,
    /// Whether an earlier attempt of the same request did it.
    pub replayed: bool,
    /// What it computed.
    pub result: Computed,
}

/// What a write computed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Computed {
    /// Nothing.
    Nothing,
    /// The length of the value after an append, in bytes.
    Length(u64),
    /// The number after an increment.
    Number(i64),
    /// What was taken away, and its version; `None`: the key was absent.
    Took(Option<(Version, Bytes)>),
    /// A value of this version was taken away; it was too large to be kept for retries.
    TookForgotten(Version),
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
    /// What it saw is at least the history up to here, and that is committed: the floor of a session rises to it.
    pub as_of: Sequence,
}

/// Keys at one point of the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// What was found of each key, in the order of the question; tombstones shown as `None`.
    pub found: Vec<Option<Held>>,
    /// Whether all of it was known here to be committed.
    pub clean: bool,
    /// By which way it was served.
    pub way: Way,
    /// As [`Read::as_of`].
    pub as_of: Sequence,
}

/// A page of a scan: all at one point of the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Keys and values in order, no tombstones.
    pub records: Vec<Record>,
    /// Behind which key the scan goes on; `None`: it is at its end. A page without records needn't be the last one.
    pub next: Option<Bytes>,
    /// Whether all of it was known here to be committed.
    pub clean: bool,
    /// By which way it was served.
    pub way: Way,
    /// As [`Read::as_of`].
    pub as_of: Sequence,
    /// The snapshot that it belongs to, by the number that this member gave it.
    pub snapshot: Option<u64>,
}

/// Committed changes, in the order of the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes {
    /// Keys with their new values, tombstones for deletions; all changes of one update or none.
    pub records: Vec<Record>,
    /// There are no others up to here: ask behind it next.
    pub upto: Sequence,
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
    /// The client's session was evicted, or never was: whether the request was applied before, nobody knows any more.
    #[error("the client's session has expired")]
    SessionExpired,
    /// The client itself has said that it knows the outcome of this request.
    #[error("the record of this request is gone: its client said that it was answered")]
    Forgotten,
    /// Somebody asked for the outcome before the request came: it never was applied, and never will be.
    #[error("the request was settled as never applied")]
    Barred,
    /// The session has too many requests whose answers its client hasn't confirmed.
    #[error("the client's session has too many unconfirmed requests")]
    SessionFull,
    /// An increment of a value that is no decimal number of 64 bits.
    #[error("the value is no decimal number of 64 bits")]
    NotANumber,
    /// An increment past the largest or smallest number of 64 bits.
    #[error("the number would leave the range of 64 bits")]
    Overflow,
    /// The snapshot is no longer, or never was, kept by this member.
    #[error("the snapshot is no longer kept")]
    SnapshotGone,
    /// Keys that belong to different chains: one batch, or one request id, can't span them. What stands in a key's first
    /// `{…}`, if anything, decides about its chain.
    #[error("the keys belong to different chains")]
    ManyChains,
    /// Another write was made under this request id.
    #[error("another write was made under this request id")]
    OtherRequest,
    /// A session or a request id of another life of the cluster.
    #[error("the cluster is another one than that which the session or request id belongs to")]
    OtherHistory,
    /// A batch without a step, or with too many.
    #[error("a batch of {len} steps; 1 to {limit} are allowed")]
    BatchSize {
        /// How many it has.
        len: u64,
        /// How many it may have.
        limit: u64,
    },
    /// Changes are asked for that this member keeps no longer: it fell behind, or asked for too old ones.
    #[error("changes before sequence {first} are no longer kept")]
    Compacted {
        /// The first one kept.
        first: u64,
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
    /// Client sessions, and their bytes with their records.
    pub sessions: usize,
    /// Bytes of client sessions and their records.
    pub sessions_bytes: usize,
    /// Snapshots of scans that are kept.
    pub snapshots: usize,
    /// Questions for changes that wait for some.
    pub watchers: usize,
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
