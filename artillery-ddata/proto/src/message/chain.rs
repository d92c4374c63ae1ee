//! What the members of a chain say to each other.
//!
//! [`Updates`] carry history down the chain. [`Chunk`]s carry the updates that are too large for one frame.
//! [`SnapshotPart`]s carry to a joiner what history no longer says. [`Control`] carries everything else, as *cumulative
//! state*: what the sender holds, has committed, asks and answers by now. A later one says all that an earlier one
//! said. So a member keeps only one pending control frame per peer, and loss, repetition and reordering can only delay.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{
    outline::Outline,
    snapshot::{SnapshotPart, SnapshotProgress},
};
use crate::{ChainId, Epoch, Sequence, Version, types::update::Update};

/// A message and the configuration in which it was sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChainFrame {
    /// Which chain.
    pub chain: ChainId,
    /// The sender's configuration; a receiver in another one ignores the message (docs/DESIGN.md §5.4).
    pub epoch: Epoch,
    /// Log index of that configuration.
    pub index: u64,
    /// The message itself.
    pub message: ChainMessage,
}

/// What one member says to another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ChainMessage {
    /// History, to the successor.
    Updates(Updates),
    /// Everything else, to any member.
    Control(Control),
    /// A piece of an update that is too large for one frame, to the successor.
    Chunk(Chunk),
    /// A part of a snapshot, to the joiner behind the sender.
    Snapshot(SnapshotPart),
    /// How far the sender is durable. To the successor: all members from the head to the sender hold everything up to this
    /// version on their disks. To the predecessor: the sender does. Members in memory never send it.
    Durable(Version),
    /// To the head: what the sender has no room in. It counts for some heartbeats.
    Full(Fullness),
}

/// What a member has no room in. Then its chain adds no values.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Fullness {
    /// It has room.
    #[default]
    Nothing,
    /// Its disk counts as full.
    Disk,
    /// Its node holds as many bytes as it may.
    Memory,
}

/// Consecutive updates. The sender's watermark travels with them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Updates {
    /// The sender's commit watermark.
    pub watermark: Sequence,
    /// The version before the first update; [`Version::NONE`]: the history begins here. A receiver whose history ends
    /// in another version lacks something, or has diverged (trap 54).
    pub after: Version,
    /// Consecutive by sequence, never empty.
    pub updates: Vec<Update>,
}

/// A piece of the next update. The sender's watermark travels with it. A member hands a piece on before it has the next
/// piece, so that a large value passes all hops of the chain at the same time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chunk {
    /// The sender's commit watermark.
    pub watermark: Sequence,
    /// The version before that update, as in [`Updates`].
    pub after: Version,
    /// Which update.
    pub version: Version,
    /// Where the piece belongs.
    pub part: ChunkPart,
    /// 1 to [`MAX_CHUNK`] bytes of the update's keys and values, one behind the other.
    pub bytes: Bytes,
}

/// The longest piece of an update, in bytes. Another message waits for at most one piece of a large value.
pub const MAX_CHUNK: usize = 64 << 10;

/// Where a piece of an update belongs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ChunkPart {
    /// At the beginning; here with the outline of the update.
    First(Outline),
    /// Behind so many bytes.
    Behind(u64),
}

/// How much of an update has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Partial {
    /// Which update.
    pub version: Version,
    /// Bytes of its keys and values, from the first on.
    pub bytes: u64,
}

/// Where a member's history stands.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Position {
    /// The newest version applied.
    pub last: Version,
    /// The first sequence of each epoch in the history, oldest first: enough to find the last version that two
    /// histories have in common.
    pub epochs: Vec<(Epoch, Sequence)>,
}

/// The cumulative state that a member shows to another one.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Control {
    /// The sender's commit watermark.
    pub watermark: Sequence,
    /// The receiver's watermark as the sender knows it: the receiver needn't repeat it.
    pub echo: Sequence,
    /// The sender asks for an echo: it doesn't know whether the receiver knows its watermark.
    pub confirm: bool,
    /// Whether the epoch is open at the sender.
    pub is_open: bool,
    /// To the predecessor: the newest version applied (a hop acknowledgement).
    pub acknowledged: Version,
    /// To the predecessor: send from behind this position, even what was sent before.
    pub resume: Option<Position>,
    /// To the predecessor: how much of the next update has come, if it comes in pieces. With `resume` it says where in
    /// that update to go on.
    pub partial: Option<Partial>,
    /// To the successor: the sender knows where the receiver's history stands, and that it is a prefix of its own.
    pub following: bool,
    /// To the successor: the histories diverge; what the successor must drop before it goes on.
    pub cut: Option<Truncate>,
    /// To the successor: the epoch is open for it once it holds all updates up to here (rule 5.5).
    pub open: Option<Sequence>,
    /// To the tail: the version query that waits for its answer (0: none).
    pub query: u64,
    /// From the tail: the highest query asked by the receiver, and the watermark at a moment after it was received.
    pub answer: Option<VersionAnswer>,
    /// To the head: the barrier that waits to be ordered (0: none).
    pub barrier: u64,
    /// From the head: the highest barrier ordered for the receiver, and its sequence.
    pub ordered: Option<VersionAnswer>,
    /// To the predecessor: the sender is in the middle of a snapshot, and has no history until that is complete.
    pub snapshot: Option<Box<SnapshotProgress>>,
}

/// Where a successor's history diverges from its predecessor's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Truncate {
    /// The newest version that the successor reported. If that has changed since, it drops nothing: this came too late.
    pub said: Version,
    /// The newest version common to both. The successor drops everything above it.
    pub keep: Version,
}

/// The answer to a numbered query or barrier.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VersionAnswer {
    /// The number of the query or barrier. The answer holds for all lower ones too.
    pub number: u64,
    /// A watermark or the place of a barrier.
    pub sequence: Sequence,
}
