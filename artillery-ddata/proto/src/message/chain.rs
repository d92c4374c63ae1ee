//! What the members of a chain say to each other.
//!
//! [`Updates`] carry history down the chain, and [`Chunk`]s what of it is too large for one frame; [`SnapshotPart`]s carry
//! to a joiner what history no longer says. [`Control`] carries everything else, as *cumulative state*: what the sender
//! holds, has committed, asks and answers by now. A later one says all that an earlier one said, so a member keeps one
//! pending control frame per peer however much happens, and loss, repetition and reordering can't do more than delay.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{
    outline::Outline,
    snapshot::{SnapshotPart, SnapshotProgress},
};
use crate::{ChainId, Epoch, Sequence, Version, types::update::Update};

/// A message and the configuration in which it was said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChainFrame {
    /// Which chain.
    pub chain: ChainId,
    /// The sender's configuration; a receiver in another one ignores the message (docs/DESIGN.md §5.4).
    pub epoch: Epoch,
    /// Log index of that configuration.
    pub index: u64,
    /// What is said.
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
}

/// Consecutive updates, and the sender's watermark as a free ride.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Updates {
    /// The sender's commit watermark.
    pub watermark: Sequence,
    /// The version before the first update; [`Version::NONE`]: the history begins here. A receiver whose history ends in
    /// another version lacks something, or has diverged (trap 54).
    pub after: Version,
    /// Consecutive by sequence, never empty.
    pub updates: Vec<Update>,
}

/// A piece of the next update, and the sender's watermark as a free ride. A member hands a piece on before it has the
/// next, so that a large value passes each hop of the chain while it is on its way through the others.
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

/// The longest piece of an update, in bytes: nothing else waits for more of a large value than the piece that it met.
pub const MAX_CHUNK: usize = 64 << 10;

/// Where a piece of an update belongs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ChunkPart {
    /// At the beginning; what the update is.
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
    /// The receiver's watermark as the sender knows it: what needn't be repeated.
    pub echo: Sequence,
    /// The sender doesn't know whether the receiver knows its watermark, and would like to.
    pub confirm: bool,
    /// Whether the epoch is open at the sender.
    pub is_open: bool,
    /// To the predecessor: the newest version applied (a hop acknowledgement).
    pub acknowledged: Version,
    /// To the predecessor: please send from behind this position, whatever was sent before.
    pub resume: Option<Position>,
    /// To the predecessor: what has come of the update behind that, if it comes in pieces. With `resume` it says where
    /// in that update to go on.
    pub partial: Option<Partial>,
    /// To the successor: the sender knows where the receiver's history stands, and that it is a prefix of its own.
    pub following: bool,
    /// To the successor: the histories part; what to drop before going on.
    pub cut: Option<Truncate>,
    /// To the successor: the epoch is open for it once it holds all up to here (rule 5.5).
    pub open: Option<Sequence>,
    /// To the tail: the version query that waits for its answer (0: none).
    pub query: u64,
    /// From the tail: the highest query asked by the receiver, and the watermark at a moment after it was received.
    pub answer: Option<VersionAnswer>,
    /// To the head: the barrier that waits to be ordered (0: none).
    pub barrier: u64,
    /// From the head: the highest barrier ordered for the receiver, and its sequence.
    pub ordered: Option<VersionAnswer>,
    /// To the predecessor: the sender is in the middle of a snapshot, and has no history until that is through.
    pub snapshot: Option<Box<SnapshotProgress>>,
}

/// Where a successor's history parts from its predecessor's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Truncate {
    /// The newest version that the successor said it had. It drops nothing once that has changed: the word came late.
    pub said: Version,
    /// The newest version common to both; everything above goes.
    pub keep: Version,
}

/// The answer to a numbered question.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VersionAnswer {
    /// The number of the question; it answers all lower ones too.
    pub number: u64,
    /// A watermark or the place of a barrier.
    pub sequence: Sequence,
}
