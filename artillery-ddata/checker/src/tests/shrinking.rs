//! Explanations and shortened histories must themselves be bad in the same way.

use super::brute::is_linearizable;
use super::*;

/// Asserts that the operations of a violation, and the shortened history, have the same kind of violation.
pub(super) fn explains_itself(whole: &History, violation: &Violation) {
    let again = verdict(&violation.operations, Budget::default())
        .err()
        .unwrap_or_else(|| panic!("the explanation is good: {violation}\nof {whole:#?}"));
    assert_eq!(again.kind, violation.kind, "{violation}");
    let last =
        violation.operation().unwrap_or_else(|| panic!("the violation names no operation: {violation}\nof {whole:#?}"));
    assert!(violation.to_string().lines().count() == violation.operations.len() + 1, "{violation}");
    assert!(violation.to_string().contains(&format!("\n> client {}", last.client)), "{violation}");
    let short = shortest(whole, violation);
    assert!(short.operations.len() <= violation.operations.len());
    assert_eq!(check(&short, Budget::default()).expect_err("shortened to a good history").kind, violation.kind);
    let keys = short.operations.iter().any(|operation| operation.key != violation.key);
    if !keys && short.operations.len() <= 7 && violation.kind != Kind::Malformed {
        assert!(!is_linearizable(&short.operations));
    }
}

/// Asserts that a good history stays good when operations are dropped from it.
pub(super) fn stays_good_without_what_can_go(operations: &[Operation]) {
    let all = operations.len();
    let ranges = (0..all).map(|at| at..at + 1).chain([0..all / 2, all / 2..all, 0..all]);
    for range in ranges {
        let rest = shrink::without(operations, range.clone());
        if let Err(violation) = checked(&rest) {
            panic!("without {range:?} of {operations:#?}:\n{violation}");
        }
    }
}

#[test]
fn a_violation_is_shown_one_operation_a_line() {
    let operations =
        [put(1, 2, 1, written(1)), put(3, 14, 2, UNKNOWN), swap(5, 6, 1, 3, conflict(2, 2)), read(7, 18, found(1, 1))];
    let noise = (20..60).map(|at| read(at, at + 100, found(2, 2)));
    let history = history(operations.into_iter().chain(noise));
    let violation = check(&history, Budget::default()).expect_err("accepted");
    let shown = "\
key 7: a value was seen after a newer one had been seen
  client 1   1 .. 2   put #1 -> written 1.1
  client 3   3 .. ?   put #2 -> unknown
  client 5   5 .. 6   swap 1.1 for #3 -> conflict with #2 at 1.2
> client 7   7 .. 18  read -> found #1 at 1.1";
    assert_eq!(violation.to_string(), shown);
    assert_eq!(shortest(&history, &violation).operations, operations);
}

/// The search's explanation ends with the first answer that can't be explained, and shows no later operation.
#[test]
fn the_explanation_of_the_search_is_the_shortest_prefix() {
    let bad = [
        put(1, 2, 1, written(10)),
        delete(3, 4, UNKNOWN),
        read(5, 6, ABSENT),
        put(7, 30, 2, written(20)),
        read(8, 9, found(10, 1)),
        read(40, 41, found(20, 2)),
    ];
    let violation = check(&history(bad), Budget::default()).expect_err("accepted");
    assert_eq!(violation.kind, Kind::NotLinearizable);
    let open = Operation { answer: UNKNOWN, ..bad[3] };
    assert_eq!(violation.operations, [bad[0], bad[1], bad[2], open, bad[4]]);
    assert_eq!(violation.operation(), Some(&bad[4]));
    assert_eq!(shortest(&history(bad), &violation).operations, [bad[0], bad[1], bad[2], bad[4]]);
}
