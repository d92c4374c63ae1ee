//! Clusters without a guard: the check must notice that, without an assertion in the test.

use artillery_proto::guards::Mutant;

use super::{super::*, applications::everything};

/// The number of seeds within which a mutant must be noticed.
const SEEDS: u64 = 60;

fn caught(mutant: Mutant) -> Option<String> {
    let explore = || Cluster::builder().trouble(Trouble::rough()).mutant(mutant).explore(0..SEEDS, everything);
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
    assert!(words.contains("not linearizable"), "{words}");
}

#[test]
fn a_session_that_goes_back_is_noticed() {
    let words = caught(Mutant::IgnoreFloor).expect("nothing was noticed");
    assert!(words.contains("a session went back"), "{words}");
}
