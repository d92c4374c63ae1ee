//! Scripts: their results are returned once, and only after the commit.

use bytes::Bytes;

use super::{super::*, rig::*};
use crate::{
    Version,
    api::*,
    types::update::{RequestFailure, RequestKey},
};

fn id(session: Version, number: u64) -> Option<RequestKey> {
    Some(RequestKey { session, number, lowest: 1 })
}

fn get(key: &'static str) -> ScriptStep {
    ScriptStep::Get { key: key.into() }
}

fn put(key: &'static str, value: &'static str) -> ScriptStep {
    ScriptStep::put(key.into(), value.into())
}

fn increment(key: &'static str) -> ScriptStep {
    ScriptStep::increment(key.into(), 1)
}

fn script<const N: usize>(groups: [Vec<ScriptStep>; N]) -> ScriptWrite {
    let group = |steps| ScriptGroup { require: Vec::new(), steps };
    ScriptWrite { require: Vec::new(), groups: groups.map(group).into() }
}

fn write<const N: usize>(groups: [Vec<ScriptStep>; N]) -> Write {
    Write::Script(script(groups))
}

fn value(rig: &Rig, n: u8, key: &str) -> Option<Bytes> {
    rig.local(n, key).unwrap().and_then(|held| held.value)
}

#[test]
fn results_come_with_the_commit_and_not_before() {
    let mut rig = Rig::chain(&[1, 2, 3]);
    let old = rig.commit(1, "k", "old");
    let session = rig.session(1);
    let asked = rig.request(1, id(session, 1), write([vec![get("k"), put("k", "new"), increment("n")]]));
    rig.run(1, 2);
    assert!(!rig.replies.contains_key(&asked), "the update may still vanish");
    let meanwhile = rig.request(1, id(session, 1), write([vec![get("k"), put("k", "new"), increment("n")]]));
    rig.settle();
    let (version, replayed, result) = rig.computed(asked);
    let told = vec![StepOutcome::Found(Some((old, "old".into()))), StepOutcome::Done, StepOutcome::Number(1)];
    assert_eq!((replayed, &result), (false, &Computed::Ran(vec![Ok(told)])));
    assert_eq!(rig.computed(meanwhile), (version, true, result), "the duplicate waited for the same commit");
    for n in [1, 2, 3] {
        assert_eq!((value(&rig, n, "k"), value(&rig, n, "n")), (Some("new".into()), Some("1".into())));
    }
}

#[test]
fn a_retry_learns_only_that_the_script_ran() {
    let mut rig = Rig::chain(&[1, 2]);
    let session = rig.session(1);
    let first = rig.request(1, id(session, 1), write([vec![increment("n")]]));
    rig.settle();
    let version = rig.committed(first);
    let retry = rig.request(1, id(session, 1), write([vec![increment("n")]]));
    rig.settle();
    assert_eq!(rig.computed(retry), (version, true, Computed::RanForgotten));
    assert_eq!(value(&rig, 1, "n"), Some("1".into()));
}

#[test]
fn a_new_head_knows_that_the_script_ran() {
    let mut rig = Rig::chain(&[1, 2, 3]);
    let session = rig.session(1);
    let lost = rig.request(1, id(session, 1), write([vec![increment("n")]]));
    rig.run(1, 2);
    rig.replicas.remove(&1);
    for n in [2, 3] {
        rig.input(n, ReplicaInput::Disconnected(member(1)));
        rig.input(n, ReplicaInput::Enter(config(2, &[2, 3])));
    }
    let retry = rig.request(2, id(session, 1), write([vec![increment("n")]]));
    rig.settle();
    assert!(!rig.replies.contains_key(&lost));
    assert_eq!((rig.computed(retry).1, rig.computed(retry).2), (true, Computed::RanForgotten));
    assert_eq!(value(&rig, 3, "n"), Some("1".into()));
}

#[test]
fn a_failed_group_changes_no_member() {
    let mut rig = Rig::chain(&[1, 2]);
    rig.put(1, "text", "abc");
    let asked = rig.write(1, write([vec![put("a", "1")], vec![put("b", "1"), increment("text")], vec![put("c", "1")]]));
    rig.settle();
    let failed = GroupFailure::Failed { step: 1, failure: RequestFailure::NotANumber };
    let done = || Ok(vec![StepOutcome::Done]);
    assert_eq!(rig.computed(asked).2, Computed::Ran(vec![done(), Err(failed), done()]));
    for n in [1, 2] {
        assert_eq!(["a", "b", "c"].map(|key| value(&rig, n, key).is_some()), [true, false, true]);
    }
}

#[test]
fn an_unmet_requirement_stops_the_script_for_ever() {
    let mut rig = Rig::chain(&[1, 2]);
    let watched = rig.put(1, "watched", "1");
    let now = rig.put(1, "watched", "2");
    rig.settle();
    let (watched, now) = (rig.committed(watched), rig.committed(now));
    let session = rig.session(1);
    let require = |version| Requirement { key: "watched".into(), expected: Expected::Version(version) };
    let watching = |version| {
        let require = vec![Requirement { key: "new".into(), expected: Expected::Absent }, require(version)];
        Write::Script(ScriptWrite { require, ..script([vec![put("k", "v")]]) })
    };
    let stopped = rig.request(1, id(session, 1), watching(watched));
    rig.settle();
    let Reply::Conflict { step, version, value: held, .. } = rig.replies[&stopped].clone() else {
        panic!("{:?}", rig.replies[&stopped])
    };
    assert_eq!((step, version, held), (1, now, Some("2".into())));
    rig.write(1, Write::Delete { key: "new".into() });
    let again = rig.request(1, id(session, 1), watching(now));
    rig.settle();
    assert!(matches!(rig.replies[&again], Reply::Conflict { replayed: true, step: 1, .. }));
    assert_eq!(value(&rig, 1, "k"), None);
    let runs = rig.request(1, id(session, 2), watching(now));
    rig.settle();
    assert_eq!(rig.computed(runs).2, Computed::Ran(vec![Ok(vec![StepOutcome::Done])]));
}

#[test]
fn a_script_with_too_large_results_fails_on_record() {
    let mut rig = Rig::open(&[1, 2], &ReplicaSettings { max_value: 10, ..ReplicaSettings::default() });
    let session = rig.session(1);
    rig.put(1, "k", "123456");
    let asked = rig.request(1, id(session, 1), write([vec![increment("n")], vec![get("k"), get("k")]]));
    rig.settle();
    let refused = Reply::Refused(Refusal::ResultsTooLarge { len: 12, limit: 10 });
    assert_eq!(rig.replies[&asked], refused);
    rig.put(1, "k", "1");
    let late = rig.request(1, id(session, 1), write([vec![increment("n")], vec![get("k"), get("k")]]));
    rig.settle();
    assert_eq!((&rig.replies[&late], value(&rig, 1, "n")), (&refused, None));
}

#[test]
fn the_size_of_a_script_is_bounded() {
    let mut rig = Rig::chain(&[1]);
    let of = |groups| Write::Script(ScriptWrite { require: Vec::new(), groups: vec![ScriptGroup::default(); groups] });
    for (groups, fits) in [(0, false), (1, true), (4096, true), (4097, false)] {
        let asked = rig.write(1, of(groups));
        let refused = Reply::Refused(Refusal::BatchSize { len: groups as u64, limit: 4096 });
        assert_eq!(rig.replies[&asked] != refused, fits, "{groups}");
    }
}

/// Values that a script creates and then removes are in no update, but are held until its commit.
#[test]
fn results_count_in_the_window() {
    let mut rig = Rig::open(&[1, 2], &ReplicaSettings { window: 1000, ..ReplicaSettings::default() });
    let large = ScriptStep::put("k".into(), vec![7; 2000].into());
    let asked = rig.write(1, write([vec![large, get("k"), ScriptStep::Delete { key: "k".into() }]]));
    assert!(!rig.replicas[&1].has_room());
    rig.settle();
    assert!(matches!(rig.computed(asked).2, Computed::Ran(_)));
    assert!(rig.replicas[&1].has_room());
}
