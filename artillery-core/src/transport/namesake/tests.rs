use super::{
    ProofVerdict::{Ask, Gone, Lives, Wait},
    *,
};

/// The verdicts of checks at these times in milliseconds, each with the total number of acknowledgements, initially 3.
fn verdicts<const N: usize>(checks: [(u64, Option<u64>); N]) -> [ProofVerdict; N] {
    let start = Instant::now();
    let mut proof = LifeProof::new(start, Duration::from_millis(500), 3);
    checks.map(|(ms, acknowledgements)| proof.check(start + Duration::from_millis(ms), acknowledgements))
}

#[test]
fn one_acknowledgement_may_be_an_old_one() {
    assert_eq!(verdicts([(5, Some(3)), (10, Some(4)), (15, Some(4)), (20, Some(5))]), [Wait, Ask, Wait, Lives]);
    assert_eq!(verdicts([(5, Some(9)), (60, Some(9)), (500, Some(9))]), [Ask, Ask, Gone]);
}

#[test]
fn a_silent_process_is_asked_again_and_then_gone() {
    assert_eq!(verdicts([(49, Some(3)), (50, Some(3)), (99, Some(3)), (500, Some(3))]), [Wait, Ask, Wait, Gone]);
}

#[test]
fn a_closed_connection_is_no_sign_of_life() {
    assert_eq!(verdicts([(5, Some(4)), (10, None)]), [Ask, Gone]);
}
