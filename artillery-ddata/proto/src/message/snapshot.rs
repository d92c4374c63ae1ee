//! The parts of a snapshot that a source sends to a joiner, and the joiner's report of its progress.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::raw;
use crate::{Epoch, Sequence, Version, store::ScanRecord, types::update::RequestOutcome};

/// A part of a snapshot, from a source to the joiner behind it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SnapshotPart {
    /// Which snapshot: the source's number, at least 1, rising within an epoch.
    pub id: u64,
    /// What stands before this part. A joiner accepts the part only if it has exactly that.
    pub at: SnapshotCursor,
    /// The source's commit watermark when it made this part. The part shows a key as it was then, or at some moment
    /// between the beginning of the snapshot and then.
    pub watermark: Sequence,
    /// The content of the part.
    pub content: SnapshotContent,
}

/// The content of a part of a snapshot, in the order of the parts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SnapshotContent {
    /// The first part: the header.
    Begin(SnapshotHeader),
    /// Entries of the table of sessions, at least one.
    Sessions(Vec<SessionEntry>),
    /// Records in key order, at least one, and none of them a tombstone.
    Records(Vec<ScanRecord>),
    /// A piece of one record whose value is too large for one part.
    Piece(RecordPiece),
    /// The last part: there is nothing more.
    End,
}

impl SnapshotContent {
    /// Bytes of keys and values, for a rough size.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Records(records) => {
                records.iter().map(|record| record.key.len() + record.held.value.as_ref().map_or(0, Bytes::len)).sum()
            }
            Self::Piece(piece) => piece.bytes.len(),
            Self::Sessions(entries) => std::mem::size_of_val(entries.as_slice()),
            Self::Begin(_) | Self::End => 0,
        }
    }
}

/// The header of a snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SnapshotHeader {
    /// The newest version that the joiner reported ([`Version::NONE`] too, if it was in the middle of another
    /// snapshot). If that has changed since, the joiner doesn't begin this snapshot: the header came too late.
    pub said: Version,
    /// The source had committed the history up to here. Later history comes as updates. Records that come later may
    /// show some of those updates already.
    pub version: Version,
    /// The first sequence of each epoch in that history, oldest first.
    pub epochs: Vec<(Epoch, Sequence)>,
    /// A stamp that no update of that history exceeds.
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

/// An entry of the table of sessions: sessions in the order of their ids, each followed by its records.
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
        /// The outcome of the request.
        outcome: RequestOutcome,
        /// The value that the request took away, at most [`MAX_TAKEN`](crate::types::update::MAX_TAKEN) bytes.
        #[serde(with = "raw")]
        taken: Option<Bytes>,
    },
}

/// A place in a snapshot, given by all that stands before it.
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

impl SnapshotCursor {
    /// Moves behind a part.
    pub(crate) fn advance(&mut self, content: &SnapshotContent) {
        match content {
            SnapshotContent::Sessions(entries) => self.sessions += entries.len() as u64,
            SnapshotContent::Records(records) => {
                if let Some(last) = records.last() {
                    (self.behind, self.bytes) = (Some(last.key.clone()), 0);
                }
            }
            SnapshotContent::Piece(piece) => {
                self.bytes += piece.bytes.len() as u64;
                if self.bytes >= u64::from(piece.len) {
                    (self.behind, self.bytes) = (Some(piece.key.clone()), 0);
                }
            }
            SnapshotContent::Begin(_) | SnapshotContent::End => {}
        }
    }
}

/// The progress of a joiner that is in the middle of a snapshot, and so has no history.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct SnapshotProgress {
    /// Which snapshot of this epoch; 0: none yet.
    pub id: u64,
    /// How much of that snapshot has come.
    pub mark: SnapshotCursor,
    /// Asks for the parts from behind `mark`, even those that were sent before.
    pub again: bool,
    /// The newest of the updates that the joiner keeps until the snapshot is complete.
    pub upto: Sequence,
    /// Asks for the updates from behind `upto`, even those that were sent before.
    pub missed: bool,
    /// The joiner has no capacity for more updates until it has applied some of its kept updates.
    pub hold: bool,
    /// The last part has come. Only updates are missing, up to the highest watermark at which a part was made.
    pub ended: bool,
}
