//! Explanations and shortened histories are themselves bad in the same way.

use super::brute::is_linearizable;
use super::*;

/// Asserts that what a violation shows, and what is left after shortening, is wrong in the way that it says.
pub(super) fn explains_itself(whole: &History, violation: &Violation) {
    let again = verdict(&violation.operations, Budget::default())
        .err()
        .unwrap_or_else(|| panic!("the explanation is good: {violation}\nof {whole:#?}"));
    assert_eq!(again.kind, violation.kind, "{violation}");
    let last = violation.operation().unwrap_or_else(|| panic!("no operation is named: {violation}\nof {whole:#?}"));
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
