//! Messages between the members of a chain, as frames.

use artillery_core::{
    Frame,
    internal::codec::{self, CodecError, MAX_HEADER},
};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use smallvec::{SmallVec, smallvec};

use crate::{
    ChainId, Epoch, Sequence, Version,
    message::{
        BodyReader, ChainFrame, ChainMessage, Chunk, ChunkPart, Control, Fullness, Lengths, MAX_CHUNK, Updates,
        ValueOutline,
    },
    types::update::{KeyChange, MAX_KEY, RequestKey, RequestOutcome, Update, UpdateKind},
};

mod snapshot;

#[cfg(test)]
mod tests;

pub use snapshot::SnapshotError;
use snapshot::{HeardSnapshot, SaidSnapshot, check_mark, decode_snapshot, encode_snapshot};

/// The most updates in one frame.
///
/// An encoded update with one change is shorter than its [`Update::cost`], however large its numbers. So if a sender
/// fills a frame by cost up to [`MAX_HEADER`], the header fits, too.
pub const MAX_UPDATES: usize = 1 << 16;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Encoded {
    pub header: EncodedHeader,
    /// The keys and values of the message, in order. They share the message's memory.
    pub body: EncodedBody,
}

impl Encoded {
    /// The frame as its receiver sees it. For tests: it copies the body.
    pub fn to_frame(&self) -> Frame {
        Frame { header: Bytes::copy_from_slice(&self.header), body: self.body.concat().into() }
    }
}

/// An encoded header, without an allocation up to 64 bytes.
pub type EncodedHeader = SmallVec<[u8; 64]>;

/// The pieces of a body, in order. Up to two (a key and a value) need no allocation.
pub type EncodedBody = SmallVec<[Bytes; 2]>;

/// A message that can't be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The content can't be part of a valid history.
    #[error(transparent)]
    History(#[from] HistoryError),
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// The frame, or a value or number of changes in it, exceeds its length field. Also a group of the journal that is
    /// too long.
    #[error("a frame of {0} bytes")]
    TooLong(u64),
    /// The connection's protocol doesn't have the operation.
    #[error("this needs protocol {needs}, and the connection has protocol {has}")]
    Unsupported {
        /// The first version that has the operation.
        needs: u16,
        /// The version of the connection.
        has: u16,
    },
}

/// A frame that isn't a valid message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// The header isn't in the only form that senders use.
    #[error("the header isn't in its shortest form")]
    NotCanonical,
    /// The content can't be part of a valid history.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// The number of changes that the updates state differs from the number of listed changes.
    #[error("the updates have {counted} changes, the frame has {listed}")]
    Changes {
        /// Changes that the updates state.
        counted: u64,
        /// Changes whose lengths are listed.
        listed: u64,
    },
    /// The stated keys and values don't fill the body exactly.
    #[error("keys and values of {stated} bytes in a body of {actual}")]
    BodyLength {
        /// The length according to the header, in bytes.
        stated: u64,
        /// The length of the body, in bytes.
        actual: u64,
    },
}

/// Content that can't be part of a valid history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HistoryError {
    #[error("a frame without updates")]
    Empty,
    #[error("{0} updates in a frame, at most {MAX_UPDATES} are allowed")]
    TooMany(u64),
    /// A sequence isn't the next one, or is [`Sequence::MAX`], which no update may have.
    #[error("an update with sequence {found} where {expected} was expected")]
    Sequence { expected: Sequence, found: Sequence },
    /// An update's epoch is lower than that of the update before it.
    #[error("an update of epoch {found} after one of {before}")]
    Epoch {
        /// The previous update's epoch.
        before: Epoch,
        found: Epoch,
    },
    #[error("a key of {0} bytes, at most {MAX_KEY} are allowed")]
    KeyTooLong(u64),
    /// A piece of an update is empty or longer than [`MAX_CHUNK`].
    #[error("a piece of {0} bytes, 1 to {MAX_CHUNK} are allowed")]
    PieceLength(u64),
    /// A piece ends beyond the end of its update or, in a snapshot, of its value.
    #[error("a piece that ends at byte {end} of an update of {len}")]
    PieceTooFar {
        /// The offset in the update or value at which the piece ends.
        end: u64,
        /// The length of all keys and values of the update, or of the value, in bytes.
        len: u64,
    },
    /// A part of a snapshot is invalid.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
}

/// The header of every frame between members. `M` is a borrowing type for encoding and an owning one for decoding.
#[derive(Serialize, Deserialize)]
struct Header<M> {
    chain: ChainId,
    epoch: Epoch,
    index: u64,
    message: M,
}

#[derive(Serialize)]
enum EncodedMessage<'a> {
    Updates(UpdatesHeader),
    Control(&'a Control),
    Chunk(ChunkHeader<&'a ChunkPart>),
    Snapshot(SaidSnapshot<'a>),
    Durable(Version),
    Full(Fullness),
}

#[derive(Serialize, Deserialize)]
enum DecodedMessage {
    Updates(UpdatesHeader),
    Control(Control),
    Chunk(ChunkHeader<ChunkPart>),
    Snapshot(HeardSnapshot),
    Durable(Version),
    Full(Fullness),
}

#[derive(Serialize, Deserialize)]
struct UpdatesHeader {
    watermark: Sequence,
    /// The version before the first update; the sequences of the updates follow from it.
    after: Version,
    updates: Vec<UpdateHeader>,
    /// The lengths of the changes of all updates, in order.
    changes: Vec<Lengths>,
}

#[derive(Serialize, Deserialize)]
struct UpdateHeader {
    epoch: Epoch,
    kind: UpdateKind,
    request: Option<RequestKey>,
    outcome: RequestOutcome,
    chain_time: u64,
    changes: u32,
}

/// `P` is borrowed for encoding and owned for decoding.
#[derive(Serialize, Deserialize)]
struct ChunkHeader<P> {
    watermark: Sequence,
    after: Version,
    version: Version,
    part: P,
}

/// Encodes `message`. Keys and values are shared, not copied.
///
/// # Errors
/// [`EncodeError`] if [`decode`] would reject the message, or if the frame would be too long.
pub fn encode(message: &ChainFrame) -> Result<Encoded, EncodeError> {
    let (said, body) = match &message.message {
        ChainMessage::Updates(updates) => {
            let (header, body) = encode_updates(updates)?;
            (EncodedMessage::Updates(header), body)
        }
        ChainMessage::Control(control) => {
            check_control(control)?;
            (EncodedMessage::Control(control), EncodedBody::new())
        }
        ChainMessage::Chunk(chunk) => {
            let Chunk { watermark, after, version, ref part, ref bytes } = *chunk;
            check_chunk(after, version, part, bytes)?;
            (EncodedMessage::Chunk(ChunkHeader { watermark, after, version, part }), smallvec![bytes.clone()])
        }
        ChainMessage::Snapshot(part) => {
            let (header, body) = encode_snapshot(part)?;
            (EncodedMessage::Snapshot(header), body)
        }
        ChainMessage::Durable(version) => (EncodedMessage::Durable(*version), EncodedBody::new()),
        ChainMessage::Full(what) => (EncodedMessage::Full(*what), EncodedBody::new()),
    };
    let header = Header { chain: message.chain, epoch: message.epoch, index: message.index, message: said };
    let mut out = EncodedHeader::new();
    codec::encode(&header, &mut out)?;
    if out.len() > MAX_HEADER {
        return Err(CodecError::TooLarge(out.len()).into());
    }
    let len = 4 + out.len() as u64 + body.iter().map(|piece| piece.len() as u64).sum::<u64>();
    if len > u64::from(u32::MAX) {
        return Err(EncodeError::TooLong(len));
    }
    Ok(Encoded { header: out, body })
}

fn encode_updates(message: &Updates) -> Result<(UpdatesHeader, EncodedBody), EncodeError> {
    check_count(message.updates.len())?;
    let mut updates = Vec::with_capacity(message.updates.len());
    let mut changes = Vec::with_capacity(message.updates.len());
    let mut body = EncodedBody::with_capacity(message.updates.len() * 2);
    let mut order = VersionOrder::behind(message.after);
    for update in &message.updates {
        order.next(update.version)?;
        for change in &update.changes {
            changes.push(Lengths {
                key: checked_key(change.key.len() as u64)?,
                value: ValueOutline::of(
                    change,
                    change.value.as_ref().map(|value| checked_value(value.len())).transpose()?,
                ),
            });
            body.push(change.key.clone());
            body.extend(change.value.clone());
        }
        updates.push(UpdateHeader {
            epoch: update.version.epoch,
            kind: update.kind,
            request: update.request,
            outcome: update.outcome,
            chain_time: update.chain_time,
            changes: checked_value(update.changes.len())?,
        });
    }
    body.retain(|piece| !piece.is_empty());
    Ok((UpdatesHeader { watermark: message.watermark, after: message.after, updates, changes }, body))
}

fn checked_key(len: u64) -> Result<u32, HistoryError> {
    if len > MAX_KEY as u64 { Err(HistoryError::KeyTooLong(len)) } else { Ok(len as u32) }
}

fn checked_value(len: usize) -> Result<u32, EncodeError> {
    u32::try_from(len).map_err(|_| EncodeError::TooLong(len as u64))
}

fn check_count(updates: usize) -> Result<(), HistoryError> {
    match updates {
        0 => Err(HistoryError::Empty),
        1..=MAX_UPDATES => Ok(()),
        _ => Err(HistoryError::TooMany(updates as u64)),
    }
}

fn check_control(control: &Control) -> Result<(), HistoryError> {
    control.snapshot.as_ref().map_or(Ok(()), |progress| check_mark(&progress.mark))
}

fn check_chunk(after: Version, version: Version, part: &ChunkPart, bytes: &Bytes) -> Result<(), HistoryError> {
    VersionOrder::behind(after).next(version)?;
    let piece = bytes.len() as u64;
    if bytes.is_empty() || bytes.len() > MAX_CHUNK {
        return Err(HistoryError::PieceLength(piece));
    }
    let ChunkPart::First(outline) = part else { return Ok(()) };
    for change in &outline.changes {
        checked_key(change.key.into())?;
    }
    let len = outline.bytes();
    if piece <= len { Ok(()) } else { Err(HistoryError::PieceTooFar { end: piece, len }) }
}

/// Checks that versions follow one another as in a history.
struct VersionOrder {
    expected: Sequence,
    epoch: Epoch,
}

impl VersionOrder {
    fn behind(after: Version) -> Self {
        Self { expected: Sequence(after.sequence.0.saturating_add(1)), epoch: after.epoch }
    }

    fn next(&mut self, version: Version) -> Result<(), HistoryError> {
        // The highest number is never used, so every sequence has a successor.
        if version.sequence != self.expected || version.sequence == Sequence::MAX {
            return Err(HistoryError::Sequence { expected: self.expected, found: version.sequence });
        }
        if version.epoch < self.epoch {
            return Err(HistoryError::Epoch { before: self.epoch, found: version.epoch });
        }
        self.expected = version.sequence.next();
        self.epoch = version.epoch;
        Ok(())
    }
}

/// Decodes the message in a frame. Unknown kinds of updates are kept as they are.
///
/// Large values that make up at least half of the body, and pieces of values, are slices of the frame's memory.
/// Everything else is copied, so that it doesn't keep the frame alive.
///
/// # Errors
/// [`DecodeError`]. A message that decodes encodes to the same frame again.
pub fn decode(frame: &Frame) -> Result<ChainFrame, DecodeError> {
    let header: Header<DecodedMessage> = codec::decode(&frame.header)?;
    if !codec::is_encoding(&header, &frame.header) {
        return Err(DecodeError::NotCanonical);
    }
    let message = match header.message {
        DecodedMessage::Updates(updates) => ChainMessage::Updates(decode_updates(updates, &frame.body)?),
        DecodedMessage::Control(control) => {
            check_body(0, &frame.body)?;
            check_control(&control)?;
            ChainMessage::Control(control)
        }
        DecodedMessage::Chunk(ChunkHeader { watermark, after, version, part }) => {
            check_chunk(after, version, &part, &frame.body)?;
            ChainMessage::Chunk(Chunk { watermark, after, version, part, bytes: frame.body.clone() })
        }
        DecodedMessage::Snapshot(header) => ChainMessage::Snapshot(decode_snapshot(header, &frame.body)?),
        DecodedMessage::Durable(version) => {
            check_body(0, &frame.body)?;
            ChainMessage::Durable(version)
        }
        DecodedMessage::Full(what) => {
            check_body(0, &frame.body)?;
            ChainMessage::Full(what)
        }
    };
    Ok(ChainFrame { chain: header.chain, epoch: header.epoch, index: header.index, message })
}

fn check_body(stated: u64, body: &Bytes) -> Result<(), DecodeError> {
    let actual = body.len() as u64;
    if stated == actual { Ok(()) } else { Err(DecodeError::BodyLength { stated, actual }) }
}

fn decode_updates(header: UpdatesHeader, body: &Bytes) -> Result<Updates, DecodeError> {
    check_count(header.updates.len())?;
    let counted = header.updates.iter().map(|update| u64::from(update.changes)).sum();
    let listed = header.changes.len() as u64;
    if counted != listed {
        return Err(DecodeError::Changes { counted, listed });
    }
    for change in &header.changes {
        checked_key(change.key.into())?;
    }
    check_body(header.changes.iter().map(Lengths::sum).sum(), body)?;

    let mut pieces = BodyReader::of(body);
    let mut changes = header.changes.iter();
    let mut order = VersionOrder::behind(header.after);
    let mut updates = Vec::with_capacity(header.updates.len());
    for update in header.updates {
        let version = Version { epoch: update.epoch, sequence: order.expected };
        order.next(version)?;
        let changes: SmallVec<[KeyChange; 1]> =
            changes.by_ref().take(update.changes as usize).map(|change| pieces.next(change)).collect();
        let UpdateHeader { kind, request, outcome, chain_time, .. } = update;
        updates.push(Update { version, kind, request, outcome, chain_time, changes });
    }
    Ok(Updates { watermark: header.watermark, after: header.after, updates })
}

impl From<SnapshotError> for EncodeError {
    fn from(error: SnapshotError) -> Self {
        Self::History(error.into())
    }
}
