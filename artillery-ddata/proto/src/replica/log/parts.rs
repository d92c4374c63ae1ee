//! The parts of a snapshot for a joiner or for a checkpoint of this member.
//!
//! A snapshot pins nothing in the store: each part has its keys as committed when the part is made
//! (docs/adr/0020-a-snapshot-of-what-is-there.md). The store keeps every version that a reader at the watermark needs,
//! and no update is committed while a part is made.

use bytes::Bytes;

use super::Log;
use crate::{
    Version,
    guards::Guards,
    message::{RecordPiece, SessionEntry, SnapshotCursor, SnapshotHeader},
    store::{ScanRecord, StoreError},
};

/// The overhead of a record or session entry in a part, in bytes.
const ENTRY: usize = 96;

impl Log {
    /// The header of a snapshot of the committed state, and its sessions.
    pub(in crate::replica) fn snapshot_header(
        &self,
        guards: Guards,
        said: Version,
    ) -> (SnapshotHeader, Vec<SessionEntry>) {
        let sessions = self.sessions.copy();
        let header = self.bare_snapshot_header(guards);
        (SnapshotHeader { said, sessions: sessions.len() as u64, ..header }, sessions)
    }

    /// The header of a snapshot without sessions.
    pub(in crate::replica) fn bare_snapshot_header(&self, guards: Guards) -> SnapshotHeader {
        let at = self.watermark;
        SnapshotHeader {
            said: Version::NONE,
            version: self.history.version_at(at).unwrap_or_default(),
            epochs: self.history.epochs_at(at),
            chain_time: if allows!(guards, ShowPendingStamp) {
                self.chain_time.newest()
            } else {
                self.chain_time.committed()
            },
            sessions: 0,
        }
    }

    /// The committed records after the key `behind`: as many as fit into `most` bytes, but at least one. A record with
    /// a value above `chunk` bytes ends them, and is returned too.
    pub(in crate::replica) fn records_behind(
        &self,
        behind: Option<&Bytes>,
        most: usize,
        chunk: usize,
    ) -> Result<(Vec<ScanRecord>, Option<ScanRecord>), StoreError> {
        let (mut records, mut bytes) = (Vec::new(), 0);
        let from = behind.map_or_else(Vec::new, |behind| [behind, &[0][..]].concat());
        for record in self.store.scan(&from, self.watermark) {
            let record = record?;
            let Some(value) = &record.held.value else { continue };
            if value.len() > chunk {
                return Ok((records, Some(record)));
            }
            let cost = ENTRY + record.key.len() + value.len();
            if bytes + cost > most && !records.is_empty() {
                break;
            }
            bytes += cost;
            records.push(record);
        }
        Ok((records, None))
    }
}

/// The piece of a large value at `mark`; the first one, if the mark is at or after the end of the value. A joiner
/// checks whether its pieces are of the same version.
pub(crate) fn piece_at(mark: &SnapshotCursor, record: &ScanRecord, chunk: usize) -> RecordPiece {
    let value = record.held.value.clone().unwrap_or_default();
    let start = usize::try_from(mark.bytes).ok().filter(|&start| start < value.len()).unwrap_or_default();
    let end = value.len().min(start.saturating_add(chunk));
    RecordPiece {
        key: record.key.clone(),
        version: record.held.version,
        len: u32::try_from(value.len()).unwrap_or(u32::MAX),
        expires: record.held.expires,
        bytes: value.slice(start..end),
    }
}

/// The first entries, up to `most` bytes together, but at least one.
pub(crate) fn entries_of(left: &[SessionEntry], most: usize) -> Vec<SessionEntry> {
    let taken = |entry: &SessionEntry| match entry {
        SessionEntry::Record { taken: Some(taken), .. } => taken.len(),
        _ => 0,
    };
    let mut bytes = 0;
    let fits = left.iter().take_while(|entry| {
        bytes += ENTRY + taken(entry);
        bytes <= most
    });
    let count = fits.count().max(1);
    left[..count].to_vec()
}
