//! A group: the entries that one sync makes durable.
//!
//! ```text
//! 0   u32   CRC-32C of the segment's salt (u128), of this place in the file (u64), and of all that follows without the filling
//! 4   u32   length of the entries in bytes
//! 8   u64   number
//! 16  u64   all groups below this one were synced when this one was written
//! 24  …     the entries, then zeros up to the next multiple of 4096
//! ```

use bytes::Bytes;

use super::GroupNumber;
use crate::guards::Guards;

/// Groups begin at multiples of this, in bytes. So no later write touches a sector of a synced group: a power cut could tear
/// it.
pub(super) const BLOCK: usize = 4096;

const HEADER: usize = 24;

/// A group that is whole.
#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) number: GroupNumber,
    /// All groups below this one were synced when this one was written.
    pub(super) synced: GroupNumber,
    pub(super) entries: Bytes,
}

impl Group {
    /// The group at byte `at` of a segment, if a whole one is there.
    pub(super) fn at(segment: &Bytes, at: usize, salt: u128) -> Option<Self> {
        let header = segment.get(at..at.checked_add(HEADER)?)?;
        let len = u32::from_le_bytes(header[4..8].try_into().ok()?) as usize;
        let end = at.checked_add(HEADER)?.checked_add(len)?;
        let sum = u32::from_le_bytes(header[..4].try_into().ok()?);
        if checksum(salt, at as u64, segment.get(at + 4..end)?) != sum {
            return None;
        }
        let number = |from: usize| Some(GroupNumber(u64::from_le_bytes(header[from..from + 8].try_into().ok()?)));
        Some(Self { number: number(8)?, synced: number(16)?, entries: segment.slice(at + HEADER..end) })
    }

    /// Its length with the filling, in bytes.
    pub(super) fn len(&self, guards: Guards) -> usize {
        filled(HEADER + self.entries.len(), guards)
    }

    /// Writes the group again behind `out`, the beginning of another segment.
    pub(super) fn encode(&self, out: &mut Vec<u8>, salt: u128, synced: GroupNumber, guards: Guards) {
        let mut bytes = Vec::with_capacity(self.len(guards));
        begin(&mut bytes);
        bytes.extend_from_slice(&self.entries);
        finish(&mut bytes, (salt, out.len() as u64), self.number, synced, guards);
        out.extend_from_slice(&bytes);
    }
}

/// Begins a group. Its entries are to be put behind what `out` holds then.
pub(super) fn begin(out: &mut Vec<u8>) {
    out.clear();
    out.resize(HEADER, 0);
}

/// Ends a group, and fills it up. `place` is the salt of its segment, and where it begins there.
pub(super) fn finish(out: &mut Vec<u8>, place: (u128, u64), number: GroupNumber, synced: GroupNumber, guards: Guards) {
    let len = (out.len() - HEADER) as u32;
    out[4..8].copy_from_slice(&len.to_le_bytes());
    out[8..16].copy_from_slice(&number.0.to_le_bytes());
    out[16..24].copy_from_slice(&synced.0.to_le_bytes());
    let sum = checksum(place.0, place.1, &out[4..]);
    out[..4].copy_from_slice(&sum.to_le_bytes());
    out.resize(filled(out.len(), guards), 0);
}

/// Salt and place make sure that what a client has put into a value is no group, not even a copy of one.
fn checksum(salt: u128, at: u64, bytes: &[u8]) -> u32 {
    let place = [salt.to_le_bytes().as_slice(), &at.to_le_bytes()].concat();
    crc32c::crc32c_append(crc32c::crc32c(&place), bytes)
}

fn filled(len: usize, guards: Guards) -> usize {
    len.next_multiple_of(if allows!(guards, FillLittle) { 8 } else { BLOCK })
}
