//! Replies to requests.

use bytes::Bytes;

use super::{CopyReply, DigestReply, GroupOutcome};
use crate::{
    MemberId, Sequence, Version,
    store::{Held, ScanRecord},
};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// The write is committed: every serving member holds it.
    Committed(WriteReply),
    /// The condition of the write failed. The version and value that it was compared with are committed.
    Conflict {
        /// The update that records the failure.
        at: Version,
        /// The step of a batch, or the requirement of a script, that failed; counted from 0. 0 for a compare-and-swap.
        step: u32,
        /// The key's version at that time; [`Version::NONE`]: it was absent.
        version: Version,
        /// The value of that version. `None`: the key was absent, or this is answered from the request's record, which
        /// doesn't keep the value.
        value: Option<Bytes>,
        /// Whether this is the outcome of an earlier attempt of the same request.
        replayed: bool,
    },
    Read(ReadReply),
    Cut(MultiGetReply),
    Page(ScanReply),
    Changes(WatchReply),
    /// This attempt has no effect. Earlier attempts of the same request may have had one.
    Refused(Refusal),
    /// The deadline passed before an answer; or the member can no longer learn the outcome of a write, for example
    /// because it dropped the update, left the chain, halted, or entered another history. A read has ended; the outcome
    /// of a write is unknown.
    Expired,
    Hashed(HashedReply),
    Digest(Box<DigestReply>),
    Copied(Box<CopyReply>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WriteReply {
    /// The version of the update that records the write. Each key that the write has set got this version.
    pub version: Version,
    /// The number of serving members when the reply is made. Each of them holds the write.
    pub copies: u32,
    /// Whether this is the outcome of an earlier attempt of the same request.
    pub replayed: bool,
    pub result: Computed,
}

/// The result of a committed write.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Computed {
    /// The write has no result.
    Nothing,
    /// The length of the value after an append, in bytes.
    Length(u64),
    /// The number after an increment.
    Number(i64),
    /// Whether an expiry was set or removed.
    Changed(bool),
    /// The value that a get-and-delete removed, and its version; `None`: the key was absent.
    Took(Option<(Version, Bytes)>),
    /// A get-and-delete removed a value of this version. This answers a retry, and the member doesn't have the value:
    /// it was too large to be kept for retries, or the member received the deletion together with a snapshot.
    TookForgotten(Version),
    /// The outcomes of a script's groups, in order.
    Ran(Vec<GroupOutcome>),
    /// A script was applied. This answers a retry; the outcomes aren't kept for retries.
    RanForgotten,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReadReply {
    /// The version that was found; `None` for a tombstone or an absent key.
    pub held: Option<Held>,
    /// Whether the member knew that this version is committed.
    pub clean: bool,
    pub way: ReadPath,
    /// The read reflects at least the history up to this committed position. The floor of a session rises to it.
    pub as_of: Sequence,
    /// The chain time at the member when it replied, in milliseconds; 0 if none of the found keys expires.
    pub chain_time: u64,
}

/// The result of a read of several keys at one point of the history.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MultiGetReply {
    /// What each key holds, in the order of the query; `None` for a tombstone or an absent key.
    pub found: Vec<Option<Held>>,
    /// Whether the member knew that all these versions are committed.
    pub clean: bool,
    pub way: ReadPath,
    /// As [`ReadReply::as_of`].
    pub as_of: Sequence,
    /// The chain time at the member when it replied, in milliseconds; 0 if none of the found keys expires.
    pub chain_time: u64,
}

/// A page of a scan, at one point of the history.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ScanReply {
    /// Keys and values in order, without tombstones.
    pub records: Vec<ScanRecord>,
    /// The key after which the scan continues; `None`: the scan has ended. Any page may be empty.
    pub next: Option<Bytes>,
    /// Whether the member knew that all these versions are committed.
    pub clean: bool,
    pub way: ReadPath,
    /// As [`ReadReply::as_of`].
    pub as_of: Sequence,
    /// The number that this member gave the snapshot to which the page belongs; `None`: the page belongs to none. The
    /// last page ends the snapshot.
    pub snapshot: Option<u64>,
    /// The chain time at the member when it replied, in milliseconds; 0 if none of the found keys expires.
    pub chain_time: u64,
}

/// A page of keys in hash order, at one point of the history.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HashedReply {
    /// Every key that holds a value, in hash order, up to the position at which the scan continues.
    pub keys: Vec<Bytes>,
    /// The position at which the scan continues; 0: the scan has ended. While the member is still building the hash
    /// order, this is the position at which the page began. Any page may be empty.
    pub next: u64,
    /// Whether the member knew that all these versions are committed.
    pub clean: bool,
    pub way: ReadPath,
    /// As [`ReadReply::as_of`].
    pub as_of: Sequence,
}

/// Committed changes, in the order of the history.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WatchReply {
    /// Keys with their new values; a tombstone is a deletion, or an expiry if it has one.
    pub records: Vec<ScanRecord>,
    /// The reply covers all changes up to here. The next query continues after it.
    pub upto: Sequence,
    /// The number of changes of the update after `upto` that the reply also covers, if that update doesn't fit as a
    /// whole: the next query asks for the rest. 0: none.
    pub shown: u32,
}

/// How a read was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub enum ReadPath {
    /// From the member's own state: at once, or, in a session, once the member had reached the session's floor.
    Local,
    /// After a wait for the answer to a version query, or until the member's watermark covered the newest version.
    Query,
    /// After a barrier.
    Chain,
}

/// Why a request was refused. The attempt had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// This node can't answer for the chain: it is in no configuration, receives a snapshot, doesn't serve such
    /// requests in its role, has stopped, or doesn't know yet to which history its data belong. Or its configuration
    /// changed while the request waited. Or the chain doesn't exist, the key belongs to another chain, or the node to
    /// which the request was forwarded could not be reached.
    #[error("this node doesn't serve the chain of that key")]
    NoChain,
    /// Only the head accepts writes; the head, if known.
    #[error("only the head accepts writes")]
    NotHead(Option<MemberId>),
    /// In classic mode only the tail serves strong reads; the tail, if known.
    #[error("only the tail serves strong reads")]
    NotTail(Option<MemberId>),
    /// This node has no valid lease, and no member with a lease answered its strong read in time.
    #[error("this node holds no lease")]
    NoLease,
    /// The window, or a queue or budget in front of it, is full; or the chain orders no writes at present; or the
    /// member keeps as many snapshots or waiting watches as it may.
    #[error("too many bytes are in flight")]
    Busy,
    /// Fewer members serve than the chain requires for writes.
    #[error("{have} members serve, writes need {need}")]
    TooFewMembers {
        /// The number of serving members.
        have: u32,
        /// The configured minimum.
        need: u32,
    },
    /// A key, the prefix of a scan or a watch, or the key after which a scan continues is too long.
    #[error("a key of {len} bytes, at most {limit} are allowed")]
    KeyTooLong {
        /// The key's length in bytes.
        len: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The member's store reported an error.
    #[error("the store failed")]
    StoreFailed,
    /// A value, as sent or as it would be after an append, is larger than the node allows; or the values that a read of
    /// several keys has found are together larger than that.
    #[error("a value of {len} bytes, at most {limit} are allowed (max_value_bytes)")]
    ValueTooLarge {
        /// The length of the value, or of these values together, in bytes.
        len: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The client's session was evicted, or never existed. Whether the request was applied is no longer known.
    #[error("the client's session has expired")]
    SessionExpired,
    /// The client has confirmed that it knows the outcome of this request, so its record was dropped.
    #[error("the record of this request was dropped: its client had confirmed the answer")]
    Forgotten,
    /// The request was resolved before it arrived: it was never applied and never will be.
    #[error("the request was resolved as never applied")]
    Barred,
    /// The session has too many requests whose replies its client hasn't confirmed, or their records use more than the
    /// session's share of the table.
    #[error("the client's session has too many unconfirmed requests")]
    SessionFull,
    /// The value to increment isn't a signed decimal integer of 64 bits, or has leading zeros or a plus sign.
    #[error("the value is not a decimal integer of 64 bits")]
    NotANumber,
    /// The result of an increment doesn't fit in 64 bits.
    #[error("the number would leave the range of 64 bits")]
    Overflow,
    /// This member no longer keeps the snapshot, or never did.
    #[error("the snapshot is no longer kept")]
    SnapshotGone,
    /// The keys belong to different chains: one batch, or one request id, can't span them. The text in the first `{…}`
    /// of a key, if any, determines its chain.
    #[error("the keys belong to different chains")]
    ManyChains,
    /// This request id was used for a different write.
    #[error("this request id was used for a different write")]
    OtherRequest,
    /// The session, watch or request id belongs to another history: to another cluster, or to one before a recovery or
    /// an accepted loss. It is meaningless in this history: begin a new one.
    #[error("the session, watch or request id belongs to another history of the cluster")]
    OtherHistory,
    /// A batch or script has no step, or too many; or a read of several keys has no key, or too many.
    #[error("a batch of {len} steps; 1 to {limit} are allowed")]
    BatchSize {
        /// The number of steps including conditions, where an empty group is counted as one; or the number of keys.
        len: u64,
        /// The highest allowed number.
        limit: u64,
    },
    /// The member no longer keeps the requested changes: the watch fell behind, or began too far back. To return to a
    /// copy without gaps, open a new watch first. Then scan in a session that has the watch's position as its frontier,
    /// and skip each change whose version isn't newer than the found one.
    #[error(
        "changes before sequence {first} are no longer kept: open a new watch, then scan from its position, and skip \
         changes that aren't newer than the found versions"
    )]
    Compacted {
        /// The first sequence that is still kept.
        first: u64,
    },
    /// The results of a script are larger than the node allows for one value, and the script changed nothing. Or the
    /// reply to a read doesn't fit into a frame.
    #[error("results of {len} bytes or more, at most {limit} are allowed (max_value_bytes)")]
    ResultsTooLarge {
        /// The length in bytes of the results up to the point where the script stopped, or of the reply.
        len: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// This node's cluster was replaced by another one, and no other node of its own cluster answers this node. Or its
    /// cluster gave way to another one, and no confirmed leader of its own answers. The node keeps its data and serves
    /// nothing.
    #[error("this node's cluster was replaced by cluster {by}: the node keeps its data and serves nothing")]
    Succeeded {
        /// The cluster that succeeds it.
        by: crate::ClusterId,
    },
    /// The values that the write would leave are together larger than one update may be. The write changed nothing.
    #[error("the update would be {len} bytes, at most {limit} are allowed (max_value_bytes, or half of window_bytes)")]
    UpdateTooLarge {
        /// Their length in bytes.
        len: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The disk of a serving member is considered full. Writes that set a value, even a shorter one, are refused until
    /// it has space again; deletes and reads continue.
    #[error("the disk of node {} is full", member.node)]
    DiskFull {
        /// The member with the full disk.
        member: MemberId,
    },
    /// A serving member has reached its limit on the bytes of keys and values. Writes that set a value, even a shorter
    /// one, are refused until it is below; deletes and reads continue.
    #[error("node {} has reached its memory limit", member.node)]
    MemoryFull {
        /// The member that reached its limit.
        member: MemberId,
    },
    /// The cluster continues in a newer history, and this node's store may hold committed updates that are missing
    /// there. The node keeps its data and serves nothing until an operator has decided.
    #[error("the histories of this cluster have diverged: it continues as {by}, and this node waits for an operator")]
    Parted {
        /// The newer history.
        by: crate::control::History,
    },
    /// The node that should answer runs a release whose protocol doesn't have this operation. Upgrade it.
    #[error("this needs protocol {needs}, and a node speaks protocol {has}: upgrade it")]
    Unsupported {
        /// The first protocol version that has the operation.
        needs: u16,
        /// The version of the connection to the node.
        has: u16,
    },
}
