//! The parts of a snapshot that a source sends to a joiner, and the joiner's progress reports.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::raw;
use crate::{Epoch, Expiry, Sequence, Version, store::ScanRecord, types::update::RequestOutcome};

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SnapshotPart {
    /// The source's number of the snapshot: at least 1, ascending within an epoch.
    pub id: u64,
    /// The position of this part. A joiner accepts the part only if it has received exactly the parts before.
    pub at: SnapshotCursor,
    /// The source's commit watermark when it made this part. The part shows each key at some time between the start of
    /// the snapshot and the making of the part.
    pub watermark: Sequence,
    pub content: SnapshotContent,
}

/// The kinds of parts, in the order in which they are sent.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum SnapshotContent {
    /// The first part.
    Begin(SnapshotHeader),
    /// Entries of the table of sessions, at least one.
    Sessions(Vec<SessionEntry>),
    /// Records in key order, at least one, without tombstones.
    Records(Vec<ScanRecord>),
    /// A piece of one record whose value is too large for one part.
    Piece(RecordPiece),
    /// The last part.
    End,
}

impl SnapshotContent {
    /// The approximate size, in bytes.
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

#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct SnapshotHeader {
    /// The newest version that the joiner reported; [`Version::NONE`] also if it was in the middle of another snapshot.
    /// If it is in no snapshot and has another version by now, the header is outdated and the joiner doesn't begin this
    /// snapshot.
    pub said: Version,
    /// The source's newest committed version at the start. Later updates are sent as history; records may already
    /// reflect some of them.
    pub version: Version,
    /// The first sequence of each epoch in that history, oldest first.
    pub epochs: Vec<(Epoch, Sequence)>,
    /// The stamp of the update of that version.
    pub chain_time: u64,
    /// The number of entries of the table of sessions.
    pub sessions: u64,
}

/// A piece of a record's value.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RecordPiece {
    pub key: Bytes,
    pub version: Version,
    /// The length of the whole value, in bytes.
    pub len: u32,
    /// When the key expires; `None`: never.
    pub expires: Option<Expiry>,
    /// 1 to [`MAX_CHUNK`](super::MAX_CHUNK) bytes of the value, from offset [`SnapshotCursor::bytes`].
    pub bytes: Bytes,
}

/// An entry of the table of sessions. Sessions are in the order of their ids, each followed by its records.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum SessionEntry {
    Session {
        /// The version of the update that opened it.
        id: Version,
        /// The lowest number of a request whose reply the client hasn't received.
        lowest: u64,
        /// The last update that used it.
        used: Sequence,
    },
    /// A record of the session before it.
    Record {
        /// The number of the request.
        number: u64,
        /// The version of the update that recorded it.
        version: Version,
        outcome: RequestOutcome,
        /// The value that the request removed, at most [`MAX_TAKEN`](crate::types::update::MAX_TAKEN) bytes.
        #[serde(with = "raw")]
        taken: Option<Bytes>,
    },
}

/// A position in a snapshot: the parts sent before it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Debug, Serialize, Deserialize)]
pub struct SnapshotCursor {
    /// The number of entries of the table of sessions.
    pub sessions: u64,
    /// The key of the last complete record; `None`: there is none yet.
    #[serde(with = "raw")]
    pub behind: Option<Bytes>,
    /// The number of bytes of the next record's value before this position.
    pub bytes: u64,
}

impl SnapshotCursor {
    /// Moves past a part.
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

/// The progress of a joiner that is receiving a snapshot and therefore has no history.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug, Serialize, Deserialize)]
pub struct SnapshotProgress {
    /// The number of the snapshot in this epoch; 0: none yet.
    pub id: u64,
    /// The received part of that snapshot.
    pub mark: SnapshotCursor,
    /// Requests all parts after `mark`, even if they were sent before.
    pub again: bool,
    /// The newest update that the joiner has received and keeps until the snapshot is complete.
    pub upto: Sequence,
    /// Requests all updates after `upto`, even if they were sent before.
    pub missed: bool,
    /// The joiner accepts further updates only after it has applied some of the kept ones.
    pub hold: bool,
    /// The last part has been received. Only updates are missing, up to the highest watermark in a part.
    pub ended: bool,
}
