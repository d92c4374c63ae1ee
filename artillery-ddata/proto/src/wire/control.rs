//! Calls between nodes about the configuration, and their answers: one frame each.
//!
//! Messages of the log's group stand in the body, as that group encodes them.

use artillery_core::{
    Frame,
    internal::codec::{self, CodecError, MAX_HEADER},
};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::control::{
    Founder, History, InvalidTiming,
    message::{Renewal, Renewed},
    recovery::Standing,
};
use crate::message::control::{Answer, Call};

/// The longest message of the log's group, in bytes.
pub const MAX_LOG_MESSAGE: usize = MAX_HEADER;
/// The most addresses that a node may claim.
pub const MAX_ADDRS: usize = 16;
/// The longest name of a node, in bytes.
pub const MAX_NAME: usize = 255;

/// A frame that holds no valid call or answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The header can't be decoded.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// A body behind a message that has none.
    #[error("{0} bytes of body behind a message that has none")]
    Body(usize),
    /// A header whose numbers could be shorter.
    #[error("a header of {0} bytes that could be shorter")]
    Form(usize),
    /// An answer where a call was expected, or the other way round.
    #[error("a message that goes the other way")]
    Direction,
    /// A message of the log's group is too long.
    #[error("a message of the log of {0} bytes, at most {MAX_LOG_MESSAGE} are allowed")]
    Long(usize),
    /// A cluster's times make no sense.
    #[error("{field}: {0}", field = .0.field())]
    Timing(#[from] InvalidTiming),
    /// A node claims a longer name or more addresses than are allowed.
    #[error("a node with a name of {name} bytes and {addrs} addresses")]
    Founder {
        /// Bytes of the name.
        name: usize,
        /// How many addresses.
        addrs: usize,
    },
}

#[derive(Serialize)]
enum Said<'a, T> {
    Lease(Option<History>, &'a T),
    Log,
    Survey,
    Surveyed(&'a Standing),
    OtherHistory(History),
}

#[derive(Deserialize)]
enum Heard<T> {
    Lease(Option<History>, T),
    Log,
    Survey,
    Surveyed(Box<Standing>),
    OtherHistory(History),
}

/// A call or an answer as a frame: its header, and its body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Encoded {
    /// The header.
    pub header: Bytes,
    /// The body, often empty.
    pub body: Bytes,
}

/// Encodes a call.
///
/// # Errors
/// [`CodecError`]: the call is larger than the receiver accepts.
pub fn encode_call(call: &Call) -> Result<Encoded, CodecError> {
    match call {
        Call::Renewal(history, renewal) => encode(&Said::Lease(*history, renewal), Bytes::new()),
        Call::Log(message) => encode(&Said::<Renewal>::Log, message.clone()),
        Call::Survey => encode(&Said::<Renewal>::Survey, Bytes::new()),
    }
}

/// Encodes an answer.
///
/// # Errors
/// [`CodecError`]: the answer is larger than the receiver accepts.
pub fn encode_answer(answer: &Answer) -> Result<Encoded, CodecError> {
    match answer {
        Answer::Renewed(history, renewed) => encode(&Said::Lease(*history, renewed), Bytes::new()),
        Answer::Log(message) => encode(&Said::<Renewed>::Log, message.clone()),
        Answer::Surveyed(standing) => encode(&Said::<Renewed>::Surveyed(standing), Bytes::new()),
        Answer::OtherHistory(history) => encode(&Said::<Renewed>::OtherHistory(*history), Bytes::new()),
    }
}

fn encode<T: Serialize>(said: &Said<'_, T>, body: Bytes) -> Result<Encoded, CodecError> {
    let mut header = Vec::new();
    codec::encode(said, &mut header)?;
    if let Some(len) = [header.len(), body.len()].into_iter().find(|&len| len > MAX_HEADER) {
        return Err(CodecError::TooLarge(len));
    }
    Ok(Encoded { header: header.into(), body })
}

/// The call that a frame carries.
///
/// # Errors
/// [`DecodeError`].
pub fn decode_call(frame: &Frame) -> Result<Call, DecodeError> {
    let call = heard_call(frame)?;
    one_form(frame, &encode_call(&call)?)?;
    Ok(call)
}

fn heard_call(frame: &Frame) -> Result<Call, DecodeError> {
    match codec::decode::<Heard<Renewal>>(&frame.header)? {
        Heard::Lease(history, renewal) => {
            no_body(frame)?;
            check(&renewal.me)?;
            Ok(Call::Renewal(history, renewal))
        }
        Heard::Log => Ok(Call::Log(log_message(frame)?)),
        Heard::Survey => {
            no_body(frame)?;
            Ok(Call::Survey)
        }
        Heard::Surveyed(_) | Heard::OtherHistory(_) => Err(DecodeError::Direction),
    }
}

/// The answer that a frame carries.
///
/// # Errors
/// [`DecodeError`].
pub fn decode_answer(frame: &Frame) -> Result<Answer, DecodeError> {
    let answer = heard_answer(frame)?;
    one_form(frame, &encode_answer(&answer)?)?;
    Ok(answer)
}

fn heard_answer(frame: &Frame) -> Result<Answer, DecodeError> {
    match codec::decode::<Heard<Renewed>>(&frame.header)? {
        Heard::Lease(history, renewed) => {
            no_body(frame)?;
            renewed.configs.iter().flat_map(|configs| configs.nodes()).try_for_each(check)?;
            renewed.configs.iter().try_for_each(|configs| configs.timing().validate())?;
            Ok(Answer::Renewed(history, Box::new(renewed)))
        }
        Heard::Log => Ok(Answer::Log(log_message(frame)?)),
        Heard::Surveyed(standing) => {
            no_body(frame)?;
            check(&standing.me)?;
            Ok(Answer::Surveyed(standing))
        }
        Heard::OtherHistory(history) => {
            no_body(frame)?;
            Ok(Answer::OtherHistory(history))
        }
        Heard::Survey => Err(DecodeError::Direction),
    }
}

fn one_form(frame: &Frame, encoded: &Encoded) -> Result<(), DecodeError> {
    if frame.header == encoded.header { Ok(()) } else { Err(DecodeError::Form(frame.header.len())) }
}

fn no_body(frame: &Frame) -> Result<(), DecodeError> {
    if frame.body.is_empty() { Ok(()) } else { Err(DecodeError::Body(frame.body.len())) }
}

fn log_message(frame: &Frame) -> Result<Bytes, DecodeError> {
    let len = frame.body.len();
    if len > MAX_LOG_MESSAGE { Err(DecodeError::Long(len)) } else { Ok(frame.body.clone()) }
}

fn check(founder: &Founder) -> Result<(), DecodeError> {
    let (name, addrs) = (founder.name.len(), founder.addrs.len());
    if name > MAX_NAME || addrs > MAX_ADDRS { Err(DecodeError::Founder { name, addrs }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::{
        ChainId, ClusterId, Epoch, Incarnation, MemberId, NodeId, Sequence,
        control::{
            Configs, Founding, Timing,
            log::LogIndex,
            message::{Close, Farewell, Leave, Promotion, Report, Stage, Unsettled, Way},
        },
    };

    fn founder(n: u8) -> Founder {
        let id = MemberId { node: NodeId::from_bytes([n; 16]), incarnation: Incarnation { store: 7, starts: 1 } };
        Founder { id, name: format!("n{n}"), addrs: vec![([127, 0, 0, 1], u16::from(n) + 1).into()] }
    }

    fn renewal(me: Founder) -> Renewal {
        let promotion = Promotion { chain: ChainId(3), epoch: Epoch(4), member: founder(9).id };
        Renewal {
            number: 7,
            answered: 6,
            me,
            applied: LogIndex(2),
            leave: Leave { number: 3, stage: Stage::Resigned },
            promotions: vec![promotion],
            reports: vec![report()],
        }
    }

    fn report() -> Report {
        let way = |millis| Way { waits: None, took: Duration::from_millis(millis), usual: Duration::ZERO };
        Report {
            chain: ChainId(3),
            epoch: Epoch(4),
            open: true,
            held: Sequence(9),
            watermark: Sequence(8),
            hop: Way { waits: Some((Sequence(9), Duration::from_millis(5))), ..way(3) },
            commit: way(4),
            slowed: Duration::ZERO,
            closed: false,
            unheard: Duration::ZERO,
            halted: false,
        }
    }

    fn renewed() -> Renewed {
        let founding = Founding {
            timing: Timing { drift_ppm: 7, ..Timing::default() },
            ..Founding::new(ClusterId(1), "test", (0..3).map(founder).collect())
        };
        let configs = Some(Box::new(Configs::of(&founding)));
        Renewed {
            number: 7,
            lease: Some(Duration::from_secs(1)),
            leader: Some(founder(1).id),
            configs,
            settled: Ok(()),
            released: true,
            leave: Some(Leave { number: 4, stage: Stage::Asks }),
            farewell: Some(Farewell::HandsOver),
            close: vec![Close { chain: ChainId(0), epoch: Epoch(1) }],
        }
    }

    fn frame(encoded: Encoded) -> Frame {
        Frame { header: encoded.header, body: encoded.body }
    }

    #[test]
    fn messages_survive_encoding() {
        let history = History::first(ClusterId(1)).next(7);
        for call in [
            Call::Renewal(Some(history), renewal(founder(1))),
            Call::Log(Bytes::from_static(b"vote for me")),
            Call::Survey,
        ] {
            assert_eq!(decode_call(&frame(encode_call(&call).unwrap())), Ok(call));
        }
        let empty = Renewed {
            lease: None,
            leader: None,
            configs: None,
            settled: Err(Unsettled::Leaves { member: founder(2).id }),
            released: false,
            leave: None,
            farewell: None,
            ..renewed()
        };
        for answer in [
            Answer::Renewed(Some(history), Box::new(renewed())),
            Answer::Renewed(None, Box::new(empty)),
            Answer::Log(Bytes::new()),
            Answer::OtherHistory(history),
        ] {
            assert_eq!(decode_answer(&frame(encode_answer(&answer).unwrap())), Ok(answer));
        }
    }

    #[test]
    fn invalid_messages_are_refused() {
        let mut with_body = frame(encode_call(&Call::Renewal(None, renewal(founder(1)))).unwrap());
        with_body.body = Bytes::from_static(b"x");
        assert_eq!(decode_call(&with_body), Err(DecodeError::Body(1)));
        let mut long = frame(encode_call(&Call::Log(Bytes::new())).unwrap());
        long.body = vec![0; MAX_LOG_MESSAGE + 1].into();
        assert_eq!(decode_call(&long), Err(DecodeError::Long(MAX_LOG_MESSAGE + 1)));
        assert_eq!(decode_answer(&long), Err(DecodeError::Long(MAX_LOG_MESSAGE + 1)));
        let many = Founder { addrs: vec![([127, 0, 0, 1], 1).into(); MAX_ADDRS + 1], ..founder(1) };
        let many = frame(encode_call(&Call::Renewal(None, renewal(many))).unwrap());
        assert_eq!(decode_call(&many), Err(DecodeError::Founder { name: 2, addrs: MAX_ADDRS + 1 }));
        let timing = Timing { lease: Duration::MAX, ..Timing::default() };
        let founding = Founding { timing, ..Founding::new(ClusterId(1), "test", vec![]) };
        let endless = Renewed { configs: Some(Box::new(Configs::of(&founding))), ..renewed() };
        let endless = frame(encode_answer(&Answer::Renewed(None, Box::new(endless))).unwrap());
        assert_eq!(decode_answer(&endless), Err(DecodeError::Timing(InvalidTiming::Lease)));
        let named = Founder { name: "n".repeat(MAX_NAME + 1), ..founder(1) };
        let named = frame(encode_call(&Call::Renewal(None, renewal(named))).unwrap());
        assert_eq!(decode_call(&named), Err(DecodeError::Founder { name: MAX_NAME + 1, addrs: 1 }));
    }

    #[test]
    fn a_message_has_one_form() {
        let long = Frame { header: Bytes::from_static(&[0xfb, 1, 0]), body: Bytes::new() };
        assert_eq!(decode_call(&long), Err(DecodeError::Form(3)));
        assert_eq!(decode_answer(&long), Err(DecodeError::Form(3)));
    }

    #[test]
    fn oversized_calls_are_not_sent() {
        let long = Call::Log(vec![0; MAX_LOG_MESSAGE + 1].into());
        assert_eq!(encode_call(&long), Err(CodecError::TooLarge(MAX_LOG_MESSAGE + 1)));
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_decoded(header: Vec<u8>, body: Vec<u8>) {
            let frame = Frame { header: header.into(), body: body.into() };
            drop(decode_call(&frame));
            drop(decode_answer(&frame));
        }
    }
}
