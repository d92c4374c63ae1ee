//! Histories known to be good and bad, and many made by a store that does one thing at a time.

use artillery_checker::Budget;
use artillery_ddata::Version;
use artillery_programs::chance::Dice;

use super::{Verdict, judge};
use crate::{
    book::{Family, Key, Line},
    door::{Ask, Reply},
};

const PLAIN: Key = Key(0);

fn line(key: Key, called: u64, returned: u64, ask: Ask, reply: Reply) -> Line {
    Line { client: called as u32, key, ask, called, returned, reply }
}

fn key(family: Family) -> Key {
    (0..).map(Key).find(|key| key.family() == family).unwrap()
}

fn set(called: u64, returned: u64, value: u64) -> Line {
    line(PLAIN, called, returned, Ask::Set(value), Reply::Written(None))
}

fn get(called: u64, returned: u64, value: u64) -> Line {
    let found = (value != ABSENT).then_some((None, value));
    line(PLAIN, called, returned, Ask::Get, Reply::Found(found))
}

const ABSENT: u64 = u64::MAX;

fn verdict(lines: &[Line]) -> Verdict {
    judge(lines, Budget::default())
}

#[track_caller]
fn good(lines: &[Line]) {
    let found = verdict(lines);
    assert!(found.wrong.is_empty(), "{}", found.wrong[0].what);
}

#[track_caller]
fn bad(lines: &[Line], what: &str) {
    let found = verdict(lines);
    assert!(found.wrong.iter().any(|wrong| wrong.what.contains(what)), "expected: {what}");
}

#[test]
fn plain_keys_without_versions_are_judged() {
    good(&[get(1, 2, ABSENT), set(3, 4, 1), get(5, 6, 1)]);
    good(&[set(1, 10, 1), set(2, 9, 2), get(3, 4, 2), get(5, 6, 1), get(11, 12, 1)]);
    bad(&[set(1, 2, 1), set(3, 4, 2), get(5, 6, 1)], "newer write was acknowledged");
    bad(&[set(1, 2, 1), get(3, 4, ABSENT)], "nothing deleted");
    bad(&[set(1, 10, 1), set(2, 9, 2), get(3, 4, 2), get(5, 6, 1), get(7, 8, 2)], "key 0");
    bad(&[set(1, 2, 1), get(3, 4, 7)], "nobody wrote");
    bad(&[set(1, 2, 1), get(3, 4, 0)], "nobody wrote");
}

#[test]
fn an_unknown_outcome_passes_and_a_wrong_one_fails() {
    let unknown = |called, value| line(PLAIN, called, u64::MAX, Ask::Set(value), Reply::Unknown);
    let refused =
        |called, returned, value| line(PLAIN, called, returned, Ask::Set(value), Reply::Refused("BUSY".to_owned()));
    good(&[set(1, 2, 1), unknown(3, 2), get(4, 5, 1), get(6, 7, 2), get(8, 9, 2)]);
    good(&[set(1, 2, 1), refused(3, 4, 2), get(5, 6, 1)]);
    bad(&[set(1, 2, 1), unknown(3, 2), get(4, 5, 2), get(6, 7, 1)], "newer one had been seen");
    bad(&[set(1, 2, 1), refused(3, 4, 2), get(5, 6, 2)], "refused");
}

#[test]
fn versions_in_answers_are_judged() {
    let key = key(Family::Versioned);
    let version = |sequence| Version::new(1, sequence);
    let swap =
        |called, returned, expected, value, reply| line(key, called, returned, Ask::Swap(expected, value), reply);
    let look = |called, returned, at, value| {
        line(key, called, returned, Ask::Look, Reply::Found(Some((Some(version(at)), value))))
    };
    let first = swap(1, 2, Version::NONE, 1, Reply::Written(Some(version(4))));
    good(&[first.clone(), swap(3, 4, Version::NONE, 2, Reply::Conflict(version(4))), look(5, 6, 4, 1)]);
    let second = swap(3, 4, version(4), 2, Reply::Written(Some(version(5))));
    bad(&[first.clone(), second, look(5, 6, 4, 1)], "newer write was acknowledged");
    let twice = swap(3, 4, Version::NONE, 2, Reply::Written(Some(version(5))));
    bad(&[first.clone(), twice], "compare-and-swap");
    bad(&[first, look(3, 4, 5, 1)], "two versions");
}

#[test]
fn counters_count_once() {
    let key = key(Family::Counter);
    let add = |called, returned, count| line(key, called, returned, Ask::Add, Reply::Counted(count));
    let count = |called, returned, count| line(key, called, returned, Ask::Count, Reply::Counted(count));
    let unknown = line(key, 3, u64::MAX, Ask::Add, Reply::Unknown);
    good(&[count(1, 2, 0), add(3, 4, 1), add(5, 6, 2), count(7, 8, 2)]);
    good(&[add(1, 2, 1), unknown.clone(), count(4, 5, 1), count(6, 7, 2)]);
    bad(&[add(1, 2, 1), add(3, 4, 1)], "version");
    bad(&[add(1, 2, 1), count(3, 4, 0)], "less than was known");
    bad(&[add(1, 2, 1), unknown, count(4, 5, 3)], "twice");
}

/// A store that does one thing at a time, slow clients, and answers that get lost.
fn made_up(dice: &mut Dice, stale: bool) -> Vec<Line> {
    let (mut moment, mut value, mut held, mut before) = (0, 0, ABSENT, ABSENT);
    let mut clients: Vec<Option<(u64, Ask, Option<Reply>)>> = vec![None; 4];
    let mut lines = Vec::new();
    while lines.len() < 60 {
        moment += 1;
        let client = dice.below(4) as usize;
        clients[client] = match clients[client].take() {
            None if dice.below(2) == 0 => Some((moment, Ask::Get, None)),
            None => {
                value += 1;
                Some((moment, Ask::Set(value), None))
            }
            Some((called, Ask::Set(value), None)) => {
                before = held;
                held = value;
                Some((called, Ask::Set(value), Some(Reply::Written(None))))
            }
            Some((called, ask, None)) => {
                let seen = if stale && dice.below(4) == 0 { before } else { held };
                let found = (seen != ABSENT).then_some((None, seen));
                Some((called, ask, Some(Reply::Found(found))))
            }
            Some((called, ask, Some(reply))) => {
                let lost = dice.below(10) == 0;
                let (returned, reply) = if lost { (u64::MAX, Reply::Unknown) } else { (moment, reply) };
                lines.push(line(PLAIN, called, returned, ask, reply));
                None
            }
        };
    }
    // Operations still under way may have been applied, too.
    let open = clients.into_iter().flatten();
    lines.extend(open.map(|(called, ask, _)| line(PLAIN, called, u64::MAX, ask, Reply::Unknown)));
    lines
}

#[test]
fn good_histories_without_versions_pass() {
    let mut dice = Dice::new(1);
    (0..2000).for_each(|_| good(&made_up(&mut dice, false)));
}

#[test]
fn stale_reads_are_found() {
    let mut dice = Dice::new(2);
    let found = (0..200).filter(|_| !verdict(&made_up(&mut dice, true)).wrong.is_empty()).count();
    assert!(found > 150, "only {found} of 200");
}
