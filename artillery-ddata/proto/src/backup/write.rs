//! Writes a backup.

use std::hash::Hasher;

use artillery_core::internal::codec;
use siphasher::sip128::{Hasher128, SipHasher24};

use super::{BackupEnd, END, FORMAT, MAGIC};
use crate::{
    ChainId, ClusterId, Epoch, Sequence,
    control::History,
    guards::Guards,
    journal::{BackupGroup, GroupNumber, JournalEntry, encode_entries},
    message::{ChainFrame, ChainMessage},
    wire::chain::EncodeError,
};

/// A group ends once it has this many bytes.
const GROUP_BYTES: usize = 1 << 20;

/// Encodes a backup, in memory: the caller writes the returned bytes in order.
#[derive(Debug)]
pub struct BackupWriter {
    salt: u128,
    /// The length of the written file.
    at: u64,
    groups: u64,
    entries: u64,
    hash: SipHasher24,
    group: Vec<u8>,
    chains: Vec<(ChainId, Sequence)>,
}

impl BackupWriter {
    /// Begins a file. `salt` must be random: with it, no bytes of a value pass for a part of the file.
    pub fn new(salt: u128) -> (Self, Vec<u8>) {
        let mut header = vec![0; 4];
        header.extend_from_slice(&MAGIC);
        header.extend_from_slice(&FORMAT.to_le_bytes());
        header.extend_from_slice(&salt.to_le_bytes());
        header.resize(BackupGroup::BLOCK, 0);
        let sum = crc32c::crc32c(&header[4..]);
        header[..4].copy_from_slice(&sum.to_le_bytes());
        let hash = SipHasher24::new();
        let mut writer = Self { salt, at: 0, groups: 0, entries: 0, hash, group: Vec::new(), chains: Vec::new() };
        writer.passed(&header);
        (writer, header)
    }

    fn passed(&mut self, bytes: &[u8]) {
        self.hash.write(bytes);
        self.at += bytes.len() as u64;
    }

    /// Adds a message of a [`ChainCopy`](super::ChainCopy). A second beginning of a chain replaces its earlier
    /// messages. Returns the bytes of a group if one is full.
    ///
    /// # Errors
    /// [`EncodeError`]: the message can't be encoded.
    pub fn message(&mut self, chain: ChainId, message: ChainMessage) -> Result<Option<Vec<u8>>, EncodeError> {
        let frame = ChainFrame { chain, epoch: Epoch(0), index: 0, message };
        self.entry(&JournalEntry::Sent(Box::new(frame)))
    }

    /// Ends the chain whose copy is complete at `at`.
    ///
    /// # Errors
    /// [`EncodeError`].
    pub fn end_chain(&mut self, chain: ChainId, at: Sequence) -> Result<Option<Vec<u8>>, EncodeError> {
        self.chains.push((chain, at));
        self.entry(&JournalEntry::Watermark { chain, watermark: at })
    }

    fn entry(&mut self, entry: &JournalEntry) -> Result<Option<Vec<u8>>, EncodeError> {
        let bytes = encode_entries([entry])?;
        let full = (!self.group.is_empty() && self.group.len() + bytes.len() > GROUP_BYTES).then(|| self.end_group());
        self.group.extend_from_slice(&bytes);
        self.entries += 1;
        Ok(full)
    }

    fn end_group(&mut self) -> Vec<u8> {
        let entries = std::mem::take(&mut self.group);
        let bytes = BackupGroup::encode(&entries, (self.salt, self.at), GroupNumber(self.groups), Guards::ALL);
        self.groups += 1;
        self.passed(&bytes);
        bytes
    }

    /// Ends the file.
    ///
    /// # Errors
    /// [`EncodeError`].
    pub fn finish(mut self, cluster: ClusterId, history: History) -> Result<Vec<u8>, EncodeError> {
        let mut out = if self.group.is_empty() { Vec::new() } else { self.end_group() };
        let (chains, entries) = (std::mem::take(&mut self.chains), self.entries);
        let end = BackupEnd { cluster, history, chains, entries, hash: self.hash.finish128().as_u128() };
        let mut header = Vec::new();
        codec::encode(&end, &mut header)?;
        self.group.push(END);
        self.group.extend_from_slice(&(header.len() as u32).to_le_bytes());
        self.group.extend_from_slice(&0_u32.to_le_bytes());
        self.group.extend_from_slice(&header);
        out.append(&mut self.end_group());
        Ok(out)
    }
}
