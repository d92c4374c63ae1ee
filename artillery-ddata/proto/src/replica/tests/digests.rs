//! Digests of members at one point of the history.

use std::time::Duration;

use bytes::Bytes;

use super::{super::*, rig::*};
use crate::{api::*, guards::Mutant};

const HASH: HashKey = HashKey([3; 16]);

fn query(prefix: &'static str, step: DigestStep) -> Query {
    Query::Digest(Box::new(DigestQuery { prefix: prefix.into(), key: HASH, step }))
}

fn begin(rig: &mut Rig, n: u8, prefix: &'static str) -> DigestReply {
    let token = rig.ask(n, query(prefix, DigestStep::Begin), ReadMode::Eventual, None);
    reply(rig, token)
}

fn reply(rig: &Rig, token: u64) -> DigestReply {
    match &rig.replies[&token] {
        Reply::Digest(part) => DigestReply::clone(part),
        other => panic!("{other:?} is no digest"),
    }
}

fn ask_part(rig: &mut Rig, n: u8, prefix: &'static str, begun: &DigestReply, at: Sequence) -> u64 {
    let from = begun.next.clone().expect("the digest continues");
    let step = DigestStep::Part { number: begun.number, at, from };
    rig.ask(n, query(prefix, step), ReadMode::Eventual, None)
}

/// The remaining parts at `at`: their number and their sums.
fn rest(rig: &mut Rig, n: u8, prefix: &'static str, begun: DigestReply, at: Sequence) -> (usize, Sums) {
    let (mut last, mut sums, mut parts) = (begun, Sums::default(), 0);
    while last.next.is_some() {
        let token = ask_part(rig, n, prefix, &last, at);
        last = reply(rig, token);
        assert_eq!(last.as_of, at);
        sums.add(&last.sums);
        parts += 1;
    }
    (parts, sums)
}

/// The sums over the newest records of a member.
fn sums_of(rig: &Rig, n: u8, prefix: &str) -> Sums {
    let mut sums = Sums::default();
    let records = rig.contents(n).into_iter().filter(|record| record.key.starts_with(prefix.as_bytes()));
    records.for_each(|record| sums.add_record(HASH, &record.key, &record.held));
    sums
}

#[test]
fn members_with_equal_records_have_equal_digests() {
    let mut rig = Rig::chain(&[1, 2, 3]);
    for (key, value) in [("a/1", "x"), ("a/2", ""), ("b/1", "y"), ("a/3", "z")] {
        rig.put(1, key, value);
    }
    rig.write(1, Write::Delete { key: "a/1".into() });
    rig.beat(1);
    for (prefix, records) in [("", 3), ("a/", 2), ("c", 0)] {
        for n in 1..=3 {
            let begun = begin(&mut rig, n, prefix);
            let (_, sums) = rest(&mut rig, n, prefix, begun.clone(), begun.as_of);
            assert_eq!((sums, sums.records), (sums_of(&rig, 1, prefix), records), "{prefix:?} at member {n}");
            assert_eq!(rig.status(n).snapshots, 0, "the last part ends the digest");
        }
    }
}

#[test]
fn a_digest_shows_its_point_although_writes_continue() {
    for mutant in [None, Some(Mutant::DigestNow)] {
        let mut rig = Rig::open(&[1, 2, 3], &without(mutant));
        rig.commit(1, "a", "old");
        rig.commit(1, "b", "old");
        rig.beat(1);
        let behind = begin(&mut rig, 2, "");
        rig.commit(1, "a", "new");
        rig.beat(1);
        // The later of both points is named for both.
        let ahead = begin(&mut rig, 3, "");
        let (at, expected) = (ahead.as_of, sums_of(&rig, 3, ""));
        assert!(behind.as_of < at);
        rig.write(1, Write::Delete { key: "a".into() });
        rig.commit(1, "c", "newer");
        rig.beat(1);
        if mutant.is_none() {
            assert_eq!(rest(&mut rig, 2, "", behind, at).1, expected);
            assert_eq!(rest(&mut rig, 3, "", ahead, at).1, expected);
        } else {
            let token = ask_part(&mut rig, 2, "", &behind, at);
            assert_ne!(reply(&rig, token).sums, expected);
        }
    }
}

#[test]
fn a_member_waits_until_it_has_reached_the_point() {
    let mut rig = Rig::chain(&[1, 2, 3]);
    rig.commit(1, "a", "old");
    rig.beat(1);
    let behind = begin(&mut rig, 2, "");
    rig.put(1, "a", "new");
    let at = behind.as_of.next();
    let token = ask_part(&mut rig, 2, "", &behind, at);
    assert!(!rig.replies.contains_key(&token), "the update isn't committed");
    rig.beat(1);
    assert_eq!(reply(&rig, token).sums, sums_of(&rig, 2, ""));
}

#[test]
fn large_values_and_many_records_are_read_in_parts() {
    let mut rig = Rig::chain(&[1, 2]);
    let value = Bytes::from(vec![9; 9 * PIECE + 1]);
    rig.write(1, Write::put("large".into(), value));
    for n in 0..2500 {
        rig.write(1, Write::put(format!("small/{n:04}").into(), "v".into()));
    }
    rig.beat(1);
    let begun = begin(&mut rig, 2, "");
    let at = begun.as_of;
    let (parts, sums) = rest(&mut rig, 2, "", begun, at);
    assert_eq!((sums, sums.records), (sums_of(&rig, 1, ""), 2501));
    assert!((5..=8).contains(&parts), "{parts} parts");
}

#[test]
fn a_digest_ends_before_writes_do() {
    let limits = SnapshotLimits { bytes: 1000, ..SnapshotLimits::default() };
    let mut rig = Rig::open(&[1, 2], &ReplicaSettings { snapshots: limits, ..without(None) });
    rig.commit(1, "a", "x");
    rig.beat(1);
    let (begun, age) = (begin(&mut rig, 1, ""), limits.age);
    for _ in 0..20 {
        rig.write(1, Write::put("a".into(), vec![0; 100].into()));
    }
    rig.beat(1);
    let gone = |rig: &mut Rig, begun: &DigestReply, at| {
        let token = ask_part(rig, 1, "", begun, at);
        matches!(rig.replies[&token], Reply::Refused(Refusal::SnapshotGone))
    };
    assert!(gone(&mut rig, &begun, begun.as_of), "too much was written");
    let begun = begin(&mut rig, 1, "");
    assert!(gone(&mut rig, &begun, Sequence(begun.as_of.0 - 1)), "an earlier point isn't kept");
    rig.now = rig.now + age + Duration::from_secs(1);
    rig.heartbeat();
    assert!(gone(&mut rig, &begun, begun.as_of), "no part was requested in time");
}

#[test]
fn a_joiner_gives_no_digest() {
    let mut rig = Rig::chain(&[1, 2]);
    rig.commit(1, "a", "x");
    let joining = joining(2, &[1, 2], 3);
    let mut joiner = Rig::new(&[3], &without(None));
    joiner.input(3, ReplicaInput::Enter(joining));
    let token = joiner.ask(3, query("", DigestStep::Begin), ReadMode::Eventual, None);
    assert!(matches!(joiner.replies[&token], Reply::Refused(Refusal::NoChain)));
}
