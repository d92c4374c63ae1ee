//! The control file: the durable promises of a node that are not part of its chains (docs/adr/0042).
//!
//! It is small and stored twice, in `control-1` and `control-2`. A change is written to one copy and synced, then to
//! the other. So one copy is always complete, and damage to one copy loses nothing. Each write has a number, one more
//! than the previous write.
//!
//! ```text
//! 0   u32    CRC-32C of the rest, up to the record's end
//! 4   8 B    "artictrl"
//! 12  u32    format: 1
//! 16  u64    number of this write
//! 24  u32    length of the record in bytes
//! 28  …      the record
//! ```

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use artillery_core::internal::codec::{self, CodecError};
use bytes::Bytes;
use serde::Serialize;

use super::{ControlRecord, ballast::Ballast};
use crate::{
    control::StorePosition,
    disk::{Disk, DiskError, DiskFile, remove_if_there},
    guards::Guards,
    journal::JournalError,
};

const MAGIC: &[u8; 8] = b"artictrl";
const FORMAT: u32 = 1;
const HEADER: usize = 28;
pub(super) const NAMES: [&str; 2] = ["control-1", "control-2"];
/// The name of a copy that isn't complete yet.
const UNNAMED: &str = "control.new";
/// The minimum length of a new file in bytes, so that changes need no further space on a full disk.
const RESERVED: usize = 64 << 10;
const MAX_RECORD: usize = 1 << 30;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ControlFileError {
    /// The disk is full. The record in memory is unchanged.
    #[error("the disk is full")]
    Full,
    /// The disk has failed. This process must not write again (trap 72).
    #[error("the disk has failed: {0}")]
    Failed(DiskError),
    /// Neither copy is complete, or both are missing although a journal exists.
    #[error("control-1 and control-2 are damaged")]
    Damaged,
    /// The format is unknown to this release.
    #[error("{file} is in format {format}, which this release doesn't know")]
    Format { file: &'static str, format: u32 },
    /// The file is complete, but another release wrote its record, with fields unknown to this release.
    #[error("{file} is whole, but another release wrote its record, which this release can't decode ({error})")]
    OtherRecord { file: &'static str, error: CodecError },
    #[error(transparent)]
    Codec(#[from] CodecError),
}

impl From<DiskError> for ControlFileError {
    fn from(error: DiskError) -> Self {
        match error {
            DiskError::Full => Self::Full,
            error => Self::Failed(error),
        }
    }
}

impl From<ControlFileError> for JournalError {
    fn from(error: ControlFileError) -> Self {
        match error {
            ControlFileError::Full => Self::Full,
            ControlFileError::Failed(error) => Self::Failed(error),
            error => Self::Failed(DiskError::Failed { file: NAMES[0].into(), why: error.to_string() }),
        }
    }
}

/// The control file of a store. Clones share it.
#[derive(Debug, Clone)]
pub struct ControlFile(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Locked while a change is written.
    files: Mutex<Files>,
    /// Not locked during a write, because tasks that must not wait for a disk read the record.
    written: Mutex<WrittenRecord>,
}

#[derive(Debug)]
struct Files {
    files: [Box<dyn DiskFile>; 2],
    /// The copy that is written first.
    first: usize,
    number: u64,
    failed: Option<DiskError>,
    guards: Guards,
    ballast: Ballast,
    /// Keeps the directory locked by this process as long as the control file may be written.
    _disk: Arc<dyn Disk>,
}

/// The state of a copy of the control file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyState {
    /// The file doesn't exist.
    Missing,
    /// The file can't be used: a crash interrupted its last write, it is damaged or unreadable, or another release
    /// wrote it.
    NotWhole,
    /// The file is complete. The value is the number of its last write.
    Whole(u64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenRecord {
    /// The number of times that a copy of the record was written.
    pub number: u64,
    pub record: ControlRecord,
}

impl ControlFile {
    /// The newest complete copy; `None`: no earlier start wrote one. It is valid only after [`begin`](Self::begin),
    /// because the kernel may show bytes that aren't durable.
    pub fn find(disk: &dyn Disk) -> Result<Option<WrittenRecord>, ControlFileError> {
        let names = disk.names().map_err(ControlFileError::Failed)?;
        let is_there = |name: &&str| names.iter().any(|found| found == name);
        let copies: Vec<_> = NAMES.into_iter().filter(is_there).map(|name| read(disk, name)).collect();
        let error = copies.iter().find_map(|copy| copy.as_ref().err()).cloned();
        // One complete copy is enough: the other one may be damaged, unreadable or lost.
        match copies.into_iter().flatten().flatten().max_by_key(|copy| copy.number) {
            Some(newest) => Ok(Some(newest)),
            None if names.iter().any(|name| NAMES.contains(&name.as_str())) => {
                Err(error.unwrap_or(ControlFileError::Damaged))
            }
            None => Ok(None),
        }
    }

    /// Begins a start with two new files, because a failed directory sync may have left the names of the old ones
    /// undurable.
    pub fn begin(disk: Arc<dyn Disk>, found: WrittenRecord, guards: Guards) -> Result<Self, ControlFileError> {
        let ballast = Ballast::new(disk.clone(), 0);
        Self::begin_with(disk, found, guards, ballast)
    }

    /// Like [`begin`](Self::begin), with ballast for a full disk.
    pub(super) fn begin_with(
        disk: Arc<dyn Disk>,
        found: WrittenRecord,
        guards: Guards,
        ballast: Ballast,
    ) -> Result<Self, ControlFileError> {
        let WrittenRecord { number, record } = found;
        let number = ballast.spend(|| write_anew(&*disk, number, &record))?;
        let files = open(&*disk)?;
        let files = Files { files, first: 0, number, failed: None, guards, ballast, _disk: disk };
        let written = Mutex::new(WrittenRecord { number, record });
        Ok(Self(Arc::new(Shared { files: Mutex::new(files), written })))
    }

    pub fn record(&self) -> ControlRecord {
        self.written().record.clone()
    }

    pub fn look<T>(&self, look: impl FnOnce(&ControlRecord) -> T) -> T {
        look(&self.written().record)
    }

    /// The position of the store, if its journal has `groups` synced groups. The last write is not counted: if its copy
    /// is damaged, the other copy, which was written before, holds the same record.
    pub fn position(&self, groups: u64) -> StorePosition {
        let written = self.written();
        StorePosition { control: written.number.saturating_sub(1), groups, starts: written.record.starts }
    }

    /// Changes the record durably.
    ///
    /// # Errors
    /// [`ControlFileError`]. The record in memory is then unchanged, but one copy on the disk may hold the changed one.
    pub fn change(&self, change: impl FnOnce(&mut ControlRecord)) -> Result<(), ControlFileError> {
        let mut files = self.0.files.lock().unwrap_or_else(PoisonError::into_inner);
        let mut record = self.record();
        change(&mut record);
        files.put(&record)?;
        *self.written() = WrittenRecord { number: files.number, record };
        Ok(())
    }

    fn written(&self) -> MutexGuard<'_, WrittenRecord> {
        self.0.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Files {
    fn put(&mut self, record: &ControlRecord) -> Result<(), ControlFileError> {
        if let Some(error) = &self.failed {
            return Err(ControlFileError::Failed(error.clone()));
        }
        let keeps_one = allows!(self.guards, KeepOneCopy);
        for _ in 0..if keeps_one { 1 } else { 2 } {
            let (number, file) = (self.number + 1, &mut *self.files[self.first]);
            let written = self.ballast.spend(|| write(file, number, record));
            if let Err(ControlFileError::Failed(error)) = &written {
                self.failed = Some(error.clone());
            }
            written?;
            self.number += 1;
            self.first = if keeps_one { self.first } else { 1 - self.first };
        }
        Ok(())
    }
}

/// Replaces both files. Returns the number of the last write.
fn write_anew(disk: &dyn Disk, mut number: u64, record: &ControlRecord) -> Result<u64, ControlFileError> {
    for name in NAMES {
        remove_if_there(disk, UNNAMED)?;
        let mut file = disk.create(UNNAMED)?;
        number += 1;
        write(&mut *file, number, record)?;
        disk.rename(UNNAMED, name)?;
    }
    disk.sync_names().map_err(ControlFileError::Failed)?;
    Ok(number)
}

fn open(disk: &dyn Disk) -> Result<[Box<dyn DiskFile>; 2], ControlFileError> {
    Ok([disk.open(NAMES[0])?, disk.open(NAMES[1])?])
}

fn write(file: &mut dyn DiskFile, number: u64, record: &impl Serialize) -> Result<(), ControlFileError> {
    let mut bytes = vec![0; HEADER];
    codec::encode(record, &mut bytes)?;
    let len = bytes.len() - HEADER;
    if len > MAX_RECORD {
        return Err(CodecError::TooLarge(len).into());
    }
    bytes[4..12].copy_from_slice(MAGIC);
    bytes[12..16].copy_from_slice(&FORMAT.to_le_bytes());
    bytes[16..24].copy_from_slice(&number.to_le_bytes());
    bytes[24..28].copy_from_slice(&(len as u32).to_le_bytes());
    let sum = crc32c::crc32c(&bytes[4..]);
    bytes[..4].copy_from_slice(&sum.to_le_bytes());
    if file.length()? < RESERVED as u64 {
        bytes.resize(bytes.len().max(RESERVED), 0);
    }
    file.write_at(0, &bytes)?;
    // If a sync finds the disk full, its bytes are as unknown as after any other failure.
    file.sync().map_err(ControlFileError::Failed)
}

pub(super) fn state(disk: &dyn Disk, name: &'static str) -> CopyState {
    match read(disk, name) {
        Ok(Some(found)) => CopyState::Whole(found.number),
        Err(ControlFileError::Failed(DiskError::Missing(_))) => CopyState::Missing,
        Ok(None) | Err(_) => CopyState::NotWhole,
    }
}

/// Returns `None` if the copy isn't complete.
fn read(disk: &dyn Disk, name: &'static str) -> Result<Option<WrittenRecord>, ControlFileError> {
    let file = disk.open(name)?;
    let len = usize::try_from(file.length()?).unwrap_or(usize::MAX).min(HEADER + MAX_RECORD);
    let mut bytes = vec![0; len];
    let read = file.read_at(0, &mut bytes)?;
    bytes.truncate(read);
    let Some((number, format, record)) = whole(&bytes.into()) else { return Ok(None) };
    if format != FORMAT {
        return Err(ControlFileError::Format { file: name, format });
    }
    let record = codec::decode_value(&record).map_err(|error| ControlFileError::OtherRecord { file: name, error })?;
    Ok(Some(WrittenRecord { number, record }))
}

fn whole(bytes: &Bytes) -> Option<(u64, u32, Bytes)> {
    let header: &[u8; HEADER] = bytes.first_chunk()?;
    let u32_at = |at: usize| u32::from_le_bytes(std::array::from_fn(|n| header[at + n]));
    let number = u64::from_le_bytes(std::array::from_fn(|n| header[16 + n]));
    let end = HEADER.checked_add(u32_at(24) as usize).filter(|end| *end <= bytes.len())?;
    let is_whole = header[4..12] == *MAGIC && crc32c::crc32c(&bytes[4..end]) == u32_at(0);
    is_whole.then(|| (number, u32_at(12), bytes.slice(HEADER..end)))
}
