//! Messages between the members of a chain.
//!
//! [`Updates`] carry history down the chain, and [`Chunk`]s carry updates that are too large for one frame.
//! [`SnapshotPart`]s carry to a joiner the data whose history is no longer kept. [`ChainMessage::Durable`] and
//! [`ChainMessage::Full`] report the state of the sender's disk and memory. [`Control`] carries everything else, as
//! *cumulative state*: what the sender currently holds, has committed, asks and answers. A later control frame contains
//! everything in an earlier one. So a member keeps only one pending control frame per peer, and loss, repetition and
//! reordering only cause delay.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{
    outline::Outline,
    snapshot::{SnapshotPart, SnapshotProgress},
};
use crate::{ChainId, Epoch, Sequence, Version, types::update::Update};

/// A message and the configuration in which it was sent.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ChainFrame {
    pub chain: ChainId,
    /// The epoch of the sender's configuration; a receiver in another epoch ignores the message (docs/DESIGN.md §5.4).
    pub epoch: Epoch,
    /// The log index of that configuration.
    pub index: u64,
    pub message: ChainMessage,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ChainMessage {
    /// To the successor.
    Updates(Updates),
    /// To any member.
    Control(Control),
    /// A piece of an update that is too large for one frame, to the successor.
    Chunk(Chunk),
    /// A part of a snapshot, to the joiner behind the sender.
    Snapshot(SnapshotPart),
    /// A durable mark. To the successor: all members from the head to the sender hold everything up to this version on
    /// disk. From a joiner to the tail: the joiner does. In-memory members never send it.
    Durable(Version),
    /// To the head: whether the sender's disk or memory is full. A report that it is full expires after four of the
    /// head's heartbeats.
    Full(Fullness),
}

/// The resource of a member that is full. Its chain then accepts no writes that set a value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub enum Fullness {
    #[default]
    Nothing,
    Disk,
    /// Its node has reached its limit on the bytes of keys and values.
    Memory,
}

/// Consecutive updates, and the sender's watermark.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Updates {
    pub watermark: Sequence,
    /// The version before the first update; [`Version::NONE`]: the history begins here. If the receiver's history ends
    /// in another version, it is missing updates or has diverged (trap 54).
    pub after: Version,
    /// Consecutive by sequence, never empty.
    pub updates: Vec<Update>,
}

/// A piece of the next update, and the sender's watermark. A member forwards a piece without waiting for the next, so
/// that the hops of a chain transfer a large value concurrently.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Chunk {
    pub watermark: Sequence,
    /// The version before the update, as in [`Updates`].
    pub after: Version,
    /// The version of the update.
    pub version: Version,
    pub part: ChunkPart,
    /// 1 to [`MAX_CHUNK`] bytes of the update's keys and values, which are back to back.
    pub bytes: Bytes,
}

/// The longest piece of an update, in bytes. Other messages wait for at most one piece of a large value.
pub const MAX_CHUNK: usize = 64 << 10;

/// The position of a piece in its update.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum ChunkPart {
    /// At the start; carries the update without its bytes.
    First(Outline),
    /// At this offset, in bytes.
    Behind(u64),
}

/// The part of an update that has been received.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Partial {
    /// The version of the update.
    pub version: Version,
    /// Received bytes of its keys and values, from the first.
    pub bytes: u64,
}

/// The end of a member's history, and its epochs.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Position {
    /// The newest version applied.
    pub last: Version,
    /// The first sequence of each epoch in the history, oldest first. They suffice to find the last version that two
    /// histories have in common.
    pub epochs: Vec<(Epoch, Sequence)>,
}

/// The cumulative state that a member sends to another one.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Control {
    pub watermark: Sequence,
    /// The receiver's watermark as known to the sender; the receiver needn't repeat it.
    pub echo: Sequence,
    /// Requests an echo: the sender doesn't know whether the receiver has its watermark.
    pub confirm: bool,
    /// Whether the sender's epoch is open.
    pub is_open: bool,
    /// To the predecessor: the newest version applied (a hop acknowledgement).
    pub acknowledged: Version,
    /// To the predecessor: a request to send everything after this position, even if it was sent before.
    pub resume: Option<Position>,
    /// To the predecessor: the received part of the next update, if it is sent in pieces. With `resume` it is the
    /// position in that update at which to continue.
    pub partial: Option<Partial>,
    /// To the successor: the sender knows the end of the receiver's history and that this history is a prefix of its
    /// own.
    pub following: bool,
    /// To the successor: the histories diverge, and the successor must drop part of its own before it continues.
    pub cut: Option<Truncate>,
    /// To the successor: the epoch is open for it once it holds all updates up to here (rule 5.5).
    pub open: Option<Sequence>,
    /// To the tail: the version query that waits for its answer (0: none).
    pub query: u64,
    /// From the tail: the receiver's highest query, and the watermark at some time after the query was received.
    pub answer: Option<VersionAnswer>,
    /// To the head: the barrier that waits to be ordered (0: none).
    pub barrier: u64,
    /// From the head: the highest barrier ordered for the receiver, and its sequence.
    pub ordered: Option<VersionAnswer>,
    /// To the predecessor: the sender is receiving a snapshot, and has no history until it is complete.
    pub snapshot: Option<Box<SnapshotProgress>>,
}

/// The point from which a successor must drop its history, which diverges from its predecessor's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Truncate {
    /// The newest version that the successor reported. If it has another one by now, the message is outdated and it
    /// drops nothing.
    pub said: Version,
    /// The newest version common to both. The successor drops everything above it.
    pub keep: Version,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct VersionAnswer {
    /// The number of the query or barrier. The answer also applies to all lower ones.
    pub number: u64,
    /// For a query a watermark, for a barrier its sequence.
    pub sequence: Sequence,
}
