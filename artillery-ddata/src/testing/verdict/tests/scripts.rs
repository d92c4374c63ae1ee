//! Scripts: their results must fit, and groups without results may have run or failed.

use bytes::Bytes;

use super::{Run, append, increment, put};
use crate::{
    Version,
    api::{
        Computed, Expected, GroupFailure, GroupOutcome, Requirement, ScriptGroup, ScriptStep, ScriptWrite, StepOutcome,
        Ttl, Write,
    },
    types::update::RequestFailure,
};

fn k() -> Bytes {
    Bytes::from_static(b"k")
}

fn get() -> ScriptStep {
    ScriptStep::Get { key: k() }
}

fn count() -> ScriptStep {
    ScriptStep::increment(k(), 1)
}

fn steps(steps: impl Into<Vec<ScriptStep>>) -> ScriptGroup {
    ScriptGroup { require: Vec::new(), steps: steps.into() }
}

fn script(groups: impl Into<Vec<ScriptGroup>>) -> Write {
    Write::Script(ScriptWrite { require: Vec::new(), groups: groups.into() })
}

fn ran(outcomes: impl Into<Vec<GroupOutcome>>) -> Computed {
    Computed::Ran(outcomes.into())
}

fn found(sequence: u64, value: &'static str) -> StepOutcome {
    StepOutcome::Found(Some((Version::new(1, sequence), Bytes::from_static(value.as_bytes()))))
}

const NO_NUMBER: GroupFailure = GroupFailure::Failed { step: 1, failure: RequestFailure::NotANumber };

#[test]
fn results_must_fit_the_content() {
    let run = || Run::default().done(put("1"), 1, Computed::Nothing);
    let read = |told: StepOutcome| ran([Ok(vec![told, StepOutcome::Number(2), found(2, "2")])]);
    let asked = || script([steps([get(), count(), get()])]);
    assert!(run().done(asked(), 2, read(found(1, "1"))).read(Some((2, "2"))).fits());
    assert!(run().done(asked(), 2, read(found(1, "7"))).why().contains("was seen after"));
    assert!(run().done(asked(), 2, read(StepOutcome::Found(None))).why().contains("something else"));
    let wrong = ran([Ok(vec![found(1, "1"), StepOutcome::Number(3), found(2, "2")])]);
    assert!(run().done(asked(), 2, wrong).why().contains("something else"));
    assert!(!run().done(put("0"), 2, Computed::Nothing).done(asked(), 3, read(found(1, "1"))).fits());
}

#[test]
fn reads_of_a_script_must_be_current() {
    let old = || Run::default().done(put("1"), 1, Computed::Nothing).done(put("2"), 2, Computed::Nothing);
    let elsewhere = ScriptStep::put(Bytes::from_static(b"other"), k());
    let asked = || script([steps([get(), elsewhere.clone()])]);
    let told = |told| ran([Ok(vec![told, StepOutcome::Done])]);
    assert!(old().done(asked(), 3, told(found(2, "2"))).read(Some((2, "2"))).fits());
    assert!(!old().done(asked(), 3, told(found(1, "1"))).fits());
    assert!(!old().done(asked(), 3, told(StepOutcome::Found(None))).fits());
}

#[test]
fn a_failed_group_changes_nothing_and_has_a_reason() {
    let more = || ScriptStep::append(k(), Bytes::from_static(b"x"));
    let asked = || script([steps([more(), count()])]);
    let run = || Run::default().done(put("1"), 1, Computed::Nothing).done(asked(), 2, ran([Err(NO_NUMBER)]));
    assert!(run().read(Some((1, "1"))).fits());
    assert!(run().read(Some((2, "1x"))).why().contains("was seen after"));
    let fine = || script([steps([get(), count()])]);
    let run = Run::default().done(put("1"), 1, Computed::Nothing).done(fine(), 2, ran([Err(NO_NUMBER)]));
    assert!(run.why().contains("without a reason"));
    let unless = |expected| {
        let require = vec![Requirement { key: k(), expected }];
        script([ScriptGroup { require, steps: vec![count()] }])
    };
    let unmet = || ran([Err(GroupFailure::Unmet { requirement: 0, version: Version::new(1, 1) })]);
    let run = || Run::default().done(put("1"), 1, Computed::Nothing);
    assert!(run().done(unless(Expected::Absent), 2, unmet()).read(Some((1, "1"))).fits());
    assert!(run().done(unless(Expected::Present), 2, unmet()).why().contains("without a reason"));
    let counted = ran([Ok(vec![StepOutcome::Number(2)])]);
    assert!(run().done(unless(Expected::Absent), 2, counted).why().contains("an impossible group ran"));
}

/// If a script's results are lost or its outcome is unknown, groups may have failed because of other keys.
#[test]
fn groups_without_results_may_have_run_or_failed() {
    let other = Requirement { key: Bytes::from_static(b"other"), expected: Expected::Absent };
    let asked = || {
        let perhaps = ScriptGroup { require: vec![other.clone()], steps: vec![count()] };
        script([steps([count()]), perhaps])
    };
    let run = || Run::default().done(put("1"), 1, Computed::Nothing);
    for number in ["2", "3"] {
        assert!(run().done(asked(), 2, Computed::RanForgotten).read(Some((2, number))).fits(), "{number}");
        assert!(run().unknown(asked()).read(Some((2, number))).fits(), "{number}");
        let after = increment(1);
        let next = number.parse::<i64>().expect("a number") + 1;
        assert!(run().unknown(asked()).done(after, 3, Computed::Number(next)).fits(), "{number}");
    }
    assert!(!run().done(asked(), 2, Computed::RanForgotten).read(Some((2, "4"))).fits());
    assert!(!run().unknown(asked()).read(Some((2, "4"))).fits());
    assert!(run().unknown(asked()).read(Some((1, "1"))).fits());
    let gone = || script([steps([ScriptStep::Delete { key: k() }])]);
    assert!(run().unknown(gone()).read(None).fits());
    assert!(run().unknown(gone()).read(Some((1, "1"))).fits());
    assert!(run().done(gone(), 2, ran([Ok(vec![StepOutcome::Deleted(true)])])).read(None).fits());
}

#[test]
fn a_lost_append_counts_once() {
    let more = || ScriptStep::append(k(), Bytes::from_static(b"x"));
    let run = || Run::default().unknown(script([steps([more()])]));
    assert!(run().done(append("y"), 2, Computed::Length(2)).read(Some((2, "xy"))).fits());
    assert!(run().done(append("y"), 2, Computed::Length(1)).read(Some((2, "y"))).fits());
    assert!(!run().done(append("y"), 2, Computed::Length(3)).fits());
}

fn expire(ttl: Option<u64>) -> ScriptStep {
    ScriptStep::Expire { key: k(), ttl, when: None }
}

fn expires_in() -> ScriptStep {
    ScriptStep::ExpiresIn { key: k() }
}

fn value(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

#[test]
fn a_script_sets_expiries() {
    let old = || Run::default().done(put("a"), 1, Computed::Nothing);
    let told = |changed, left| ran([Ok(vec![StepOutcome::Changed(changed), StepOutcome::ExpiresIn(left)])]);
    let asked = |ttl| script([steps([expire(ttl), expires_in()])]);
    let renewed = || old().done(asked(Some(1000)), 2, told(true, Some(Some(1001))));
    assert!(renewed().read(Some((2, "a"))).fits());
    assert!(!renewed().read(Some((2, "b"))).fits());
    assert!(!old().done(asked(Some(1000)), 2, told(false, Some(Some(1001)))).fits(), "the key was there");
    assert!(!old().done(asked(Some(1000)), 2, told(true, None)).fits(), "the key was absent");
    assert!(!old().done(asked(None), 2, told(false, Some(Some(9)))).fits(), "the key had no expiry");
    assert!(old().done(asked(None), 2, told(false, Some(None))).read(Some((1, "a"))).fits());
    let only = |told| ran([Ok(vec![told])]);
    let get = || script([steps([get()])]);
    assert!(renewed().wait(990).done(get(), 4, only(StepOutcome::Found(None))).fits());
    assert!(!renewed().wait(980).done(get(), 4, only(StepOutcome::Found(None))).fits(), "too early");
    assert!(renewed().wait(5000).done(get(), 4, only(found(2, "a"))).fits());
    let lost = || old().done(asked(Some(1000)), 2, Computed::RanForgotten);
    assert!(lost().wait(990).done(get(), 4, only(StepOutcome::Found(None))).fits());
    assert!(!lost().wait(980).done(get(), 4, only(StepOutcome::Found(None))).fits());
    assert!(old().unknown(asked(Some(1000))).read(Some((2, "a"))).fits());
}

#[test]
fn a_script_copies_the_value_and_expiry_of_another_key() {
    let copy = |from, to| script([steps([ScriptStep::Copy { key: value(from), to: value(to) }])]);
    let told = |changed| ran([Ok(vec![StepOutcome::Changed(changed)])]);
    let old = || Run::default().done(put("a"), 1, Computed::Nothing);
    let other = |ttl| Write::Put { key: value("l"), value: value("42"), ttl };
    let copied = || old().done(other(Ttl::Usual), 2, Computed::Nothing).done(copy("l", "k"), 3, told(true));
    assert!(copied().read(Some((3, "42"))).fits());
    assert!(!copied().read(Some((2, "42"))).fits());
    assert!(copied().read(Some((3, "42"))).done(increment(1), 4, Computed::Number(43)).fits());
    assert!(!copied().read(Some((3, "42"))).done(increment(1), 4, Computed::Number(2)).fits());
    assert!(copied().done(increment(1), 4, Computed::Number(43)).done(append("x"), 5, Computed::Length(3)).fits());
    assert!(!copied().done(increment(1), 4, Computed::Number(43)).done(append("x"), 5, Computed::Length(2)).fits());
    let take = || script([steps([ScriptStep::GetDelete { key: k() }])]);
    let took = |told| ran([Ok(vec![told])]);
    assert!(copied().done(take(), 4, took(found(3, "42"))).read(None).fits());
    assert!(!copied().done(take(), 4, took(StepOutcome::Found(None))).fits(), "too early");
    let expiring =
        || old().done(other(Ttl::Set(1000)), 2, Computed::Nothing).done(copy("l", "k"), 3, told(true)).wait(1000);
    assert!(expiring().done(take(), 5, took(StepOutcome::Found(None))).fits());
    let absent = || old().done(copy("l", "k"), 3, told(false));
    assert!(absent().read(Some((1, "a"))).fits());
    assert!(!absent().read(Some((3, "a"))).fits());
    assert!(!old().done(copy("k", "l"), 3, told(false)).fits(), "the key to copy is there");
    assert!(old().done(copy("k", "l"), 3, told(true)).read_of("l", Some((3, "a"))).read(Some((1, "a"))).fits());
    assert!(old().done(copy("k", "k"), 3, told(true)).read(Some((3, "a"))).fits());
    for (version, value) in [(3, "42"), (1, "a")] {
        let lost = old().done(other(Ttl::Usual), 2, Computed::Nothing).done(copy("l", "k"), 3, Computed::RanForgotten);
        assert!(lost.read(Some((version, value))).fits(), "{value}");
        let unknown = old().done(other(Ttl::Usual), 2, Computed::Nothing).unknown(copy("l", "k"));
        assert!(unknown.read(Some((version, value))).fits(), "{value}");
    }
}

#[test]
fn a_script_puts_bytes_in_front() {
    let prepend = || ScriptStep::Prepend { key: k(), value: value("x"), ttl: Ttl::Usual };
    let told = |length| ran([Ok(vec![StepOutcome::Appended(length)])]);
    let old = || Run::default().done(put("a"), 1, Computed::Nothing);
    assert!(old().done(script([steps([prepend()])]), 2, told(2)).read(Some((2, "xa"))).fits());
    assert!(!old().done(script([steps([prepend()])]), 2, told(2)).read(Some((2, "ax"))).fits());
    assert!(!old().done(script([steps([prepend()])]), 2, told(1)).fits());
    assert!(old().unknown(script([steps([prepend()])])).read(Some((2, "xa"))).fits());
    let single = Write::Prepend { key: k(), value: value("x"), ttl: Ttl::Usual };
    assert!(old().done(single.clone(), 2, Computed::Length(2)).read(Some((2, "xa"))).fits());
    assert!(!old().done(single, 2, Computed::Length(2)).read(Some((2, "ax"))).fits());
}

#[test]
fn decimals_and_ranges_are_computed() {
    let bytes = |text: &'static str| Bytes::from_static(text.as_bytes());
    let add = || ScriptStep::IncrementFloat { key: k(), by: bytes("0.5"), ttl: Ttl::Usual };
    let range = || ScriptStep::SetRange { key: k(), offset: 4, value: bytes("x"), ttl: Ttl::Usual };
    let run = || Run::default().done(put("1"), 1, Computed::Nothing);
    let asked = || script([steps([add(), range()])]);
    let told = |number, len| ran([Ok(vec![StepOutcome::Decimal(bytes(number)), StepOutcome::Appended(len)])]);
    assert!(run().done(asked(), 2, told("1.5", 5)).read(Some((2, "1.5\0x"))).fits());
    assert!(run().done(asked(), 2, told("1.6", 5)).why().contains("something else"));
    assert!(run().done(asked(), 2, told("1.5", 4)).why().contains("something else"));
    let failed = || ran([Err(GroupFailure::Failed { step: 0, failure: RequestFailure::NotANumber })]);
    assert!(!run().done(asked(), 2, failed()).fits());
    assert!(run().done(put("text"), 2, Computed::Nothing).done(asked(), 3, failed()).read(Some((2, "text"))).fits());
}
