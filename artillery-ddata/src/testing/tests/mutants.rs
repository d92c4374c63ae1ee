//! Clusters without a guard: the check must notice that, without an assertion in the test.

use artillery_proto::guards::Mutant;

use super::{super::*, applications::everything, expiring::expiring};

/// The number of seeds within which a mutant must be noticed.
const SEEDS: u64 = 60;

fn caught(mutant: Mutant) -> Option<String> {
    caught_by(mutant, everything)
}

fn caught_by<F: Future<Output = ()>>(mutant: Mutant, test: fn(Cluster) -> F) -> Option<String> {
    let explore = move || Cluster::builder().trouble(Trouble::rough()).mutant(mutant).explore(0..SEEDS, test);
    let panic = std::panic::catch_unwind(explore).err()?;
    panic.downcast_ref::<String>().and_then(|words| words.lines().next()).map(str::to_owned)
}

#[test]
fn a_retry_that_is_applied_again_is_noticed() {
    let words = caught(Mutant::ForgetRecords).expect("nothing was noticed");
    assert!(words.starts_with("seed "), "{words}");
}

#[test]
fn strong_reads_of_uncommitted_versions_are_noticed() {
    let words = caught(Mutant::DirtyAsCommitted).expect("nothing was noticed");
    assert!(words.contains("not linearizable") || words.contains("no order of the writes"), "{words}");
}

#[test]
fn a_session_that_goes_back_is_noticed() {
    let words = caught(Mutant::IgnoreFloor).expect("nothing was noticed");
    assert!(words.contains("a session went back"), "{words}");
}

/// The time to live of an overwritten value ends the new one.
#[test]
fn an_expiry_that_removes_a_newer_value_is_noticed() {
    let words = caught_by(Mutant::RemoveNewer, expiring).expect("nothing was noticed");
    assert!(words.contains("not linearizable") || words.contains("no order of the writes"), "{words}");
}
