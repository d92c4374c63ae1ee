//! What an earlier start has left of a journal.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;

use super::{
    Damage, GroupNumber, Journal, JournalEntry, JournalError, JournalSettings, decode_entries,
    group::{BLOCK, Group},
    segment::{self, SegmentHeader, SegmentWriter},
};
use crate::disk::{Disk, DiskError};

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
}

/// A segment, as far as it counts.
struct SegmentRead {
    end: GroupNumber,
    proven: GroupNumber,
}

impl FoundJournal {
    /// Reads all segments and checks them. Shows each entry with the number of its group, oldest first.
    ///
    /// # Errors
    /// [`JournalError::Damaged`]: something that was synced isn't there as it was written. [`JournalError::Failed`].
    pub fn check(
        disk: Arc<dyn Disk>,
        settings: JournalSettings,
        mut show: impl FnMut(GroupNumber, JournalEntry),
    ) -> Result<Self, JournalError> {
        let segments = headers(&*disk, settings.store)?;
        let begin = segments.first().map_or(GroupNumber(0), |segment| segment.first);
        let mut found = Self { disk, settings, segments, end: begin, proven: begin };
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
        mut show: impl FnMut(GroupNumber, JournalEntry),
    ) -> Result<(), JournalError> {
        let behind = |at: usize| self.segments.get(at + 1).is_some_and(|next| next.first <= from);
        for at in (0..self.segments.len()).filter(|&at| !behind(at)) {
            self.read_segment(at, &mut |group, entry| {
                if group >= from {
                    show(group, entry);
                }
            })?;
        }
        Ok(())
    }

    fn read(&mut self, show: &mut impl FnMut(GroupNumber, JournalEntry)) -> Result<(), JournalError> {
        for at in 0..self.segments.len() {
            let SegmentRead { end, proven } = self.read_segment(at, show)?;
            (self.end, self.proven) = (end, self.proven.max(proven));
        }
        Ok(())
    }

    /// Reads the groups of a segment, up to the first one of the next segment.
    fn read_segment(
        &self,
        at: usize,
        show: &mut impl FnMut(GroupNumber, JournalEntry),
    ) -> Result<SegmentRead, JournalError> {
        let header = &self.segments[at];
        let until = self.segments.get(at + 1).map(|next| next.first);
        let bytes = segment::read(&*self.disk, header.number).map_err(JournalError::Failed)?;
        let damaged = |offset: usize, damage| {
            let file = segment::name(header.number);
            JournalError::Damaged { file, offset: offset as u64, damage }
        };
        let mut read = SegmentRead { end: header.first, proven: until.unwrap_or(header.first) };
        let mut at = BLOCK;
        while Some(read.end) != until {
            let Some(group) = Group::at(&bytes, at, header.salt).filter(|group| group.number == read.end) else {
                let is_damage = until.is_some() || was_synced(&bytes, at, header.salt, read.end);
                if is_damage && !allows!(self.settings.guards, TakeDamageForTorn) {
                    return Err(damaged(at, Damage::Group(read.end)));
                }
                break;
            };
            for entry in decode_entries(&group.entries) {
                show(group.number, entry.map_err(|error| damaged(at, Damage::Entry(group.number, error)))?);
            }
            at += group.len(self.settings.guards);
            // A file that goes on behind its beginning has a durable name.
            let goes_on = group.number >= header.synced || allows!(self.settings.guards, TrustName);
            let named = if goes_on { header.synced } else { header.first };
            (read.end, read.proven) = (group.number.next(), read.proven.max(group.synced).max(named));
        }
        Ok(read)
    }

    /// Goes on behind what was found, in a new segment. `start` is the number of this start of the store, `seed` a random
    /// number.
    ///
    /// What isn't proven to be synced is written and synced once more there: if a sync has failed, the kernel may show bytes
    /// that no disk holds. So nothing of it counts before this has returned.
    ///
    /// # Errors
    /// [`JournalError::Full`]; [`JournalError::Failed`].
    pub fn open(self, start: u64, seed: u128) -> Result<Journal, JournalError> {
        let Self { ref disk, settings, .. } = self;
        let last = segment::numbers(&**disk).map_err(JournalError::Failed)?.last().copied().unwrap_or(0);
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
        let groups = self.encode_from(first, header.salt)?;
        let made = SegmentWriter::create(&**disk, &header, &groups, settings.guards);
        let writer = made.map_err(|error| match error {
            DiskError::Full => JournalError::Full,
            error => JournalError::Failed(error),
        })?;
        segments.push_back(header);
        segment::keep(&**disk, &segments).map_err(JournalError::Failed)?;
        Ok(Journal {
            disk: disk.clone(),
            settings,
            start,
            seed,
            segments,
            writer,
            next: self.end,
            synced: self.end,
            failed: None,
            buffer: Vec::new(),
        })
    }

    /// The groups from `first` on, as they stand in a segment with this salt. All of them are in the last segment.
    fn encode_from(&self, first: GroupNumber, salt: u128) -> Result<Vec<u8>, JournalError> {
        let mut out = vec![0; BLOCK];
        let Some(last) = self.segments.last() else { return Ok(out) };
        let bytes = segment::read(&*self.disk, last.number).map_err(JournalError::Failed)?;
        let (mut at, mut number) = (BLOCK, last.first);
        while number < self.end
            && let Some(group) = Group::at(&bytes, at, last.salt)
        {
            if number >= first {
                group.encode(&mut out, salt, first, self.settings.guards);
            }
            at += group.len(self.settings.guards);
            number = number.next();
        }
        Ok(out)
    }
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
            return Err(JournalError::Damaged { file: segment::name(*follows), offset: 0, damage: Damage::Missing });
        }
        headers.push(SegmentHeader::read(disk, *follows, store)?);
    }
    headers.reverse();
    Ok(headers)
}

/// Whether a whole group behind byte `at` says that group `number` was synced. Then it isn't torn.
fn was_synced(segment: &Bytes, at: usize, salt: u128, number: GroupNumber) -> bool {
    let places = (at + BLOCK..segment.len()).step_by(BLOCK);
    places.filter_map(|at| Group::at(segment, at, salt)).any(|group| group.synced > number)
}
