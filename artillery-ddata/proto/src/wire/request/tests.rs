use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use artillery_core::Frame;
use bytes::Bytes;
use proptest::{collection::vec, option, prelude::*};

use super::*;
use crate::{
    ChainConfig, ChainId, ChainMember, ClusterId, Epoch, Expiry, Incarnation, MemberId, Mode, NodeAddress, NodeId,
    ReadPath, Refusal, Role, Routing, Sequence, Version,
    api::{
        Computed, CopyStep, DigestCursor, DigestQuery, DigestReply, DigestStep, Expected, ExpireIf, GroupFailure,
        GroupOutcome, HashKey, HashedQuery, HashedReply, MultiGetReply, ReadReply, Requirement, ScanQuery, ScanReply,
        ScriptGroup, ScriptStep, ScriptWrite, Snapshot, Step, StepOutcome, Sums, Ttl, WatchQuery, WatchReply,
        WriteReply,
    },
    api::{Query, ReadMode, Reply, Write},
    control::succession::Replacement,
    message::request::*,
    store::{Held, ScanRecord},
    types::update::RequestKey,
    types::{
        keep::{COPY_BELOW, keep},
        update::RequestFailure,
    },
};

fn whole(encoded: &Encoded) -> Frame {
    encoded.to_frame()
}

fn bytes(longest: usize) -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..longest).prop_map(Bytes::from)
}

/// Includes lengths around [`COPY_BELOW`].
fn value() -> impl Strategy<Value = Bytes> {
    prop_oneof![bytes(20), (COPY_BELOW - 2..COPY_BELOW + 2).prop_map(|len| Bytes::from(vec![7; len]))]
}

fn version() -> impl Strategy<Value = Version> {
    any::<(u64, u64)>().prop_map(|(epoch, sequence)| Version::new(epoch, sequence))
}

fn member() -> impl Strategy<Value = MemberId> {
    any::<([u8; 16], u128, u64)>().prop_map(|(node, store, starts)| MemberId {
        node: NodeId::from_bytes(node),
        incarnation: Incarnation { store, starts },
    })
}

fn mode() -> impl Strategy<Value = ReadMode> {
    prop_oneof![
        Just(ReadMode::Strong),
        Just(ReadMode::ThroughChain),
        Just(ReadMode::Eventual),
        any::<(u32, u32)>().prop_map(|(versions, ms)| ReadMode::Bounded {
            versions,
            age: std::time::Duration::from_millis(ms.into())
        }),
    ]
}

fn query() -> impl Strategy<Value = Query> {
    let snapshot = prop_oneof![Just(Snapshot::No), Just(Snapshot::Begin), any::<u64>().prop_map(Snapshot::Of)];
    let scan = (bytes(20), option::of(bytes(20)), any::<u32>(), snapshot)
        .prop_map(|(prefix, after, limit, snapshot)| ScanQuery { prefix, after, limit, snapshot });
    prop_oneof![
        (bytes(20), option::of(any::<u64>().prop_map(Sequence)), prop_oneof![Just(0), any::<u32>()]).prop_map(
            |(prefix, after, shown)| {
                // `shown` counts changes after a position, so it is 0 without one.
                Query::Changes(WatchQuery { prefix, after, shown: after.map_or(0, |_| shown) })
            }
        ),
        bytes(20).prop_map(Query::Key),
        vec(bytes(9), 0..4).prop_map(Query::Keys),
        scan.prop_map(Query::Scan),
        any::<(u64, u32)>().prop_map(|(from, limit)| Query::Hashed(HashedQuery { from, limit })),
        option::of(prop_oneof![
            (option::of(bytes(20)), any::<u64>())
                .prop_map(|(behind, floor)| CopyStep::Records { behind, floor: Sequence(floor) }),
            any::<u64>().prop_map(|after| CopyStep::Updates { after: Sequence(after) }),
        ])
        .prop_map(|step| Query::Copy(step.unwrap_or(CopyStep::Begin))),
        (bytes(20), any::<[u8; 16]>(), option::of((any::<(u64, u64)>(), cursor()))).prop_map(|(prefix, key, part)| {
            let step = part.map_or(DigestStep::Begin, |((number, at), from)| DigestStep::Part {
                number,
                at: Sequence(at),
                from,
            });
            Query::Digest(Box::new(DigestQuery { prefix, key: HashKey(key), step }))
        }),
    ]
}

fn cursor() -> impl Strategy<Value = DigestCursor> {
    (bytes(20), any::<u32>()).prop_map(|(key, pieces)| DigestCursor { key, pieces })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (bytes(9), expected()).prop_map(|(key, expected)| Step::Require { key, expected }),
        (bytes(9), value(), ttl()).prop_map(|(key, value, ttl)| Step::Put { key, value, ttl }),
        bytes(9).prop_map(|key| Step::Delete { key }),
        (bytes(9), bytes(9), ttl()).prop_map(|(key, value, ttl)| Step::Append { key, value, ttl }),
        (bytes(9), bytes(9), ttl()).prop_map(|(key, value, ttl)| Step::Prepend { key, value, ttl }),
        (bytes(9), any::<i64>(), ttl()).prop_map(|(key, by, ttl)| Step::Increment { key, by, ttl }),
        (bytes(9), expiry()).prop_map(|(key, (ttl, when))| Step::Expire { key, ttl, when }),
    ]
}

fn expected() -> impl Strategy<Value = Expected> {
    prop_oneof![
        Just(Expected::Absent),
        Just(Expected::Present),
        version().prop_map(Expected::Version),
        bytes(9).prop_map(Expected::Value),
        bytes(9).prop_map(Expected::NotValue),
    ]
}

fn ttl() -> impl Strategy<Value = Ttl> {
    prop_oneof![Just(Ttl::Usual), Just(Ttl::Keep), any::<u64>().prop_map(Ttl::Set), any::<u64>().prop_map(Ttl::IfNew)]
}

/// A time to live, and the condition under which it is set.
fn expiry() -> impl Strategy<Value = (Option<u64>, Option<ExpireIf>)> {
    let when = prop::sample::select(vec![
        ExpireIf::Unset,
        ExpireIf::Set,
        ExpireIf::Later,
        ExpireIf::Sooner,
        ExpireIf::SetAndSooner,
    ]);
    (option::of(any::<u64>()), option::of(when))
}

fn script() -> impl Strategy<Value = ScriptWrite> {
    let require = || vec((bytes(9), expected()).prop_map(|(key, expected)| Requirement { key, expected }), 0..3);
    let step = prop_oneof![
        bytes(9).prop_map(|key| ScriptStep::Get { key }),
        bytes(9).prop_map(|key| ScriptStep::Length { key }),
        (bytes(9), value(), ttl()).prop_map(|(key, value, ttl)| ScriptStep::Put { key, value, ttl }),
        bytes(9).prop_map(|key| ScriptStep::Delete { key }),
        bytes(9).prop_map(|key| ScriptStep::GetDelete { key }),
        (bytes(9), bytes(9), ttl()).prop_map(|(key, value, ttl)| ScriptStep::Append { key, value, ttl }),
        (bytes(9), bytes(9), ttl()).prop_map(|(key, value, ttl)| ScriptStep::Prepend { key, value, ttl }),
        (bytes(9), any::<i64>(), ttl()).prop_map(|(key, by, ttl)| ScriptStep::Increment { key, by, ttl }),
        (bytes(9), expiry()).prop_map(|(key, (ttl, when))| ScriptStep::Expire { key, ttl, when }),
        bytes(9).prop_map(|key| ScriptStep::ExpiresIn { key }),
        (bytes(9), bytes(9)).prop_map(|(key, to)| ScriptStep::Copy { key, to }),
        (bytes(9), bytes(9), ttl()).prop_map(|(key, by, ttl)| ScriptStep::IncrementFloat { key, by, ttl }),
        (bytes(9), any::<u64>(), value(), ttl()).prop_map(|(key, offset, value, ttl)| ScriptStep::SetRange {
            key,
            offset,
            value,
            ttl
        }),
    ];
    let group = (require(), vec(step, 0..4)).prop_map(|(require, steps)| ScriptGroup { require, steps });
    (require(), vec(group, 0..4)).prop_map(|(require, groups)| ScriptWrite { require, groups })
}

fn write() -> impl Strategy<Value = Write> {
    prop_oneof![
        (bytes(20), value(), ttl()).prop_map(|(key, value, ttl)| Write::Put { key, value, ttl }),
        bytes(20).prop_map(|key| Write::Delete { key }),
        (bytes(20), version(), option::of(value()), ttl()).prop_map(|(key, expected, value, ttl)| {
            let ttl = if value.is_some() { ttl } else { Ttl::Usual };
            Write::CompareAndSwap { key, expected, value, ttl }
        }),
        (bytes(20), value(), ttl()).prop_map(|(key, value, ttl)| Write::Append { key, value, ttl }),
        (bytes(20), value(), ttl()).prop_map(|(key, value, ttl)| Write::Prepend { key, value, ttl }),
        (bytes(20), any::<i64>(), ttl()).prop_map(|(key, by, ttl)| Write::Increment { key, by, ttl }),
        (bytes(20), expiry()).prop_map(|(key, (ttl, when))| Write::Expire { key, ttl, when }),
        (bytes(20), value(), ttl()).prop_map(|(prefix, value, ttl)| Write::PutSequential { prefix, value, ttl }),
        bytes(20).prop_map(|key| Write::GetDelete { key }),
        vec(step(), 0..5).prop_map(Write::Batch),
        script().prop_map(Write::Script),
        Just(Write::OpenSession),
        Just(Write::Resolve),
    ]
}

fn request_key() -> impl Strategy<Value = RequestKey> {
    (version(), any::<(u64, u64)>()).prop_map(|(session, (number, lowest))| RequestKey { session, number, lowest })
}

fn operation() -> impl Strategy<Value = Operation> {
    let floor = option::of(any::<u64>().prop_map(Sequence));
    let history = || option::of(any::<u128>().prop_map(ClusterId));
    prop_oneof![
        (query(), mode(), floor, history()).prop_map(|(query, mode, floor, history)| Operation::Read {
            query,
            mode,
            floor,
            history
        }),
        (option::of(request_key()), history(), write()).prop_map(|(request, history, write)| Operation::Write {
            request,
            history,
            write
        }),
        admin_operation().prop_map(Operation::Admin),
    ]
}

fn admin_operation() -> impl Strategy<Value = AdminOperation> {
    prop_oneof![
        Just(AdminOperation::Routing),
        Just(AdminOperation::RoutingAnyway),
        Just(AdminOperation::Status),
        Just(AdminOperation::Survey),
        any::<(u128, u64)>().prop_map(|(cluster, generation)| AdminOperation::Recover {
            cluster: ClusterId(cluster),
            history: crate::control::History { generation, id: cluster },
        }),
        any::<(u128, bool)>().prop_map(|(cluster, creates)| AdminOperation::Replace {
            cluster: ClusterId(cluster),
            by: if creates { Replacement::Create } else { Replacement::Join },
        }),
        any::<u32>().prop_map(|chain| AdminOperation::Reopen { chain: ChainId(chain) }),
    ]
}

fn request() -> impl Strategy<Value = Request> {
    (any::<(u64, u32, u32, bool)>(), operation()).prop_map(|((number, chain, deadline_ms, forwarded), operation)| {
        Request { number, chain: ChainId(chain), deadline_ms, forwarded, operation }
    })
}

fn held() -> impl Strategy<Value = Option<Held>> {
    option::of((version(), option::of(value()), expires()).prop_map(|(version, value, expires)| Held {
        version,
        value,
        expires,
    }))
}

fn expires() -> impl Strategy<Value = Option<Expiry>> {
    option::weighted(0.2, any::<u64>().prop_map(Expiry::at))
}

/// The chain time of a reply, which is sent if any key expires.
fn chain_time<'a>(mut found: impl Iterator<Item = &'a Held>) -> u64 {
    if found.any(|held| held.expiry().is_some()) { 9 } else { 0 }
}

fn refusal() -> impl Strategy<Value = Refusal> {
    prop_oneof![
        Just(Refusal::NoChain),
        option::of(member()).prop_map(Refusal::NotHead),
        option::of(member()).prop_map(Refusal::NotTail),
        Just(Refusal::NoLease),
        Just(Refusal::Busy),
        any::<(u32, u32)>().prop_map(|(have, need)| Refusal::TooFewMembers { have, need }),
        any::<(u64, u64)>().prop_map(|(len, limit)| Refusal::KeyTooLong { len, limit }),
        Just(Refusal::StoreFailed),
        any::<(u64, u64)>().prop_map(|(len, limit)| Refusal::ValueTooLarge { len, limit }),
        any::<(u64, u64)>().prop_map(|(len, limit)| Refusal::BatchSize { len, limit }),
        any::<u64>().prop_map(|first| Refusal::Compacted { first }),
        any::<(u64, u64)>().prop_map(|(len, limit)| Refusal::ResultsTooLarge { len, limit }),
        any::<(u64, u64)>().prop_map(|(len, limit)| Refusal::UpdateTooLarge { len, limit }),
        any::<(u16, u16)>().prop_map(|(needs, has)| Refusal::Unsupported { needs, has }),
        member().prop_map(|member| Refusal::DiskFull { member }),
        member().prop_map(|member| Refusal::MemoryFull { member }),
        any::<(u64, u128)>()
            .prop_map(|(generation, id)| Refusal::Parted { by: crate::control::History { generation, id } }),
        prop::sample::select(vec![
            Refusal::ManyChains,
            Refusal::OtherRequest,
            Refusal::OtherHistory,
            Refusal::SessionExpired,
            Refusal::Forgotten,
            Refusal::Barred,
            Refusal::SessionFull,
            Refusal::NotANumber,
            Refusal::Overflow,
            Refusal::SnapshotGone,
        ]),
    ]
}

fn computed() -> impl Strategy<Value = Computed> {
    prop_oneof![
        Just(Computed::Nothing),
        any::<u64>().prop_map(Computed::Length),
        any::<i64>().prop_map(Computed::Number),
        option::of((version(), value())).prop_map(Computed::Took),
        version().prop_map(Computed::TookForgotten),
        vec(group_outcome(), 0..4).prop_map(Computed::Ran),
        Just(Computed::RanForgotten),
        any::<bool>().prop_map(Computed::Changed),
    ]
}

fn group_outcome() -> impl Strategy<Value = GroupOutcome> {
    let told = prop_oneof![
        Just(StepOutcome::Done),
        any::<bool>().prop_map(StepOutcome::Deleted),
        option::of((version(), value())).prop_map(StepOutcome::Found),
        option::of(any::<u64>()).prop_map(StepOutcome::Length),
        any::<u64>().prop_map(StepOutcome::Appended),
        any::<i64>().prop_map(StepOutcome::Number),
        any::<bool>().prop_map(StepOutcome::Changed),
        option::of(option::of(any::<u64>())).prop_map(StepOutcome::ExpiresIn),
        bytes(9).prop_map(StepOutcome::Decimal),
    ];
    let failure = prop_oneof![
        (any::<u32>(), version()).prop_map(|(requirement, version)| GroupFailure::Unmet { requirement, version }),
        (any::<u32>(), any::<u64>())
            .prop_map(|(step, len)| GroupFailure::Failed { step, failure: RequestFailure::TooLarge(len) }),
    ];
    prop_oneof![vec(told, 0..4).prop_map(Ok), failure.prop_map(Err)]
}

fn reply() -> impl Strategy<Value = Reply> {
    let way = || prop_oneof![Just(ReadPath::Local), Just(ReadPath::Query), Just(ReadPath::Chain)];
    let served = || (any::<bool>(), way(), any::<u64>().prop_map(Sequence));
    let records = || {
        vec((bytes(9), version(), value(), expires()), 0..3).prop_map(|records| {
            let record = |(key, version, value, expires)| ScanRecord {
                key,
                held: Held { version, value: Some(value), expires },
            };
            records.into_iter().map(record).collect::<Vec<_>>()
        })
    };
    prop_oneof![
        (version(), any::<(u32, bool)>(), computed()).prop_map(|(version, (copies, replayed), result)| {
            Reply::Committed(WriteReply { version, copies, replayed, result })
        }),
        ((version(), version()), any::<(u32, bool)>(), option::of(value())).prop_map(
            |((at, version), (step, replayed), value)| Reply::Conflict { at, step, version, value, replayed }
        ),
        (held(), served()).prop_map(|(held, (clean, way, as_of))| {
            let chain_time = chain_time(held.iter());
            Reply::Read(ReadReply { held, clean, way, as_of, chain_time })
        }),
        (vec(held(), 0..4), served()).prop_map(|(found, (clean, way, as_of))| {
            let chain_time = chain_time(found.iter().flatten());
            Reply::Cut(MultiGetReply { found, clean, way, as_of, chain_time })
        }),
        (records(), option::of(bytes(9)), served(), option::of(any::<u64>())).prop_map(
            |(records, next, (clean, way, as_of), snapshot)| {
                let chain_time = chain_time(records.iter().map(|record| &record.held));
                Reply::Page(ScanReply { records, next, clean, way, as_of, snapshot, chain_time })
            }
        ),
        (records(), any::<u64>().prop_map(Sequence), prop_oneof![Just(0), any::<u32>()])
            .prop_map(|(records, upto, shown)| Reply::Changes(WatchReply { records, upto, shown })),
        (vec(bytes(9), 0..4), any::<u64>(), served()).prop_map(|(keys, next, (clean, way, as_of))| {
            Reply::Hashed(HashedReply { keys, next, clean, way, as_of })
        }),
        (any::<(u64, u64)>(), any::<(u64, u64, u128, u128)>(), option::of(cursor())).prop_map(
            |((number, as_of), (records, bytes, contents, versions), next)| {
                let sums = Sums { records, bytes, contents, versions };
                Reply::Digest(Box::new(DigestReply { number, as_of: Sequence(as_of), sums, next }))
            }
        ),
        refusal().prop_map(Reply::Refused),
        Just(Reply::Expired),
    ]
}

/// Scopes of IPv6 addresses aren't sent: they are only meaningful on one machine.
fn addr() -> impl Strategy<Value = SocketAddr> {
    any::<(IpAddr, u16)>().prop_map(SocketAddr::from)
}

fn routing() -> impl Strategy<Value = Routing> {
    let config = (any::<(u32, u64)>(), vec(member(), 0..4)).prop_map(|((chain, epoch), members)| ChainConfig {
        chain: ChainId(chain),
        epoch: Epoch(epoch),
        index: 9,
        mode: Mode::Craq,
        min_members: 1,
        members: members.into_iter().map(|id| ChainMember { id, role: Role::Serving }).collect(),
    });
    let host = proptest::option::of("[a-z]{1,9}:[1-9]");
    let address = (member(), "[a-z]{1,9}", vec(addr(), 0..3), host)
        .prop_map(|(id, name, addrs, host)| (id.node, NodeAddress { name, addrs, host }));
    (any::<u128>(), vec(config, 0..3), vec(address, 0..4)).prop_map(|(cluster, chains, nodes)| Routing {
        cluster: ClusterId(cluster),
        history: crate::control::History { generation: cluster as u64 >> 1, id: cluster },
        last_loss: crate::control::log::LogIndex(cluster as u64 >> 2),
        chains,
        nodes: nodes.into_iter().collect::<BTreeMap<_, _>>(),
        drift_ppm: cluster as u32,
    })
}

fn response() -> impl Strategy<Value = Response> {
    let answer = prop_oneof![
        4 => reply().prop_map(ResponseAnswer::Reply),
        1 => option::of(routing().prop_map(Box::new)).prop_map(ResponseAnswer::Routing),
        1 => bytes(99).prop_map(ResponseAnswer::Status),
        1 => Just(ResponseAnswer::Survey(None)),
        1 => any::<u128>().prop_map(|found| {
            let (asked, found) = (ClusterId(1), ClusterId(found));
            ResponseAnswer::Recovered(Err(crate::control::recovery::NotRecovered::DifferentCluster { asked, found }))
        }),
        1 => any::<u128>().prop_map(|found| {
            let (asked, found) = (ClusterId(1), ClusterId(found));
            ResponseAnswer::Replaced(Err(crate::control::succession::NotReplaced::DifferentCluster { asked, found }))
        }),
        1 => (version(), any::<u64>(), member()).prop_map(|(last, known, by)| {
            let (chain, epoch, known) = (ChainId(1), last.epoch, Sequence(known));
            ResponseAnswer::Reopened(Ok(crate::control::reopening::Reopened { chain, epoch, by, last, known }))
        }),
    ];
    (any::<u64>(), option::of(member()), answer).prop_map(|(number, by, answer)| Response { number, by, answer })
}

proptest! {
    #[test]
    fn requests_survive_encoding(request in request()) {
        let encoded = encode_request(&request, u16::MAX).unwrap();
        prop_assert_eq!(decode_request(&whole(&encoded)).unwrap(), request);
    }

    #[test]
    fn responses_survive_encoding(response in response()) {
        let encoded = encode_response(&response).unwrap();
        prop_assert_eq!(decode_response(&whole(&encoded)).unwrap(), response);
    }

    #[test]
    fn no_byte_too_many_or_too_few(request in request(), response in response()) {
        let check = |encoded: Encoded, decodes: &dyn Fn(&Frame) -> bool| {
            let frame = whole(&encoded);
            let longer = Frame { body: [&frame.body[..], b"x"].concat().into(), ..frame.clone() };
            let shorter = frame.body.len().checked_sub(1).map(|len| Frame { body: frame.body.slice(..len), ..frame.clone() });
            decodes(&frame) && !decodes(&longer) && !shorter.is_some_and(|shorter| decodes(&shorter))
        };
        let is_request = |frame: &Frame| decode_request(frame).is_ok();
        let is_response = |frame: &Frame| decode_response(frame).is_ok();
        prop_assert!(check(encode_request(&request, u16::MAX).unwrap(), &is_request));
        prop_assert!(check(encode_response(&response).unwrap(), &is_response));
    }

    #[test]
    fn garbage_never_panics(header in vec(any::<u8>(), 0..60), body in vec(any::<u8>(), 0..60)) {
        let frame = Frame { header: header.into(), body: body.into() };
        if let Ok(request) = decode_request(&frame) {
            prop_assert_eq!(whole(&encode_request(&request, u16::MAX).unwrap()), frame.clone());
        }
        if let Ok(response) = decode_response(&frame) {
            prop_assert_eq!(whole(&encode_response(&response).unwrap()), frame);
        }
    }
}

/// The codec also accepts a small number in more bytes than it needs.
#[test]
fn headers_have_one_form() {
    let request = Request {
        number: 7,
        chain: ChainId(0),
        deadline_ms: 1,
        forwarded: false,
        operation: Operation::Admin(AdminOperation::Status),
    };
    let mut frame = whole(&encode_request(&request, u16::MAX).unwrap());
    assert_eq!(frame.header[0], 7);
    frame.header = [&[0xfb, 7, 0], &frame.header[1..]].concat().into();
    assert_eq!(decode_request(&frame), Err(DecodeError::NotCanonical));
}

#[test]
fn kept_bytes_keep_no_more_than_themselves() {
    let body = Bytes::from(vec![1; 100]);
    let (key, value) = keep(&body, 0..body.len(), 10);
    assert!(!body.as_ptr_range().contains(&key.as_ptr()) && !body.as_ptr_range().contains(&value.as_ptr()));
    let body = Bytes::from(vec![1; COPY_BELOW + 10]);
    let (key, value) = keep(&body, 0..body.len(), 10);
    assert!(!body.as_ptr_range().contains(&key.as_ptr()) && body.as_ptr_range().contains(&value.as_ptr()));
}

/// The largest script that a head accepts and the largest answer to it fit into their headers.
#[test]
fn the_largest_script_fits() {
    let version = Version::new(u64::MAX, u64::MAX);
    let require = vec![Requirement { key: Bytes::from_static(b"k"), expected: Expected::Version(version) }];
    let groups = vec![ScriptGroup { require, steps: Vec::new() }; 4096];
    let script = ScriptWrite { require: Vec::new(), groups };
    assert_eq!(script.size(), 4096);
    let operation = Operation::Write { request: None, history: None, write: Write::Script(script) };
    let request = Request { number: 7, chain: ChainId(0), deadline_ms: 1, forwarded: false, operation };
    assert_eq!(decode_request(&whole(&encode_request(&request, u16::MAX).unwrap())).unwrap(), request);

    let told = vec![StepOutcome::Found(Some((version, Bytes::from_static(b"value"))))];
    let result = Computed::Ran(vec![Ok(told); 4096]);
    let reply = Reply::Committed(WriteReply { version, copies: 3, replayed: false, result });
    let response = Response { number: 7, by: None, answer: ResponseAnswer::Reply(reply) };
    assert_eq!(decode_response(&whole(&encode_response(&response).unwrap())).unwrap(), response);
}
