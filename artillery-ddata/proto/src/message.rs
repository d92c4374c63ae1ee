//! What members, nodes and clients say to each other, as values. [`wire`](crate::wire) turns them into bytes.

mod chain;
pub mod control;
mod outline;
mod raw;
pub mod request;
mod snapshot;

pub(crate) use self::outline::Pieces;
pub use self::{
    chain::{Answer, ChainFrame, ChainMessage, Chunk, Control, Cut, MAX_CHUNK, Part, Partial, Position, Updates},
    outline::{Lengths, Outline},
    snapshot::{Beginning, Mark, Progress, RecordPiece, SessionEntry, SnapshotContent, SnapshotPart},
};
