//! Whatever numbers clients put into requests, a member neither panics nor halts, and answers each request.

use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;

use super::{super::*, rig::*};
use crate::{Version, api::*, types::update::RequestKey};

/// Numbers at the ends and in the middle of their range, and numbers near the ones that the chain uses.
fn number() -> impl Strategy<Value = u64> {
    let edges = [0, 1, u64::from(u32::MAX), i64::MAX as u64, 1 << 63, u64::MAX - 1, u64::MAX];
    prop_oneof![proptest::sample::select(edges.as_slice().to_vec()), 0..20_u64, any::<u64>()]
}

fn small_number() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0), Just(1), Just(u32::MAX - 1), Just(u32::MAX), any::<u32>()]
}

fn sequence() -> impl Strategy<Value = Sequence> {
    number().prop_map(Sequence)
}

fn version() -> impl Strategy<Value = Version> {
    (number(), number()).prop_map(|(epoch, sequence)| Version::new(epoch, sequence))
}

fn time() -> impl Strategy<Value = Duration> {
    prop_oneof![
        Just(Duration::ZERO),
        Just(Duration::MAX),
        (number(), 0..1_000_000_000_u32).prop_map(|(s, n)| Duration::new(s, n))
    ]
}

fn key() -> impl Strategy<Value = Bytes> {
    prop_oneof![Just(Bytes::new()), Just(Bytes::from("a")), Just(Bytes::from("b"))]
}

fn mode() -> impl Strategy<Value = ReadMode> {
    prop_oneof![
        Just(ReadMode::Strong),
        Just(ReadMode::ThroughChain),
        Just(ReadMode::Eventual),
        (small_number(), time()).prop_map(|(versions, age)| ReadMode::Bounded { versions, age }),
    ]
}

fn query() -> impl Strategy<Value = Query> {
    let snapshot = prop_oneof![Just(Snapshot::No), Just(Snapshot::Begin), number().prop_map(Snapshot::Of)];
    let scan = (key(), proptest::option::of(key()), small_number(), snapshot)
        .prop_map(|(prefix, after, limit, snapshot)| Query::Scan(ScanQuery { prefix, after, limit, snapshot }));
    prop_oneof![
        key().prop_map(Query::Key),
        proptest::collection::vec(key(), 0..3).prop_map(Query::Keys),
        scan,
        (key(), proptest::option::of(sequence()), small_number())
            .prop_map(|(prefix, after, shown)| Query::Changes(WatchQuery { prefix, after, shown })),
        (number(), small_number()).prop_map(|(from, limit)| Query::Hashed(HashedQuery { from, limit })),
        (key(), proptest::option::of((number(), sequence(), key(), small_number()))).prop_map(|(prefix, part)| {
            let step = part.map_or(DigestStep::Begin, |(number, at, key, pieces)| DigestStep::Part {
                number,
                at,
                from: DigestCursor { key, pieces },
            });
            Query::Digest(Box::new(DigestQuery { prefix, key: HashKey([1; 16]), step }))
        }),
    ]
}

fn by() -> impl Strategy<Value = i64> {
    prop_oneof![Just(i64::MIN), Just(-1), Just(1), Just(i64::MAX), any::<i64>()]
}

fn expected() -> impl Strategy<Value = Expected> {
    prop_oneof![Just(Expected::Absent), Just(Expected::Present), version().prop_map(Expected::Version)]
}

fn write() -> impl Strategy<Value = Write> {
    let step = prop_oneof![
        (key(), expected()).prop_map(|(key, expected)| Step::Require { key, expected }),
        (key(), by()).prop_map(|(key, by)| Step::increment(key, by)),
    ];
    let script_step = prop_oneof![
        key().prop_map(|key| ScriptStep::Get { key }),
        (key(), by()).prop_map(|(key, by)| ScriptStep::increment(key, by)),
    ];
    let requirements = || {
        let requirement = (key(), expected()).prop_map(|(key, expected)| Requirement { key, expected });
        proptest::collection::vec(requirement, 0..2)
    };
    let group = (requirements(), proptest::collection::vec(script_step, 0..3))
        .prop_map(|(require, steps)| ScriptGroup { require, steps });
    let script = (requirements(), proptest::collection::vec(group, 0..3))
        .prop_map(|(require, groups)| Write::Script(ScriptWrite { require, groups }));
    prop_oneof![
        key().prop_map(|key| Write::put(key, "1".into())),
        key().prop_map(|key| Write::GetDelete { key }),
        (key(), version()).prop_map(|(key, expected)| Write::compare_and_swap(key, expected, Some("2".into()))),
        (key(), by()).prop_map(|(key, by)| Write::increment(key, by)),
        proptest::collection::vec(step, 0..3).prop_map(Write::Batch),
        script,
        Just(Write::OpenSession),
        Just(Write::Resolve),
    ]
}

#[derive(Clone, Debug)]
enum Asked {
    Read { query: Query, mode: ReadMode, floor: Option<Sequence> },
    Write { request: Option<RequestKey>, write: Write },
}

fn asked() -> impl Strategy<Value = Asked> {
    // The session opened by the test is 1.1.
    let session = prop_oneof![3 => Just(Version::new(1, 1)), 1 => version()];
    let request =
        (session, number(), number()).prop_map(|(session, number, lowest)| RequestKey { session, number, lowest });
    prop_oneof![
        (query(), mode(), proptest::option::of(sequence())).prop_map(|(query, mode, floor)| Asked::Read {
            query,
            mode,
            floor
        }),
        (proptest::option::of(request), write()).prop_map(|(request, write)| Asked::Write { request, write }),
    ]
}

/// The member, the request, its deadline, and whether all frames are delivered before the next request.
type Request = (u8, Asked, u64, bool);

fn steps() -> impl Strategy<Value = Vec<Request>> {
    proptest::collection::vec((1..=3_u8, asked(), number(), any::<bool>()), 1..40)
}

fn ask(rig: &mut Rig, n: u8, token: Token, asked: Asked, deadline: Timestamp) {
    let input = match asked {
        Asked::Read { query, mode, floor } => ReplicaInput::Read { token, query, mode, floor, deadline },
        Asked::Write { request, write } => ReplicaInput::Write { token, request, write, deadline },
    };
    rig.input(n, input);
}

/// Advances the time to its maximum, past every deadline.
fn end(rig: &mut Rig) {
    rig.settle();
    rig.now = Timestamp::MAX;
    for n in rig.nodes() {
        rig.input(n, ReplicaInput::Tick);
    }
}

proptest! {
    #[test]
    fn no_number_of_a_request_stops_a_member(steps in steps()) {
        let mut rig = Rig::chain(&[1, 2, 3]);
        rig.session(1);
        let first = 1000;
        let count = steps.len() as u64;
        for (token, (n, asked, deadline, rests)) in (first..).zip(steps) {
            ask(&mut rig, n, Token(token), asked, Timestamp::from_nanos(deadline));
            if rests {
                rig.settle();
                rig.heartbeat();
            }
        }
        end(&mut rig);
        for n in rig.nodes() {
            prop_assert_eq!(rig.status(n).halted, None);
        }
        for token in first..first + count {
            prop_assert!(rig.replies.contains_key(&token), "request {} has no answer", token - first);
        }
        rig.assert_alike(1, 3);
    }
}

#[test]
fn a_watch_behind_all_sequences_waits_until_its_deadline() {
    for after in [u64::MAX, u64::MAX - 1] {
        let mut rig = Rig::chain(&[1, 2]);
        rig.commit(1, "k", "v");
        let deadline = rig.now + Duration::from_millis(50);
        let query = Query::Changes(WatchQuery { prefix: Bytes::new(), after: Some(Sequence(after)), shown: 0 });
        let watch = rig.ask_until(2, query, ReadMode::Eventual, deadline);
        rig.commit(1, "k", "w");
        assert!(!rig.replies.contains_key(&watch), "there is nothing after {after}");
        rig.heartbeat();
        let nothing = WatchReply { records: Vec::new(), upto: Sequence(after), shown: 0 };
        assert_eq!(rig.replies[&watch], Reply::Changes(nothing));
    }
}
