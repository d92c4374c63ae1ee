//! Calls between nodes about the configuration, and the answers: one frame each.
//!
//! The body holds messages of the log's group in that group's encoding.

use artillery_core::{
    Frame,
    internal::codec::{self, CodecError, MAX_HEADER},
};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::control::{
    History, InvalidTiming, NodeInfo,
    message::{Renewal, Renewed},
    recovery::Standing,
};
use crate::message::control::{ControlAnswer, ControlCall};

/// The longest message of the log's group, in bytes.
pub const MAX_LOG_MESSAGE: usize = MAX_HEADER;
/// The most addresses that a node may claim.
pub const MAX_ADDRS: usize = 16;
/// The longest name of a node, in bytes.
pub const MAX_NAME: usize = 255;
/// The longest host name with its port: 253 bytes, a dot, a colon and five digits.
const MAX_HOST: usize = 260;

/// A frame that isn't a valid call, answer or message of formation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ControlDecodeError {
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// A body after a header that takes none.
    #[error("an unexpected body of {0} bytes")]
    Body(usize),
    /// The numbers in the header aren't in their shortest form.
    #[error("a header of {0} bytes that isn't in its shortest form")]
    Form(usize),
    /// An answer where a call was expected, or the reverse.
    #[error("an answer in place of a call, or a call in place of an answer")]
    Direction,
    #[error("a message of the log of {0} bytes, at most {MAX_LOG_MESSAGE} are allowed")]
    Long(usize),
    /// The cluster's times are invalid.
    #[error("{field}: {0}", field = .0.field())]
    Timing(#[from] InvalidTiming),
    /// The host name of a node is too long; its length in bytes.
    #[error("a node with a host name of {0} bytes, at most {MAX_HOST} are allowed")]
    Host(usize),
    /// The name of a node is too long, or it has too many addresses.
    #[error("a node with a name of {name} bytes and {addrs} addresses")]
    Founder {
        /// Length of the name in bytes.
        name: usize,
        addrs: usize,
    },
}

#[derive(Serialize)]
enum EncodedCall<'a, T> {
    Lease(Option<History>, &'a T),
    Log,
    Survey,
    Surveyed(&'a Standing),
    OtherHistory(History),
    RolledBack,
}

#[derive(Deserialize)]
enum DecodedCall<T> {
    Lease(Option<History>, T),
    Log,
    Survey,
    Surveyed(Box<Standing>),
    OtherHistory(History),
    RolledBack,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EncodedControl {
    pub header: Bytes,
    /// Empty except for messages of the log's group.
    pub body: Bytes,
}

/// Encodes a call.
///
/// # Errors
/// [`CodecError`] if the receiver would reject the call as too large.
pub fn encode_call(call: &ControlCall) -> Result<EncodedControl, CodecError> {
    match call {
        ControlCall::Renewal(history, renewal) => encode(&EncodedCall::Lease(*history, renewal), Bytes::new()),
        ControlCall::Log(message) => encode(&EncodedCall::<Renewal>::Log, message.clone()),
        ControlCall::Survey => encode(&EncodedCall::<Renewal>::Survey, Bytes::new()),
    }
}

/// Encodes an answer.
///
/// # Errors
/// [`CodecError`] if the receiver would reject the answer as too large.
pub fn encode_answer(answer: &ControlAnswer) -> Result<EncodedControl, CodecError> {
    match answer {
        ControlAnswer::Renewed(history, renewed) => encode(&EncodedCall::Lease(*history, renewed), Bytes::new()),
        ControlAnswer::Log(message) => encode(&EncodedCall::<Renewed>::Log, message.clone()),
        ControlAnswer::Surveyed(standing) => encode(&EncodedCall::<Renewed>::Surveyed(standing), Bytes::new()),
        ControlAnswer::OtherHistory(history) => encode(&EncodedCall::<Renewed>::OtherHistory(*history), Bytes::new()),
        ControlAnswer::RolledBack => encode(&EncodedCall::<Renewed>::RolledBack, Bytes::new()),
    }
}

fn encode<T: Serialize>(said: &EncodedCall<'_, T>, body: Bytes) -> Result<EncodedControl, CodecError> {
    let mut header = Vec::new();
    codec::encode(said, &mut header)?;
    if let Some(len) = [header.len(), body.len()].into_iter().find(|&len| len > MAX_HEADER) {
        return Err(CodecError::TooLarge(len));
    }
    Ok(EncodedControl { header: header.into(), body })
}

/// Decodes the call in a frame.
pub fn decode_call(frame: &Frame) -> Result<ControlCall, ControlDecodeError> {
    let call = heard_call(frame)?;
    one_form(frame, &encode_call(&call)?)?;
    Ok(call)
}

fn heard_call(frame: &Frame) -> Result<ControlCall, ControlDecodeError> {
    match codec::decode::<DecodedCall<Renewal>>(&frame.header)? {
        DecodedCall::Lease(history, renewal) => {
            no_body(frame)?;
            check(&renewal.me)?;
            Ok(ControlCall::Renewal(history, renewal))
        }
        DecodedCall::Log => Ok(ControlCall::Log(log_message(frame)?)),
        DecodedCall::Survey => {
            no_body(frame)?;
            Ok(ControlCall::Survey)
        }
        DecodedCall::Surveyed(_) | DecodedCall::OtherHistory(_) | DecodedCall::RolledBack => {
            Err(ControlDecodeError::Direction)
        }
    }
}

/// Decodes the answer in a frame.
pub fn decode_answer(frame: &Frame) -> Result<ControlAnswer, ControlDecodeError> {
    let answer = heard_answer(frame)?;
    one_form(frame, &encode_answer(&answer)?)?;
    Ok(answer)
}

fn heard_answer(frame: &Frame) -> Result<ControlAnswer, ControlDecodeError> {
    match codec::decode::<DecodedCall<Renewed>>(&frame.header)? {
        DecodedCall::Lease(history, renewed) => {
            no_body(frame)?;
            renewed.configs.iter().flat_map(|configs| configs.nodes()).try_for_each(check)?;
            renewed.configs.iter().try_for_each(|configs| configs.timing().validate())?;
            Ok(ControlAnswer::Renewed(history, Box::new(renewed)))
        }
        DecodedCall::Log => Ok(ControlAnswer::Log(log_message(frame)?)),
        DecodedCall::Surveyed(standing) => {
            no_body(frame)?;
            check(&standing.me)?;
            Ok(ControlAnswer::Surveyed(standing))
        }
        DecodedCall::OtherHistory(history) => {
            no_body(frame)?;
            Ok(ControlAnswer::OtherHistory(history))
        }
        DecodedCall::RolledBack => {
            no_body(frame)?;
            Ok(ControlAnswer::RolledBack)
        }
        DecodedCall::Survey => Err(ControlDecodeError::Direction),
    }
}

fn one_form(frame: &Frame, encoded: &EncodedControl) -> Result<(), ControlDecodeError> {
    if frame.header == encoded.header { Ok(()) } else { Err(ControlDecodeError::Form(frame.header.len())) }
}

pub(super) fn no_body(frame: &Frame) -> Result<(), ControlDecodeError> {
    if frame.body.is_empty() { Ok(()) } else { Err(ControlDecodeError::Body(frame.body.len())) }
}

fn log_message(frame: &Frame) -> Result<Bytes, ControlDecodeError> {
    let len = frame.body.len();
    if len > MAX_LOG_MESSAGE { Err(ControlDecodeError::Long(len)) } else { Ok(frame.body.clone()) }
}

fn check(founder: &NodeInfo) -> Result<(), ControlDecodeError> {
    let (name, addrs) = (founder.name.len(), founder.addrs.len());
    let host = founder.host.as_ref().map_or(0, String::len);
    if host > MAX_HOST {
        return Err(ControlDecodeError::Host(host));
    }
    if name > MAX_NAME || addrs > MAX_ADDRS { Err(ControlDecodeError::Founder { name, addrs }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::{
        ChainId, ClusterId, Epoch, Incarnation, MemberId, NodeId, Sequence, Version,
        control::{
            Bootstrap, Configs, StorePosition, StoreStarts, Timing,
            log::LogIndex,
            message::{Close, Farewell, Leave, LeaveStage, PathDelay, Promotion, Report, StoreHolding, Unsettled},
        },
    };

    fn founder(n: u8) -> NodeInfo {
        let id = MemberId { node: NodeId::from_bytes([n; 16]), incarnation: Incarnation { store: 7, starts: 1 } };
        NodeInfo { id, name: format!("n{n}"), addrs: vec![([127, 0, 0, 1], u16::from(n) + 1).into()], host: None }
    }

    fn renewal(me: NodeInfo) -> Renewal {
        let promotion = Promotion { chain: ChainId(3), epoch: Epoch(4), member: founder(9).id };
        Renewal {
            number: 7,
            answered: 6,
            me,
            applied: LogIndex(2),
            leave: Leave { number: 3, stage: LeaveStage::Resigned, returns: true },
            promotions: vec![promotion],
            reports: vec![report()],
            holds: vec![holding()],
            position: Some(StorePosition { control: 6, groups: 7, starts: StoreStarts::default() }.into()),
            loads: true,
        }
    }

    fn holding() -> StoreHolding {
        let last = Version { epoch: Epoch(4), sequence: Sequence(9) };
        StoreHolding { chain: ChainId(3), whole: true, last, watermark: Sequence(8), synced: true }
    }

    fn report() -> Report {
        let way = |millis| PathDelay { waits: None, took: Duration::from_millis(millis), usual: Duration::ZERO };
        Report {
            chain: ChainId(3),
            epoch: Epoch(4),
            open: true,
            held: Sequence(9),
            watermark: Sequence(8),
            hop: PathDelay { waits: Some((Sequence(9), Duration::from_millis(5))), ..way(3) },
            commit: way(4),
            disk: PathDelay { waits: Some((Sequence(7), Duration::from_millis(6))), ..way(2) },
            slowed: Duration::ZERO,
            closed: false,
            unheard: Duration::ZERO,
            halted: false,
        }
    }

    fn renewed() -> Renewed {
        let founding = Bootstrap {
            timing: Timing { drift_ppm: 7, ..Timing::default() },
            ..Bootstrap::new(ClusterId(1), "test", (0..3).map(founder).collect())
        };
        let configs = Some(Box::new(Configs::of(&founding)));
        Renewed {
            number: 7,
            lease: Some(Duration::from_secs(1)),
            leader: Some(founder(1).id),
            configs,
            settled: Ok(()),
            released: true,
            leave: Some(Leave { number: 4, stage: LeaveStage::Asks, returns: false }),
            farewell: Some(Farewell::HandsOver),
            close: vec![Close { chain: ChainId(0), epoch: Epoch(1) }],
            position: Some(StorePosition { control: 6, groups: 7, starts: StoreStarts::default() }.into()),
        }
    }

    fn frame(encoded: EncodedControl) -> Frame {
        Frame { header: encoded.header, body: encoded.body }
    }

    #[test]
    fn messages_survive_encoding() {
        let history = History::first(ClusterId(1)).next(7);
        for call in [
            ControlCall::Renewal(Some(history), renewal(founder(1))),
            ControlCall::Log(Bytes::from_static(b"vote for me")),
            ControlCall::Survey,
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
            ControlAnswer::Renewed(Some(history), Box::new(renewed())),
            ControlAnswer::Renewed(None, Box::new(empty)),
            ControlAnswer::Log(Bytes::new()),
            ControlAnswer::OtherHistory(history),
            ControlAnswer::RolledBack,
        ] {
            assert_eq!(decode_answer(&frame(encode_answer(&answer).unwrap())), Ok(answer));
        }
    }

    #[test]
    fn invalid_messages_are_refused() {
        let mut with_body = frame(encode_call(&ControlCall::Renewal(None, renewal(founder(1)))).unwrap());
        with_body.body = Bytes::from_static(b"x");
        assert_eq!(decode_call(&with_body), Err(ControlDecodeError::Body(1)));
        let mut long = frame(encode_call(&ControlCall::Log(Bytes::new())).unwrap());
        long.body = vec![0; MAX_LOG_MESSAGE + 1].into();
        assert_eq!(decode_call(&long), Err(ControlDecodeError::Long(MAX_LOG_MESSAGE + 1)));
        assert_eq!(decode_answer(&long), Err(ControlDecodeError::Long(MAX_LOG_MESSAGE + 1)));
        let many = NodeInfo { addrs: vec![([127, 0, 0, 1], 1).into(); MAX_ADDRS + 1], ..founder(1) };
        let many = frame(encode_call(&ControlCall::Renewal(None, renewal(many))).unwrap());
        assert_eq!(decode_call(&many), Err(ControlDecodeError::Founder { name: 2, addrs: MAX_ADDRS + 1 }));
        let timing = Timing { lease: Duration::MAX, ..Timing::default() };
        let founding = Bootstrap { timing, ..Bootstrap::new(ClusterId(1), "test", vec![]) };
        let endless = Renewed { configs: Some(Box::new(Configs::of(&founding))), ..renewed() };
        let endless = frame(encode_answer(&ControlAnswer::Renewed(None, Box::new(endless))).unwrap());
        assert_eq!(decode_answer(&endless), Err(ControlDecodeError::Timing(InvalidTiming::Lease)));
        let hosted = NodeInfo { host: Some("h".repeat(MAX_HOST + 1)), ..founder(1) };
        let hosted = frame(encode_call(&ControlCall::Renewal(None, renewal(hosted))).unwrap());
        assert_eq!(decode_call(&hosted), Err(ControlDecodeError::Host(MAX_HOST + 1)));
        let named = NodeInfo { name: "n".repeat(MAX_NAME + 1), ..founder(1) };
        let named = frame(encode_call(&ControlCall::Renewal(None, renewal(named))).unwrap());
        assert_eq!(decode_call(&named), Err(ControlDecodeError::Founder { name: MAX_NAME + 1, addrs: 1 }));
    }

    #[test]
    fn a_message_has_one_form() {
        let long = Frame { header: Bytes::from_static(&[0xfb, 1, 0]), body: Bytes::new() };
        assert_eq!(decode_call(&long), Err(ControlDecodeError::Form(3)));
        assert_eq!(decode_answer(&long), Err(ControlDecodeError::Form(3)));
    }

    #[test]
    fn oversized_calls_are_not_sent() {
        let long = ControlCall::Log(vec![0; MAX_LOG_MESSAGE + 1].into());
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
