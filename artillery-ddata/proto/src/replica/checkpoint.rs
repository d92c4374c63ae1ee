//! A checkpoint: a snapshot that this member writes into its own journal (docs/adr/0042).
//!
//! As for a joiner, each part has its keys as they are committed when the part is made (docs/adr/0020). The updates above
//! the watermark stand in the journal already, but before the beginning, so they are written once more behind it.

use super::Replica;
use crate::{
    Version,
    message::{SessionEntry, SnapshotContent, SnapshotCursor, SnapshotPart},
    store::{ScanRecord, StoreError},
};

/// A checkpoint that is being written.
#[derive(Clone, Debug)]
pub(super) struct Checkpoint {
    sessions: Vec<SessionEntry>,
    at: SnapshotCursor,
    /// The value that goes in pieces, all of one version.
    large: Option<ScanRecord>,
}

impl Replica {
    /// Begins a checkpoint, unless one is under way, or a resync, which has no state to write down.
    pub(crate) fn begin_checkpoint(&mut self) {
        let is_free = self.journal.as_ref().is_some_and(|journal| journal.checkpoint.is_none());
        if !is_free || self.filling.is_some() {
            return;
        }
        if let Err(error) = self.write_beginning() {
            self.halt(error.into());
        }
    }

    /// Writes the beginning and all updates above the watermark, in one step: no other update may come between them.
    fn write_beginning(&mut self) -> Result<(), StoreError> {
        let (beginning, sessions) = self.snapshot_header(Version::NONE);
        let pending: Vec<_> = self.history.from(self.watermark.next()).cloned().collect();
        let taken = pending.iter().map(|update| self.taken_by(update)).collect::<Result<Vec<_>, _>>()?;
        let (version, watermark) = (beginning.version, self.watermark);
        self.write_part(SnapshotCursor::default(), SnapshotContent::Begin(beginning));
        let Some(journal) = &mut self.journal else { return Ok(()) };
        journal.begun(version);
        pending.iter().zip(taken).for_each(|(update, taken)| journal.update_again(update, taken, watermark));
        journal.checkpoint = Some(Checkpoint { sessions, at: SnapshotCursor::default(), large: None });
        Ok(())
    }

    /// Writes the next part of the checkpoint that is under way, of about `room` bytes.
    pub(super) fn continue_checkpoint(&mut self, room: usize) {
        let Some(checkpoint) = self.journal.as_mut().and_then(|journal| journal.checkpoint.take()) else { return };
        let next = match self.next_part(checkpoint, room.min(self.chunk())) {
            Ok(next) => next,
            Err(error) => return self.halt(error.into()),
        };
        let Some(journal) = &mut self.journal else { return };
        match next {
            Some(checkpoint) => journal.checkpoint = Some(checkpoint),
            None => journal.ended(),
        }
    }

    /// `None`: that was the last part.
    fn next_part(&mut self, mut checkpoint: Checkpoint, most: usize) -> Result<Option<Checkpoint>, StoreError> {
        let at = checkpoint.at.clone();
        let from = usize::try_from(at.sessions).unwrap_or(usize::MAX);
        let content = if let Some(left) = checkpoint.sessions.get(from..).filter(|left| !left.is_empty()) {
            SnapshotContent::Sessions(super::resync::entries_of(left, most))
        } else if let Some(large) = &checkpoint.large {
            SnapshotContent::Piece(self.piece_at_mark(&at, large))
        } else {
            let (records, large) = self.records_behind(at.behind.as_ref(), most)?;
            match (records.is_empty(), large) {
                (true, None) => SnapshotContent::End,
                (true, Some(large)) => {
                    let piece = SnapshotContent::Piece(self.piece_at_mark(&at, &large));
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
            journal.checkpoints += u64::from(matches!(content, SnapshotContent::Begin(_)));
            let id = journal.checkpoints;
            journal.part(SnapshotPart { id, at, watermark, content });
        }
    }
}

impl Checkpoint {
    /// One that an earlier start has begun. `sessions` is empty behind its table of sessions.
    pub(super) const fn begun(sessions: Vec<SessionEntry>, at: SnapshotCursor, large: Option<ScanRecord>) -> Self {
        Self { sessions, at, large }
    }

    #[cfg(test)]
    pub(super) fn has_sessions(&self) -> bool {
        self.at.sessions < self.sessions.len() as u64
    }

    #[cfg(test)]
    pub(super) const fn is_in_a_value(&self) -> bool {
        self.large.is_some()
    }

    /// Moves behind a part.
    fn advance(&mut self, content: &SnapshotContent) {
        self.at.advance(content);
        if self.at.bytes == 0 {
            self.large = None;
        }
    }
}
