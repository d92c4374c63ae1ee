//! What clients ask of nodes, and nodes of each other on their behalf, as frames.
//!
//! Requests travel on streams of kind [`REQUESTS`](super::streams::REQUESTS), their responses come back on the same
//! stream in any order. A request's number is the sender's own, and must not be used again on a stream before its
//! response has come.

use artillery_core::{codec, codec::MAX_HEADER, frame::Frame};
use bytes::Bytes;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

pub use super::chain::{DecodeError, EncodeError, Encoded};
use super::keep::keep;
use crate::{
    ChainId, MemberId, Routing, Version,
    replica::{Committed, Read, ReadMode, Refusal, Reply, Way, Write},
    store::Held,
};

#[cfg(test)]
mod tests;

/// Requests that may wait for their responses on one stream at a time. A receiver reads no further while so many do.
pub const MAX_OUTSTANDING: usize = 1024;

/// What is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// Comes back with the response.
    pub number: u64,
    /// Which chain is meant; of no meaning where the operation concerns none.
    pub chain: ChainId,
    /// How long the sender will wait from now on, in milliseconds. The clocks of the two needn't agree.
    pub deadline_ms: u32,
    /// A node handed it on: the receiver answers or refuses, and doesn't hand it on again.
    pub forwarded: bool,
    /// What is to be done.
    pub operation: Operation,
}

/// What is to be done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Read a key.
    Read {
        /// The key.
        key: Bytes,
        /// How it may be served.
        mode: ReadMode,
    },
    /// Write.
    Write(Write),
    /// Say which chains there are, and where their members are.
    Routing,
    /// Say how the node stands.
    Status,
}

impl Operation {
    /// Whether it changes data.
    pub fn is_write(&self) -> bool {
        matches!(self, Self::Write(_))
    }
}

/// What came of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Response {
    /// The number of the request.
    pub number: u64,
    /// Who answered, when that isn't the node at the other end of the stream.
    pub by: Option<MemberId>,
    /// What came of it.
    pub answer: ResponseAnswer,
}

/// What came of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ResponseAnswer {
    /// Of a read or a write.
    Reply(Reply),
    /// Chains, members and addresses; `None`: the cluster isn't formed yet.
    Routing(Option<Box<Routing>>),
    /// How the node stands: JSON.
    Status(Bytes),
}

#[derive(Serialize, Deserialize)]
struct RequestHeader {
    number: u64,
    chain: ChainId,
    deadline_ms: u32,
    forwarded: bool,
    operation: OperationHeader,
}

/// Numbers are lengths in bytes; key and value stand in the body in this order.
#[derive(Serialize, Deserialize)]
enum OperationHeader {
    Read { key: u32, mode: ReadMode },
    Put { key: u32, value: u32 },
    Delete { key: u32 },
    CompareAndSwap { key: u32, expected: Version, value: Option<u32> },
    Routing,
    Status,
}

#[derive(Serialize, Deserialize)]
struct ResponseHeader<R> {
    number: u64,
    by: Option<MemberId>,
    answer: AnswerHeader<R>,
}

/// `R` borrows on the way out.
#[derive(Serialize, Deserialize)]
enum AnswerHeader<R> {
    Committed { version: Version, copies: u32 },
    Conflict { at: Version, current: Option<HeldHeader> },
    Read { held: Option<HeldHeader>, clean: bool, way: Way },
    Refused(Refusal),
    Expired,
    Routing(Option<R>),
    Status { len: u32 },
}

/// A version, and the length of its value in bytes.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct HeldHeader {
    version: Version,
    value: Option<u32>,
}

/// What a frame that carries `request` is made of. Key and value are shared, not copied.
///
/// # Errors
/// [`EncodeError`]: it is too long.
pub fn encode_request(request: &Request) -> Result<Encoded, EncodeError> {
    let (operation, body) = match &request.operation {
        Operation::Read { key, mode } => (OperationHeader::Read { key: len(key)?, mode: *mode }, vec![key.clone()]),
        Operation::Write(Write::Put { key, value }) => {
            (OperationHeader::Put { key: len(key)?, value: len(value)? }, vec![key.clone(), value.clone()])
        }
        Operation::Write(Write::Delete { key }) => (OperationHeader::Delete { key: len(key)? }, vec![key.clone()]),
        Operation::Write(Write::CompareAndSwap { key, expected, value }) => {
            let header = OperationHeader::CompareAndSwap {
                key: len(key)?,
                expected: *expected,
                value: value.as_ref().map(len).transpose()?,
            };
            (header, std::iter::once(key.clone()).chain(value.clone()).collect())
        }
        Operation::Routing => (OperationHeader::Routing, Vec::new()),
        Operation::Status => (OperationHeader::Status, Vec::new()),
    };
    let Request { number, chain, deadline_ms, forwarded, .. } = *request;
    encoded(&RequestHeader { number, chain, deadline_ms, forwarded, operation }, body)
}

/// The request that a frame carries.
///
/// # Errors
/// [`DecodeError`]: the frame carries none.
pub fn decode_request(frame: &Frame) -> Result<Request, DecodeError> {
    let header: RequestHeader = header(&frame.header)?;
    let body = &frame.body;
    let operation = match header.operation {
        OperationHeader::Read { key, mode } => {
            check_body(body, [key])?;
            Operation::Read { key: body.clone(), mode }
        }
        OperationHeader::Put { key, value } => {
            check_body(body, [key, value])?;
            let (key, value) = keep(body, 0..body.len(), key as usize);
            Operation::Write(Write::Put { key, value })
        }
        OperationHeader::Delete { key } => {
            check_body(body, [key])?;
            Operation::Write(Write::Delete { key: keep(body, 0..body.len(), key as usize).0 })
        }
        OperationHeader::CompareAndSwap { key, expected, value } => {
            check_body(body, [key, value.unwrap_or(0)])?;
            let (key, kept) = keep(body, 0..body.len(), key as usize);
            Operation::Write(Write::CompareAndSwap { key, expected, value: value.map(|_| kept) })
        }
        OperationHeader::Routing => {
            check_body(body, [])?;
            Operation::Routing
        }
        OperationHeader::Status => {
            check_body(body, [])?;
            Operation::Status
        }
    };
    let RequestHeader { number, chain, deadline_ms, forwarded, .. } = header;
    Ok(Request { number, chain, deadline_ms, forwarded, operation })
}

/// What a frame that carries `response` is made of. Values are shared, not copied.
///
/// # Errors
/// [`EncodeError`]: it is too long.
pub fn encode_response(response: &Response) -> Result<Encoded, EncodeError> {
    let mut body = Vec::new();
    let mut held = |held: &Option<Held>| -> Result<Option<HeldHeader>, EncodeError> {
        let Some(held) = held else { return Ok(None) };
        body.extend(held.value.clone());
        Ok(Some(HeldHeader { version: held.version, value: held.value.as_ref().map(len).transpose()? }))
    };
    let answer = match &response.answer {
        ResponseAnswer::Reply(Reply::Committed(done)) => {
            AnswerHeader::Committed { version: done.version, copies: done.copies }
        }
        ResponseAnswer::Reply(Reply::Conflict { at, current }) => {
            AnswerHeader::Conflict { at: *at, current: held(current)? }
        }
        ResponseAnswer::Reply(Reply::Read(read)) => {
            AnswerHeader::Read { held: held(&read.held)?, clean: read.clean, way: read.way }
        }
        ResponseAnswer::Reply(Reply::Refused(refusal)) => AnswerHeader::Refused(*refusal),
        ResponseAnswer::Reply(Reply::Expired) => AnswerHeader::Expired,
        ResponseAnswer::Routing(routing) => AnswerHeader::Routing(routing.as_deref()),
        ResponseAnswer::Status(json) => {
            body.push(json.clone());
            AnswerHeader::Status { len: len(json)? }
        }
    };
    encoded(&ResponseHeader { number: response.number, by: response.by, answer }, body)
}

/// The response that a frame carries.
///
/// # Errors
/// [`DecodeError`]: the frame carries none.
pub fn decode_response(frame: &Frame) -> Result<Response, DecodeError> {
    let header: ResponseHeader<Box<Routing>> = header(&frame.header)?;
    let body = &frame.body;
    let held = |held: Option<HeldHeader>| -> Result<Option<Held>, DecodeError> {
        check_body(body, held.and_then(|held| held.value))?;
        Ok(held.map(|held| Held { version: held.version, value: held.value.map(|_| keep(body, 0..body.len(), 0).1) }))
    };
    let answer = match header.answer {
        AnswerHeader::Conflict { at, current } => {
            ResponseAnswer::Reply(Reply::Conflict { at, current: held(current)? })
        }
        AnswerHeader::Read { held: found, clean, way } => {
            ResponseAnswer::Reply(Reply::Read(Read { held: held(found)?, clean, way }))
        }
        AnswerHeader::Status { len } => {
            check_body(body, [len])?;
            ResponseAnswer::Status(body.clone())
        }
        bare => {
            check_body(body, [])?;
            match bare {
                AnswerHeader::Committed { version, copies } => {
                    ResponseAnswer::Reply(Reply::Committed(Committed { version, copies }))
                }
                AnswerHeader::Refused(refusal) => ResponseAnswer::Reply(Reply::Refused(refusal)),
                AnswerHeader::Routing(routing) => ResponseAnswer::Routing(routing),
                _ => ResponseAnswer::Reply(Reply::Expired),
            }
        }
    };
    Ok(Response { number: header.number, by: header.by, answer })
}

fn len(piece: &Bytes) -> Result<u32, EncodeError> {
    u32::try_from(piece.len()).map_err(|_| EncodeError::TooLong(piece.len() as u64))
}

fn encoded<H: Serialize>(header: &H, mut body: Vec<Bytes>) -> Result<Encoded, EncodeError> {
    let mut out = Vec::with_capacity(64);
    codec::encode(header, &mut out)?;
    if out.len() > MAX_HEADER {
        return Err(codec::CodecError::TooLarge(out.len()).into());
    }
    let len = 4 + out.len() as u64 + body.iter().map(|piece| piece.len() as u64).sum::<u64>();
    if len > u64::from(u32::MAX) {
        return Err(EncodeError::TooLong(len));
    }
    body.retain(|piece| !piece.is_empty());
    Ok(Encoded { header: out.into(), body })
}

/// The header in its only valid form: the codec reads some others too.
fn header<H: Serialize + DeserializeOwned>(bytes: &Bytes) -> Result<H, DecodeError> {
    let header = codec::decode(bytes)?;
    let mut again = Vec::with_capacity(bytes.len());
    codec::encode(&header, &mut again)?;
    if again == *bytes { Ok(header) } else { Err(DecodeError::NotCanonical) }
}

fn check_body(body: &Bytes, pieces: impl IntoIterator<Item = u32>) -> Result<(), DecodeError> {
    let stated = pieces.into_iter().map(u64::from).sum();
    let actual = body.len() as u64;
    if stated == actual { Ok(()) } else { Err(DecodeError::BodyLength { stated, actual }) }
}
