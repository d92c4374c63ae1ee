//! Reads a backup.

use std::hash::Hasher;

use artillery_core::internal::codec;
use bytes::{Bytes, BytesMut};
use siphasher::sip128::{Hasher128, SipHasher24};

use super::{BackupEnd, BackupError, END, FORMAT, MAGIC};
use crate::{
    guards::Guards,
    journal::{BackupGroup, GroupNumber, JournalEntry, decode_entries},
};

/// Decodes a backup from its bytes, which the caller supplies in order, in pieces of any length.
#[derive(Debug)]
pub struct BackupReader {
    buffer: BytesMut,
    /// The place of the buffer's first byte in the file.
    at: u64,
    salt: Option<u128>,
    groups: u64,
    entries: u64,
    hash: SipHasher24,
    end: Option<BackupEnd>,
}

impl Default for BackupReader {
    fn default() -> Self {
        Self { buffer: BytesMut::new(), at: 0, salt: None, groups: 0, entries: 0, hash: SipHasher24::new(), end: None }
    }
}

impl BackupReader {
    /// Adds bytes of the file.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The entries of the next group. `None`: more bytes are needed.
    ///
    /// # Errors
    /// [`BackupError`]. The reader must not be used any longer.
    pub fn next_group(&mut self) -> Result<Option<Vec<JournalEntry>>, BackupError> {
        let Some(salt) = self.salt else { return self.begin() };
        if self.buffer.is_empty() {
            return Ok(None);
        }
        if self.end.is_some() {
            return Err(BackupError::Trailing(self.at));
        }
        let damaged = BackupError::Damaged(self.at);
        let Some(len) = BackupGroup::len(&self.buffer) else { return Ok(None) };
        let len = len.ok_or(damaged.clone())?;
        if self.buffer.len() < len {
            return Ok(None);
        }
        let (at, group) = (self.at, self.buffer.split_to(len).freeze());
        let expected = GroupNumber(self.groups);
        let entries = BackupGroup::decode(&group, (salt, at), Guards::ALL)
            .filter(|found| found.number == expected)
            .ok_or(damaged)?
            .entries;
        if entries.first() == Some(&END) {
            self.ended(at, &entries)?;
            self.at += len as u64;
            return Ok(Some(Vec::new()));
        }
        self.passed(&group);
        self.groups += 1;
        let entries: Result<Vec<_>, _> = decode_entries(&entries).collect();
        let entries = entries.map_err(|error| BackupError::Entry { at, error })?;
        self.entries += entries.len() as u64;
        Ok(Some(entries))
    }

    fn passed(&mut self, bytes: &[u8]) {
        self.hash.write(bytes);
        self.at += bytes.len() as u64;
    }

    fn begin(&mut self) -> Result<Option<Vec<JournalEntry>>, BackupError> {
        let known = self.buffer.len().min(12);
        if known > 4 && self.buffer[4..known] != MAGIC[..known - 4] {
            return Err(BackupError::NotABackup);
        }
        if self.buffer.len() < BackupGroup::BLOCK {
            return Ok(None);
        }
        let header: Bytes = self.buffer.split_to(BackupGroup::BLOCK).freeze();
        let u32_at = |at: usize| u32::from_le_bytes(std::array::from_fn(|n| header[at + n]));
        if u32_at(12) != FORMAT {
            return Err(BackupError::UnknownFormat(u32_at(12)));
        }
        if u32_at(0) != crc32c::crc32c(&header[4..]) {
            return Err(BackupError::Damaged(0));
        }
        self.salt = Some(u128::from_le_bytes(std::array::from_fn(|n| header[16 + n])));
        self.passed(&header);
        Ok(Some(Vec::new()))
    }

    fn ended(&mut self, at: u64, entries: &Bytes) -> Result<(), BackupError> {
        const PREFIX: usize = 9;
        let stated = entries.get(1..5).map(|len| u32::from_le_bytes([len[0], len[1], len[2], len[3]]) as usize);
        let header = entries.get(PREFIX..).filter(|header| Some(header.len()) == stated);
        let end: BackupEnd = codec::decode(header.ok_or(BackupError::Damaged(at))?).map_err(BackupError::End)?;
        if end.hash != self.hash.finish128().as_u128() {
            return Err(BackupError::Damaged(at));
        }
        if end.entries != self.entries {
            return Err(BackupError::OtherEntries);
        }
        self.end = Some(end);
        Ok(())
    }

    /// Ends the file.
    ///
    /// # Errors
    /// [`BackupError::Cut`] if it is incomplete, [`BackupError::NotABackup`] if it is none.
    pub fn finish(self) -> Result<BackupEnd, BackupError> {
        if self.salt.is_none() && self.buffer.len() < 12 {
            return Err(BackupError::NotABackup);
        }
        self.end.ok_or(BackupError::Cut(self.at + self.buffer.len() as u64))
    }
}
