//! The journal of a node: one for all its chains (docs/adr/0042).
//!
//! The journal is a sequence of segment files. A segment holds groups of entries, and one sync makes a group durable.
//! [`FoundJournal`] reads and checks the journal of an earlier start, and [`Journal`] continues it. Both perform I/O
//! only through [`Disk`], and neither interprets the entries of a chain.

mod entry;
mod found;
mod group;
mod segment;
#[cfg(test)]
mod tests;

use std::{collections::VecDeque, fmt, sync::Arc};

pub use entry::{EntryError, EntryPlace, JournalEntry, decode_entries, encode_entries};
pub use found::{FoundJournal, ReadBytes, TornEnd};
pub(crate) use group::BackupGroup;
use group::{BLOCK, MAX_GROUP};
use segment::{SegmentHeader, SegmentWriter};

use crate::{
    disk::{Disk, DiskError},
    guards::Guards,
    wire::chain::EncodeError,
};

/// The number of a group. Groups are numbered consecutively from 0, across all segments and starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct GroupNumber(pub u64);

impl GroupNumber {
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for GroupNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// When a journal is made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncMode {
    /// Each batch is synced before it is reported as durable.
    Batch,
    /// A batch is reported as durable once the kernel has it. It survives the end of the process, but not a power cut.
    Never,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalSettings {
    /// The id of the store. A segment of another store is refused.
    pub store: u128,
    /// A group that would make a segment longer than this, in bytes, begins a new segment.
    pub segment_bytes: u64,
    /// When the journal is made durable. Each segment records it.
    pub mode: SyncMode,
    pub guards: Guards,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The disk is full. Nothing valid was written; a retry may succeed.
    #[error("the disk is full")]
    Full,
    /// The disk has failed. This process must not write the journal again, since the bytes on the disk are unknown
    /// (trap 72).
    #[error("the disk has failed: {0}")]
    Failed(DiskError),
    /// A synced part is missing, differs from the written bytes or belongs to another store, or its format is unknown
    /// to this release.
    #[error("{file} is damaged at byte {offset}: {damage}")]
    Damaged {
        file: String,
        /// The offset in the file, in bytes.
        offset: u64,
        damage: Damage,
    },
    #[error(transparent)]
    Encode(#[from] EncodeError),
}

impl From<DiskError> for JournalError {
    fn from(error: DiskError) -> Self {
        match error {
            DiskError::Full => Self::Full,
            error => Self::Failed(error),
        }
    }
}

/// The kind of damage in a journal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// The file of a segment is missing, although the next segment or the control file names it.
    #[error("the file is missing")]
    Missing,
    /// The header is incomplete, damaged or inconsistent, or belongs to another file.
    #[error("its header is not whole")]
    Header,
    /// The format of the segment is unknown to this release.
    #[error("its format {0} is not known to this release")]
    Format(u32),
    #[error("it belongs to another store")]
    Foreign,
    /// A synced group is incomplete or damaged.
    #[error("group {0} is not whole")]
    Group(GroupNumber),
    /// A group is complete, but one of its entries can't be decoded: another release wrote it.
    #[error("an entry of group {0}: {1}")]
    Entry(GroupNumber, EntryError),
}

impl Damage {
    /// The kind of damage as one word, for scripts.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Header => "header",
            Self::Format(_) => "format",
            Self::Foreign => "foreign",
            Self::Group(_) => "group",
            Self::Entry(..) => "entry",
        }
    }
}

/// The write end of a node's journal. One thread writes it.
#[derive(Debug)]
pub struct Journal {
    disk: Arc<dyn Disk>,
    settings: JournalSettings,
    start: u64,
    /// A random number of this start, from which the salts of its segments are derived.
    seed: u128,
    /// All segments, oldest first. The last one is being written.
    segments: VecDeque<SegmentHeader>,
    /// The lengths of all segments except the last, in bytes.
    lengths: VecDeque<u64>,
    /// Whether files of freed segments may still exist.
    has_freed: bool,
    writer: SegmentWriter,
    next: GroupNumber,
    /// All groups below this one are synced.
    synced: GroupNumber,
    failed: Option<DiskError>,
    buffer: Vec<u8>,
    entry_lengths: Vec<u64>,
}

impl Journal {
    /// Writes `entries` as the next group, and returns the number of the group. It isn't durable before
    /// [`sync`](Self::sync).
    ///
    /// # Errors
    /// [`JournalError::Full`]: nothing valid was written. [`JournalError::Encode`]: an entry can't be encoded, or the
    /// group is too long. [`JournalError::Failed`].
    pub fn append<'a>(
        &mut self,
        entries: impl IntoIterator<Item = &'a JournalEntry>,
    ) -> Result<GroupNumber, JournalError> {
        self.check_failed()?;
        group::begin(&mut self.buffer);
        self.entry_lengths.clear();
        for entry in entries {
            let before = self.buffer.len();
            entry.encode(&mut self.buffer)?;
            self.entry_lengths.push((self.buffer.len() - before) as u64);
        }
        if self.buffer.len() > MAX_GROUP {
            return Err(EncodeError::TooLong(self.buffer.len() as u64).into());
        }
        if self.writer.is_used() && self.writer.at() + self.buffer.len() as u64 > self.settings.segment_bytes {
            let oldest = self.segments.front().map_or(0, |oldest| oldest.number);
            self.begin_segment(oldest)?;
        }
        let claimed = if allows!(self.settings.guards, ClaimUnsynced) { self.next } else { self.synced };
        let (number, writer) = (self.next, &mut self.writer);
        let written = writer.append(&mut self.buffer, number, claimed, self.settings.guards);
        written.or_else(|error| self.fail(error))?;
        self.next = number.next();
        let unfilled = self.buffer.len() as u64 - self.entry_lengths.iter().sum::<u64>();
        self.entry_lengths.iter_mut().last().into_iter().for_each(|last| *last += unfilled);
        Ok(number)
    }

    /// The length in bytes of each entry in the last appended group. The last length includes the overhead of the
    /// group.
    pub fn entry_lengths(&self) -> &[u64] {
        &self.entry_lengths
    }

    /// Makes all groups durable. Returns the number after the last one.
    ///
    /// # Errors
    /// [`JournalError::Failed`].
    pub fn sync(&mut self) -> Result<GroupNumber, JournalError> {
        self.check_failed()?;
        let synced = self.writer.sync();
        synced.or_else(|error| self.fail(error))?;
        self.synced = self.next;
        Ok(self.synced)
    }

    /// Writes an empty group, which proves that the earlier ones were synced. Call it after a sync when the journal is
    /// idle: otherwise, damage in groups that no later group proves looks like a torn end after a kill.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn close_group(&mut self) -> Result<(), JournalError> {
        self.append([]).map(drop)
    }

    /// Continues in a new segment. The present one can be freed once no chain needs it.
    ///
    /// # Errors
    /// [`JournalError::Full`], [`JournalError::Failed`].
    pub fn leave_segment(&mut self) -> Result<(), JournalError> {
        if self.writer.is_used() {
            self.begin_segment(self.segments.front().map_or(0, |oldest| oldest.number))?;
        }
        Ok(())
    }

    /// Frees the segments whose groups are all below `floor`, except the present one.
    /// [`remove_freed`](Self::remove_freed) removes their files.
    ///
    /// A new segment begins, whose header names the new oldest one. This lets a later start distinguish a lost file
    /// from a removed one, and a short journal from a torn end.
    ///
    /// # Errors
    /// [`JournalError::Full`], [`JournalError::Failed`].
    pub fn release(&mut self, floor: GroupNumber) -> Result<(), JournalError> {
        let firsts = self.segments.iter().skip(1).map(|next| next.first);
        let freed = firsts.take_while(|first| *first <= floor).count();
        let Some(oldest) = self.segments.get(freed).filter(|_| freed > 0).map(|segment| segment.number) else {
            return Ok(());
        };
        self.begin_segment(oldest)?;
        self.segments.drain(..freed);
        self.lengths.drain(..freed);
        self.has_freed = true;
        Ok(())
    }

    /// Removes the files of at most `most` freed segments, oldest first. Removing a large file takes a long time, and
    /// delays the next write.
    ///
    /// # Errors
    /// [`JournalError::Failed`].
    pub fn remove_freed(&mut self, most: usize) -> Result<(), JournalError> {
        if self.has_freed {
            let are_gone = segment::keep(&*self.disk, &self.segments, most);
            self.has_freed = !are_gone.or_else(|error| self.fail(error))?;
        }
        Ok(())
    }

    pub const fn next(&self) -> GroupNumber {
        self.next
    }

    /// The number after the last durable group.
    pub const fn synced(&self) -> GroupNumber {
        self.synced
    }

    /// The number of the newest segment. Record it in the control file before a group of that segment is reported as
    /// durable: the journal itself doesn't show that its last file is missing.
    pub fn newest_segment(&self) -> u64 {
        self.segments.back().map_or(0, |segment| segment.number)
    }

    pub fn bytes(&self) -> u64 {
        self.lengths.iter().sum::<u64>() + self.writer.at()
    }

    /// The present journal, for reading it again. No segment may be released until it has been read.
    pub fn found(&self) -> FoundJournal {
        let segments = self.segments.iter().cloned().collect();
        FoundJournal::kept(self.disk.clone(), self.settings, segments, self.next)
    }

    /// The first group that is kept.
    pub fn first(&self) -> GroupNumber {
        self.segments.front().map_or(self.next, |segment| segment.first)
    }

    fn check_failed(&self) -> Result<(), JournalError> {
        self.failed.clone().map_or(Ok(()), |error| Err(JournalError::Failed(error)))
    }

    /// Handles a disk error. Only after a full disk may the caller retry.
    fn fail<T>(&mut self, error: DiskError) -> Result<T, JournalError> {
        if error == DiskError::Full {
            return Err(JournalError::Full);
        }
        if !allows!(self.settings.guards, SyncAgain) {
            self.failed = Some(error.clone());
        }
        Err(JournalError::Failed(error))
    }

    /// Makes the present segment durable, and continues in a new one. Segments below `oldest` become invalid.
    fn begin_segment(&mut self, oldest: u64) -> Result<(), JournalError> {
        if !allows!(self.settings.guards, NextTooSoon) {
            self.sync()?;
        }
        let follows = self.segments.back().map_or(0, |last| last.number);
        let header = SegmentHeader {
            store: self.settings.store,
            start: self.start,
            number: follows + 1,
            follows,
            oldest,
            first: self.next,
            synced: self.next,
            salt: self.seed.wrapping_add(u128::from(follows)),
            mode: self.settings.mode,
        };
        let created = SegmentWriter::create(&*self.disk, &header, &[0; BLOCK], self.settings.guards);
        let writer = created.or_else(|error| self.fail(error))?;
        let before = std::mem::replace(&mut self.writer, writer);
        self.lengths.push_back(before.at());
        self.segments.push_back(header);
        Ok(())
    }
}
