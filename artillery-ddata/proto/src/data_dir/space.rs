//! The space of the journal on the disk, and the bytes that each chain needs.

use std::collections::BTreeMap;

use super::{OpenSettings, ballast::Ballast};
use crate::{
    ChainId, Sequence,
    journal::{JournalEntry, JournalError},
    message::{ChainMessage, SnapshotContent},
    replica::RECORD_BYTES,
};

#[derive(Debug)]
pub(super) struct DiskSpace {
    pub(super) ballast: Ballast,
    /// Bytes of updates that the journal may hold in addition to the data.
    pub(super) updates: u64,
    /// Bytes that clients' data never uses.
    pub(super) reserve: u64,
    most: u64,
    pub(super) free: u64,
    pub(super) is_full: bool,
}

#[derive(Debug, Clone, Default)]
pub(super) struct JournalBytes(pub(super) BTreeMap<ChainId, ChainBytes>);

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ChainBytes {
    /// Bytes of the last complete checkpoint.
    pub(super) checkpoint: u64,
    /// Written bytes of the checkpoint in progress.
    pub(super) begun: Option<u64>,
    /// Bytes of the checkpoint in progress that earlier starts wrote. Their records may have been deleted since.
    begun_before: u64,
    /// The maximum size of the checkpoint in progress.
    most_begun: u64,
    /// Bytes of updates since the beginning of the last complete checkpoint, including the overhead of their records in
    /// a checkpoint.
    pub(super) behind: u64,
    /// Bytes of updates since the beginning of the checkpoint in progress.
    behind_begun: u64,
    /// The size of a checkpoint of the whole store at the chain's last batch, without the padding of groups.
    pub(super) data: u64,
    /// Bytes of updates that the chain hasn't put into a batch yet.
    pub(super) queued: u64,
    /// The chain has completed a resync, and must begin its first checkpoint.
    pub(super) awaits: bool,
    /// The newest update. If it or an earlier one is written again, that belongs to the beginning of a checkpoint.
    newest: Sequence,
    /// `data` when the last complete checkpoint began, and when the one in progress began.
    data_at: u64,
    data_at_begun: u64,
}

impl DiskSpace {
    pub(super) const fn new(ballast: Ballast, of: &OpenSettings) -> Self {
        Self { ballast, updates: of.room, reserve: of.reserve, most: of.most, free: 0, is_full: false }
    }

    /// Updates the free space, and whether the disk is considered full, for a journal of `journal` bytes, if the next
    /// checkpoints and pending writes need `expected` bytes.
    pub(super) fn note(&mut self, journal: u64, expected: u64) -> Result<(), JournalError> {
        let needed = self.reserve.saturating_add(expected);
        self.ballast.hold(needed)?;
        let free = self.ballast.free()?.min(self.most.saturating_sub(journal));
        self.free = free;
        // Hysteresis: leave the full state only with more than the needed space.
        let more = if self.is_full { self.reserve / 2 } else { 0 };
        self.is_full = free < needed.saturating_add(more);
        Ok(())
    }
}

impl JournalBytes {
    pub(super) fn note(&mut self, entry: &JournalEntry, len: u64) {
        let bytes = self.0.entry(entry.chain()).or_default();
        match entry {
            JournalEntry::NotWhole { .. } => {
                let ChainBytes { data, queued, awaits, .. } = *bytes;
                *bytes = ChainBytes { data, queued, awaits, ..ChainBytes::default() };
            }
            JournalEntry::Cut { keep, .. } => bytes.newest = bytes.newest.min(keep.sequence),
            JournalEntry::Sent(frame) => match &frame.message {
                ChainMessage::Updates(updates) => {
                    let changes: usize = updates.updates.iter().map(|update| update.changes.len()).sum();
                    let last = updates.updates.last().map_or(Sequence::ZERO, |update| update.version.sequence);
                    bytes.updates(last, len + changes as u64 * RECORD_BYTES);
                    bytes.newest = bytes.newest.max(last);
                }
                ChainMessage::Snapshot(part) => bytes.part(&part.content, len),
                _ => {}
            },
            JournalEntry::Taken { version, .. } => bytes.updates(version.sequence, len),
            JournalEntry::Watermark { .. } => {}
        }
    }
}

impl ChainBytes {
    /// Notes that a start has loaded the chain, which may continue the checkpoint in progress.
    pub(super) fn restored(&mut self, data: u64, continues: bool) {
        self.begun = self.begun.filter(|_| continues);
        self.begun_before = self.begun.unwrap_or_default();
        (self.data, self.most_begun, self.data_at_begun) = (data, data, data);
        self.data_at = self.checkpoint.max(data);
    }

    /// Notes written updates up to `last`. Updates that are written again are part of the checkpoint.
    fn updates(&mut self, last: Sequence, more: u64) {
        if last <= self.newest {
            self.begun = self.begun.map(|begun| begun + more);
        } else {
            (self.behind, self.behind_begun) = (self.behind + more, self.behind_begun + more);
        }
    }

    /// The maximum size of the next checkpoint. Until `data` is known, the size of the last checkpoint and of the
    /// updates since its beginning.
    const fn most(&self) -> u64 {
        if self.data > 0 { self.data } else { self.checkpoint + self.behind }
    }

    /// Bytes of a checkpoint that begins now. While one is in progress: the rest of it, plus the bytes that the next
    /// one adds.
    fn bytes(&self) -> u64 {
        match self.begun {
            None => self.most(),
            Some(written) => (self.most_begun + self.begun_before).saturating_sub(written) + self.behind_begun,
        }
    }

    /// The free bytes required to begin a checkpoint. The additional quarter is for the padding of groups, and for
    /// deletes before its end.
    pub(super) fn least(&self) -> u64 {
        self.bytes() + self.bytes() / 4
    }

    /// The bytes that clients' values must leave free for a checkpoint, including values in flight when the disk is
    /// found full.
    pub(super) fn needs(&self) -> u64 {
        self.bytes() + self.bytes() / 2
    }

    pub(super) const fn deleted(&self) -> u64 {
        self.data_at.saturating_sub(self.data)
    }

    /// About how many bytes a checkpoint would free.
    pub(super) const fn gain(&self) -> u64 {
        self.behind + self.deleted()
    }

    fn part(&mut self, content: &SnapshotContent, len: u64) {
        match content {
            SnapshotContent::Begin(_) => {
                (self.most_begun, self.begun, self.begun_before) = (self.most(), Some(len), 0);
                (self.behind_begun, self.data_at_begun) = (0, self.data);
            }
            SnapshotContent::End => {
                (self.checkpoint, self.behind) = (self.begun.take().unwrap_or_default(), self.behind_begun);
                self.data_at = self.data_at_begun;
            }
            _ => self.begun = self.begun.map(|begun| begun + len),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Version, fixtures, message::SnapshotHeader, types::update::KeyChange};

    fn begin() -> SnapshotContent {
        let (said, version) = (Version::NONE, Version::new(1, 1));
        SnapshotContent::Begin(SnapshotHeader { said, version, epochs: Vec::new(), chain_time: 0, sessions: 0 })
    }

    /// An earlier start may have written records that have been deleted since.
    #[test]
    fn a_checkpoint_that_is_continued_needs_all_that_is_there() {
        let mut bytes = ChainBytes { data: 1000, ..ChainBytes::default() };
        bytes.part(&begin(), 10);
        bytes.part(&SnapshotContent::Records(Vec::new()), 500);
        assert!((490..500).contains(&bytes.bytes()), "{} bytes are left", bytes.bytes());
        bytes.restored(400, true);
        assert_eq!(bytes.bytes(), 400);
        bytes.part(&SnapshotContent::Records(Vec::new()), 100);
        assert_eq!(bytes.bytes(), 300);
    }

    /// Otherwise the chain would begin another checkpoint at once, without any client.
    #[test]
    fn updates_that_are_written_again_are_no_reason_for_another_checkpoint() {
        let update = fixtures::update(Version::new(1, 2), [KeyChange::new("k".into(), Some("v".into()))]);
        let updates =
            crate::message::Updates { watermark: Sequence(1), after: Version::new(1, 1), updates: vec![update] };
        let (chain, epoch) = (ChainId(0), crate::Epoch(0));
        let frame = crate::message::ChainFrame { chain, epoch, index: 0, message: ChainMessage::Updates(updates) };
        let entry = JournalEntry::Sent(Box::new(frame));
        let mut all = JournalBytes::default();
        all.note(&entry, 100);
        assert!(all.0[&chain].behind >= 100);
        all.0.get_mut(&chain).unwrap().part(&begin(), 10);
        all.note(&entry, 100);
        all.0.get_mut(&chain).unwrap().part(&SnapshotContent::End, 10);
        assert_eq!(all.0[&chain].behind, 0);
        all.note(&JournalEntry::Cut { chain, keep: Version::new(1, 1) }, 10);
        all.note(&entry, 100);
        assert!(all.0[&chain].behind >= 100, "the update that replaced the cut one");
    }
}
