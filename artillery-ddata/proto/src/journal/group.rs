//! A group: the entries that one sync makes durable.
//!
//! ```text
//! 0   u32   CRC-32C of the segment's salt (u128), this place in the file (u64), and the rest up to the entries' end
//! 4   u32   length of the entries in bytes
//! 8   u64   number
//! 16  u64   all groups below this one were synced when this one was written
//! 24  …     the entries, then zeros
//!     u32   the CRC once more, in the last bytes before a multiple of 4096
//! ```
//!
//! A group that a full disk cut short is refused, and another one replaces it. Without the second CRC, the refused
//! group could become valid later, if the other group is torn.

use bytes::Bytes;

use super::GroupNumber;
use crate::guards::Guards;

/// Groups begin at multiples of this number of bytes, so that a later write torn by a power cut damages no synced
/// group.
pub(super) const BLOCK: usize = 4096;

const HEADER: usize = 24;
const CRC: usize = 4;

pub(super) const MAX_GROUP: usize = 1 << 30;

/// The header of a group, unchecked.
#[derive(Debug, Clone, Copy)]
pub(super) struct GroupClaims {
    sum: u32,
    pub(super) len: usize,
    pub(super) number: GroupNumber,
    pub(super) synced: GroupNumber,
}

impl GroupClaims {
    /// Returns `None` if the bytes are no header.
    pub(super) fn at(segment: &Bytes, at: usize) -> Option<Self> {
        let header: &[u8; HEADER] = segment.get(at..)?.first_chunk()?;
        let u32_at = |at: usize| u32::from_le_bytes(std::array::from_fn(|n| header[at + n]));
        let number_at = |at: usize| GroupNumber(u64::from_le_bytes(std::array::from_fn(|n| header[at + n])));
        let claims = Self { sum: u32_at(0), len: u32_at(4) as usize, number: number_at(8), synced: number_at(16) };
        let is_possible = claims.len <= MAX_GROUP && claims.synced <= claims.number && claims.number.0 < u64::MAX;
        is_possible.then_some(claims)
    }
}

#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) number: GroupNumber,
    /// All groups below this one were synced when this one was written.
    pub(super) synced: GroupNumber,
    pub(super) entries: Bytes,
}

impl Group {
    /// The group at byte `at` of a segment; `None`: it isn't complete.
    pub(super) fn at(segment: &Bytes, at: usize, salt: u128, guards: Guards) -> Option<Self> {
        Self::placed(segment, at, (salt, at as u64), guards)
    }

    /// The group at byte `at` of `segment`, which was written for `place`.
    fn placed(segment: &Bytes, at: usize, place: (u128, u64), guards: Guards) -> Option<Self> {
        let claims = GroupClaims::at(segment, at)?;
        let entries = at.checked_add(HEADER)?..at.checked_add(HEADER)?.checked_add(claims.len)?;
        let end = at.checked_add(filled(HEADER + claims.len + CRC, guards))?;
        let again = segment.get(end - CRC..end)? == claims.sum.to_le_bytes() || allows!(guards, CountRefused);
        let is_whole = again && checksum(place.0, place.1, segment.get(at + CRC..entries.end)?) == claims.sum;
        let GroupClaims { number, synced, .. } = claims;
        is_whole.then(|| Self { number, synced, entries: segment.slice(entries) })
    }

    /// The length including the padding, in bytes.
    pub(super) fn len(&self, guards: Guards) -> usize {
        filled(HEADER + self.entries.len() + CRC, guards)
    }

    /// Appends the group to `out`, the first bytes of another segment.
    pub(super) fn encode(&self, out: &mut Vec<u8>, salt: u128, synced: GroupNumber, guards: Guards) {
        let mut bytes = Vec::with_capacity(self.len(guards));
        begin(&mut bytes);
        bytes.extend_from_slice(&self.entries);
        finish(&mut bytes, (salt, out.len() as u64), self.number, synced, guards);
        out.extend_from_slice(&bytes);
    }
}

/// A group of a backup, whose file is read and written as a stream.
#[derive(Debug)]
pub(crate) struct BackupGroup {
    pub(crate) number: GroupNumber,
    pub(crate) entries: Bytes,
}

impl BackupGroup {
    pub(crate) const BLOCK: usize = BLOCK;

    pub(crate) fn encode(entries: &[u8], place: (u128, u64), number: GroupNumber, guards: Guards) -> Vec<u8> {
        let mut out = Vec::with_capacity(filled(HEADER + entries.len() + CRC, guards));
        begin(&mut out);
        out.extend_from_slice(entries);
        finish(&mut out, place, number, number, guards);
        out
    }

    /// The length of the group at the beginning of a buffer. `None`: the buffer is too short to determine it; the inner
    /// `None`: it is no group.
    pub(crate) fn len(buffer: &[u8]) -> Option<Option<usize>> {
        let header = Bytes::copy_from_slice(buffer.get(..HEADER)?);
        Some(GroupClaims::at(&header, 0).map(|claims| filled(HEADER + claims.len + CRC, Guards::ALL)))
    }

    pub(crate) fn decode(group: &Bytes, place: (u128, u64), guards: Guards) -> Option<Self> {
        let Group { number, entries, .. } = Group::placed(group, 0, place, guards)?;
        // Changed padding is damage too.
        let padding = &group[HEADER + entries.len()..group.len() - CRC];
        padding.iter().all(|&byte| byte == 0).then_some(Self { number, entries })
    }
}

/// Begins a group in `out`, to which the caller appends the entries.
pub(super) fn begin(out: &mut Vec<u8>) {
    out.clear();
    out.resize(HEADER, 0);
}

/// Ends and pads a group. `place`: the salt of its segment, and where the group begins there.
pub(super) fn finish(out: &mut Vec<u8>, place: (u128, u64), number: GroupNumber, synced: GroupNumber, guards: Guards) {
    let len = (out.len() - HEADER) as u32;
    out[4..8].copy_from_slice(&len.to_le_bytes());
    out[8..16].copy_from_slice(&number.0.to_le_bytes());
    out[16..24].copy_from_slice(&synced.0.to_le_bytes());
    let sum = checksum(place.0, place.1, &out[4..]);
    out[..4].copy_from_slice(&sum.to_le_bytes());
    // Extend in one piece: `resize` writes byte by byte in builds for tests, which do this millions of times.
    out.extend_from_slice(&[0; BLOCK][..filled(out.len() + CRC, guards) - CRC - out.len()]);
    out.extend_from_slice(&sum.to_le_bytes());
}

/// Salt and place ensure that no client's value is a valid group, not even a copy of one.
fn checksum(salt: u128, at: u64, bytes: &[u8]) -> u32 {
    let place = [salt.to_le_bytes().as_slice(), &at.to_le_bytes()].concat();
    crc32c::crc32c_append(crc32c::crc32c(&place), bytes)
}

fn filled(len: usize, guards: Guards) -> usize {
    len.next_multiple_of(if allows!(guards, FillLittle) { 8 } else { BLOCK })
}
