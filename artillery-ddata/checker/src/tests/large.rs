//! Long histories with many clients: the work must stay nearly linear.

use std::collections::BTreeMap;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::shrinking::explains_itself;
use super::*;

struct Load {
    operations: usize,
    keys: u32,
    clients: u32,
    /// Percentage of the writes with an unknown outcome.
    unknown: u32,
}

/// The operations of clients of correct registers. Each client makes its next call when it has received an answer.
fn recorded(seed: u64, load: &Load) -> Vec<Operation> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut registers: BTreeMap<u32, (Version, Value)> = BTreeMap::new();
    let mut learnt: BTreeMap<u32, Version> = BTreeMap::new();
    let mut free: Vec<u64> = (0..load.clients).map(u64::from).collect();
    // (instant of effect, client, key, called, returned)
    let mut plan = Vec::new();
    for at in 0..load.operations {
        let client = at % free.len();
        let called = free[client];
        let moment = called + random.random_range(1..1_000);
        // All times must differ, so each client has its own remainder.
        let returned = moment + random.random_range(1..1_000);
        let returned = (returned / u64::from(load.clients) + 1) * u64::from(load.clients) + client as u64;
        free[client] = returned + u64::from(load.clients);
        plan.push((moment, client as u32, random.random_range(0..load.keys), called, returned));
    }
    plan.sort_unstable();
    let mut sequence = 0;
    let mut operations = Vec::new();
    for (index, (_, client, key, called, returned)) in plan.into_iter().enumerate() {
        let value = Value(index as u64);
        let now = registers.get(&key).copied();
        let call = match random.random_range(0..10) {
            0..3 => Call::Put(value),
            3 => Call::Delete,
            4 => Call::CompareAndSwap { expected: learnt.get(&key).copied().unwrap_or(Version::NONE), value },
            5 => Call::CompareAndSwap { expected: now.map_or(Version::NONE, |(version, _)| version), value },
            _ => Call::Read,
        };
        let lost = call != Call::Read && random.random_range(0..100) < load.unknown;
        let applied = !lost || random.random();
        let matches = match call {
            Call::CompareAndSwap { expected, .. } => expected == now.map_or(Version::NONE, |(version, _)| version),
            _ => true,
        };
        let answer = match call {
            Call::Read => Answer::Found(now),
            _ if !matches => Answer::Conflict(now),
            _ if applied => {
                sequence += 1;
                registers.remove(&key);
                if call != Call::Delete {
                    registers.insert(key, (version(sequence), value));
                }
                written(sequence)
            }
            _ => Answer::Unknown,
        };
        if let Answer::Found(Some((version, _))) | Answer::Conflict(Some((version, _))) = answer {
            learnt.insert(key, version);
        }
        let answer = if lost { Answer::Unknown } else { answer };
        operations.push(Operation { client, key, called, returned, call, answer, batch: 0 });
    }
    operations
}

const LOADS: [Load; 5] = [
    Load { operations: 5_000, keys: 1, clients: 1, unknown: 0 },
    Load { operations: 5_000, keys: 50, clients: 64, unknown: 2 },
    Load { operations: 5_000, keys: 1, clients: 64, unknown: 4 },
    Load { operations: 5_000, keys: 5, clients: 16, unknown: 30 },
    Load { operations: 2_000, keys: 1, clients: 64, unknown: 90 },
];

#[test]
fn true_registers_are_accepted_with_little_work() {
    for (seed, load) in LOADS.iter().enumerate() {
        let history = history(recorded(seed as u64, load));
        let checked = check(&history, Budget::default()).unwrap_or_else(|violation| panic!("{violation}"));
        assert_eq!(checked.operations, load.operations);
        let most = 2 * load.operations as u64;
        assert!(checked.states <= most, "{} states for {} operations", checked.states, load.operations);
    }
}

/// Near the end one read returns the value of an earlier read.
#[test]
fn one_wrong_answer_is_found_and_cut_down() {
    for (seed, load) in LOADS.iter().enumerate() {
        let mut operations = recorded(seed as u64, load);
        let read = operations.iter().rposition(|operation| matches!(operation.answer, Answer::Found(Some(_))));
        let read = read.expect("a read");
        let early = operations
            .iter()
            .find(|other| other.key == operations[read].key && matches!(other.answer, Answer::Found(Some(_))));
        operations[read].answer = early.expect("the read itself").answer;
        let history = history(operations);
        let violation = check(&history, Budget::default()).expect_err("accepted");
        explains_itself(&history, &violation);
        assert!(shortest(&history, &violation).operations.len() <= 6);
    }
}

/// The history has one delete too few for its absences. The deletes have more possible places than a search without
/// memory can try.
#[test]
fn a_missing_delete_among_many_is_found() {
    let mut operations = Vec::new();
    let mut time = 1;
    let rounds = 100;
    for _ in 0..rounds {
        operations.push(Operation { answer: UNKNOWN, ..delete(time, time, UNKNOWN) });
        time += 1;
    }
    for round in 1..=rounds + 1 {
        operations.push(put(time, time + 1, round, written(10 * round)));
        operations.push(read(time + 2, time + 3, found(10 * round, round)));
        operations.push(read(time + 4, time + 5, ABSENT));
        time += 6;
    }
    let bad = history(operations.iter().copied());
    let violation = check(&bad, Budget::default()).expect_err("accepted");
    assert_eq!(violation.kind, Kind::NotLinearizable);
    assert_eq!(violation.operation(), operations.last());
    operations.pop();
    checked(&operations).unwrap_or_else(|violation| panic!("{violation}"));
}

#[test]
fn undecided_history_is_a_violation() {
    let history = history(recorded(1, &LOADS[0]));
    for states in [0, 1, 100] {
        let violation = check(&history, Budget { states }).expect_err("decided");
        assert_eq!(violation.kind, Kind::Undecided);
        assert_eq!(violation.key, 0);
        assert_eq!(violation.operation(), None);
        assert_eq!(violation.operations.len(), history.operations.len());
        assert_eq!(shortest(&history, &violation).operations.len(), history.operations.len());
    }
}

/// The one costly case that remains: many latent swaps that may have created the versions that the others expected.
#[test]
fn a_search_without_end_is_stopped() {
    let latent = (0..40).map(|index| swap(index, index, 100 + index, index, UNKNOWN));
    let made = [put(50, 51, 50, UNKNOWN), swap(52, 53, 199, 51, written(200))];
    let never_made = swap(54, 55, 300, 52, written(301));
    let history = history(latent.chain(made).chain([never_made]));
    let violation = check(&history, Budget { states: 20_000 }).expect_err("decided");
    assert_eq!(violation.kind, Kind::Undecided);
}
