//! Lists, counters, cuts and sessions: good and bad histories, and small random ones compared with every order.

use artillery_proto::{Sequence, Version};
use proptest::prelude::*;

use super::super::{Broken, Rule, check_more};
use super::*;
use crate::history::{Cut, Look, SeriesAnswer, SeriesCall, SeriesOperation};

fn op(called: u64, returned: u64, call: SeriesCall, answer: SeriesAnswer) -> SeriesOperation {
    SeriesOperation { client: 1, key: 9, called, returned, call, answer }
}

fn counted(sequence: u64, count: u64) -> SeriesAnswer {
    SeriesAnswer::Counted { version: version(sequence), count: (count > 0).then_some(count) }
}

fn append(called: u64, returned: u64, item: u64, answer: SeriesAnswer) -> SeriesOperation {
    op(called, returned, SeriesCall::Append(Value(item)), answer)
}

fn list(called: u64, returned: u64, sequence: u64, items: &[u64]) -> SeriesOperation {
    let items = items.iter().map(|item| Value(*item)).collect();
    op(called, returned, SeriesCall::Read, SeriesAnswer::List(version(sequence), items))
}

fn increment(called: u64, returned: u64, answer: SeriesAnswer) -> SeriesOperation {
    op(called, returned, SeriesCall::Increment, answer)
}

fn number(called: u64, returned: u64, sequence: u64, number: u64) -> SeriesOperation {
    op(called, returned, SeriesCall::Read, SeriesAnswer::Number(version(sequence), number))
}

const UNKNOWN: SeriesAnswer = SeriesAnswer::Unknown;
const REFUSED: SeriesAnswer = SeriesAnswer::Refused;

fn verdict(series: Vec<SeriesOperation>) -> Result<(), Broken> {
    check_more(&History { series, ..History::default() })
}

fn broken(series: Vec<SeriesOperation>) -> Rule {
    verdict(series).expect_err("accepted").rule
}

#[test]
fn true_lists_are_accepted() {
    verdict(vec![
        list(1, 2, 0, &[]),
        append(3, 4, 1, counted(1, 1)),
        append(5, 20, 2, counted(4, 3)),
        append(6, 7, 3, UNKNOWN),
        append(8, 9, 4, REFUSED),
        list(8, 30, 1, &[1]),
        list(10, 21, 4, &[1, 3, 2]),
        append(22, 23, 5, counted(9, 0)),
        list(24, 25, 9, &[1, 3, 2, 5]),
    ])
    .unwrap();
    // The append of unknown outcome takes effect between the two others.
    verdict(vec![append(1, 2, 1, UNKNOWN), append(3, 4, 2, counted(5, 1)), append(5, 6, 3, counted(8, 3))]).unwrap();
}

#[test]
fn wrong_lists_are_refused() {
    let ok = || append(1, 2, 1, counted(1, 1));
    let two = || append(3, 4, 2, counted(2, 2));
    assert_eq!(broken(vec![ok(), list(3, 4, 2, &[1, 1])]), Rule::AppliedTwice, "a retry was applied again");
    let longer = append(3, 4, 2, counted(3, 3));
    assert_eq!(broken(vec![ok(), longer, list(5, 6, 3, &[1, 2])]), Rule::Forked, "a length that the list never had");
    assert_eq!(broken(vec![ok(), two(), list(5, 6, 2, &[2])]), Rule::Lost);
    assert_eq!(broken(vec![ok(), list(3, 4, 0, &[])]), Rule::StaleRead);
    assert_eq!(broken(vec![ok(), two(), list(5, 6, 1, &[1])]), Rule::StaleRead, "back in time");
    assert_eq!(
        broken(vec![ok(), append(3, 4, 2, REFUSED), list(5, 6, 2, &[1, 2])]),
        Rule::NotAsked,
        "the append was refused"
    );
    assert_eq!(broken(vec![ok(), list(3, 4, 2, &[1, 2])]), Rule::NotAsked, "never called");
    assert_eq!(broken(vec![ok(), list(3, 4, 2, &[1, 2]), append(5, 6, 2, UNKNOWN)]), Rule::NotAsked, "not called yet");
    assert_eq!(
        broken(vec![append(1, 9, 1, counted(2, 0)), append(2, 8, 2, counted(1, 0)), list(10, 11, 2, &[1, 2])]),
        Rule::Forked,
        "swapped"
    );
    let forked = vec![append(1, 9, 1, UNKNOWN), append(2, 9, 2, UNKNOWN), list(3, 4, 1, &[1]), list(5, 6, 2, &[2, 1])];
    assert_eq!(broken(forked), Rule::Forked);
    assert_eq!(broken(vec![append(1, 2, 1, counted(3, 1)), append(3, 4, 2, counted(2, 2))]), Rule::VersionWentBack);
    let late = vec![ok(), append(3, 4, 2, UNKNOWN), append(5, 6, 3, UNKNOWN), list(7, 8, 3, &[1, 3, 2])];
    verdict(late.clone()).unwrap();
    let seen = [late, vec![list(4, 5, 9, &[1, 3])]].concat();
    assert!(verdict(seen).is_err(), "seen before it was called");
    assert_eq!(broken(vec![op(1, 2, SeriesCall::Read, counted(1, 1)), ok()]), Rule::Malformed);
}

#[test]
fn counters_count_each_increment_once() {
    verdict(vec![
        number(1, 2, 0, 0),
        increment(3, 4, counted(1, 1)),
        increment(5, 6, UNKNOWN),
        increment(7, 30, counted(4, 3)),
        number(8, 20, 2, 2),
        increment(31, 32, counted(6, 0)),
        increment(33, 34, REFUSED),
        number(35, 36, 6, 4),
    ])
    .unwrap();
    let one = || increment(1, 2, counted(1, 1));
    assert_eq!(broken(vec![one(), number(3, 4, 2, 2)]), Rule::AppliedTwice, "a retry was applied again");
    assert_eq!(
        broken(vec![one(), increment(3, 4, REFUSED), number(5, 6, 2, 2)]),
        Rule::AppliedTwice,
        "refused, but applied"
    );
    assert_eq!(broken(vec![one(), number(3, 4, 2, 2), increment(5, 6, UNKNOWN)]), Rule::AppliedTwice, "not called yet");
    assert_eq!(broken(vec![one(), increment(3, 4, counted(2, 1))]), Rule::Lost);
    assert_eq!(broken(vec![one(), increment(3, 4, counted(2, 0)), number(5, 6, 2, 1)]), Rule::Lost);
    assert_eq!(broken(vec![one(), number(3, 4, 0, 0)]), Rule::StaleRead);
    let back = vec![one(), increment(3, 4, UNKNOWN), number(5, 6, 2, 2), increment(7, 8, counted(3, 2))];
    assert_eq!(broken(back), Rule::Lost, "seen, then lost");
    let two = vec![increment(1, 9, UNKNOWN), increment(2, 9, UNKNOWN), number(3, 8, 2, 1), number(4, 8, 2, 2)];
    assert_eq!(broken(two), Rule::Forked);
}

fn of_batch(key: u32, called: u64, returned: u64, batch: u64, answer: Answer) -> Operation {
    Operation { key, batch, ..put(called, returned, batch, answer) }
}

fn cut(called: u64, returned: u64, seen: &[(u32, u64)]) -> Cut {
    let seen = seen.iter().map(|&(key, sequence)| (key, (sequence > 0).then(|| version(sequence))));
    Cut { client: 3, called, returned, seen: seen.collect() }
}

fn batches(cuts: Vec<Cut>) -> History {
    let both = |called, batch, answer| [1, 2].map(|key| of_batch(key, called, called + 1, batch, answer));
    let gone = Operation { key: 2, ..delete(50, 51, written(9)) };
    let operations = [both(1, 11, written(2)), both(5, 12, written(4))].concat();
    History { operations: [operations, vec![gone]].concat(), cuts, ..History::default() }
}

#[test]
fn half_batches_are_refused() {
    let one = |seen: &[(u32, u64)]| {
        let history = batches(vec![cut(1, 99, seen)]);
        check(&history, Budget::default()).unwrap();
        check_more(&history).map_err(|broken| broken.rule)
    };
    for fine in [[(1, 2), (2, 2)], [(1, 4), (2, 4)], [(1, 0), (2, 0)], [(1, 4), (2, 0)]] {
        assert_eq!(one(&fine), Ok(()), "{fine:?}");
    }
    assert_eq!(one(&[(1, 4), (2, 2)]), Err(Rule::HalfBatch));
    assert_eq!(one(&[(1, 2), (2, 4)]), Err(Rule::HalfBatch));
    assert_eq!(one(&[(1, 2), (2, 0)]), Err(Rule::NoCut), "only half of the batch was written");
    assert_eq!(one(&[(1, 0), (2, 4)]), Err(Rule::NoCut));
    // An unknown batch was applied completely if one of its values was seen.
    let mut history = batches(vec![cut(60, 61, &[(1, 12), (2, 0)])]);
    history.operations.extend([1, 2].map(|key| of_batch(key, 55, 56, 13, Answer::Unknown)));
    check_more(&history).unwrap();
    history.operations.push(Operation { key: 1, ..read(62, 63, found(12, 13)) });
    assert_eq!(check_more(&history).unwrap_err().rule, Rule::NoCut);
    history.operations.push(Operation { key: 2, ..read(64, 65, ABSENT) });
    check(&history, Budget::default()).expect_err("half of it is missing");
}

#[test]
fn versions_are_shared_by_parts_of_a_batch_alone() {
    let mut history = batches(vec![]);
    history.operations.push(Operation { key: 3, ..put(70, 71, 14, written(4)) });
    assert_eq!(check(&history, Budget::default()).unwrap_err().kind, Kind::VersionReused);
    let mut history = batches(vec![]);
    history.operations.push(of_batch(3, 70, 71, 12, written(5)));
    check(&history, Budget::default()).expect("no cut shows that the batch was not one write");
    history.operations.push(of_batch(1, 72, 73, 12, written(6)));
    assert_eq!(check(&history, Budget::default()).unwrap_err().kind, Kind::Malformed);
}

/// Key 1 has version 2 and then 4, key 2 the same and is then deleted. Both values of key 1 can expire.
fn expiring(cuts: Vec<Cut>, looks: Vec<Look>) -> Result<(), Rule> {
    let mut history = History { looks, ..batches(cuts) };
    history
        .operations
        .extend([(20, 2), (30, 4)].map(|(called, sequence)| Operation { key: 1, ..expiry(called, sequence) }));
    check(&history, Budget::default()).unwrap();
    check_more(&history).map_err(|broken| broken.rule)
}

#[test]
fn expired_keys_may_be_missing() {
    let one = |cut: Cut| expiring(vec![cut], Vec::new());
    assert_eq!(one(cut(1, 29, &[(1, 0), (2, 2)])), Ok(()), "the first value was gone");
    assert_eq!(one(cut(1, 19, &[(1, 0), (2, 2)])), Err(Rule::NoCut), "too early");
    assert_eq!(one(cut(1, 29, &[(1, 0), (2, 4)])), Err(Rule::NoCut), "too early for the second value");
    assert_eq!(one(cut(1, 31, &[(1, 0), (2, 4)])), Ok(()));
    let one = |returned, floor| {
        let look = Look { client: 4, key: 1, called: 1, returned, floor: Sequence(floor), found: None };
        expiring(Vec::new(), vec![look])
    };
    assert_eq!(one(19, 2), Err(Rule::WentBack), "too early");
    assert_eq!((one(29, 2), one(31, 4)), (Ok(()), Ok(())));
    assert_eq!(one(29, 4), Err(Rule::WentBack), "too early for the second value");
}

#[test]
fn sessions_never_go_back() {
    let look = |key, floor, sequence: u64| {
        let found = (sequence > 0).then(|| version(sequence));
        let look = Look { client: 4, key, called: 60, returned: 61, floor: Sequence(floor), found };
        check_more(&History { looks: vec![look], ..batches(vec![]) }).map_err(|broken| broken.rule)
    };
    for (floor, found) in [(0, 0), (2, 2), (3, 2), (3, 4), (4, 4), (9, 4)] {
        assert_eq!(look(1, floor, found), Ok(()), "{floor} {found}");
    }
    assert_eq!(look(1, 4, 2), Err(Rule::WentBack));
    assert_eq!(look(1, 2, 0), Err(Rule::WentBack), "a value is missing");
    assert_eq!(look(2, 9, 0), Ok(()));
    assert_eq!(look(2, 4, 0), Ok(()), "deleted later");
    assert_eq!(look(2, 9, 4), Err(Rule::WentBack), "a deleted value is back");
}

/// The answers of a counter or a list that is used in this order; the drafts choose which writes are applied and
/// reported.
fn recorded(drafts: &[(u8, u64, u64, u8)], is_list: bool) -> Vec<SeriesOperation> {
    let (mut sequence, mut items) = (0, Vec::new());
    let mut last = 0;
    let mut operations = Vec::new();
    for (index, (kind, before, after, fate)) in drafts.iter().enumerate() {
        let moment = 1_000 + 100 * index as u64;
        let (called, returned) = (moment - 20 * before - 1, moment + 20 * after);
        let write = if is_list { SeriesCall::Append(Value(index as u64 + 1)) } else { SeriesCall::Increment };
        let answer = match (kind, fate) {
            (0, _) if is_list => SeriesAnswer::List(version(last), items.clone()),
            (0, _) => SeriesAnswer::Number(version(last), items.len() as u64),
            (_, 0) => SeriesAnswer::Refused,
            (_, 1) => SeriesAnswer::Unknown,
            _ => {
                sequence += 1 + after % 2;
                last = sequence;
                items.push(Value(index as u64 + 1));
                match fate {
                    2 => SeriesAnswer::Unknown,
                    3 => SeriesAnswer::Counted { version: version(sequence), count: None },
                    _ => counted(sequence, items.len() as u64),
                }
            }
        };
        let call = if *kind == 0 { SeriesCall::Read } else { write };
        operations.push(SeriesOperation { client: index as u32, ..op(called, returned, call, answer) });
    }
    operations
}

/// Whether some order explains all answers. Tries every order, independently of the rules.
fn is_linearizable(operations: &[SeriesOperation], placed: &mut Vec<usize>) -> bool {
    let must = |at: &usize| !matches!(operations[*at].answer, SeriesAnswer::Unknown | SeriesAnswer::Refused);
    let left: Vec<usize> = (0..operations.len()).filter(|at| !placed.contains(at)).collect();
    if !explains(operations, placed) {
        return false;
    }
    if !left.iter().any(must) {
        return true;
    }
    let first = left.iter().filter(|at| must(at)).map(|at| operations[*at].returned).min().unwrap_or(u64::MAX);
    left.into_iter()
        .filter(|at| operations[*at].answer != SeriesAnswer::Refused && operations[*at].called <= first)
        .any(|at| {
            placed.push(at);
            let found = is_linearizable(operations, placed);
            placed.pop();
            found
        })
}

fn explains(operations: &[SeriesOperation], order: &[usize]) -> bool {
    // The version of each write, if an answer reports it.
    let (mut items, mut versions): (Vec<Value>, Vec<Option<Version>>) = (Vec::new(), Vec::new());
    for at in order {
        let operation = &operations[*at];
        let (told, size) = match (&operation.call, &operation.answer) {
            (SeriesCall::Read, SeriesAnswer::List(told, seen)) => (told, (seen == &items).then_some(items.len())),
            (SeriesCall::Read, SeriesAnswer::Number(told, seen)) => (told, Some(*seen as usize)),
            (SeriesCall::Read, _) => continue,
            (call, answer) => {
                items.push(if let SeriesCall::Append(item) = call { *item } else { Value(0) });
                let (told, count) = match answer {
                    SeriesAnswer::Counted { version, count } => (Some(*version), *count),
                    _ => (None, None),
                };
                versions.push(told);
                if count.is_some_and(|count| count != items.len() as u64) {
                    return false;
                }
                continue;
            }
        };
        if size != Some(items.len()) {
            return false;
        }
        match versions.last_mut() {
            None if told.is_none() => {}
            Some(known) => {
                if *known.get_or_insert(*told) != *told {
                    return false;
                }
            }
            None => return false,
        }
    }
    let mut last = Version::NONE;
    versions.into_iter().all(|version| {
        let version = version.unwrap_or(Version::new(1, last.sequence.0 + 1));
        std::mem::replace(&mut last, version) < version
    })
}

fn drafts() -> impl Strategy<Value = Vec<(u8, u64, u64, u8)>> {
    prop::collection::vec((0..3u8, 0..12u64, 0..12u64, 0..8u8), 1..=6)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn answers_of_a_series_are_accepted(drafts in drafts(), is_list: bool) {
        let operations = recorded(&drafts, is_list);
        prop_assert!(is_linearizable(&operations, &mut Vec::new()), "{operations:#?}");
        prop_assert_eq!(verdict(operations), Ok(()));
    }

    /// Every reported violation is real. In counters without increments of unknown outcome every violation is found.
    #[test]
    fn every_order_agrees(
        drafts in drafts(), is_list: bool, which: prop::sample::Index, what in 0..5u8, by in 0..4u64,
    ) {
        let mut operations = recorded(&drafts, is_list);
        let at = which.index(operations.len());
        let mutated = &mut operations[at];
        match (what, &mut mutated.answer) {
            (0, SeriesAnswer::Counted { count: Some(count), .. } | SeriesAnswer::Number(_, count)) => *count = by,
            (1, SeriesAnswer::Counted { version: told, .. }) => *told = version(by + 1),
            (2, SeriesAnswer::List(_, items)) => { items.pop(); }
            (3, SeriesAnswer::List(_, items)) => items.extend(items.last().copied()),
            _ => {
                let length = mutated.returned - mutated.called;
                mutated.called += 60 * by;
                mutated.returned = mutated.called + length / 3;
            }
        }
        let possible = is_linearizable(&operations, &mut Vec::new());
        let found = verdict(operations.clone());
        prop_assert!(!possible || found.is_ok(), "rejected though good, {found:?}: {operations:#?}");
        let all_known = operations.iter().all(|operation| operation.answer != UNKNOWN);
        if !is_list && all_known {
            prop_assert!(possible || found.is_err(), "accepted though bad: {operations:#?}");
        }
    }
}
