//! A checkpoint: a snapshot that this member writes into its own journal (docs/adr/0042).
//!
//! The updates above the watermark are already in the journal, but before the beginning of the checkpoint, so they are
//! written again after it.

use super::{
    Log,
    parts::{entries_of, piece_at},
};
use crate::{
    Version,
    guards::Guards,
    message::{SessionEntry, SnapshotContent, SnapshotCursor, SnapshotPart},
    replica::Membership,
    store::{ScanRecord, StoreError},
};

#[derive(Clone, Hash, Debug)]
pub(crate) struct Checkpoint {
    sessions: Vec<SessionEntry>,
    at: SnapshotCursor,
    /// The value that is being written in pieces, all of one version.
    large: Option<ScanRecord>,
}

impl Log {
    /// Begins a checkpoint, unless one is in progress. Writes the beginning and every update above the watermark in one
    /// step, so that no other update is written between them.
    pub(in crate::replica) fn begin_checkpoint(&mut self, guards: Guards) -> Result<(), StoreError> {
        if self.journal.as_ref().is_none_or(|journal| journal.has_checkpoint()) {
            return Ok(());
        }
        let (beginning, sessions) = self.snapshot_header(guards, Version::NONE);
        let pending: Vec<_> = self.history.from(self.watermark.next()).cloned().collect();
        let taken = pending.iter().map(|update| self.taken_by(update)).collect::<Result<Vec<_>, _>>()?;
        let (version, watermark) = (beginning.version, self.watermark);
        self.write_part(SnapshotCursor::default(), SnapshotContent::Begin(beginning));
        let Some(journal) = &mut self.journal else { return Ok(()) };
        journal.begun(version);
        pending.iter().zip(taken).for_each(|(update, taken)| journal.append_again(update, taken, watermark));
        journal.set_checkpoint(Checkpoint { sessions, at: SnapshotCursor::default(), large: None });
        Ok(())
    }

    pub(super) fn continue_checkpoint(&mut self, member: &Membership, room: usize) -> Result<(), StoreError> {
        let Some(checkpoint) = self.journal.as_mut().and_then(|journal| journal.take_checkpoint()) else {
            return Ok(());
        };
        let chunk = member.settings().chunk();
        let next = self.next_part(checkpoint, room.min(chunk), chunk)?;
        if let Some(journal) = &mut self.journal {
            match next {
                Some(checkpoint) => journal.set_checkpoint(checkpoint),
                None => journal.ended(),
            }
        }
        Ok(())
    }

    /// Writes the next part. Returns the checkpoint after that part; `None`: it was the last one.
    fn next_part(
        &mut self,
        mut checkpoint: Checkpoint,
        most: usize,
        chunk: usize,
    ) -> Result<Option<Checkpoint>, StoreError> {
        let at = checkpoint.at.clone();
        let from = usize::try_from(at.sessions).unwrap_or(usize::MAX);
        let content = if let Some(left) = checkpoint.sessions.get(from..).filter(|left| !left.is_empty()) {
            SnapshotContent::Sessions(entries_of(left, most))
        } else if let Some(large) = &checkpoint.large {
            SnapshotContent::Piece(piece_at(&at, large, chunk))
        } else {
            let (records, large) = self.records_behind(at.behind.as_ref(), most, chunk)?;
            match (records.is_empty(), large) {
                (true, None) => SnapshotContent::End,
                (true, Some(large)) => {
                    let piece = SnapshotContent::Piece(piece_at(&at, &large, chunk));
                    checkpoint.large = Some(large);
                    piece
                }
                (false, _) => SnapshotContent::Records(records),
            }
        };
        let is_last = content == SnapshotContent::End;
        checkpoint.advance(&content);
        self.write_part(at, content);
        Ok((!is_last).then_some(checkpoint))
    }

    fn write_part(&mut self, at: SnapshotCursor, content: SnapshotContent) {
        let watermark = self.watermark;
        if let Some(journal) = &mut self.journal {
            let id = journal.checkpoint_number(matches!(content, SnapshotContent::Begin(_)));
            journal.append_part(SnapshotPart { id, at, watermark, content });
        }
    }
}

impl Checkpoint {
    /// A checkpoint that an earlier start began. `at` is the position of its next part.
    pub(crate) const fn begun(sessions: Vec<SessionEntry>, at: SnapshotCursor, large: Option<ScanRecord>) -> Self {
        Self { sessions, at, large }
    }

    #[cfg(test)]
    pub(crate) fn has_sessions(&self) -> bool {
        self.at.sessions < self.sessions.len() as u64
    }

    #[cfg(test)]
    pub(crate) const fn is_in_a_value(&self) -> bool {
        self.large.is_some()
    }

    fn advance(&mut self, content: &SnapshotContent) {
        self.at.advance(content);
        if self.at.bytes == 0 {
            self.large = None;
        }
    }
}
