//! The frames of responses.

use std::num::NonZeroU32;

use artillery_core::{Frame, internal::codec};
use bytes::Bytes;

use super::{
    DecodeError, EncodeError, Encoded,
    body::{BodyWriter, Taker},
    header::{AnswerHeader, ComputedHeader, HeldHeader, RecordHeader, ResponseHeader, ValueHeader, decoded, encoded},
    script::{outcome_headers, take_outcomes},
};
use crate::{
    Routing, Sequence,
    api::{
        Computed, CopyMessage, CopyReply, DigestCursor, DigestReply, HashedReply, MultiGetReply, ReadReply, Reply,
        ScanReply, WatchReply, WriteReply,
    },
    message::request::{Response, ResponseAnswer},
    store::{Held, ScanRecord},
};

/// Encodes `response`. Values are shared, not copied.
///
/// # Errors
/// [`EncodeError`] if the response is too long.
pub fn encode_response(response: &Response) -> Result<Encoded, EncodeError> {
    let mut body = BodyWriter::default();
    let answer = match &response.answer {
        ResponseAnswer::Reply(reply) => reply_header(reply, &mut body)?,
        ResponseAnswer::Routing(routing) => AnswerHeader::Routing(routing.as_deref()),
        ResponseAnswer::Status(json) => AnswerHeader::Status { len: body.add(json)? },
        ResponseAnswer::Arranged(result) => AnswerHeader::Arranged(result.clone()),
        ResponseAnswer::Survey(standing) => AnswerHeader::Survey(standing.clone()),
        ResponseAnswer::Recovered(outcome) => AnswerHeader::Recovered(outcome.clone()),
        ResponseAnswer::Replaced(outcome) => AnswerHeader::Replaced(outcome.clone()),
        ResponseAnswer::Reopened(outcome) => AnswerHeader::Reopened(outcome.clone()),
    };
    encoded(&ResponseHeader { number: response.number, by: response.by, answer }, body)
}

fn reply_header<'a>(reply: &Reply, body: &mut BodyWriter) -> Result<AnswerHeader<&'a Routing>, EncodeError> {
    Ok(match reply {
        Reply::Committed(WriteReply { version, copies, replayed, result }) => AnswerHeader::Committed {
            version: *version,
            copies: *copies,
            replayed: *replayed,
            result: computed_header(result, body)?,
        },
        Reply::Conflict { at, step, version, value, replayed } => AnswerHeader::Conflict {
            at: *at,
            step: *step,
            version: *version,
            value: body.add_some(value.as_ref())?,
            replayed: *replayed,
        },
        &Reply::Read(ReadReply { ref held, clean, way, as_of, chain_time }) => {
            let header = held.as_ref().map(|held| held_header(held, body)).transpose()?;
            match header {
                Some(held @ HeldHeader { value: ValueHeader::Expiring { .. }, .. }) => {
                    AnswerHeader::ReadExpiring { held, clean, way, as_of, chain_time }
                }
                held => AnswerHeader::Read { held, clean, way, as_of },
            }
        }
        &Reply::Cut(MultiGetReply { ref found, clean, way, as_of, chain_time }) => {
            let mut header = |held: &Option<Held>| held.as_ref().map(|held| held_header(held, body)).transpose();
            let expires = found.iter().flatten().any(|held| held.expiry().is_some());
            let found = found.iter().map(&mut header).collect::<Result<_, _>>()?;
            if expires {
                AnswerHeader::CutExpiring { found, clean, way, as_of, chain_time }
            } else {
                AnswerHeader::Cut { found, clean, way, as_of }
            }
        }
        &Reply::Page(ScanReply { ref records, ref next, clean, way, as_of, snapshot, chain_time }) => {
            let mut header = |record: &ScanRecord| -> Result<_, EncodeError> {
                Ok(RecordHeader { key: body.add(&record.key)?, held: held_header(&record.held, body)? })
            };
            let expires = records.iter().any(|record| record.held.expiry().is_some());
            let records = records.iter().map(&mut header).collect::<Result<_, _>>()?;
            let next = body.add_some(next.as_ref())?;
            if expires {
                AnswerHeader::PageExpiring { records, next, clean, way, as_of, snapshot, chain_time }
            } else {
                AnswerHeader::Page { records, next, clean, way, as_of, snapshot }
            }
        }
        Reply::Changes(WatchReply { records, upto, shown }) => {
            let mut header = |record: &ScanRecord| -> Result<_, EncodeError> {
                Ok(RecordHeader { key: body.add(&record.key)?, held: held_header(&record.held, body)? })
            };
            let records = records.iter().map(&mut header).collect::<Result<_, _>>()?;
            match NonZeroU32::new(*shown) {
                Some(shown) => AnswerHeader::PartOfChanges { records, upto: *upto, shown },
                None => AnswerHeader::Changes { records, upto: *upto },
            }
        }
        Reply::Hashed(HashedReply { keys, next, clean, way, as_of }) => {
            let keys = keys.iter().map(|key| body.add(key)).collect::<Result<_, _>>()?;
            AnswerHeader::Hashed { keys, next: *next, clean: *clean, way: *way, as_of: *as_of }
        }
        Reply::Copied(copied) => {
            let CopyReply { watermark, message, next } = &**copied;
            let message = message.as_ref().map(|message| message_lengths(message, body)).transpose()?;
            AnswerHeader::Copied { watermark: *watermark, message, next: body.add_some(next.as_ref())? }
        }
        Reply::Digest(digest) => {
            let DigestReply { number, as_of, sums, next } = &**digest;
            let mut cursor = |at: &DigestCursor| -> Result<_, EncodeError> { Ok((body.add(&at.key)?, at.pieces)) };
            let next = next.as_ref().map(&mut cursor).transpose()?;
            AnswerHeader::Digest { number: *number, as_of: *as_of, sums: *sums, next }
        }
        Reply::Refused(refusal) => AnswerHeader::Refused(*refusal),
        Reply::Expired => AnswerHeader::Expired,
    })
}

/// Adds a message, and returns the lengths of its header and its body.
fn message_lengths(message: &CopyMessage, body: &mut BodyWriter) -> Result<(u32, u32), EncodeError> {
    let header = body.add(&message.header)?;
    let mut len = 0_u64;
    for piece in &message.body {
        len += u64::from(body.add(piece)?);
    }
    Ok((header, u32::try_from(len).map_err(|_| EncodeError::TooLong(len))?))
}

fn computed_header(result: &Computed, body: &mut BodyWriter) -> Result<ComputedHeader, EncodeError> {
    Ok(match result {
        Computed::Nothing => ComputedHeader::Nothing,
        Computed::Length(length) => ComputedHeader::Length(*length),
        Computed::Number(number) => ComputedHeader::Number(*number),
        Computed::Took(None) => ComputedHeader::Took(None),
        Computed::Took(Some((version, value))) => ComputedHeader::Took(Some((*version, body.add(value)?))),
        Computed::TookForgotten(version) => ComputedHeader::TookForgotten(*version),
        Computed::Ran(outcomes) => ComputedHeader::Ran(outcome_headers(outcomes, body)?),
        Computed::RanForgotten => ComputedHeader::RanForgotten,
        Computed::Changed(changed) => ComputedHeader::Changed(*changed),
    })
}

fn held_header(held: &Held, body: &mut BodyWriter) -> Result<HeldHeader, EncodeError> {
    let value = match (body.add_some(held.value.as_ref())?, held.expires) {
        (None, None) => ValueHeader::Absent,
        (Some(len), None) => ValueHeader::Value(len),
        (Some(len), Some(expires)) => ValueHeader::Expiring { len, expires },
        (None, Some(expires)) => ValueHeader::Expired(expires),
    };
    Ok(HeldHeader { version: held.version, value })
}

/// Encodes the header of the frame that precedes a large response on a stream of kind
/// [`ANSWERS`](crate::wire::streams::ANSWERS): the number of the request. The frame has no body.
pub fn encode_answer_to(number: u64) -> Bytes {
    let mut header = Vec::with_capacity(9);
    // Encoding a number can't fail.
    let _ = codec::encode(&number, &mut header);
    header.into()
}

/// Decodes the number of the request from the frame before a large response.
///
/// # Errors
/// [`DecodeError`] if the frame isn't such a frame.
pub fn decode_answer_to(frame: &Frame) -> Result<u64, DecodeError> {
    let number = decoded(&frame.header)?;
    Taker::new(&frame.body).end()?;
    Ok(number)
}

/// Decodes the response in a frame.
///
/// # Errors
/// [`DecodeError`] if the frame isn't a valid response.
pub fn decode_response(frame: &Frame) -> Result<Response, DecodeError> {
    let ResponseHeader::<Box<Routing>> { number, by, answer } = decoded(&frame.header)?;
    let mut body = Taker::new(&frame.body);
    let answer = match answer {
        AnswerHeader::Routing(routing) => ResponseAnswer::Routing(routing),
        AnswerHeader::Status { len } => ResponseAnswer::Status(body.borrow(len)),
        AnswerHeader::Arranged(result) => ResponseAnswer::Arranged(result),
        AnswerHeader::Survey(standing) => ResponseAnswer::Survey(standing),
        AnswerHeader::Recovered(outcome) => ResponseAnswer::Recovered(outcome),
        AnswerHeader::Replaced(outcome) => ResponseAnswer::Replaced(outcome),
        AnswerHeader::Reopened(outcome) => ResponseAnswer::Reopened(outcome),
        reply => ResponseAnswer::Reply(take_reply(reply, &mut body)),
    };
    body.end()?;
    Ok(Response { number, by, answer })
}

fn take_reply<R>(header: AnswerHeader<R>, body: &mut Taker<'_>) -> Reply {
    match header {
        AnswerHeader::Committed { version, copies, replayed, result } => {
            Reply::Committed(WriteReply { version, copies, replayed, result: take_computed(result, body) })
        }
        AnswerHeader::Conflict { at, step, version, value, replayed } => {
            Reply::Conflict { at, step, version, value: value.map(|len| body.take(len)), replayed }
        }
        AnswerHeader::Read { held, clean, way, as_of } => {
            let held = held.map(|held| take_held(held, body));
            Reply::Read(ReadReply { held, clean, way, as_of, chain_time: 0 })
        }
        AnswerHeader::ReadExpiring { held, clean, way, as_of, chain_time } => {
            Reply::Read(ReadReply { held: Some(take_held(held, body)), clean, way, as_of, chain_time })
        }
        AnswerHeader::Cut { found, clean, way, as_of } => {
            let found = take_found(found, body);
            Reply::Cut(MultiGetReply { found, clean, way, as_of, chain_time: 0 })
        }
        AnswerHeader::CutExpiring { found, clean, way, as_of, chain_time } => {
            let found = take_found(found, body);
            Reply::Cut(MultiGetReply { found, clean, way, as_of, chain_time })
        }
        AnswerHeader::Page { records, next, clean, way, as_of, snapshot } => {
            let records = take_records(records, body);
            let next = next.map(|len| body.take(len));
            Reply::Page(ScanReply { records, next, clean, way, as_of, snapshot, chain_time: 0 })
        }
        AnswerHeader::PageExpiring { records, next, clean, way, as_of, snapshot, chain_time } => {
            let records = take_records(records, body);
            let next = next.map(|len| body.take(len));
            Reply::Page(ScanReply { records, next, clean, way, as_of, snapshot, chain_time })
        }
        AnswerHeader::Changes { records, upto } => Reply::Changes(take_changes(records, upto, 0, body)),
        AnswerHeader::PartOfChanges { records, upto, shown } => {
            Reply::Changes(take_changes(records, upto, shown.get(), body))
        }
        AnswerHeader::Hashed { keys, next, clean, way, as_of } => {
            let keys = keys.into_iter().map(|len| body.take(len)).collect();
            Reply::Hashed(HashedReply { keys, next, clean, way, as_of })
        }
        AnswerHeader::Copied { watermark, message, next } => {
            let message = message.map(|(header, len)| {
                let (header, body) = body.pair(header, len);
                CopyMessage { header, body: vec![body] }
            });
            Reply::Copied(Box::new(CopyReply { watermark, message, next: next.map(|len| body.take(len)) }))
        }
        AnswerHeader::Digest { number, as_of, sums, next } => {
            let next = next.map(|(key, pieces)| DigestCursor { key: body.take(key), pieces });
            Reply::Digest(Box::new(DigestReply { number, as_of, sums, next }))
        }
        AnswerHeader::Refused(refusal) => Reply::Refused(refusal),
        // `decode_response` handles the headers below, except for `Expired`: they aren't replies.
        AnswerHeader::Expired
        | AnswerHeader::Routing(_)
        | AnswerHeader::Status { .. }
        | AnswerHeader::Arranged(_)
        | AnswerHeader::Survey(_)
        | AnswerHeader::Recovered(_)
        | AnswerHeader::Replaced(_)
        | AnswerHeader::Reopened(_) => Reply::Expired,
    }
}

fn take_computed(header: ComputedHeader, body: &mut Taker<'_>) -> Computed {
    match header {
        ComputedHeader::Nothing => Computed::Nothing,
        ComputedHeader::Length(length) => Computed::Length(length),
        ComputedHeader::Number(number) => Computed::Number(number),
        ComputedHeader::Took(None) => Computed::Took(None),
        ComputedHeader::Took(Some((version, len))) => Computed::Took(Some((version, body.take(len)))),
        ComputedHeader::TookForgotten(version) => Computed::TookForgotten(version),
        ComputedHeader::Ran(outcomes) => Computed::Ran(take_outcomes(outcomes, body)),
        ComputedHeader::RanForgotten => Computed::RanForgotten,
        ComputedHeader::Changed(changed) => Computed::Changed(changed),
    }
}

fn take_changes(records: Vec<RecordHeader>, upto: Sequence, shown: u32, body: &mut Taker<'_>) -> WatchReply {
    WatchReply { records: take_records(records, body), upto, shown }
}

fn take_records(headers: Vec<RecordHeader>, body: &mut Taker<'_>) -> Vec<ScanRecord> {
    headers.into_iter().map(|header| take_record(header, body)).collect()
}

fn take_found(headers: Vec<Option<HeldHeader>>, body: &mut Taker<'_>) -> Vec<Option<Held>> {
    headers.into_iter().map(|header| header.map(|header| take_held(header, body))).collect()
}

fn take_held(header: HeldHeader, body: &mut Taker<'_>) -> Held {
    let value = body.take(header.value.len());
    header.value.held(header.version, value)
}

fn take_record(header: RecordHeader, body: &mut Taker<'_>) -> ScanRecord {
    let (key, value) = body.pair(header.key, header.held.value.len());
    ScanRecord { key, held: header.held.value.held(header.held.version, value) }
}
