//! What an earlier start has left of a journal.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;

use super::{
    Damage, EntryPlace, GroupNumber, Journal, JournalEntry, JournalError, JournalSettings, SyncMode,
    entry::decode_sized,
    group::{BLOCK, Group, GroupClaims},
    segment::{self, SegmentHeader, SegmentWriter},
};
use crate::disk::{Disk, DiskError};

/// How many times the bytes of a segment may be summed up in search of a group that tells damage from a torn end.
const MAX_PASSES: usize = 8;

/// A journal that was read and checked, and isn't written yet.
#[derive(Debug)]
pub struct FoundJournal {
    disk: Arc<dyn Disk>,
    settings: JournalSettings,
    /// The segments that count, oldest first.
    segments: Vec<SegmentHeader>,
    /// The number behind the last group.
    end: GroupNumber,
    /// All groups below this one are known to have been synced.
    proven: GroupNumber,
    /// Where the next group would begin in the newest segment, in bytes.
    end_at: u64,
    /// The length of the newest segment in bytes.
    newest_len: u64,
}

/// Bytes behind the last group, which belong to no whole one: a write that a crash cut short.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TornEnd {
    /// The file's name.
    pub file: String,
    /// Where they begin, in bytes.
    pub offset: u64,
    /// How many there are, up to the file's end.
    pub bytes: u64,
}

/// How far a journal is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadBytes {
    /// Bytes that are read, up to the end of the present group.
    pub done: u64,
    /// Bytes of all segments that are read.
    pub total: u64,
    /// Bytes of the present entry. The last one of a group includes the overhead of the group.
    pub entry: u64,
}

/// A segment, as far as it counts.
struct SegmentRead {
    end: GroupNumber,
    proven: GroupNumber,
    /// Where the next group would begin, in bytes.
    end_at: u64,
    /// The length of the file in bytes.
    len: u64,
}

impl FoundJournal {
    /// Reads all segments and checks them. Shows each entry with its place, oldest first.
    ///
    /// # Errors
    /// [`JournalError::Damaged`]: something that was synced isn't there as it was written, or isn't known to this release.
    /// [`JournalError::Failed`].
    pub fn check(
        disk: Arc<dyn Disk>,
        settings: JournalSettings,
        mut show: impl FnMut(EntryPlace, JournalEntry),
    ) -> Result<Self, JournalError> {
        Self::check_with(disk, settings, |place, entry, _| show(place, entry))
    }

    /// The same. It tells with each entry how far the journal is read.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn check_with(
        disk: Arc<dyn Disk>,
        settings: JournalSettings,
        mut show: impl FnMut(EntryPlace, JournalEntry, ReadBytes),
    ) -> Result<Self, JournalError> {
        let segments = headers(&*disk, settings.store)?;
        let begin = segments.first().map_or(GroupNumber(0), |segment| segment.first);
        let mut found = Self { disk, settings, segments, end: begin, proven: begin, end_at: 0, newest_len: 0 };
        found.read(&mut show)?;
        Ok(found)
    }

    /// Shows all entries once more, from the group `from` on.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn replay(
        &self,
        from: GroupNumber,
        mut show: impl FnMut(EntryPlace, JournalEntry),
    ) -> Result<(), JournalError> {
        self.replay_with(from, |place, entry, _| show(place, entry))
    }

    /// The same. It tells with each entry how far the journal is read.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn replay_with(
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

    /// The number of the newest segment; 0: there is none. Compare it with what is known of it from elsewhere before
    /// [`open`](Self::open): a journal can't tell that its last file is missing.
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

    /// The number behind the last group.
    pub const fn end(&self) -> GroupNumber {
        self.end
    }

    /// All groups below this one are known to have been synced.
    pub const fn proven(&self) -> GroupNumber {
        self.proven
    }

    /// How the newest segment was made durable; `None`: there is no segment.
    pub fn mode(&self) -> Option<SyncMode> {
        self.segments.last().map(|newest| newest.mode)
    }

    /// The files of the segments that count, oldest first.
    pub fn files(&self) -> impl Iterator<Item = String> + '_ {
        self.segments.iter().map(|segment| segment::name(segment.number))
    }

    /// What stands behind the last group, if anything does.
    pub fn torn_end(&self) -> Option<TornEnd> {
        let (offset, bytes) = (self.end_at, self.newest_len.saturating_sub(self.end_at));
        (bytes > 0).then(|| TornEnd { file: segment::name(self.newest_segment()), offset, bytes })
    }

    /// The file and the byte at which a group begins; for one behind the last, where the journal ends.
    ///
    /// # Errors
    /// As [`check`](Self::check).
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

    /// The error that says that the file of a segment isn't there.
    pub(crate) fn missing(segment: u64) -> JournalError {
        JournalError::Damaged { file: segment::name(segment), offset: 0, damage: Damage::Missing }
    }

    /// Bytes of the segments from this one on.
    fn length(&self, first: usize) -> Result<u64, JournalError> {
        let lengths = self.segments[first..].iter().map(|segment| segment::length(&*self.disk, segment.number));
        lengths.sum::<Result<u64, _>>().map_err(JournalError::Failed)
    }

    fn read(&mut self, show: &mut impl FnMut(EntryPlace, JournalEntry, ReadBytes)) -> Result<(), JournalError> {
        let mut passed = ReadBytes { total: self.length(0)?, ..ReadBytes::default() };
        for at in 0..self.segments.len() {
            let read = self.read_segment(at, &mut passed, show)?;
            (self.end, self.proven) = (read.end, self.proven.max(read.proven));
            (self.end_at, self.newest_len) = (read.end_at, read.len);
        }
        Ok(())
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
                // The last one includes the overhead of the group.
                let unfilled = if left == 0 { (next - at - group.entries.len()) as u64 } else { 0 };
                passed.entry = len + unfilled;
                show(place, entry.map_err(|error| damaged(at, Damage::Entry(group.number, error)))?, *passed);
            }
            at = next;
            // A file that goes on behind its beginning has a durable name.
            let goes_on = group.number >= header.synced || allows!(self.settings.guards, TrustName);
            let named = if goes_on { header.synced } else { header.first };
            (read.end, read.proven) = (group.number.next(), read.proven.max(group.synced).max(named));
        }
        read.end_at = at as u64;
        passed.done = before + bytes.len() as u64;
        Ok(read)
    }

    /// Goes on behind what was found, in a new segment. `start` is the number of this start of the store, `seed` a number
    /// that is drawn anew for each call: with an old one, what was left of an earlier segment could count.
    ///
    /// What isn't proven to be synced is written and synced once more there: if a sync has failed, the kernel may show bytes
    /// that no disk holds. So nothing of it counts before this has returned.
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
                // Files that an earlier start has freed are still there.
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

    /// What a start has kept of the journal, to be read once more.
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

    /// Whether a whole group from byte `at` on says that group `number` was synced. Then it isn't torn.
    ///
    /// What stands there may be a client's bytes. So only possible numbers are looked at, and only so many bytes are summed up; if
    /// that isn't enough to know, it counts as damage.
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

    /// The groups from `first` on, as they stand in a segment with this salt. All of them are in the last segment.
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

/// After a failed sync the kernel may forget what it has shown before.
fn changed(segment: u64) -> JournalError {
    let why = "it changed while it was read".to_owned();
    JournalError::Failed(DiskError::Failed { file: segment::name(segment), why })
}

/// The headers of the segments that count, oldest first: those that the newest one names, one by the other.
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
