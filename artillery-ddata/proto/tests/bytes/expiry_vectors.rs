//! Test vectors of frames about keys that expire, which every later release with wire format 1 must decode and encode.

use artillery_proto::{
    ChainId, Epoch, Expiry, ReadPath, Sequence, Version,
    api::{
        Computed, Expected, ExpireIf, GroupOutcome, MultiGetReply, ReadReply, Reply, Requirement, ScanReply,
        ScriptGroup, ScriptStep, ScriptWrite, Step, StepOutcome, Ttl, WatchReply, Write, WriteReply,
    },
    message::{
        ChainFrame, ChainMessage, RecordPiece, SnapshotContent, SnapshotCursor, SnapshotPart, Updates,
        request::{Operation, Request, Response, ResponseAnswer},
    },
    store::{Held, ScanRecord},
    types::update::{KeyChange, RequestOutcome, Update, UpdateKind},
    wire::{
        chain::{decode, encode},
        request::{decode_request, decode_response, encode_request, encode_response},
    },
};
use bytes::Bytes;

use crate::vectors::{check, check_listed};

const LATE: Expiry = Expiry::at(70_000);

fn key() -> Bytes {
    Bytes::from("stock/7")
}

fn value() -> Bytes {
    Bytes::from("4")
}

fn framed(message: ChainMessage) -> ChainFrame {
    ChainFrame { chain: ChainId(3), epoch: Epoch(5), index: 70_000, message }
}

fn updates() -> ChainFrame {
    let update = |sequence, kind, outcome, changes: Vec<KeyChange>| Update {
        version: Version::new(5, sequence),
        kind,
        request: None,
        outcome,
        chain_time: 65_000,
        changes: changes.into(),
    };
    let changes = vec![
        KeyChange::new(key(), Some(value())).expiring(Some(LATE)),
        KeyChange::renewal(key(), Some(LATE)),
        KeyChange::renewal(key(), None),
    ];
    let updates = vec![
        update(8, UpdateKind::WRITE, RequestOutcome::Done, changes),
        update(9, UpdateKind::EXPIRE, RequestOutcome::Done, vec![KeyChange::new(key(), None)]),
        update(10, UpdateKind::WRITE, RequestOutcome::Changed(true), Vec::new()),
    ];
    framed(ChainMessage::Updates(Updates { watermark: Sequence(7), after: Version::new(4, 7), updates }))
}

fn held(value: Option<Bytes>, expires: Option<Expiry>) -> Held {
    Held { version: Version::new(1, 9), value, expires }
}

fn records() -> Vec<ScanRecord> {
    let record = |key, expires| ScanRecord { key: Bytes::from(key), held: held(Some(value()), expires) };
    vec![record("a", Some(LATE)), record("b", None)]
}

fn snapshot(bytes: u64, content: SnapshotContent) -> ChainFrame {
    let at = SnapshotCursor { sessions: 3, behind: Some(Bytes::from("A")), bytes };
    framed(ChainMessage::Snapshot(SnapshotPart { id: 251, at, watermark: Sequence(65_537), content }))
}

fn frames() -> [(&'static str, ChainFrame); 3] {
    let piece =
        RecordPiece { key: key(), version: Version::new(1, 9), len: 70_000, expires: Some(LATE), bytes: value() };
    [
        ("expiry-updates", updates()),
        ("expiry-snapshot-records", snapshot(0, SnapshotContent::Records(records()))),
        ("expiry-snapshot-piece", snapshot(65_536, SnapshotContent::Piece(piece))),
    ]
}

fn requests() -> Vec<(&'static str, Request)> {
    let write = |write| {
        let operation = Operation::Write { request: None, history: None, write };
        Request { number: 300, chain: ChainId(2), deadline_ms: 5000, forwarded: false, operation }
    };
    let steps = vec![
        Step::Require { key: key(), expected: Expected::Value(value()) },
        Step::Require { key: key(), expected: Expected::NotValue(value()) },
        Step::Put { key: key(), value: value(), ttl: Ttl::Keep },
        Step::Append { key: key(), value: value(), ttl: Ttl::Set(1) },
        Step::Prepend { key: key(), value: value(), ttl: Ttl::Usual },
        Step::Increment { key: key(), by: 1, ttl: Ttl::IfNew(70_000) },
        Step::Expire { key: key(), ttl: Some(70_000), when: Some(ExpireIf::Later) },
    ];
    let script = vec![
        ScriptStep::Put { key: key(), value: value(), ttl: Ttl::Set(70_000) },
        ScriptStep::Append { key: key(), value: value(), ttl: Ttl::Set(1) },
        ScriptStep::Prepend { key: key(), value: value(), ttl: Ttl::Usual },
        ScriptStep::Increment { key: key(), by: 1, ttl: Ttl::Set(1) },
        ScriptStep::Expire { key: key(), ttl: None, when: None },
        ScriptStep::ExpiresIn { key: key() },
        ScriptStep::Copy { key: key(), to: Bytes::from("b") },
    ];
    let edits = vec![
        ScriptStep::IncrementFloat { key: key(), by: Bytes::from("0.5"), ttl: Ttl::Usual },
        ScriptStep::SetRange { key: key(), offset: 70_000, value: value(), ttl: Ttl::Usual },
        ScriptStep::Expire { key: key(), ttl: Some(1), when: Some(ExpireIf::SetAndSooner) },
    ];
    let edits = ScriptWrite { require: Vec::new(), groups: vec![ScriptGroup { require: Vec::new(), steps: edits }] };
    let require = vec![Requirement { key: key(), expected: Expected::NotValue(value()) }];
    let groups = vec![ScriptGroup { require: require.clone(), steps: script }];
    let expected = Version::new(3, 1 << 20);
    let swap = Write::CompareAndSwap { key: key(), expected, value: Some(value()), ttl: Ttl::Keep };
    vec![
        ("expiry-put", write(Write::Put { key: key(), value: value(), ttl: Ttl::Set(90_000) })),
        ("expiry-swap", write(swap)),
        ("expiry-append", write(Write::Append { key: key(), value: value(), ttl: Ttl::Set(1) })),
        ("expiry-prepend", write(Write::Prepend { key: key(), value: value(), ttl: Ttl::Usual })),
        ("expiry-increment", write(Write::Increment { key: key(), by: 1, ttl: Ttl::IfNew(70_000) })),
        ("expiry-expire", write(Write::Expire { key: key(), ttl: Some(70_000), when: Some(ExpireIf::Unset) })),
        ("expiry-persist", write(Write::Expire { key: key(), ttl: None, when: None })),
        ("expiry-sequential", write(Write::PutSequential { prefix: key(), value: value(), ttl: Ttl::Usual })),
        ("expiry-batch", write(Write::Batch(steps))),
        ("expiry-script", write(Write::Script(ScriptWrite { require, groups }))),
        ("expiry-script-edits", write(Write::Script(edits))),
    ]
}

fn responses() -> Vec<(&'static str, Response)> {
    let reply = |reply| Response { number: 300, by: None, answer: ResponseAnswer::Reply(reply) };
    let (clean, way, as_of, chain_time) = (true, ReadPath::Local, Sequence(70_000), 65_000);
    let expiring = || Some(held(Some(value()), Some(LATE)));
    let expired = ScanRecord { key: key(), held: held(None, Some(LATE)) };
    let committed = |result| {
        reply(Reply::Committed(WriteReply { version: Version::new(1, 9), copies: 3, replayed: false, result }))
    };
    let outcomes: GroupOutcome = Ok(vec![
        StepOutcome::Changed(true),
        StepOutcome::ExpiresIn(None),
        StepOutcome::ExpiresIn(Some(None)),
        StepOutcome::ExpiresIn(Some(Some(70_000))),
    ]);
    let changes = [records(), vec![expired]].concat();
    let page = ScanReply { records: records(), next: Some(key()), clean, way, as_of, snapshot: Some(7), chain_time };
    vec![
        ("expiry-read", reply(Reply::Read(ReadReply { held: expiring(), clean, way, as_of, chain_time }))),
        (
            "expiry-cut",
            reply(Reply::Cut(MultiGetReply { found: vec![None, expiring()], clean, way, as_of, chain_time })),
        ),
        ("expiry-page", reply(Reply::Page(page))),
        ("expiry-changes", reply(Reply::Changes(WatchReply { records: changes, upto: Sequence(80_000), shown: 0 }))),
        ("expiry-changed", committed(Computed::Changed(false))),
        ("expiry-ran", committed(Computed::Ran(vec![outcomes]))),
        ("expiry-ran-decimal", committed(Computed::Ran(vec![Ok(vec![StepOutcome::Decimal(value())])]))),
    ]
}

#[test]
fn vectors_are_understood_and_sent() {
    for (name, frame) in frames() {
        check(name, &frame, &encode(&frame).expect("it can be encoded").to_frame(), decode);
    }
    for (name, request) in requests() {
        let encoded = encode_request(&request, 1).expect("protocol 1 has it");
        check(name, &request, &encoded.to_frame(), decode_request);
    }
    for (name, response) in responses() {
        check(name, &response, &encode_response(&response).expect("it can be encoded").to_frame(), decode_response);
    }
}

#[test]
fn no_vector_is_forgotten() {
    let (frames, requests, responses) = (frames(), requests(), responses());
    let names = frames.iter().map(|(name, _)| *name).chain(requests.iter().map(|(name, _)| *name));
    check_listed(&["expiry-"], &names.chain(responses.iter().map(|(name, _)| *name)).collect::<Vec<_>>());
}
