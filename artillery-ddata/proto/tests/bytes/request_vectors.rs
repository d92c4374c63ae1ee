//! Test vectors of requests and responses, which every later release with wire format 1 must decode and encode.
//!
//! Once released, a vector in `wire-1/` never changes: additions get vectors of their own.

use std::time::Duration;

use artillery_proto::{
    ChainId, ClusterId, Incarnation, MemberId, NodeId, ReadMode, ReadPath, Refusal, Sequence, Version,
    api::{
        Computed, Expected, GroupFailure, HashedQuery, HashedReply, MultiGetReply, Query, ReadReply, Reply,
        Requirement, ScanQuery, ScanReply, ScriptGroup, ScriptStep, ScriptWrite, Snapshot, Step, StepOutcome,
        WatchQuery, WatchReply, Write, WriteReply,
    },
    control::History,
    message::request::{AdminOperation, Operation, Request, Response, ResponseAnswer},
    store::{Held, ScanRecord},
    types::update::{RequestFailure, RequestKey},
    wire::request::{
        Encoded, decode_answer_to, decode_request, decode_response, encode_answer_to, encode_request, encode_response,
    },
};
use bytes::Bytes;

use crate::vectors::{check, check_listed};

fn script() -> ScriptWrite {
    let key = || Bytes::from("stock/7");
    let require = |expected| vec![Requirement { key: key(), expected }];
    let steps = vec![
        ScriptStep::Get { key: key() },
        ScriptStep::Length { key: key() },
        ScriptStep::put(key(), Bytes::from("4")),
        ScriptStep::Delete { key: key() },
        ScriptStep::GetDelete { key: key() },
        ScriptStep::append(key(), Bytes::from("x")),
        ScriptStep::increment(key(), -1),
    ];
    let groups = vec![ScriptGroup { require: require(Expected::Absent), steps }, ScriptGroup::default()];
    ScriptWrite { require: require(Expected::Version(Version::new(1, 2))), groups }
}

fn ran() -> Computed {
    let told = vec![
        StepOutcome::Done,
        StepOutcome::Deleted(true),
        StepOutcome::Found(Some((Version::new(1, 9), Bytes::from("4")))),
        StepOutcome::Found(None),
        StepOutcome::Length(Some(70_000)),
        StepOutcome::Length(None),
        StepOutcome::Appended(9),
        StepOutcome::Number(-9),
    ];
    let failed = |failure| Err(GroupFailure::Failed { step: 3, failure });
    Computed::Ran(vec![
        Ok(told),
        Err(GroupFailure::Unmet { requirement: 1, version: Version::new(1, 9) }),
        failed(RequestFailure::NotANumber),
        failed(RequestFailure::Overflow),
        failed(RequestFailure::TooLarge(1 << 40)),
    ])
}

fn requests() -> Vec<(&'static str, Request)> {
    let key = || Bytes::from("stock/7");
    let request =
        |operation| Request { number: 300, chain: ChainId(2), deadline_ms: 5000, forwarded: false, operation };
    let write = |write| request(Operation::Write { request: None, history: None, write });
    let requested = |write| {
        let key = RequestKey { session: Version::new(1, 900), number: 17, lowest: 5 };
        request(Operation::Write { request: Some(key), history: Some(ClusterId(1 << 100)), write })
    };
    let read = |mode| request(Operation::Read { query: Query::Key(key()), mode, floor: None, history: None });
    let look = |query| {
        let (floor, history) = (Some(Sequence(70_000)), Some(ClusterId(1 << 100)));
        request(Operation::Read { query, mode: ReadMode::Strong, floor, history })
    };
    let scan = |after, snapshot| look(Query::Scan(ScanQuery { prefix: key(), after, limit: 100, snapshot }));
    let steps = vec![
        Step::Require { key: key(), expected: Expected::Absent },
        Step::Require { key: key(), expected: Expected::Present },
        Step::Require { key: key(), expected: Expected::Version(Version::new(1, 2)) },
        Step::put(key(), Bytes::from("4")),
        Step::Delete { key: key() },
        Step::append(key(), Bytes::from("x")),
        Step::increment(key(), -1),
    ];
    vec![
        ("request-read-bounded", read(ReadMode::Bounded { versions: 10, age: Duration::from_millis(1500) })),
        ("request-read-keys", look(Query::Keys(vec![key(), Bytes::from("b")]))),
        ("request-watch", look(Query::Changes(WatchQuery { prefix: key(), after: Some(Sequence(7)), shown: 0 }))),
        (
            "request-watch-rest",
            look(Query::Changes(WatchQuery { prefix: key(), after: Some(Sequence(7)), shown: 300 })),
        ),
        ("request-watch-now", look(Query::Changes(WatchQuery { prefix: key(), after: None, shown: 0 }))),
        ("request-scan", scan(None, Snapshot::No)),
        ("request-scan-begin", scan(None, Snapshot::Begin)),
        ("request-scan-of", scan(Some(key()), Snapshot::Of(7))),
        ("request-hashed", look(Query::Hashed(HashedQuery { from: 1 << 63, limit: 100 }))),
        ("request-append", requested(Write::append(key(), Bytes::from("x")))),
        ("request-increment", requested(Write::increment(key(), -40))),
        ("request-get-delete", requested(Write::GetDelete { key: key() })),
        ("request-batch", requested(Write::Batch(steps))),
        ("request-script", requested(Write::Script(script()))),
        ("request-open-session", write(Write::OpenSession)),
        ("request-resolve", requested(Write::Resolve)),
        ("request-read-strong", read(ReadMode::Strong)),
        ("request-read-through-chain", read(ReadMode::ThroughChain)),
        ("request-read-eventual", read(ReadMode::Eventual)),
        ("request-put", Request { forwarded: true, ..write(Write::put(key(), Bytes::from("4"))) }),
        ("request-delete", write(Write::Delete { key: key() })),
        ("request-swap", write(swap(Some(Bytes::new())))),
        ("request-swap-delete", write(swap(None))),
        ("request-routing", request(Operation::Admin(AdminOperation::Routing))),
        ("request-status", request(Operation::Admin(AdminOperation::Status))),
        ("request-reopen", request(Operation::Admin(AdminOperation::Reopen { chain: ChainId(3) }))),
    ]
}

fn swap(value: Option<Bytes>) -> Write {
    Write::compare_and_swap(Bytes::from("stock/7"), Version::new(3, 1 << 20), value)
}

fn member() -> MemberId {
    MemberId { node: NodeId::from_bytes([0xab; 16]), incarnation: Incarnation { store: 1 << 100, starts: 2 } }
}

fn responses() -> Vec<(&'static str, Response)> {
    let held = |value: Option<&'static str>| Some(Held::new(Version::new(1, 9), value.map(Bytes::from)));
    let reply = |reply| Response { number: 300, by: None, answer: ResponseAnswer::Reply(reply) };
    let as_of = Sequence(80_000);
    let read = |held, clean, way| reply(Reply::Read(ReadReply { held, clean, way, as_of, chain_time: 0 }));
    let computed = |result| {
        reply(Reply::Committed(WriteReply { version: Version::new(4, 70_000), copies: 3, replayed: true, result }))
    };
    let conflict = |step, version, value: Option<&'static str>| {
        let (at, value) = (Version::new(4, 70_000), value.map(Bytes::from));
        let replayed = value.is_none();
        reply(Reply::Conflict { at, step, version, value, replayed })
    };
    let record = |key: &'static str| ScanRecord {
        key: Bytes::from(key),
        held: Held::new(Version::new(1, 9), Some(Bytes::from("v"))),
    };
    let page = |next: Option<&'static str>, snapshot| {
        let (records, next) = (vec![record("a"), record("b")], next.map(Bytes::from));
        reply(Reply::Page(ScanReply {
            records,
            next,
            clean: true,
            way: ReadPath::Local,
            as_of: Sequence(80_000),
            chain_time: 0,
            snapshot,
        }))
    };
    let hashed = |next| {
        let keys = vec![Bytes::from("b"), Bytes::new(), Bytes::from("stock/7")];
        reply(Reply::Hashed(HashedReply { keys, next, clean: true, way: ReadPath::Query, as_of }))
    };
    let refused = |refusal| reply(Reply::Refused(refusal));
    let at = Version::new(4, 70_000);
    vec![
        (
            "response-committed",
            reply(Reply::Committed(WriteReply { version: at, copies: 3, replayed: false, result: Computed::Nothing })),
        ),
        ("response-length", computed(Computed::Length(9))),
        ("response-number", computed(Computed::Number(-9))),
        ("response-took", computed(Computed::Took(Some((Version::new(1, 9), Bytes::from("4")))))),
        ("response-took-nothing", computed(Computed::Took(None))),
        ("response-took-forgotten", computed(Computed::TookForgotten(Version::new(1, 9)))),
        ("response-ran", computed(ran())),
        ("response-ran-forgotten", computed(Computed::RanForgotten)),
        ("response-refused-results", refused(Refusal::ResultsTooLarge { len: 1 << 40, limit: 64 << 20 })),
        ("response-refused-update", refused(Refusal::UpdateTooLarge { len: 1 << 40, limit: 64 << 20 })),
        ("response-refused-disk", refused(Refusal::DiskFull { member: member() })),
        ("response-refused-memory", refused(Refusal::MemoryFull { member: member() })),
        ("response-refused-parted", refused(Refusal::Parted { by: History { generation: 1, id: 7 } })),
        ("response-conflict", conflict(0, Version::new(1, 9), Some("4"))),
        ("response-conflict-absent", conflict(3, Version::NONE, None)),
        (
            "response-cut",
            reply(Reply::Cut(MultiGetReply {
                found: vec![held(Some("4")), None],
                clean: true,
                way: ReadPath::Query,
                as_of,
                chain_time: 0,
            })),
        ),
        (
            "response-changes",
            reply(Reply::Changes(WatchReply {
                records: vec![record("a"), record("b")],
                upto: Sequence(80_000),
                shown: 0,
            })),
        ),
        (
            "response-changes-part",
            reply(Reply::Changes(WatchReply { records: vec![record("a")], upto: Sequence(80_000), shown: 300 })),
        ),
        ("response-refused-compacted", refused(Refusal::Compacted { first: 70_000 })),
        ("response-page", page(Some("b"), Some(7))),
        ("response-page-last", page(None, None)),
        ("response-hashed", hashed(1 << 63)),
        ("response-hashed-last", hashed(0)),
        ("response-refused-expired", refused(Refusal::SessionExpired)),
        ("response-refused-forgotten", refused(Refusal::Forgotten)),
        ("response-refused-barred", refused(Refusal::Barred)),
        ("response-refused-full", refused(Refusal::SessionFull)),
        ("response-refused-number", refused(Refusal::NotANumber)),
        ("response-refused-overflow", refused(Refusal::Overflow)),
        ("response-refused-snapshot", refused(Refusal::SnapshotGone)),
        ("response-refused-chains", refused(Refusal::ManyChains)),
        ("response-refused-request", refused(Refusal::OtherRequest)),
        ("response-refused-history", refused(Refusal::OtherHistory)),
        ("response-refused-batch", refused(Refusal::BatchSize { len: 0, limit: 4096 })),
        ("response-read", Response { by: Some(member()), ..read(held(Some("4")), true, ReadPath::Local) }),
        ("response-read-absent", read(None, true, ReadPath::Query)),
        ("response-read-dirty", read(held(None), false, ReadPath::Chain)),
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

#[test]
fn requests_are_understood_and_sent() {
    for (name, request) in requests() {
        let encoded = encode_request(&request, 1).expect("protocol 1 has it");
        check(name, &request, &encoded.to_frame(), decode_request);
    }
}

#[test]
fn responses_are_understood_and_sent() {
    for (name, response) in responses() {
        check(name, &response, &encode_response(&response).expect("it can be encoded").to_frame(), decode_response);
    }
}

#[test]
fn no_vector_is_forgotten() {
    let listed: Vec<_> = requests().iter().map(|(name, _)| *name).chain(responses().iter().map(|(n, _)| *n)).collect();
    check_listed(&["request-", "response-"], &listed);
}

#[test]
fn a_large_response_is_announced() {
    let announced = Encoded { header: encode_answer_to(70_000).as_ref().into(), body: Default::default() };
    check("answer-to", &70_000, &announced.to_frame(), decode_answer_to);
}
