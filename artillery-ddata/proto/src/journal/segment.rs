//! A segment: a file of groups.
//!
//! ```text
//! 0   u32    CRC-32C of the rest of the first 4096 bytes
//! 4   8 B    "artillry"
//! 12  u32    format: 1
//! 16  u128   store
//! 32  u64    the start of the store that wrote it
//! 40  u64    its number, as in the file's name
//! 48  u64    the number of the segment before it; 0: none
//! 56  u64    the number of the oldest valid segment
//! 64  u64    the number of its first group
//! 72  u64    all groups below this one were synced before the file got its name
//! 80  u128   salt
//! 96  u32    1: each batch is synced, 2: none is
//! 100 …      zeros up to 4096, then the groups
//! ```

use std::collections::VecDeque;

use bytes::Bytes;

use super::{
    Damage, GroupNumber, JournalError, SyncMode,
    group::{self, BLOCK},
};
use crate::{
    disk::{Disk, DiskError, DiskFile, remove_if_there},
    guards::Guards,
};

const MAGIC: &[u8; 8] = b"artillry";
const FORMAT: u32 = 1;
const PREFIX: &str = "journal-";
/// The name of a segment that isn't complete yet.
const UNNAMED: &str = "journal.new";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    pub(super) store: u128,
    pub(super) start: u64,
    pub(super) number: u64,
    /// The previous segment. Segments with numbers in between are invalid.
    pub(super) follows: u64,
    /// The oldest valid segment. Older ones were removed, but a power cut may restore one.
    pub(super) oldest: u64,
    /// The number of its first group. Groups of the previous segment with this number or a higher one are invalid.
    pub(super) first: GroupNumber,
    /// All groups below this one were synced before the file got its name. The name is durable if more groups follow.
    pub(super) synced: GroupNumber,
    pub(super) salt: u128,
    pub(super) mode: SyncMode,
}

impl SegmentHeader {
    fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; 4];
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&FORMAT.to_le_bytes());
        out.extend_from_slice(&self.store.to_le_bytes());
        for number in [self.start, self.number, self.follows, self.oldest, self.first.0, self.synced.0] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.salt.to_le_bytes());
        let mode: u32 = match self.mode {
            SyncMode::Batch => 1,
            SyncMode::Never => 2,
        };
        out.extend_from_slice(&mode.to_le_bytes());
        out.resize(BLOCK, 0);
        let sum = crc32c::crc32c(&out[4..]);
        out[..4].copy_from_slice(&sum.to_le_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        let (sum, rest) = bytes.split_first_chunk().ok_or(Damage::Header)?;
        let rest: &[u8; BLOCK - 4] = rest.first_chunk().ok_or(Damage::Header)?;
        if crc32c::crc32c(rest) != u32::from_le_bytes(*sum) || !rest.starts_with(MAGIC) {
            return Err(Damage::Header);
        }
        let format = u32::from_le_bytes(part(rest, 8));
        if format != FORMAT {
            return Err(Damage::Format(format));
        }
        let number = |at| u64::from_le_bytes(part(rest, at));
        Ok(Self {
            store: u128::from_le_bytes(part(rest, 12)),
            start: number(28),
            number: number(36),
            follows: number(44),
            oldest: number(52),
            first: GroupNumber(number(60)),
            synced: GroupNumber(number(68)),
            salt: u128::from_le_bytes(part(rest, 76)),
            mode: match u32::from_le_bytes(part(rest, 92)) {
                1 => SyncMode::Batch,
                2 => SyncMode::Never,
                _ => return Err(Damage::Header),
            },
        })
    }

    /// Whether the numbers are consistent.
    fn is_possible(&self) -> bool {
        let Self { number, follows, oldest, first, synced, .. } = *self;
        follows < number && oldest <= number && number < u64::MAX && first <= synced && synced.0 < u64::MAX
    }

    pub(super) fn read(disk: &dyn Disk, number: u64, store: u128) -> Result<Self, JournalError> {
        let file = name(number);
        let mut bytes = [0; BLOCK];
        let opened = disk.open(&file).and_then(|opened| opened.read_at(0, &mut bytes));
        let len = opened.map_err(JournalError::Failed)?;
        let checked = Self::decode(&bytes[..len]).and_then(|header| match header {
            header if header.number != number || !header.is_possible() => Err(Damage::Header),
            header if header.store != store => Err(Damage::Foreign),
            header => Ok(header),
        });
        checked.map_err(|damage| JournalError::Damaged { file, offset: 0, damage })
    }
}

fn part<const LEN: usize>(bytes: &[u8; BLOCK - 4], at: usize) -> [u8; LEN] {
    std::array::from_fn(|n| bytes[at + n])
}

pub(super) fn name(number: u64) -> String {
    format!("{PREFIX}{number:010}")
}

pub(super) fn numbers(disk: &dyn Disk) -> Result<Vec<u64>, DiskError> {
    let names = disk.names()?;
    let number = |file: &String| file.strip_prefix(PREFIX)?.parse().ok().filter(|&number| name(number) == *file);
    let mut numbers: Vec<u64> = names.iter().filter_map(number).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

pub(super) fn length(disk: &dyn Disk, number: u64) -> Result<u64, DiskError> {
    disk.open(&name(number))?.length()
}

pub(super) fn read(disk: &dyn Disk, number: u64) -> Result<Bytes, DiskError> {
    let file = disk.open(&name(number))?;
    let mut bytes = vec![0; usize::try_from(file.length()?).map_err(|_| DiskError::Full)?];
    let len = file.read_at(0, &mut bytes)?;
    bytes.truncate(len);
    Ok(bytes.into())
}

/// Removes at most `most` segments that aren't in `kept`, oldest first. Returns whether none is left.
pub(super) fn keep(disk: &dyn Disk, kept: &VecDeque<SegmentHeader>, most: usize) -> Result<bool, DiskError> {
    let is_kept = |number: &u64| kept.iter().any(|segment| segment.number == *number);
    let others: Vec<_> = numbers(disk)?.into_iter().filter(|number| !is_kept(number)).collect();
    others.iter().take(most).try_for_each(|&number| disk.remove(&name(number)))?;
    disk.sync_names().map_err(never_full)?;
    Ok(others.len() <= most)
}

#[derive(Debug)]
pub(super) struct SegmentWriter {
    file: Box<dyn DiskFile>,
    salt: u128,
    /// Where the next group begins.
    at: u64,
}

impl SegmentWriter {
    /// Creates a segment that begins with `groups`, which are encoded after space for the header. The segment gets its
    /// name only when all of that is durable, so a named segment is never torn at its beginning.
    pub(super) fn create(
        disk: &dyn Disk,
        header: &SegmentHeader,
        groups: &[u8],
        guards: Guards,
    ) -> Result<Self, DiskError> {
        remove_if_there(disk, UNNAMED)?;
        let made = Self::make(disk, header, &groups[BLOCK..], guards);
        if made == Err(DiskError::Full) {
            remove_if_there(disk, UNNAMED)?;
        }
        made?;
        let file = disk.open(&name(header.number))?;
        Ok(Self { file, salt: header.salt, at: groups.len() as u64 })
    }

    fn make(disk: &dyn Disk, header: &SegmentHeader, groups: &[u8], guards: Guards) -> Result<(), DiskError> {
        let mut file = disk.create(UNNAMED)?;
        file.write_at(0, &header.encode())?;
        file.write_at(BLOCK as u64, groups)?;
        if !allows!(guards, NameTooSoon) {
            file.sync().map_err(never_full)?;
        }
        disk.rename(UNNAMED, &name(header.number))?;
        disk.sync_names().map_err(never_full)
    }

    pub(super) const fn is_used(&self) -> bool {
        self.at > BLOCK as u64
    }

    pub(super) const fn at(&self) -> u64 {
        self.at
    }

    /// Ends the group in `buffer`, and writes it. If that fails, the next group is written at the same position.
    pub(super) fn append(
        &mut self,
        buffer: &mut Vec<u8>,
        number: GroupNumber,
        synced: GroupNumber,
        guards: Guards,
    ) -> Result<(), DiskError> {
        group::finish(buffer, (self.salt, self.at), number, synced, guards);
        self.file.write_at(self.at, buffer)?;
        self.at += buffer.len() as u64;
        Ok(())
    }

    pub(super) fn sync(&mut self) -> Result<(), DiskError> {
        self.file.sync().map_err(never_full)
    }
}

/// If a sync finds the disk full, the bytes on the disk are as unknown as after any other failure.
fn never_full(error: DiskError) -> DiskError {
    match error {
        DiskError::Full => DiskError::Failed { file: String::new(), why: "the disk is full".into() },
        error => error,
    }
}
