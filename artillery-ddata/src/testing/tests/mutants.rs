//! Members with a guard left out: the check must notice, without an assertion of the test's own.

use artillery_proto::guards::Mutant;

use super::{super::*, applications::everything};

/// Seeds that a mutant may take.
const SEEDS: u64 = 60;

fn caught(mutant: Mutant) -> Option<String> {
    let explore = || Cluster::builder().trouble(Trouble::rough()).mutant(mutant).explore(0..SEEDS, everything);
    let panic = std::panic::catch_unwind(explore).err()?;
    panic.downcast_ref::<String>().and_then(|words| words.lines().next()).map(str::to_owned)
}

#[test]
fn a_retry_that_runs_once_more_is_noticed() {
    let words = caught(Mutant::ForgetRecords).expect("nothing was noticed");
    assert!(words.starts_with("seed "), "{words}");
}

#[test]
fn reads_of_what_is_not_committed_are_noticed() {
    let words = caught(Mutant::DirtyAsCommitted).expect("nothing was noticed");
    assert!(words.contains("not linearizable"), "{words}");
}

#[test]
fn a_session_that_goes_back_is_noticed() {
    let words = caught(Mutant::IgnoreFloor).expect("nothing was noticed");
    assert!(words.contains("a session went back"), "{words}");
}
