//! Messages between members, nodes and clients, as values. [`wire`](crate::wire) encodes them.

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
    outline::{Lengths, Outline, ValueOutline},
    snapshot::{
        RecordPiece, SessionEntry, SnapshotContent, SnapshotCursor, SnapshotHeader, SnapshotPart, SnapshotProgress,
    },
};
