//! Requests and responses as bytes that every later release that talks wire format 1 must understand, and send.
//!
//! A vector in `wire-1/` is never changed. What a later release adds gets vectors of its own.

use std::{fmt::Debug, fs, path::PathBuf};

use artillery_core::frame::{Frame, FrameDecoder};
use artillery_ddata::{
    ChainId, Incarnation, MemberId, NodeId, ReadMode, Refusal, Version, Way,
    replica::{Committed, Read, Reply, Write},
    store::Held,
    wire::request::{
        Encoded, Operation, Request, Response, ResponseAnswer, decode_request, decode_response, encode_request,
        encode_response,
    },
};
use bytes::Bytes;

fn requests() -> Vec<(&'static str, Request)> {
    let key = || Bytes::from("stock/7");
    let request =
        |operation| Request { number: 300, chain: ChainId(2), deadline_ms: 5000, forwarded: false, operation };
    let write = |write| request(Operation::Write(write));
    vec![
        ("request-read-strong", request(Operation::Read { key: key(), mode: ReadMode::Strong })),
        ("request-read-through-chain", request(Operation::Read { key: key(), mode: ReadMode::ThroughChain })),
        ("request-read-eventual", request(Operation::Read { key: key(), mode: ReadMode::Eventual })),
        ("request-put", Request { forwarded: true, ..write(Write::Put { key: key(), value: Bytes::from("4") }) }),
        ("request-delete", write(Write::Delete { key: key() })),
        ("request-swap", write(swap(Some(Bytes::new())))),
        ("request-swap-delete", write(swap(None))),
        ("request-routing", request(Operation::Routing)),
        ("request-status", request(Operation::Status)),
    ]
}

fn swap(value: Option<Bytes>) -> Write {
    Write::CompareAndSwap { key: Bytes::from("stock/7"), expected: Version::new(3, 1 << 20), value }
}

fn member() -> MemberId {
    MemberId { node: NodeId::from_bytes([0xab; 16]), incarnation: Incarnation { store: 1 << 100, starts: 2 } }
}

fn responses() -> Vec<(&'static str, Response)> {
    let held = |value: Option<&'static str>| Some(Held { version: Version::new(1, 9), value: value.map(Bytes::from) });
    let reply = |reply| Response { number: 300, by: None, answer: ResponseAnswer::Reply(reply) };
    let read = |held, clean, way| reply(Reply::Read(Read { held, clean, way }));
    let refused = |refusal| reply(Reply::Refused(refusal));
    let at = Version::new(4, 70_000);
    vec![
        ("response-committed", reply(Reply::Committed(Committed { version: at, copies: 3 }))),
        ("response-conflict", reply(Reply::Conflict { at, current: held(Some("4")) })),
        ("response-conflict-absent", reply(Reply::Conflict { at, current: None })),
        ("response-read", Response { by: Some(member()), ..read(held(Some("4")), true, Way::Local) }),
        ("response-read-absent", read(None, true, Way::Query)),
        ("response-read-dirty", read(held(None), false, Way::Chain)),
        ("response-refused-no-chain", refused(Refusal::NoChain)),
        ("response-refused-not-head", refused(Refusal::NotHead(Some(member())))),
        ("response-refused-not-tail", refused(Refusal::NotTail(None))),
        ("response-refused-no-lease", refused(Refusal::NoLease)),
        ("response-refused-busy", refused(Refusal::Busy)),
        ("response-refused-too-few", refused(Refusal::TooFewMembers { have: 1, need: 2 })),
        ("response-refused-key", refused(Refusal::KeyTooLong { len: 5000, limit: 4096 })),
        ("response-refused-store", refused(Refusal::StoreFailed)),
        ("response-refused-value", refused(Refusal::ValueTooLarge { len: 1 << 40, limit: 64 << 20 })),
        ("response-expired", reply(Reply::Expired)),
        ("response-routing-none", Response { number: 1, by: None, answer: ResponseAnswer::Routing(None) }),
        ("response-status", Response { number: 1, by: None, answer: ResponseAnswer::Status(Bytes::from("{}")) }),
    ]
}

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/wire-1")
}

fn hex(bytes: &[u8]) -> String {
    let lines = bytes.chunks(32).map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + "\n");
    lines.collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_digit(16).expect("hex") as u8).collect();
    assert!(digits.len().is_multiple_of(2), "half a byte");
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn check<M: PartialEq + Debug, E: Debug>(name: &str, message: &M, sent: Encoded, decode: fn(&Frame) -> Result<M, E>) {
    let sent = Frame { header: sent.header, body: sent.body.concat().into() }.to_bytes();
    let path = directory().join(name).with_extension("hex");
    let text = fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; it would hold:\n{}", path.display(), hex(&sent)));
    assert_eq!(hex(&sent), text, "{name} is sent as other bytes than before");

    let mut decoder = FrameDecoder::new(1 << 20);
    decoder.push(&unhex(&text));
    let frame = decoder.next_frame().expect("a frame").expect("a whole frame");
    assert_eq!(decoder.finish(), Ok(()), "one frame");
    assert_eq!(&decode(&frame).expect("a message"), message, "{name} is understood as another message than before");
}

#[test]
fn requests_are_understood_and_sent() {
    for (name, request) in requests() {
        check(name, &request, encode_request(&request).expect("it can be encoded"), decode_request);
    }
}

#[test]
fn responses_are_understood_and_sent() {
    for (name, response) in responses() {
        check(name, &response, encode_response(&response).expect("it can be encoded"), decode_response);
    }
}

#[test]
fn no_vector_is_forgotten() {
    let listed: Vec<_> = requests().iter().map(|(name, _)| *name).chain(responses().iter().map(|(n, _)| *n)).collect();
    for entry in fs::read_dir(directory()).expect("the directory of the vectors") {
        let path = entry.expect("a directory entry").path();
        let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let ours = name.starts_with("request-") || name.starts_with("response-");
        assert!(!ours || listed.contains(&name), "{} is not tested", path.display());
    }
}
