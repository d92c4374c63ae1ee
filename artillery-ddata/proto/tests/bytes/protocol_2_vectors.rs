//! Test vectors of digests and copies, which protocol 2 added. They never change.

use artillery_proto::{
    ChainId, ClusterId, Epoch, ReadMode, Refusal, Sequence, Version,
    api::{
        CopyMessage, CopyReply, CopyStep, DigestCursor, DigestQuery, DigestReply, DigestStep, HashKey, Query, Reply,
        Sums,
    },
    message::{
        ChainFrame, ChainMessage, SnapshotContent, SnapshotCursor, SnapshotPart,
        request::{Operation, Request, Response, ResponseAnswer},
    },
    store::{Held, ScanRecord},
    wire::{
        chain,
        request::{EncodeError, decode_request, decode_response, encode_request, encode_response},
    },
};
use bytes::Bytes;

use crate::vectors::{check, check_listed};

fn cursor() -> DigestCursor {
    DigestCursor { key: Bytes::from("stock/7"), pieces: 300 }
}

fn requests() -> Vec<(&'static str, Request)> {
    let request = |step| {
        let query = Query::Digest(Box::new(DigestQuery { prefix: "stock/".into(), key: HashKey([7; 16]), step }));
        let operation = Operation::Read { query, mode: ReadMode::Eventual, floor: None, history: None };
        Request { number: 1, chain: ChainId(0), deadline_ms: 5000, forwarded: false, operation }
    };
    let copy = |step| Request {
        operation: Operation::Read {
            query: Query::Copy(step),
            mode: ReadMode::Eventual,
            floor: None,
            history: Some(ClusterId(9)),
        },
        ..request(DigestStep::Begin)
    };
    let (behind, floor) = (Some(Bytes::from("stock/7")), Sequence(70_000));
    vec![
        ("copy-begin", copy(CopyStep::Begin)),
        ("copy-records", copy(CopyStep::Records { behind, floor })),
        ("copy-updates", copy(CopyStep::Updates { after: Sequence(70_000) })),
        ("digest-begin", request(DigestStep::Begin)),
        ("digest-part", request(DigestStep::Part { number: 1 << 40, at: Sequence(70_000), from: cursor() })),
    ]
}

fn responses() -> Vec<(&'static str, Response)> {
    let response = |reply| Response { number: 1, by: None, answer: ResponseAnswer::Reply(reply) };
    let sums = Sums { records: 3, bytes: 70_000, contents: u128::MAX - 1, versions: 1 << 100 };
    let digest =
        |next| response(Reply::Digest(Box::new(DigestReply { number: 1 << 40, as_of: Sequence(70_000), sums, next })));
    let copied = |message: Option<ChainMessage>, next| {
        let encoded = |message| {
            let frame = ChainFrame { chain: ChainId(0), epoch: Epoch(0), index: 0, message };
            let frame = chain::encode(&frame).expect("it can be encoded").to_frame();
            CopyMessage { header: frame.header, body: vec![frame.body] }
        };
        response(Reply::Copied(Box::new(CopyReply {
            watermark: Sequence(70_002),
            message: message.map(encoded),
            next,
        })))
    };
    let held = Held::new(Version::new(2, 69_000), Some(Bytes::from("12")));
    let records = SnapshotContent::Records(vec![ScanRecord { key: Bytes::from("stock/7"), held }]);
    let at = SnapshotCursor::default();
    let part = SnapshotPart { id: 1, at, watermark: Sequence(70_001), content: records };
    vec![
        ("copy-reply", copied(Some(ChainMessage::Snapshot(part)), Some(Bytes::from("stock/7")))),
        ("copy-reply-none", copied(None, None)),
        ("digest-reply", digest(Some(cursor()))),
        ("digest-reply-last", digest(None)),
        ("digest-unsupported", response(Reply::Refused(Refusal::Unsupported { needs: 2, has: 1 }))),
    ]
}

#[test]
fn vectors_are_understood_and_sent() {
    for (name, request) in requests() {
        let encoded = encode_request(&request, 2).expect("protocol 2 has it");
        check(name, &request, &encoded.to_frame(), decode_request);
    }
    for (name, response) in responses() {
        check(name, &response, &encode_response(&response).expect("it can be encoded").to_frame(), decode_response);
    }
}

#[test]
fn a_connection_with_protocol_1_carries_no_digest_and_no_copy() {
    for (name, request) in requests() {
        assert_eq!(encode_request(&request, 1).err(), Some(EncodeError::Unsupported { needs: 2, has: 1 }), "{name}");
    }
}

#[test]
fn no_vector_is_forgotten() {
    let (requests, responses) = (requests(), responses());
    let names = requests.iter().map(|(name, _)| *name).chain(responses.iter().map(|(name, _)| *name));
    check_listed(&["copy-", "digest-"], &names.collect::<Vec<_>>());
}
