//! The frames of parts of snapshots.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{
    DecodeError, EncodeError, EncodedBody, HistoryError, Lengths, VersionOrder, check_body, checked_key, checked_value,
};
use crate::{
    Expiry, Sequence, Version,
    message::{
        BodyReader, MAX_CHUNK, RecordPiece, SessionEntry, SnapshotContent, SnapshotCursor, SnapshotHeader,
        SnapshotPart, ValueOutline,
    },
    store::{Held, ScanRecord},
    types::update::MAX_TAKEN,
};

/// An impossible part of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    #[error("a snapshot without a number")]
    NoNumber,
    /// A part of sessions or records is empty.
    #[error("an empty part of a snapshot")]
    Empty,
    /// Such content can't occur at the position of the part.
    #[error("a part of a snapshot that can't occur at its position")]
    Place,
    #[error("keys of a snapshot that aren't in ascending order")]
    Order,
    /// The epochs or their first sequences don't ascend, or the last epoch isn't that of the snapshot's version, or
    /// begins after that version.
    #[error("epochs of a snapshot that don't form a valid history")]
    Epochs,
    #[error("a tombstone in a snapshot")]
    Tombstone,
    /// A removed value is longer than [`MAX_TAKEN`].
    #[error("a removed value of {0} bytes, at most {MAX_TAKEN} are recorded")]
    Taken(u64),
}

/// `M`, `B` and `S` are borrowed for encoding and owned for decoding.
#[derive(Serialize, Deserialize)]
pub(super) struct SnapshotFrameHeader<M, B, S> {
    id: u64,
    at: M,
    watermark: Sequence,
    content: ContentHeader<B, S>,
}

pub(super) type SaidSnapshot<'a> = SnapshotFrameHeader<&'a SnapshotCursor, &'a SnapshotHeader, &'a [SessionEntry]>;
pub(super) type HeardSnapshot = SnapshotFrameHeader<SnapshotCursor, SnapshotHeader, Vec<SessionEntry>>;

#[derive(Serialize, Deserialize)]
enum ContentHeader<B, S> {
    Begin(B),
    Sessions(S),
    Records(Vec<SnapshotRecordHeader>),
    Piece(PieceHeader),
    End,
    /// Records. At least one of them expires.
    ExpiringRecords(Vec<ExpiringRecordHeader>),
    ExpiringPiece {
        piece: PieceHeader,
        expires: Expiry,
    },
}

#[derive(Serialize, Deserialize)]
struct SnapshotRecordHeader {
    version: Version,
    key: u32,
    value: u32,
}

#[derive(Serialize, Deserialize)]
struct ExpiringRecordHeader {
    record: SnapshotRecordHeader,
    expires: Option<Expiry>,
}

#[derive(Serialize, Deserialize)]
struct PieceHeader {
    version: Version,
    key: u32,
    len: u32,
}

pub(super) fn encode_snapshot(part: &SnapshotPart) -> Result<(SaidSnapshot<'_>, EncodedBody), EncodeError> {
    check(part)?;
    let mut body = EncodedBody::new();
    let content = match &part.content {
        SnapshotContent::Begin(beginning) => ContentHeader::Begin(beginning),
        SnapshotContent::Sessions(entries) => ContentHeader::Sessions(&entries[..]),
        SnapshotContent::Records(records) => {
            let header = |record: &ScanRecord| -> Result<SnapshotRecordHeader, EncodeError> {
                let value = record.held.value.clone().ok_or(SnapshotError::Tombstone)?;
                let (key, len) = (checked_key(record.key.len() as u64)?, checked_value(value.len())?);
                body.extend([record.key.clone(), value]);
                Ok(SnapshotRecordHeader { version: record.held.version, key, value: len })
            };
            let headers = records.iter().map(header).collect::<Result<Vec<_>, _>>()?;
            if records.iter().all(|record| record.held.expires.is_none()) {
                ContentHeader::Records(headers)
            } else {
                let expiring =
                    |(record, of): (_, &ScanRecord)| ExpiringRecordHeader { record, expires: of.held.expires };
                ContentHeader::ExpiringRecords(headers.into_iter().zip(records).map(expiring).collect())
            }
        }
        SnapshotContent::Piece(piece) => {
            body.extend([piece.key.clone(), piece.bytes.clone()]);
            let key = checked_key(piece.key.len() as u64)?;
            let header = PieceHeader { version: piece.version, key, len: piece.len };
            match piece.expires {
                None => ContentHeader::Piece(header),
                Some(expires) => ContentHeader::ExpiringPiece { piece: header, expires },
            }
        }
        SnapshotContent::End => ContentHeader::End,
    };
    body.retain(|piece| !piece.is_empty());
    Ok((SnapshotFrameHeader { id: part.id, at: &part.at, watermark: part.watermark, content }, body))
}

pub(super) fn decode_snapshot(header: HeardSnapshot, body: &Bytes) -> Result<SnapshotPart, DecodeError> {
    let SnapshotFrameHeader { id, at, watermark, content } = header;
    let content = match content {
        ContentHeader::Records(headers) => {
            let headers = headers.into_iter().map(|record| ExpiringRecordHeader { record, expires: None });
            SnapshotContent::Records(decode_records(&headers.collect::<Vec<_>>(), body)?)
        }
        ContentHeader::ExpiringRecords(headers) => {
            if headers.iter().all(|header| header.expires.is_none()) {
                return Err(DecodeError::NotCanonical);
            }
            SnapshotContent::Records(decode_records(&headers, body)?)
        }
        ContentHeader::Piece(header) => SnapshotContent::Piece(decode_piece(&header, None, body)?),
        ContentHeader::ExpiringPiece { piece, expires } => {
            SnapshotContent::Piece(decode_piece(&piece, Some(expires), body)?)
        }
        bodiless => {
            check_body(0, body)?;
            match bodiless {
                ContentHeader::Begin(beginning) => SnapshotContent::Begin(beginning),
                ContentHeader::Sessions(entries) => SnapshotContent::Sessions(entries),
                _ => SnapshotContent::End,
            }
        }
    };
    let part = SnapshotPart { id, at, watermark, content };
    check(&part)?;
    Ok(part)
}

fn decode_records(headers: &[ExpiringRecordHeader], body: &Bytes) -> Result<Vec<ScanRecord>, DecodeError> {
    let mut stated = 0_u64;
    for ExpiringRecordHeader { record: header, .. } in headers {
        stated += u64::from(checked_key(header.key.into())?) + u64::from(header.value);
    }
    check_body(stated, body)?;
    let mut pieces = BodyReader::of(body);
    let record = |ExpiringRecordHeader { record, expires }: &ExpiringRecordHeader| {
        let change = pieces.next(&Lengths { key: record.key, value: ValueOutline::Set(record.value) });
        let held = Held { version: record.version, value: change.value, expires: *expires };
        ScanRecord { key: change.key, held }
    };
    Ok(headers.iter().map(record).collect())
}

fn decode_piece(header: &PieceHeader, expires: Option<Expiry>, body: &Bytes) -> Result<RecordPiece, DecodeError> {
    let key = u64::from(checked_key(header.key.into())?);
    if (body.len() as u64) < key {
        return Err(DecodeError::BodyLength { stated: key, actual: body.len() as u64 });
    }
    let (key, bytes) = (body.slice(..key as usize), body.slice(key as usize..));
    // A slice would keep the frame alive as long as the key.
    let key = Bytes::copy_from_slice(&key);
    Ok(RecordPiece { key, version: header.version, len: header.len, expires, bytes })
}

/// Checks a part before it is sent and after it was received.
fn check(part: &SnapshotPart) -> Result<(), HistoryError> {
    check_mark(&part.at)?;
    if part.id == 0 {
        return Err(SnapshotError::NoNumber.into());
    }
    let at_start = part.at == SnapshotCursor::default();
    let among_sessions = part.at.behind.is_none() && part.at.bytes == 0;
    let between_records = part.at.bytes == 0;
    let in_place = match &part.content {
        SnapshotContent::Begin(beginning) => at_start && check_beginning(beginning).map(|()| true)?,
        SnapshotContent::Sessions(entries) => among_sessions && check_entries(&part.at, entries).map(|()| true)?,
        SnapshotContent::Records(records) => between_records && check_records(&part.at, records).map(|()| true)?,
        SnapshotContent::Piece(piece) => check_piece(&part.at, piece).map(|()| true)?,
        SnapshotContent::End => between_records,
    };
    if in_place { Ok(()) } else { Err(SnapshotError::Place.into()) }
}

/// Checks the only bound on a position: the length of its key.
pub(super) fn check_mark(mark: &SnapshotCursor) -> Result<(), HistoryError> {
    checked_key(mark.behind.as_ref().map_or(0, Bytes::len) as u64)?;
    Ok(())
}

fn check_beginning(beginning: &SnapshotHeader) -> Result<(), HistoryError> {
    let rises = beginning.epochs.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1);
    let last = beginning.epochs.last();
    let ends = last.map_or(beginning.version.is_none(), |&(epoch, first)| {
        epoch == beginning.version.epoch && first <= beginning.version.sequence
    });
    if !rises || !ends {
        return Err(SnapshotError::Epochs.into());
    }
    if beginning.version.is_none() { Ok(()) } else { check_version(beginning.version) }
}

fn check_version(version: Version) -> Result<(), HistoryError> {
    let before = Sequence(version.sequence.0.saturating_sub(1));
    VersionOrder::behind(Version { sequence: before, ..Version::NONE }).next(version)
}

fn check_entries(at: &SnapshotCursor, entries: &[SessionEntry]) -> Result<(), HistoryError> {
    let first = entries.first().ok_or(SnapshotError::Empty)?;
    if at.sessions == 0 && matches!(first, SessionEntry::Record { .. }) {
        return Err(SnapshotError::Place.into());
    }
    at.sessions.checked_add(entries.len() as u64).ok_or(SnapshotError::Place)?;
    let taken = |entry: &SessionEntry| match entry {
        SessionEntry::Record { taken: Some(taken), .. } => taken.len(),
        _ => 0,
    };
    match entries.iter().map(taken).find(|&len| len > MAX_TAKEN) {
        Some(len) => Err(SnapshotError::Taken(len as u64).into()),
        None => Ok(()),
    }
}

fn check_records(at: &SnapshotCursor, records: &[ScanRecord]) -> Result<(), HistoryError> {
    if records.is_empty() {
        return Err(SnapshotError::Empty.into());
    }
    let mut before = at.behind.as_ref();
    for record in records {
        check_version(record.held.version)?;
        if before.is_some_and(|before| *before >= record.key) {
            return Err(SnapshotError::Order.into());
        }
        before = Some(&record.key);
    }
    Ok(())
}

fn check_piece(at: &SnapshotCursor, piece: &RecordPiece) -> Result<(), HistoryError> {
    check_version(piece.version)?;
    let len = piece.bytes.len() as u64;
    if len == 0 || piece.bytes.len() > MAX_CHUNK {
        return Err(HistoryError::PieceLength(len));
    }
    if at.behind.as_ref().is_some_and(|before| *before >= piece.key) {
        return Err(SnapshotError::Order.into());
    }
    let whole = u64::from(piece.len);
    match at.bytes.checked_add(len) {
        Some(end) if end <= whole => Ok(()),
        end => Err(HistoryError::PieceTooFar { end: end.unwrap_or(u64::MAX), len: whole }),
    }
}
