//! Reads and checks a journal, and continues it in a new segment.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;

use super::{
    Damage, EntryPlace, GroupNumber, Journal, JournalEntry, JournalError, JournalSettings, SyncMode,
    entry::decode_sized,
    group::{BLOCK, Group, GroupClaims},
    segment::{self, SegmentHeader, SegmentWriter},
};
use crate::disk::{Disk, DiskError};

/// Bounds the search for a group that distinguishes damage from a torn end: checksums cover at most this many times the
/// segment's length.
const MAX_PASSES: usize = 8;

/// A journal for reading: that of an earlier start, once [`check`](Self::check) has read it, or the present one
/// ([`Journal::found`]). It writes nothing, except that [`open`](Self::open) continues it in a new segment.
#[derive(Debug)]
pub struct FoundJournal {
    disk: Arc<dyn Disk>,
    settings: JournalSettings,
    /// The valid segments, oldest first.
    segments: Vec<SegmentHeader>,
    /// The number after the last group.
    end: GroupNumber,
    /// All groups below this one are known to have been synced.
    proven: GroupNumber,
    /// The position of the next group in the newest segment, in bytes.
    end_at: u64,
    /// The length of the newest segment in bytes.
    newest_len: u64,
}

/// Bytes after the last complete group: a write that a crash or a full disk cut short, or damage in a group that no
/// later group proves to be synced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TornEnd {
    /// The file's name.
    pub file: String,
    /// Where these bytes begin in the file.
    pub offset: u64,
    /// The number of bytes, up to the end of the file.
    pub bytes: u64,
}

/// The progress of reading a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadBytes {
    /// Bytes read, up to the end of the present group.
    pub done: u64,
    /// Bytes of all segments to read.
    pub total: u64,
    /// Bytes of the present entry. The last entry of a group includes the overhead of the group.
    pub entry: u64,
}

/// The valid part of a segment.
struct SegmentRead {
    end: GroupNumber,
    proven: GroupNumber,
    /// The position of the next group, in bytes.
    end_at: u64,
    len: u64,
}

impl FoundJournal {
    /// Reads and checks all segments. Calls `show` for each entry, oldest first, with its place and the progress.
    ///
    /// # Errors
    /// [`JournalError::Damaged`]: a synced part is missing, differs from the written bytes or belongs to another store,
    /// or its format is unknown to this release. [`JournalError::Failed`].
    pub fn check(
        disk: Arc<dyn Disk>,
        settings: JournalSettings,
        mut show: impl FnMut(EntryPlace, JournalEntry, ReadBytes),
    ) -> Result<Self, JournalError> {
        let segments = headers(&*disk, settings.store)?;
        let begin = segments.first().map_or(GroupNumber(0), |segment| segment.first);
        let mut found = Self { disk, settings, segments, end: begin, proven: begin, end_at: 0, newest_len: 0 };
        let mut passed = ReadBytes { total: found.length(0)?, ..ReadBytes::default() };
        for at in 0..found.segments.len() {
            let read = found.read_segment(at, &mut passed, &mut show)?;
            (found.end, found.proven) = (read.end, found.proven.max(read.proven));
            (found.end_at, found.newest_len) = (read.end_at, read.len);
        }
        Ok(found)
    }

    /// Calls `show` again for all entries, from the group `from` on.
    ///
    /// # Errors
    /// As [`check`](Self::check). [`JournalError::Failed`] also if the newest segment has changed since the check.
    pub fn replay(
        &self,
        from: GroupNumber,
        mut show: impl FnMut(EntryPlace, JournalEntry, ReadBytes),
    ) -> Result<(), JournalError> {
        let behind = |at: usize| self.segments.get(at + 1).is_some_and(|next| next.first <= from);
        let first = (0..self.segments.len()).find(|&at| !behind(at)).unwrap_or(self.segments.len());
        let mut passed = ReadBytes { total: self.length(first)?, ..ReadBytes::default() };
        for at in first..self.segments.len() {
            let read = self.read_segment(at, &mut passed, &mut |place: EntryPlace, entry, passed| {
                if place.group >= from {
                    show(place, entry, passed);
                }
            })?;
            if at + 1 == self.segments.len() && read.end < self.end {
                return Err(changed(self.segments[at].number));
            }
        }
        Ok(())
    }

    /// The number of the newest segment; 0: none exists. Compare it with the number in the control file before
    /// [`open`](Self::open): the journal itself doesn't show that its last file is missing.
    pub fn newest_segment(&self) -> u64 {
        self.segments.last().map_or(0, |segment| segment.number)
    }

    /// Whether a directory has a journal.
    ///
    /// # Errors
    /// [`JournalError::Failed`].
    pub fn is_there(disk: &dyn Disk) -> Result<bool, JournalError> {
        Ok(!segment::numbers(disk).map_err(JournalError::Failed)?.is_empty())
    }

    /// The number of the first group that is kept.
    pub fn first(&self) -> GroupNumber {
        self.segments.first().map_or(self.end, |oldest| oldest.first)
    }

    /// The number after the last group.
    pub const fn end(&self) -> GroupNumber {
        self.end
    }

    /// All groups below this one are known to have been synced.
    pub const fn proven(&self) -> GroupNumber {
        self.proven
    }

    /// How the newest segment was made durable; `None`: no segment exists.
    pub fn mode(&self) -> Option<SyncMode> {
        self.segments.last().map(|newest| newest.mode)
    }

    /// The files of the valid segments, oldest first.
    pub fn files(&self) -> impl Iterator<Item = String> + '_ {
        self.segments.iter().map(|segment| segment::name(segment.number))
    }

    /// The bytes after the last group; `None`: there are none.
    pub fn torn_end(&self) -> Option<TornEnd> {
        let (offset, bytes) = (self.end_at, self.newest_len.saturating_sub(self.end_at));
        (bytes > 0).then(|| TornEnd { file: segment::name(self.newest_segment()), offset, bytes })
    }

    /// The file and offset at which a group begins. For a group after the last one: the end of the journal.
    pub fn locate(&self, group: GroupNumber) -> Result<(String, u64), JournalError> {
        let holds = |segment: &&SegmentHeader| segment.first <= group;
        let Some(segment) = self.segments.iter().rfind(holds).or(self.segments.first()) else {
            return Ok((segment::name(1), 0));
        };
        let bytes = segment::read(&*self.disk, segment.number).map_err(JournalError::Failed)?;
        let (mut at, mut number) = (BLOCK, segment.first);
        while number < group
            && let Some(found) = self.group_at(&bytes, at, segment)
        {
            (at, number) = (at + found.len(self.settings.guards), number.next());
        }
        Ok((segment::name(segment.number), at as u64))
    }

    pub(crate) fn missing(segment: u64) -> JournalError {
        JournalError::Damaged { file: segment::name(segment), offset: 0, damage: Damage::Missing }
    }

    fn length(&self, first: usize) -> Result<u64, JournalError> {
        let lengths = self.segments[first..].iter().map(|segment| segment::length(&*self.disk, segment.number));
        lengths.sum::<Result<u64, _>>().map_err(JournalError::Failed)
    }

    /// Reads the groups of a segment, up to the first one of the next segment.
    fn read_segment(
        &self,
        at: usize,
        passed: &mut ReadBytes,
        show: &mut impl FnMut(EntryPlace, JournalEntry, ReadBytes),
    ) -> Result<SegmentRead, JournalError> {
        let header = &self.segments[at];
        let until = self.segments.get(at + 1).map(|next| next.first);
        let bytes = segment::read(&*self.disk, header.number).map_err(JournalError::Failed)?;
        let damaged = |offset: usize, damage| {
            let file = segment::name(header.number);
            JournalError::Damaged { file, offset: offset as u64, damage }
        };
        let (end, proven, len) = (header.first, until.unwrap_or(header.first), bytes.len() as u64);
        let mut read = SegmentRead { end, proven, end_at: 0, len };
        let (before, mut at) = (passed.done, BLOCK);
        while Some(read.end) != until {
            let Some(group) = self.group_at(&bytes, at, header).filter(|group| group.number == read.end) else {
                let is_damage =
                    until.is_some() || read.end < header.synced || self.was_synced(&bytes, at, header, read.end);
                if is_damage && !allows!(self.settings.guards, TakeDamageForTorn) {
                    return Err(damaged(at, Damage::Group(read.end)));
                }
                break;
            };
            let next = at + group.len(self.settings.guards);
            passed.done = before + next as u64;
            let mut left = group.entries.len() as u64;
            for (place, (len, entry)) in EntryPlace::all_in(group.number).zip(decode_sized(&group.entries)) {
                left -= len;
                // The last entry includes the overhead of the group.
                let unfilled = if left == 0 { (next - at - group.entries.len()) as u64 } else { 0 };
                passed.entry = len + unfilled;
                show(place, entry.map_err(|error| damaged(at, Damage::Entry(group.number, error)))?, *passed);
            }
            at = next;
            // Groups from `header.synced` on were written after the file got its name. If there is one, the name is
            // durable, and so is everything below `header.synced`.
            let goes_on = group.number >= header.synced || allows!(self.settings.guards, TrustName);
            let named = if goes_on { header.synced } else { header.first };
            (read.end, read.proven) = (group.number.next(), read.proven.max(group.synced).max(named));
        }
        read.end_at = at as u64;
        passed.done = before + bytes.len() as u64;
        Ok(read)
    }

    /// Continues the journal in a new segment. `start` is the number of this start of the store. Each call needs a new
    /// random `seed`: with an old one, remnants of an earlier segment could become valid.
    ///
    /// Groups that aren't proven to be synced are written and synced again there, because after a failed sync the
    /// kernel may show bytes that aren't durable. Rely on none of them before this returns.
    ///
    /// # Errors
    /// [`JournalError::Full`]; [`JournalError::Failed`].
    pub fn open(&self, start: u64, seed: u128) -> Result<Journal, JournalError> {
        let Self { disk, settings, .. } = self;
        let last = segment::numbers(&**disk).map_err(JournalError::Failed)?.last().copied().unwrap_or(0);
        if last != self.newest_segment() && self.newest_segment() > 0 {
            return Err(changed(last));
        }
        let unproven = !allows!(settings.guards, CountUnproven);
        let first = if unproven { self.proven } else { self.end };
        let mut segments: VecDeque<_> = self.segments.iter().filter(|old| old.first < first).cloned().collect();
        let header = SegmentHeader {
            store: settings.store,
            start,
            number: last + 1,
            follows: segments.back().map_or(0, |last| last.number),
            oldest: segments.front().map_or(last + 1, |oldest| oldest.number),
            first,
            synced: self.end,
            salt: seed,
            mode: settings.mode,
        };
        let lengths = segments.iter().map(|old| segment::length(&**disk, old.number)).collect::<Result<_, _>>();
        let lengths = lengths.map_err(JournalError::Failed)?;
        let groups = self.encode_from(first, header.salt)?;
        let create = || SegmentWriter::create(&**disk, &header, &groups, settings.guards);
        let writer = match create() {
            Err(DiskError::Full) => {
                // Files that an earlier start freed may still exist.
                let counted = self.segments.iter().cloned().collect();
                segment::keep(&**disk, &counted, usize::MAX).map_err(JournalError::Failed)?;
                create()?
            }
            created => created?,
        };
        segments.push_back(header);
        segment::keep(&**disk, &segments, usize::MAX).map_err(JournalError::Failed)?;
        Ok(Journal {
            disk: disk.clone(),
            settings: *settings,
            start,
            seed,
            segments,
            lengths,
            has_freed: false,
            writer,
            next: self.end,
            synced: self.end,
            failed: None,
            buffer: Vec::new(),
            entry_lengths: Vec::new(),
        })
    }

    /// The journal of the present start, for reading it again.
    pub(super) fn kept(
        disk: Arc<dyn Disk>,
        settings: JournalSettings,
        segments: Vec<SegmentHeader>,
        end: GroupNumber,
    ) -> Self {
        Self { disk, settings, segments, end, proven: end, end_at: 0, newest_len: 0 }
    }

    fn group_at(&self, segment: &Bytes, at: usize, header: &SegmentHeader) -> Option<Group> {
        Group::at(segment, at, header.salt, self.settings.guards)
    }

    /// Whether a complete group at or after byte `at` proves that group `number` was synced, and therefore isn't torn.
    ///
    /// A client may have chosen these bytes so that many of them look like headers. So the number of bytes that are
    /// checksummed is bounded. Beyond the bound the result is `true`: the segment is treated as damaged.
    fn was_synced(&self, segment: &Bytes, at: usize, header: &SegmentHeader, number: GroupNumber) -> bool {
        let mut left = segment.len().saturating_mul(MAX_PASSES);
        for place in (at..segment.len()).step_by(BLOCK) {
            let Some(claims) = GroupClaims::at(segment, place) else { continue };
            let blocks = ((place - at) / BLOCK) as u64;
            if claims.synced <= number || claims.number.0.checked_sub(number.0).is_none_or(|ahead| ahead > blocks) {
                continue;
            }
            if claims.len > left {
                return true;
            }
            left -= claims.len;
            if self.group_at(segment, place, header).is_some() {
                return true;
            }
        }
        false
    }

    /// The groups from `first` on, encoded for a segment with this salt. All of them must be in the last segment.
    fn encode_from(&self, first: GroupNumber, salt: u128) -> Result<Vec<u8>, JournalError> {
        let mut out = vec![0; BLOCK];
        let Some(last) = self.segments.last() else { return Ok(out) };
        let bytes = segment::read(&*self.disk, last.number).map_err(JournalError::Failed)?;
        let (mut at, mut number) = (BLOCK, last.first);
        while number < self.end
            && let Some(group) = self.group_at(&bytes, at, last)
        {
            if number >= first {
                group.encode(&mut out, salt, first, self.settings.guards);
            }
            at += group.len(self.settings.guards);
            number = number.next();
        }
        if number < self.end && !allows!(self.settings.guards, ReadOnce) {
            return Err(changed(last.number));
        }
        Ok(out)
    }
}

/// The error for a segment that lost groups between two reads. After a failed sync, the kernel may discard bytes that
/// it has shown before.
fn changed(segment: u64) -> JournalError {
    let why = "it changed while it was read".to_owned();
    JournalError::Failed(DiskError::Failed { file: segment::name(segment), why })
}

/// The headers of the valid segments, oldest first. Finds them from the newest segment back: each header names the
/// segment before it.
fn headers(disk: &dyn Disk, store: u128) -> Result<Vec<SegmentHeader>, JournalError> {
    let numbers = segment::numbers(disk).map_err(JournalError::Failed)?;
    let Some(&newest) = numbers.last() else { return Ok(Vec::new()) };
    let mut headers = vec![SegmentHeader::read(disk, newest, store)?];
    let oldest = headers[0].oldest;
    while let Some(SegmentHeader { number, follows, .. }) = headers.last()
        && *number > oldest
    {
        if !numbers.contains(follows) {
            return Err(FoundJournal::missing(*follows));
        }
        headers.push(SegmentHeader::read(disk, *follows, store)?);
    }
    headers.reverse();
    Ok(headers)
}
