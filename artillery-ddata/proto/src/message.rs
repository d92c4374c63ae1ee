//! What members, nodes and clients say to each other, as values. [`wire`](crate::wire) turns them into bytes.

mod chain;
pub mod control;
mod outline;
mod raw;
pub mod request;
mod snapshot;

pub(crate) use self::outline::BodyReader;
pub use self::{
    chain::{
        ChainFrame, ChainMessage, Chunk, ChunkPart, Control, Fullness, MAX_CHUNK, Partial, Position, Truncate, Updates,
        VersionAnswer,
    },
    outline::{Lengths, Outline},
    snapshot::{
        RecordPiece, SessionEntry, SnapshotContent, SnapshotCursor, SnapshotHeader, SnapshotPart, SnapshotProgress,
    },
};
