//! Exactly-once semantics: retries, sessions, and the table that records them.

use bytes::Bytes;

use super::{super::*, rig::*};
use crate::{Version, api::*, types::update::RequestKey};

fn key(session: Version, number: u64, lowest: u64) -> Option<RequestKey> {
    Some(RequestKey { session, number, lowest })
}

fn append(value: &'static str) -> Write {
    Write::append("log".into(), value.into())
}

fn refused(rig: &Rig, token: u64) -> Refusal {
    match rig.replies[&token] {
        Reply::Refused(refusal) => refusal,
        ref other => panic!("{other:?} is no refusal"),
    }
}

#[test]
fn a_retry_finds_the_record() {
    let mut rig = Rig::chain(&[1, 2, 3]);
    let session = rig.session(1);
    let first = rig.request(1, key(session, 1, 1), append("a"));
    let early = rig.request(1, key(session, 1, 1), append("a"));
    assert!(!rig.replies.contains_key(&early), "a pending record answers no request");
    rig.settle();
    let late = rig.request(1, key(session, 1, 1), append("a"));
    let (version, replayed, result) = rig.computed(first);
    assert_eq!((replayed, &result), (false, &Computed::Length(1)));
    for retry in [early, late] {
        assert_eq!(rig.computed(retry), (version, true, Computed::Length(1)));
    }
    let second = rig.request(1, key(session, 2, 1), append("b"));
    rig.settle();
    assert_eq!(rig.computed(second).2, Computed::Length(2));
    assert_eq!(rig.local(1, "log").unwrap().unwrap().value.unwrap(), "ab");
}

#[test]
fn a_failed_swap_never_succeeds_later() {
    let mut rig = Rig::chain(&[1, 2]);
    let session = rig.session(1);
    rig.commit(1, "k", "old");
    let swap = |expected| Write::compare_and_swap("k".into(), expected, Some("mine".into()));
    let failed = rig.request(1, key(session, 1, 1), swap(Version::NONE));
    rig.settle();
    assert!(matches!(rig.replies[&failed], Reply::Conflict { replayed: false, .. }));
    rig.write(1, Write::Delete { key: "k".into() });
    rig.settle();
    let duplicate = rig.request(1, key(session, 1, 1), swap(Version::NONE));
    rig.settle();
    let Reply::Conflict { replayed, version, value, .. } = rig.replies[&duplicate].clone() else {
        panic!("{:?}", rig.replies[&duplicate])
    };
    assert_eq!((replayed, version.is_none(), value), (true, false, None), "the value is gone, but not the answer");
    assert_eq!(rig.local(1, "k").unwrap(), None);
}

#[test]
fn a_retry_gets_the_taken_value_back() {
    let mut rig = Rig::chain(&[1, 2]);
    let session = rig.session(1);
    rig.put(1, "small", "value");
    let large = Bytes::from(vec![7; crate::types::update::MAX_TAKEN + 1]);
    rig.write(1, Write::put("large".into(), large.clone()));
    rig.settle();
    let take = |key: &'static str| Write::GetDelete { key: key.into() };
    for (number, name, value) in [(1, "small", Bytes::from("value")), (2, "large", large)] {
        let first = rig.request(1, key(session, number, 1), take(name));
        rig.settle();
        let Computed::Took(Some((version, taken))) = rig.computed(first).2 else { panic!("no value was taken") };
        assert_eq!(taken, value);
        let retry = rig.request(1, key(session, number, 1), take(name));
        let again = match name {
            "small" => Computed::Took(Some((version, value))),
            _ => Computed::TookForgotten(version),
        };
        assert_eq!(rig.computed(retry).2, again);
    }
    let absent = rig.request(1, key(session, 3, 1), take("large"));
    rig.settle();
    assert_eq!(rig.computed(absent).2, Computed::Took(None));
}

#[test]
fn an_outcome_is_settled_for_ever() {
    let mut rig = Rig::chain(&[1, 2]);
    let session = rig.session(1);
    let done = rig.request(1, key(session, 1, 1), append("a"));
    let asked = rig.request(1, key(session, 1, 0), Write::Resolve);
    let never = rig.request(1, key(session, 2, 0), Write::Resolve);
    rig.settle();
    assert_eq!(rig.computed(asked), (rig.committed(done), true, Computed::Length(1)));
    assert_eq!(refused(&rig, never), Refusal::Barred);
    let late = rig.request(1, key(session, 2, 1), append("b"));
    assert_eq!(refused(&rig, late), Refusal::Barred);
    assert_eq!(rig.local(1, "log").unwrap().unwrap().value.unwrap(), "a");
    let nothing = rig.request(1, None, Write::Resolve);
    assert_eq!(refused(&rig, nothing), Refusal::SessionExpired);
}

#[test]
fn a_record_that_its_client_knows_is_dropped() {
    let mut rig = Rig::chain(&[1]);
    let session = rig.session(1);
    rig.request(1, key(session, 1, 1), append("a"));
    rig.request(1, key(session, 2, 2), append("b"));
    let late = rig.request(1, key(session, 1, 1), append("a"));
    assert_eq!(refused(&rig, late), Refusal::Forgotten);
}

#[test]
fn the_table_is_bounded_and_all_members_evict_alike() {
    let mut rig = Rig::open(&[1, 2], &ReplicaSettings { sessions: 2000, ..ReplicaSettings::default() });
    let first = rig.session(1);
    let kept = rig.request(1, key(first, 1, 1), append("a"));
    rig.settle();
    rig.committed(kept);
    for _ in 0..30 {
        rig.session(1);
    }
    rig.heartbeat();
    rig.settle();
    for n in [1, 2] {
        let status = rig.replicas[&n].status();
        assert!(status.sessions.bytes <= 2000 && status.sessions.count > 5, "{status:?}");
    }
    let retry = rig.request(1, key(first, 1, 1), append("a"));
    assert_eq!(refused(&rig, retry), Refusal::SessionExpired);
    assert_eq!(rig.local(1, "log").unwrap().unwrap().value.unwrap(), "a");
}

#[test]
fn no_session_outgrows_its_quarter_of_the_table() {
    let mut rig = Rig::open(&[1, 2], &ReplicaSettings { sessions: 4000, ..ReplicaSettings::default() });
    let session = rig.session(1);
    let requests: Vec<_> = (1..30).map(|number| rig.request(1, key(session, number, 1), append("a"))).collect();
    let is_full = |token: &u64| rig.replies.get(token) == Some(&Reply::Refused(Refusal::SessionFull));
    assert_eq!(requests.iter().filter(|token| is_full(token)).count(), 20);
    rig.settle();
    assert!(rig.replicas[&1].status().sessions.bytes < 4000);
}

#[test]
fn a_new_head_knows_the_retries_of_the_old_one() {
    let mut rig = Rig::chain(&[1, 2, 3]);
    let session = rig.session(1);
    let lost = rig.request(1, key(session, 1, 1), append("a"));
    // The update reaches only the middle. The head is removed before any member learns of the commit.
    rig.run(1, 2);
    rig.replicas.remove(&1);
    for n in [2, 3] {
        rig.input(n, ReplicaInput::Disconnected(member(1)));
        rig.input(n, ReplicaInput::Enter(config(2, &[2, 3])));
    }
    let retry = rig.request(2, key(session, 1, 1), append("a"));
    rig.settle();
    assert!(!rig.replies.contains_key(&lost));
    assert_eq!((rig.computed(retry).1, rig.computed(retry).2), (true, Computed::Length(1)));
    assert_eq!(rig.local(3, "log").unwrap().unwrap().value.unwrap(), "a");
}

#[test]
fn records_vanish_with_their_updates() {
    let mut rig = Rig::chain(&[1, 2, 3]);
    let session = rig.session(1);
    let take = Write::GetDelete { key: "k".into() };
    rig.commit(1, "k", "v");
    // Only the head holds these updates when it is moved behind the others.
    rig.request(1, key(session, 1, 1), append("a"));
    rig.request(1, key(session, 2, 1), take.clone());
    rig.wire.clear();
    rig.enter(&[1, 2, 3], &config(2, &[2, 3, 1]));
    rig.settle();
    let retry = rig.request(2, key(session, 1, 1), append("a"));
    let taken = rig.request(2, key(session, 2, 1), take);
    rig.settle();
    assert_eq!((rig.computed(retry).1, rig.computed(retry).2), (false, Computed::Length(1)));
    assert!(matches!(rig.computed(taken).2, Computed::Took(Some((_, value))) if value == "v"));
    let bytes: Vec<_> = [1, 2, 3].map(|n| rig.replicas[&n].status().sessions.bytes).into();
    assert_eq!(bytes, [bytes[0]; 3]);
}
