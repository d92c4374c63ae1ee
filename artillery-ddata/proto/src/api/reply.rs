//! The outcomes of requests.

use bytes::Bytes;

use super::GroupOutcome;
use crate::{
    MemberId, Sequence, Version,
    store::{Held, ScanRecord},
};

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The write is committed: all serving members hold it.
    Committed(WriteReply),
    /// The condition of the write failed. The version and value of the key that it saw are committed.
    Conflict {
        /// The update that records the failure.
        at: Version,
        /// Which step of a batch, or requirement of a script, failed, counted from 0.
        step: u32,
        /// The version that the key had; [`Version::NONE`]: it was absent.
        version: Version,
        /// The value of that version, unless this answers a retry and the value is no longer held.
        value: Option<Bytes>,
        /// Whether this is the outcome of an earlier attempt of the same request.
        replayed: bool,
    },
    /// The read is served.
    Read(ReadReply),
    /// The read of many keys is served.
    Cut(MultiGetReply),
    /// The page of a scan is served.
    Page(ScanReply),
    /// Committed changes.
    Changes(WatchReply),
    /// Nothing was done and nothing will be.
    Refused(Refusal),
    /// The deadline came before an answer. A read is over; the outcome of a write is unknown.
    Expired,
    /// The page of a scan in hash order is served.
    Hashed(HashedReply),
}

/// A committed write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteReply {
    /// The version that the write made.
    pub version: Version,
    /// How many members hold it.
    pub copies: u32,
    /// Whether this is the outcome of an earlier attempt of the same request.
    pub replayed: bool,
    /// What the write computed.
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
    /// The value that was taken away, and its version; `None`: the key was absent.
    Took(Option<(Version, Bytes)>),
    /// A value of this version was taken away; it was too large to be kept for retries.
    TookForgotten(Version),
    /// The outcomes of a script's groups, in their order.
    Ran(Vec<GroupOutcome>),
    /// A script ran; its outcomes aren't kept for retries.
    RanForgotten,
}

/// A served read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadReply {
    /// The version that was found; a tombstone is shown as `None`.
    pub held: Option<Held>,
    /// Whether the member knew that version to be committed.
    pub clean: bool,
    /// By which way it was served.
    pub way: ReadPath,
    /// The read saw at least the history up to here, which is committed. The floor of a session rises to it.
    pub as_of: Sequence,
}

/// Keys at one point of the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MultiGetReply {
    /// What each key holds, in the order of the query; tombstones are shown as `None`.
    pub found: Vec<Option<Held>>,
    /// Whether all of it was known here to be committed.
    pub clean: bool,
    /// By which way it was served.
    pub way: ReadPath,
    /// As [`ReadReply::as_of`].
    pub as_of: Sequence,
}

/// A page of a scan: all at one point of the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanReply {
    /// Keys and values in order, no tombstones.
    pub records: Vec<ScanRecord>,
    /// The key behind which the scan goes on; `None`: the scan is at its end. Other pages may be without records too.
    pub next: Option<Bytes>,
    /// Whether all of it was known here to be committed.
    pub clean: bool,
    /// By which way it was served.
    pub way: ReadPath,
    /// As [`ReadReply::as_of`].
    pub as_of: Sequence,
    /// The snapshot that the page belongs to, by the number that this member gave it.
    pub snapshot: Option<u64>,
}

/// A page of keys in hash order: all at one point of the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HashedReply {
    /// Keys that hold a value, in hash order: all those before the position at which the scan goes on.
    pub keys: Vec<Bytes>,
    /// The position at which the scan goes on; 0: the scan is at its end. If this member doesn't know the order yet, it
    /// is the position at which the page began. Other pages than the last may be without keys too.
    pub next: u64,
    /// Whether all of it was known here to be committed.
    pub clean: bool,
    /// By which way it was served.
    pub way: ReadPath,
    /// As [`ReadReply::as_of`].
    pub as_of: Sequence,
}

/// Committed changes, in the order of the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchReply {
    /// Keys with their new values, tombstones for deletions.
    pub records: Vec<ScanRecord>,
    /// The answer covers all changes up to here. The next query goes on behind it.
    pub upto: Sequence,
    /// How many changes of the update behind `upto` the answer covers too. That update didn't fit the answer as a
    /// whole; the next query asks for its rest. 0: none of that update is shown.
    pub shown: u32,
}

/// The way in which a read was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub enum ReadPath {
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
    /// This member is in no configuration, or has stopped.
    #[error("this node serves no chain with that key")]
    NoChain,
    /// Only the head takes writes: this is the head, if it is known.
    #[error("writes are taken by the head")]
    NotHead(Option<MemberId>),
    /// In classic mode only the tail serves strong reads: this is the tail, if it is known.
    #[error("strong reads are served by the tail")]
    NotTail(Option<MemberId>),
    /// This member holds no lease that still runs.
    #[error("this node holds no lease")]
    NoLease,
    /// The window, or a queue on the way to it, is full.
    #[error("too many bytes are in flight")]
    Busy,
    /// Fewer members serve than the configuration requires for writes.
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
    /// The client's session was evicted, or never existed. Whether the request was applied before is no longer known.
    #[error("the client's session has expired")]
    SessionExpired,
    /// The client itself has said that it knows the outcome of this request.
    #[error("the record of this request is gone: its client said that it was answered")]
    Forgotten,
    /// The outcome was asked for before the request came: the request was never applied, and never will be.
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
    /// This member no longer keeps the snapshot, or never did.
    #[error("the snapshot is no longer kept")]
    SnapshotGone,
    /// The keys belong to different chains: one batch, or one request id, can't span them. The text in a key's first
    /// `{…}`, if there is one, decides about its chain.
    #[error("the keys belong to different chains")]
    ManyChains,
    /// Another write was made under this request id.
    #[error("another write was made under this request id")]
    OtherRequest,
    /// A session, a watch or a request id of another history: of another cluster, or of before a recovery. It means
    /// nothing in this history. Begin a new one.
    #[error("the session, watch or request id belongs to another history of the cluster")]
    OtherHistory,
    /// A batch or script without a step, or with too many.
    #[error("a batch of {len} steps; 1 to {limit} are allowed")]
    BatchSize {
        /// How many it has.
        len: u64,
        /// How many it may have.
        limit: u64,
    },
    /// This member no longer keeps the changes asked for: the watch fell behind, or began too far back.
    #[error("changes before sequence {first} are no longer kept")]
    Compacted {
        /// The first one kept.
        first: u64,
    },
    /// The results of a script are larger than the node allows for one value. The script changed nothing.
    #[error("results of {len} bytes or more, at most {limit} are allowed (max_value_bytes)")]
    ResultsTooLarge {
        /// Their length as far as the script got, in bytes.
        len: u64,
        /// The largest allowed, in bytes.
        limit: u64,
    },
    /// This node's cluster was given up and another one succeeds it, and this node hears no other node of its cluster.
    /// It keeps what it holds, and serves nothing.
    #[error("this node's cluster was given up for cluster {by}: it keeps what it holds, and serves nothing")]
    Succeeded {
        /// The cluster that succeeds it.
        by: crate::ClusterId,
    },
    /// The values that the write would leave are together larger than one update may be. The write changed nothing.
    #[error(
        "the update would come to {len} bytes, at most {limit} are allowed (max_value_bytes, or half of window_bytes)"
    )]
    UpdateTooLarge {
        /// Their length, in bytes.
        len: u64,
        /// The largest allowed, in bytes.
        limit: u64,
    },
    /// The disk of a member counts as full. Nothing is added until it has room again; deletes and reads go on.
    #[error("the disk of node {} is full", member.node)]
    DiskFull {
        /// That member.
        member: MemberId,
    },
    /// A member holds as many bytes of keys and values as it may. Nothing is added until it holds fewer; deletes and reads go on.
    #[error("node {} holds as many bytes as its memory may", member.node)]
    MemoryFull {
        /// That member.
        member: MemberId,
    },
    /// The cluster goes on in a newer history, and this node's store may hold commits that it lacks. The node keeps what it holds
    /// and serves nothing, until an operator has decided.
    #[error("the histories of this cluster have parted: it goes on as {by}, and this node waits for an operator")]
    Parted {
        /// The newer history.
        by: crate::control::History,
    },
}
