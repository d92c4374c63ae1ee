//! The entries of a group.
//!
//! ```text
//! 0   u8    kind
//! 1   u32   length of the header in bytes
//! 5   u32   length of the body in bytes
//! 9   …     header, body
//! ```
//!
//! Kinds: 0 a chain frame, 1 not whole, 2 a cut, 3 a watermark, 4 a value that an update removed. Header and body of 0
//! are those of the frame on the wire (docs/wire-1.md), with epoch and index 0. The body of 4 is the value; the others
//! have none.

use artillery_core::{
    Frame,
    internal::codec::{self, CodecError, MAX_HEADER},
};
use bytes::{Buf, Bytes};
use serde::Serialize;

use super::GroupNumber;
use crate::{
    ChainId, Sequence, Version,
    message::ChainFrame,
    wire::chain::{self, DecodeError, EncodeError},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct EntryPlace {
    pub group: GroupNumber,
    /// The number of earlier entries in the group.
    pub index: u32,
}

impl EntryPlace {
    /// The places of the entries in a group, in order.
    pub fn all_in(group: GroupNumber) -> impl Iterator<Item = Self> {
        (0..).map(move |index| Self { group, index })
    }
}

/// State that a chain must recover after a restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JournalEntry {
    /// A message in the form in which a joiner would receive it: updates, or a part of this member's own checkpoint.
    Sent(Box<ChainFrame>),
    /// A resync of the chain begins: its earlier entries are invalid, and its store is incomplete until a checkpoint is
    /// complete.
    NotWhole { chain: ChainId },
    /// Every update after `keep` was cut off (rule 5.4).
    Cut { chain: ChainId, keep: Version },
    /// All updates up to `watermark` are committed.
    Watermark { chain: ChainId, watermark: Sequence },
    /// The value that an update removed. The entry precedes that update.
    Taken {
        chain: ChainId,
        version: Version,
        /// The value, at most [`MAX_TAKEN`](crate::types::update::MAX_TAKEN) bytes.
        value: Bytes,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EntryError {
    #[error("an entry that is longer than its group")]
    TooShort,
    /// The kind is unknown to this release.
    #[error("an entry of the unknown kind {0}")]
    UnknownKind(u8),
    /// The entry has a body, although its kind has none.
    #[error("a body of {0} bytes in an entry of a kind without one")]
    Body(usize),
    #[error(transparent)]
    Codec(#[from] CodecError),
    #[error(transparent)]
    Frame(#[from] DecodeError),
}

const SENT: u8 = 0;
const NOT_WHOLE: u8 = 1;
const CUT: u8 = 2;
const WATERMARK: u8 = 3;
const TAKEN: u8 = 4;

const PREFIX: usize = 9;

impl JournalEntry {
    pub const fn chain(&self) -> ChainId {
        match self {
            Self::Sent(frame) => frame.chain,
            Self::NotWhole { chain }
            | Self::Cut { chain, .. }
            | Self::Watermark { chain, .. }
            | Self::Taken { chain, .. } => *chain,
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        match self {
            Self::Sent(frame) => put_frame(out, SENT, frame),
            Self::NotWhole { chain } => put_value(out, NOT_WHOLE, chain, &[]),
            Self::Cut { chain, keep } => put_value(out, CUT, &(*chain, *keep), &[]),
            Self::Watermark { chain, watermark } => put_value(out, WATERMARK, &(*chain, *watermark), &[]),
            Self::Taken { chain, version, value } => {
                put_value(out, TAKEN, &(*chain, *version), std::slice::from_ref(value))
            }
        }
    }

    fn decode(kind: u8, frame: Frame) -> Result<Self, EntryError> {
        let entry = match kind {
            SENT => return Ok(Self::Sent(Box::new(chain::decode(&frame)?))),
            NOT_WHOLE => Self::NotWhole { chain: codec::decode(&frame.header)? },
            CUT => {
                let (chain, keep) = codec::decode(&frame.header)?;
                Self::Cut { chain, keep }
            }
            WATERMARK => {
                let (chain, watermark) = codec::decode(&frame.header)?;
                Self::Watermark { chain, watermark }
            }
            TAKEN => {
                let (chain, version) = codec::decode(&frame.header)?;
                return Ok(Self::Taken { chain, version, value: frame.body });
            }
            kind => return Err(EntryError::UnknownKind(kind)),
        };
        if frame.body.is_empty() { Ok(entry) } else { Err(EntryError::Body(frame.body.len())) }
    }
}

fn put_frame(out: &mut Vec<u8>, kind: u8, frame: &ChainFrame) -> Result<(), EncodeError> {
    let encoded = chain::encode(frame)?;
    put(out, kind, &encoded.header, &encoded.body)
}

fn put_value(out: &mut Vec<u8>, kind: u8, value: &impl Serialize, body: &[Bytes]) -> Result<(), EncodeError> {
    let mut header = chain::EncodedHeader::new();
    codec::encode(value, &mut header)?;
    put(out, kind, &header, body)
}

fn put(out: &mut Vec<u8>, kind: u8, header: &[u8], body: &[Bytes]) -> Result<(), EncodeError> {
    let len = body.iter().map(Bytes::len).sum::<usize>();
    let body_len = u32::try_from(len).map_err(|_| EncodeError::TooLong(len as u64))?;
    out.push(kind);
    out.extend_from_slice(&(header.len() as u32).to_le_bytes());
    out.extend_from_slice(&body_len.to_le_bytes());
    out.extend_from_slice(header);
    body.iter().for_each(|piece| out.extend_from_slice(piece));
    Ok(())
}

/// Encodes entries without the header of their group.
///
/// # Errors
/// [`EncodeError`]: an entry can't be encoded.
pub fn encode_entries<'a>(entries: impl IntoIterator<Item = &'a JournalEntry>) -> Result<Vec<u8>, EncodeError> {
    let mut out = Vec::new();
    entries.into_iter().try_for_each(|entry| entry.encode(&mut out))?;
    Ok(out)
}

/// Decodes the entries of a group. Ends after an error.
pub fn decode_entries(group: &Bytes) -> impl Iterator<Item = Result<JournalEntry, EntryError>> {
    decode_sized(group).map(|(_, entry)| entry)
}

/// Like [`decode_entries`], with the length of each entry in bytes.
pub(super) fn decode_sized(group: &Bytes) -> impl Iterator<Item = (u64, Result<JournalEntry, EntryError>)> {
    let mut rest = group.clone();
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let before = rest.len();
        let entry = take(&mut rest);
        let len = (before - rest.len()) as u64;
        if entry.is_err() {
            rest.clear();
        }
        Some((len, entry))
    })
}

fn take(rest: &mut Bytes) -> Result<JournalEntry, EntryError> {
    if rest.len() < PREFIX {
        return Err(EntryError::TooShort);
    }
    let (kind, header, body) = (rest.get_u8(), rest.get_u32_le() as usize, rest.get_u32_le() as usize);
    if header > MAX_HEADER {
        return Err(CodecError::TooLarge(header).into());
    }
    if header.saturating_add(body) > rest.len() {
        return Err(EntryError::TooShort);
    }
    let frame = Frame { header: rest.split_to(header), body: rest.split_to(body) };
    JournalEntry::decode(kind, frame)
}
