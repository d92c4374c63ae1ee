//! What a source says of the snapshot that it sends to a joiner, and what the joiner says of it.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::raw;
use crate::{Epoch, Sequence, Version, store::ScanRecord, types::update::RequestOutcome};

/// A part of a snapshot, from a source to the joiner behind it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SnapshotPart {
    /// Which one: the source's number, at least 1, rising within an epoch.
    pub id: u64,
    /// What stands before it. A joiner takes it in only if it has exactly that.
    pub at: SnapshotCursor,
    /// The source's commit watermark when it made this part: keys are shown as they were then, or at some moment between the
    /// beginning of the snapshot and then.
    pub watermark: Sequence,
    /// What it brings.
    pub content: SnapshotContent,
}

/// What a part of a snapshot brings, in the order of the parts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SnapshotContent {
    /// The first: what the snapshot is.
    Begin(SnapshotHeader),
    /// Entries of the table of sessions, never none.
    Sessions(Vec<SessionEntry>),
    /// Records in key order, never none, and none of them a tombstone.
    Records(Vec<ScanRecord>),
    /// A piece of one record whose value is too large for one part.
    Piece(RecordPiece),
    /// The last: there is nothing more.
    End,
}

/// What a snapshot is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SnapshotHeader {
    /// The newest version that the joiner said it had ([`Version::NONE`] too, if it was in the middle of another
    /// snapshot). It takes up nothing once that has changed: the word came late.
    pub said: Version,
    /// The source had committed the history up to here. What follows comes as updates, some of which the records that come
    /// later may show already.
    pub version: Version,
    /// The first sequence of each epoch in that history, oldest first.
    pub epochs: Vec<(Epoch, Sequence)>,
    /// A stamp that none of its updates is above.
    pub chain_time: u64,
    /// How many entries the table of sessions has.
    pub sessions: u64,
}

/// A piece of a record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordPiece {
    /// The record's key.
    pub key: Bytes,
    /// The version that it holds.
    pub version: Version,
    /// The length of the whole value, in bytes.
    pub len: u32,
    /// Bytes of the value, behind those that [`SnapshotCursor::bytes`] counts: 1 to [`MAX_CHUNK`](super::MAX_CHUNK).
    pub bytes: Bytes,
}

/// An entry of the table of sessions: sessions by their ids, each with its records behind it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SessionEntry {
    /// A session.
    Session {
        /// The version of the update that opened it.
        id: Version,
        /// The lowest number that is still unanswered at its client.
        lowest: u64,
        /// The update that used it last.
        used: Sequence,
    },
    /// A record of the session before it.
    Record {
        /// The request's number.
        number: u64,
        /// The update that recorded it.
        version: Version,
        /// What came of it.
        outcome: RequestOutcome,
        /// The value that it took away, at most [`MAX_TAKEN`](crate::types::update::MAX_TAKEN) bytes.
        #[serde(with = "raw")]
        taken: Option<Bytes>,
    },
}

/// A place in a snapshot: all that stands before it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Default, Debug, Serialize, Deserialize)]
pub struct SnapshotCursor {
    /// Entries of the table of sessions.
    pub sessions: u64,
    /// The key of the last whole record; `None`: there is none yet.
    #[serde(with = "raw")]
    pub behind: Option<Bytes>,
    /// Bytes of the value of the record behind that.
    pub bytes: u64,
}

/// Where a joiner stands that is in the middle of a snapshot, and so has no history.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct SnapshotProgress {
    /// Which snapshot of this epoch; 0: none yet.
    pub id: u64,
    /// What has come of it.
    pub mark: SnapshotCursor,
    /// Please send from behind that, whatever was sent before.
    pub again: bool,
    /// The newest update that it keeps for afterwards.
    pub upto: Sequence,
    /// Please send updates from behind that, whatever was sent before.
    pub missed: bool,
    /// It has no room for more updates until the last part has come.
    pub hold: bool,
    /// The last part has come. What is missing is updates, up to the highest watermark at which a part was made.
    pub ended: bool,
}
