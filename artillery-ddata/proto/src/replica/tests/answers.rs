//! Scans and watches return the whole store, in answers that fit into a frame.

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;

use super::{super::*, rig::*};
use crate::{
    Version,
    api::*,
    message::request::{Response, ResponseAnswer},
    wire::request::encode_response,
};

/// The largest value, and the bound on an answer of many entries.
const LARGEST: usize = 3000;
const ANSWER: usize = 700;
/// The longest key of these tests, and the size of an answer's header without its entries.
const KEY: usize = 40;
const HEADER: usize = 64;

/// Checks that the reply fits into a frame that is sized for the largest value.
fn check(reply: &Reply) {
    let response = Response { number: u64::MAX, by: Some(member(1)), answer: ResponseAnswer::Reply(reply.clone()) };
    let encoded = encode_response(&response).unwrap();
    let body: usize = encoded.body.iter().map(Bytes::len).sum();
    // A scan repeats the last key as the position to continue from.
    assert!(body <= LARGEST.max(ANSWER) + 2 * KEY, "a body of {body} bytes");
    assert!(encoded.header.len() <= ANSWER + HEADER, "a header of {} bytes", encoded.header.len());
}

fn ask(rig: &mut Rig, query: Query) -> Reply {
    let token = rig.ask(1, query, ReadMode::Eventual, None);
    let reply = rig.replies.remove(&token).expect("no reply");
    check(&reply);
    reply
}

fn scanned(rig: &mut Rig, prefix: &Bytes, limit: u32) -> BTreeMap<Bytes, Bytes> {
    let (mut all, mut after) = (BTreeMap::new(), None);
    loop {
        let scan = ScanQuery { prefix: prefix.clone(), after, limit, snapshot: Snapshot::No };
        let Reply::Page(page) = ask(rig, Query::Scan(scan)) else { panic!("no page") };
        for record in page.records {
            assert!(all.insert(record.key, record.held.value.unwrap()).is_none(), "a key is shown twice");
        }
        match page.next {
            Some(next) => after = Some(next),
            None => return all,
        }
    }
}

/// All changes after the first position, in order, with their versions.
fn watched(rig: &mut Rig, prefix: &Bytes, upto: Sequence) -> Vec<(Version, Bytes, Option<Bytes>)> {
    let (mut all, mut after, mut shown) = (Vec::new(), Sequence::ZERO, 0);
    while after < upto {
        let query = Query::Changes(WatchQuery { prefix: prefix.clone(), after: Some(after), shown });
        let token = rig.ask(1, query, ReadMode::Eventual, None);
        // The watch waits: there are no further changes.
        let Some(reply) = rig.replies.remove(&token) else { break };
        check(&reply);
        let Reply::Changes(changes) = reply else { panic!("no changes") };
        assert!((changes.upto, changes.shown) > (after, shown), "no progress");
        (after, shown) = (changes.upto, changes.shown);
        all.extend(changes.records.into_iter().map(|record| (record.held.version, record.key, record.held.value)));
    }
    all
}

fn length() -> impl Strategy<Value = usize> {
    prop_oneof![Just(0), 0..60_usize, 0..ANSWER * 2, Just(LARGEST)]
}

fn key() -> impl Strategy<Value = Bytes> {
    ("[ab]{1,3}", prop_oneof![Just(0), 0..KEY - 3]).prop_map(|(name, pad)| format!("{name}{}", "-".repeat(pad)).into())
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (key(), length(), any::<u8>()).prop_map(|(key, len, byte)| Step::put(key, vec![byte; len].into())),
        1 => key().prop_map(|key| Step::Delete { key }),
    ]
}

proptest! {
    #[test]
    fn whatever_was_written_is_read_by_scans_and_by_watches(
        writes in prop::collection::vec(prop::collection::vec(step(), 1..12), 1..12),
        prefix in "[ab]{0,2}",
        limit in prop_oneof![1..4_u32, Just(u32::MAX)],
    ) {
        let settings = ReplicaSettings { max_value: LARGEST, answer: ANSWER, ..ReplicaSettings::default() };
        let mut rig = Rig::open(&[1], &settings);
        let (mut store, mut history, mut last) = (BTreeMap::new(), Vec::new(), Sequence::ZERO);
        let prefix = Bytes::from(prefix);
        for steps in writes {
            let token = rig.write(1, Write::Batch(steps.clone()));
            let Reply::Committed(done) = &rig.replies[&token] else { panic!("{:?}", rig.replies[&token]) };
            last = done.version.sequence;
            // One change per key, its last one, in key order.
            let mut changes = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Put { key, value, .. } => changes.insert(key, Some(value)),
                    Step::Delete { key } => changes.insert(key, None),
                    _ => None,
                };
            }
            for (key, value) in changes.into_iter().filter(|(key, _)| key.starts_with(&prefix)) {
                history.push((done.version, key.clone(), value.clone()));
                match value {
                    Some(value) => store.insert(key, value),
                    None => store.remove(&key),
                };
            }
        }
        prop_assert_eq!(scanned(&mut rig, &prefix, limit), store);
        prop_assert_eq!(watched(&mut rig, &prefix, last), history);
    }
}

/// The largest value, and the largest batches of small values, that the default settings allow.
#[test]
fn the_largest_value_and_the_smallest_ones_are_shown() {
    let mut rig = Rig::chain(&[1]);
    let largest = ReplicaSettings::default().max_value;
    rig.write(1, Write::put("b".into(), vec![7; 300 << 10].into()));
    rig.write(1, Write::put("c".into(), vec![7; largest].into()));
    let step = |n: usize| Step::put(format!("d{n:04}").into(), Bytes::new());
    for _ in 0..10 {
        rig.write(1, Write::Batch((0..4096).map(step).collect()));
    }
    let fits = |reply: &Reply| {
        let response = Response { number: 1, by: None, answer: ResponseAnswer::Reply(reply.clone()) };
        let encoded = encode_response(&response).unwrap();
        let len: usize = encoded.body.iter().map(Bytes::len).sum();
        assert!(len <= largest + 2 * 4096 && encoded.header.len() <= 256 << 10, "{len}, {}", encoded.header.len());
    };
    let (mut after, mut met) = (None, 0);
    loop {
        let scan = ScanQuery { prefix: Bytes::new(), after, limit: 1024, snapshot: Snapshot::No };
        let token = rig.ask(1, Query::Scan(scan), ReadMode::Eventual, None);
        fits(&rig.replies[&token]);
        let Reply::Page(page) = rig.replies.remove(&token).unwrap() else { panic!("no page") };
        met += page.records.len();
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(met, 2 + 4096);
    let (mut after, mut shown, mut met) = (Sequence::ZERO, 0, 0);
    while after < Sequence(12) {
        let query = Query::Changes(WatchQuery { prefix: Bytes::new(), after: Some(after), shown });
        let token = rig.ask(1, query, ReadMode::Eventual, None);
        fits(&rig.replies[&token]);
        let Reply::Changes(changes) = rig.replies.remove(&token).unwrap() else { panic!("no changes") };
        (after, shown, met) = (changes.upto, changes.shown, met + changes.records.len());
    }
    assert_eq!(met, 2 + 10 * 4096);
}
