use super::{
    super::{
        resolve,
        tests::{b, read},
    },
    *,
};
use crate::{
    Version,
    api::{Expected, ExpireIf, Ttl, Write},
};

const AT: Version = Version::new(1, 9);
const TERMS: Terms = Terms { at: AT, stamp: 0, limit: 8, most: 24, keeps_failed_groups: false };

fn require(key: &str, expected: Expected) -> Requirement {
    Requirement { key: b(key), expected }
}

fn get(key: &str) -> ScriptStep {
    ScriptStep::Get { key: b(key) }
}

fn put(key: &str, value: &str) -> ScriptStep {
    ScriptStep::put(b(key), b(value))
}

fn append(key: &str, value: &str) -> ScriptStep {
    ScriptStep::append(b(key), b(value))
}

fn increment(key: &str, by: i64) -> ScriptStep {
    ScriptStep::increment(b(key), by)
}

fn found(sequence: u64, value: &str) -> StepOutcome {
    StepOutcome::Found(Some((Version::new(1, sequence), b(value))))
}

fn steps(steps: impl Into<Vec<ScriptStep>>) -> ScriptGroup {
    ScriptGroup { require: Vec::new(), steps: steps.into() }
}

fn resolved(require: impl Into<Vec<Requirement>>, groups: impl Into<Vec<ScriptGroup>>) -> Resolved {
    let script = ScriptWrite { require: require.into(), groups: groups.into() };
    let mut resolved = resolve(Write::Script(script), TERMS, read).expect("the store doesn't fail");
    resolved.join_some(usize::MAX);
    resolved
}

/// Keys and values afterwards, and the outcomes of the groups.
fn ran(groups: impl Into<Vec<ScriptGroup>>) -> (Vec<(Bytes, Option<Bytes>)>, Vec<GroupOutcome>) {
    let resolved = resolved([], groups);
    assert_eq!(resolved.outcome, RequestOutcome::Ran);
    let WriteResult::Results(outcomes) = resolved.seen else { panic!("{:?} are no results", resolved.seen) };
    (resolved.changes.into_iter().map(|change| (change.key, change.value)).collect(), outcomes)
}

fn failed(step: u32, failure: RequestFailure) -> GroupOutcome {
    Err(GroupFailure::Failed { step, failure })
}

#[test]
fn each_step_sees_those_before_it() {
    let groups = [
        steps([get("number"), increment("number", 1), get("number"), put("new", "1")]),
        steps([append("new", "2"), ScriptStep::Length { key: b("new") }]),
        steps([ScriptStep::GetDelete { key: b("text") }, get("text"), ScriptStep::Delete { key: b("text") }]),
    ];
    let (changes, outcomes) = ran(groups);
    assert_eq!(changes, [(b("new"), Some(b("12"))), (b("number"), Some(b("42"))), (b("text"), None)]);
    let first = vec![found(1, "41"), StepOutcome::Number(42), found(9, "42"), StepOutcome::Done];
    let second = vec![StepOutcome::Appended(2), StepOutcome::Length(Some(2))];
    let third = vec![found(2, "abc"), StepOutcome::Found(None), StepOutcome::Deleted(false)];
    assert_eq!(outcomes, [Ok(first), Ok(second), Ok(third)]);
}

#[test]
fn a_group_fails_alone_and_whole() {
    let groups = [
        steps([put("new", "1")]),
        steps([put("new", "2"), put("other", "x"), increment("text", 1), put("new", "3")]),
        steps([increment("number", i64::MAX)]),
        steps([append("text", "123456")]),
        steps([increment("new", 1)]),
    ];
    let (changes, outcomes) = ran(groups);
    assert_eq!(changes, [(b("new"), Some(b("2")))]);
    assert_eq!(
        outcomes,
        [
            Ok(vec![StepOutcome::Done]),
            failed(2, RequestFailure::NotANumber),
            failed(0, RequestFailure::Overflow),
            failed(0, RequestFailure::TooLarge(9)),
            Ok(vec![StepOutcome::Number(2)]),
        ]
    );
}

#[test]
fn a_groups_requirements_see_the_groups_before_it() {
    let only_if = |key, expected, step| ScriptGroup { require: vec![require(key, expected)], steps: vec![step] };
    let groups = [
        only_if("new", Expected::Absent, put("new", "1")),
        only_if("new", Expected::Absent, put("new", "2")),
        only_if("new", Expected::Version(AT), append("new", "0")),
        only_if("text", Expected::Version(Version::new(1, 2)), ScriptStep::Delete { key: b("text") }),
        only_if("text", Expected::Present, put("text", "back")),
        only_if("number", Expected::Version(Version::new(1, 7)), put("number", "0")),
    ];
    let (changes, outcomes) = ran(groups);
    assert_eq!(changes, [(b("new"), Some(b("10"))), (b("text"), None)]);
    let unmet = |version| Err(GroupFailure::Unmet { requirement: 0, version });
    assert_eq!(
        outcomes,
        [
            Ok(vec![StepOutcome::Done]),
            unmet(AT),
            Ok(vec![StepOutcome::Appended(2)]),
            Ok(vec![StepOutcome::Deleted(true)]),
            unmet(Version::NONE),
            unmet(Version::new(1, 1)),
        ]
    );
}

#[test]
fn requirements_of_a_script_see_the_versions_before_it() {
    let groups = [steps([put("text", "x")])];
    let met = [require("text", Expected::Version(Version::new(1, 2))), require("new", Expected::Absent)];
    assert_eq!(resolved(met.clone(), groups.clone()).outcome, RequestOutcome::Ran);
    let [first, second] = met;
    let unmet = resolved([first, second, require("number", Expected::Absent)], groups);
    assert_eq!(unmet.outcome, RequestOutcome::Unmet { step: 2, version: Version::new(1, 1) });
    assert_eq!((unmet.changes.len(), unmet.seen.value()), (0, Some(b("41"))));
}

#[test]
fn an_absent_key_gets_no_tombstone() {
    let (changes, outcomes) =
        ran([steps([ScriptStep::Delete { key: b("new") }, ScriptStep::GetDelete { key: b("newer") }])]);
    assert_eq!(changes, []);
    assert_eq!(outcomes, [Ok(vec![StepOutcome::Deleted(false), StepOutcome::Found(None)])]);
    let (changes, _) = ran([steps([put("new", "1"), ScriptStep::Delete { key: b("new") }])]);
    assert_eq!(changes, [(b("new"), None)]);
}

#[test]
fn results_beyond_the_limit_fail_the_script() {
    let told = |gets: usize| resolved([], [steps([put("new", "1")]), steps(vec![get("text"); gets])]);
    assert_eq!(told(2).outcome, RequestOutcome::Ran);
    let refused = told(3);
    assert_eq!(refused.outcome, RequestOutcome::Failed(RequestFailure::ResultsTooLarge(9)));
    assert_eq!((refused.changes.len(), refused.seen.results()), (0, 0));
}

#[test]
fn an_empty_group_does_nothing() {
    assert_eq!(ran([ScriptGroup::default(), steps([put("new", "1")])]).1, [Ok(vec![]), Ok(vec![StepOutcome::Done])]);
    assert_eq!(resolved([require("new", Expected::Absent)], []).outcome, RequestOutcome::Ran);
}

#[test]
fn ranges_and_decimals_are_changed() {
    let range = |key, offset, value| ScriptStep::SetRange { key: b(key), offset, value: b(value), ttl: Ttl::Usual };
    let add = |key, by| ScriptStep::IncrementFloat { key: b(key), by: b(by), ttl: Ttl::Usual };
    let (changes, outcomes) = ran([
        steps([range("text", 1, "XY"), range("text", 3, "Z")]),
        steps([range("text", 0, "-"), range("text", 4, "zzzzz")]),
        steps([range("new", 2, "z"), range("other", 5, "")]),
        steps([add("number", "0.5")]),
        steps([add("text", "1")]),
        steps([add("number", "inf")]),
    ]);
    let values = [("new", "\0\0z"), ("number", "41.5"), ("text", "aXYZ")];
    assert_eq!(changes, values.map(|(key, value)| (b(key), Some(b(value)))));
    let expected: [GroupOutcome; 6] = [
        Ok(vec![StepOutcome::Appended(3), StepOutcome::Appended(4)]),
        failed(1, RequestFailure::TooLarge(9)),
        Ok(vec![StepOutcome::Appended(3), StepOutcome::Appended(0)]),
        Ok(vec![StepOutcome::Decimal(b("41.5"))]),
        failed(0, RequestFailure::NotANumber),
        failed(0, RequestFailure::Overflow),
    ];
    assert_eq!(outcomes, expected);
    let zeros = resolved([], [steps([range("new", 5, "x")]), steps([range("other", 5, "x")])]);
    assert_eq!(zeros.outcome, RequestOutcome::Failed(RequestFailure::ResultsTooLarge(10)));
}

#[test]
fn a_length_of_zero_deletes_the_key() {
    let expire = |key, when| ScriptStep::Expire { key: b(key), ttl: Some(0), when };
    let (changes, outcomes) = ran([
        steps([expire("text", None), get("text")]),
        steps([expire("number", Some(ExpireIf::Set)), expire("none", None)]),
    ]);
    assert_eq!(changes, [(b("text"), None)]);
    let expected: [GroupOutcome; 2] = [
        Ok(vec![StepOutcome::Changed(true), StepOutcome::Found(None)]),
        Ok(vec![StepOutcome::Changed(false), StepOutcome::Changed(false)]),
    ];
    assert_eq!(outcomes, expected);
}
