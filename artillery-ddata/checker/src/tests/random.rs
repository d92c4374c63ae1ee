//! Small random histories: the checker and the exhaustive check must agree on each.

use artillery_proto::Version;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::cell::Cell;

use super::super::{by_key, form, register, search};
use super::brute::is_linearizable;
use super::*;

/// An operation before its times are assigned.
#[derive(Clone, Debug)]
struct Draft {
    /// 0: put, 1: delete, 2: compare-and-swap, 5: expiry, 6: delete that returns the value, others: read.
    call: u8,
    expected: u64,
    /// When the operation takes effect. The call precedes that instant by `before`, and the answer follows it by
    /// `after`.
    moment: u64,
    before: u64,
    after: u64,
    /// 0: unknown and applied, 1: unknown and not applied, 2: refused, others: answered.
    outcome: u8,
}

fn drafts() -> impl Strategy<Value = Vec<Draft>> {
    let draft = (0..7u8, 0..5u64, 0..25u64, 0..40u64, 0..40u64, 0..9u8).prop_map(
        |(call, expected, moment, before, after, outcome)| Draft { call, expected, moment, before, after, outcome },
    );
    prop::collection::vec(draft, 1..=7)
}

fn from_register(mut drafts: Vec<Draft>) -> Vec<Operation> {
    drafts.sort_by_key(|draft| draft.moment);
    let mut current: Option<(Version, Value)> = None;
    let mut sequence = 0;
    let mut operations = Vec::new();
    for (index, draft) in drafts.iter().enumerate() {
        let value = Value(index as u64 + 1);
        // Two fifths of the drafts expect the current version.
        let expected =
            if draft.expected > 2 { current.map_or(Version::NONE, |(now, _)| now) } else { version(draft.expected) };
        let call = match draft.call {
            0 => Call::Put(value),
            1 => Call::Delete,
            2 => Call::CompareAndSwap { expected, value },
            5 if !expected.is_none() => Call::Expire { version: expected },
            6 => Call::GetDelete,
            _ => Call::Read,
        };
        let matches = expected == current.map_or(Version::NONE, |(now, _)| now);
        let answer = match (call, draft.outcome) {
            (Call::Expire { .. }, outcome) => {
                if matches && outcome != 1 {
                    sequence += 1 + draft.after % 2;
                    current = None;
                }
                Answer::Unknown
            }
            (_, 1) => Answer::Unknown,
            (_, 2) => Answer::Refused,
            (Call::Read, _) => Answer::Found(current),
            (Call::GetDelete, _) if current.is_none() => Answer::Found(None),
            // Retries don't always report the value.
            (Call::CompareAndSwap { .. }, 3) if !matches => {
                Answer::Failed(current.map_or(Version::NONE, |(now, _)| now))
            }
            (Call::CompareAndSwap { .. }, _) if !matches => Answer::Conflict(current),
            _ => {
                sequence += 1 + draft.after % 2;
                let left = matches!(call, Call::Put(_) | Call::CompareAndSwap { .. });
                let before = std::mem::replace(&mut current, left.then_some((version(sequence), value)));
                match before {
                    Some(found) if call == Call::GetDelete => Answer::Took { version: version(sequence), found },
                    _ => Answer::Written(version(sequence)),
                }
            }
        };
        let answer = if draft.outcome == 0 { Answer::Unknown } else { answer };
        // Instants are at least 10 apart, and intervals may span several of them. No call has the time of an answer.
        let moment = 1_000 + 100 * draft.moment + 10 * index as u64;
        let operation = op(moment - 10 * draft.before - 1, moment + 10 * draft.after, call, answer);
        operations.push(Operation { client: index as u32, ..operation });
    }
    by_key(&operations).remove(&7).unwrap_or_default()
}

/// The index of an operation, the kind of change, and two numbers that determine its details.
type Mutation = (prop::sample::Index, u8, u64, u64);

fn mutations() -> impl Strategy<Value = Vec<Mutation>> {
    prop::collection::vec((any::<prop::sample::Index>(), 0..6u8, 0..6u64, 0..6u64), 1..=3)
}

fn mutate(operations: &mut [Operation], mutations: &[Mutation]) {
    for (index, what, first, second) in mutations {
        let seen: Vec<(Version, Value)> = operations.iter().filter_map(super::super::form::seen).collect();
        let operation = index.get(operations).to_owned();
        let seen = seen.get(*first as usize).copied();
        let any = (version(*second + 1), Value(*first + 1));
        let length = operation.returned - operation.called;
        let other = match (what, operation.call, operation.answer) {
            // Shrink the interval, or move it.
            (0, ..) => Operation { returned: operation.called + length / (2 + first), ..operation },
            (1, ..) => Operation {
                called: operation.called + 113 * first + 3,
                returned: operation.returned + 113 * first + 3,
                ..operation
            },
            (2, ..) => Operation { answer: Answer::Unknown, ..operation },
            (_, Call::Expire { .. }, _) => {
                Operation { call: Call::Expire { version: version(*second + 1) }, ..operation }
            }
            (3, Call::Read, _) => Operation { answer: Answer::Found(seen), ..operation },
            (_, Call::Read, _) => Operation { answer: Answer::Found(Some(any)), ..operation },
            (3, Call::GetDelete, _) => Operation { answer: ABSENT, ..operation },
            (_, Call::GetDelete, _) => {
                let answer = Answer::Took { version: version(*second + 2), found: seen.unwrap_or(any) };
                Operation { answer, ..operation }
            }
            (_, Call::CompareAndSwap { .. }, Answer::Failed(_)) => {
                Operation { answer: Answer::Failed(version(*second)), ..operation }
            }
            (3, Call::CompareAndSwap { .. }, _) => Operation { answer: Answer::Conflict(seen), ..operation },
            (4, Call::CompareAndSwap { value, .. }, _) => {
                Operation { call: Call::CompareAndSwap { expected: version(*second), value }, ..operation }
            }
            (_, Call::CompareAndSwap { .. }, Answer::Conflict(_)) | (_, Call::Put(_) | Call::Delete, _) => {
                Operation { answer: written(*second + 1), ..operation }
            }
            (_, Call::CompareAndSwap { .. }, _) => Operation { answer: Answer::Conflict(Some(any)), ..operation },
        };
        let position = operations.iter().position(|old| *old == operation).unwrap_or_default();
        operations[position] = other;
    }
    operations.sort_by_key(|operation| operation.called);
}

fn run<S: Strategy>(cases: u32, strategy: &S, test: impl Fn(S::Value)) {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let result =
        TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha)).run(strategy, |value| {
            test(value);
            Ok(())
        });
    if let Err(error) = result {
        panic!("{error}");
    }
}

#[test]
fn answers_of_a_register_are_accepted() {
    run(20_000, &drafts(), |drafts| {
        let operations = from_register(drafts);
        assert!(is_linearizable(&operations), "the exhaustive check rejects {operations:#?}");
        if let Err(violation) = checked(&operations) {
            panic!("{violation}\n{operations:#?}");
        }
    });
}

#[test]
fn the_exhaustive_check_agrees() {
    let tally = Tally::default();
    run(tally.cases(), &(drafts(), mutations()), |(drafts, mutations)| {
        let mut operations = from_register(drafts);
        mutate(&mut operations, &mutations);
        tally.compare(&operations);
    });
    tally.assert_healthy();
}

/// Deletes of unknown outcome and absences give the search its choices.
#[test]
fn the_exhaustive_check_agrees_about_unknown_deletes() {
    let tally = Tally::default();
    run(tally.cases(), &(drafts(), mutations()), |(mut drafts, mutations)| {
        for draft in &mut drafts {
            draft.call = [0, 0, 1, 2, 3, 3, 6][usize::from(draft.call)];
            draft.expected %= 4;
            draft.outcome = if draft.call == 1 { draft.outcome % 3 } else { 3 };
            (draft.before, draft.after) = (draft.before % 20, draft.after % 20);
        }
        let mut operations = from_register(drafts);
        for (index, what, first, second) in mutations {
            let operation = index.get(&operations).to_owned();
            match operation.answer {
                Answer::Found(_) if what < 5 => {
                    let position = operations.iter().position(|other| *other == operation).unwrap_or_default();
                    operations[position].answer = ABSENT;
                }
                _ => mutate(&mut operations, &[(index, what % 2, first, second)]),
            }
        }
        tally.compare(&operations);
    });
    tally.assert_healthy();
    assert!(tally.searched.get() > tally.cases() / 200, "only the search found {}", tally.searched.get());
}

/// Values that go by themselves, also those of writes of unknown outcome.
#[test]
fn the_exhaustive_check_agrees_about_expiries() {
    let tally = Tally::default();
    run(tally.cases(), &(drafts(), mutations()), |(mut drafts, mutations)| {
        for draft in &mut drafts {
            draft.call = [0, 0, 5, 2, 3, 3, 5][usize::from(draft.call)];
            draft.outcome = if draft.call != 3 && draft.outcome < 2 { draft.outcome } else { 3 };
            (draft.before, draft.after) = (draft.before % 10, draft.after % 10);
        }
        let mut operations = from_register(drafts);
        for (index, what, first, second) in mutations {
            let operation = index.get(&operations).to_owned();
            let position = operations.iter().position(|other| *other == operation).unwrap_or_default();
            match (operation.call, operation.answer) {
                (Call::Expire { .. }, _) if what < 5 => {
                    operations[position].called += 226 * (first + 1) + 3;
                    operations[position].returned = operations[position].called;
                    operations.sort_by_key(|operation| operation.called);
                }
                (_, Answer::Found(_)) if what < 4 => operations[position].answer = ABSENT,
                _ => mutate(&mut operations, &[(index, what, first, second)]),
            }
        }
        tally.compare(&operations);
    });
    tally.assert_healthy();
    let expired = tally.expired.get();
    assert!(expired > tally.cases() / 50, "only {expired} good histories that need an expiry");
}

/// Versions that no answer reported, and writes of unknown outcome that may have created them.
#[test]
fn the_exhaustive_check_agrees_about_orphans() {
    let tally = Tally::default();
    run(tally.cases(), &(drafts(), mutations()), |(mut drafts, mutations)| {
        for draft in &mut drafts {
            draft.call = [0, 0, 1, 2, 2, 3, 6][usize::from(draft.call)];
            draft.outcome = if draft.call != 3 && draft.outcome < 3 { 1 } else { 3 };
        }
        let mut operations = from_register(drafts);
        for (index, what, first, second) in mutations {
            let operation = index.get(&operations).to_owned();
            let position = operations.iter().position(|other| *other == operation).unwrap_or_default();
            match operation.call {
                Call::CompareAndSwap { value, .. } if what < 4 => {
                    operations[position].call = Call::CompareAndSwap { expected: version(first + 1), value };
                    if operation.answer != Answer::Unknown {
                        operations[position].answer = written(first + second + 2);
                    }
                }
                _ => mutate(&mut operations, &[(index, what % 3, first, second)]),
            }
        }
        tally.compare(&operations);
    });
    tally.assert_healthy();
    let orphans = tally.orphans.get();
    assert!(orphans > tally.cases() / 100, "only {orphans} good histories with an orphan");
}

#[derive(Default, Debug)]
struct Tally {
    good: Cell<u32>,
    bad: Cell<u32>,
    /// Bad histories that broke no rule, so that only the search found them.
    searched: Cell<u32>,
    /// Good histories in which an operation expected a version that no answer reported.
    orphans: Cell<u32>,
    /// Good histories that are bad without the expiries.
    expired: Cell<u32>,
}

impl Tally {
    fn cases(&self) -> u32 {
        20_000
    }

    fn compare(&self, operations: &[Operation]) {
        if tells_of_nothing(operations) {
            return;
        }
        let add = |cell: &Cell<u32>| cell.set(cell.get() + 1);
        let expected = is_linearizable(operations);
        add(if expected { &self.good } else { &self.bad });
        if let Some(found) = search_alone(operations) {
            assert_eq!(found, expected, "the search alone is wrong about {operations:#?}");
        }
        match checked(operations) {
            Ok(()) => {
                assert!(expected, "a bad history is accepted: {operations:#?}");
                super::shrinking::stays_good_without_what_can_go(operations);
                if has_orphan(operations) {
                    add(&self.orphans);
                }
                if needs_expiry(operations) {
                    add(&self.expired);
                }
            }
            Err(violation) => {
                assert!(!expected, "a good history is rejected: {violation}\n{operations:#?}");
                assert_ne!(violation.kind, Kind::Undecided);
                if violation.kind == Kind::NotLinearizable {
                    add(&self.searched);
                }
                super::shrinking::explains_itself(&history(operations.iter().copied()), &violation);
            }
        }
    }

    fn assert_healthy(&self) {
        let (good, bad) = (self.good.get(), self.bad.get());
        let least = self.cases() / 10;
        assert!(good > least && bad > least, "too few of one verdict: {good} good, {bad} bad");
    }
}

/// The verdict of the search without the preceding rules. `None` if its input can't be built.
fn search_alone(operations: &[Operation]) -> Option<bool> {
    let versions = form::check(operations).ok()?;
    let register = register::Register::new(7, operations).ok()?;
    Some(search::search(&register, &versions, &mut 1_000_000).is_ok())
}

/// Whether a compare-and-swap failed on a version that no other answer reports as that of a value. The checker draws no
/// conclusion from such a failure.
fn tells_of_nothing(operations: &[Operation]) -> bool {
    let values = |version: Version| {
        operations.iter().any(|operation| match (operation.call, operation.answer) {
            (Call::Put(_) | Call::CompareAndSwap { .. }, Answer::Written(written)) => written == version,
            _ => form::seen(operation).is_some_and(|(seen, _)| seen == version),
        })
    };
    operations.iter().any(|operation| match operation.answer {
        Answer::Failed(version) => !version.is_none() && !values(version),
        _ => false,
    })
}

fn needs_expiry(operations: &[Operation]) -> bool {
    let expires = |operation: &Operation| matches!(operation.call, Call::Expire { .. });
    let rest: Vec<Operation> = operations.iter().filter(|operation| !expires(operation)).copied().collect();
    rest.len() < operations.len() && checked(&rest).is_err()
}

fn has_orphan(operations: &[Operation]) -> bool {
    operations.iter().any(|operation| match (operation.call, operation.answer) {
        (Call::CompareAndSwap { expected, .. }, Answer::Written(_)) => {
            !expected.is_none() && operations.iter().all(|other| form::told(other) != Some(expected))
        }
        _ => false,
    })
}
