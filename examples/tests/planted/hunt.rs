//! Runs a mistake until a seed shows it, then the correct version under the same seeds.

use std::{
    any::Any,
    cell::Cell,
    io::Write,
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

use artillery_ddata::testing::{Builder, Cluster, Trouble};

/// The number of seeds among which each mistake must be found.
const SEEDS: u64 = 200;
/// The minimum number of seeds that the correct version must pass.
const MIN_PASSED: u64 = 20;
/// The time after which an application has stopped making progress, in virtual time.
const STALLED: Duration = Duration::from_secs(300);

/// Three nodes, and faults of all kinds.
pub(crate) fn rough() -> Builder {
    Cluster::builder().trouble(Trouble::rough())
}

/// Three nodes, and the faults that `change` leaves of all kinds.
pub(crate) fn rough_but(change: impl FnOnce(&mut Trouble)) -> Builder {
    let mut trouble = Trouble::rough();
    change(&mut trouble);
    Cluster::builder().trouble(trouble)
}

/// Asserts that a seed shows the mistake in `wrong`, and that `right` passes each seed up to it.
pub(crate) fn hunt<W, R>(mistake: &str, cluster: Builder, wrong: impl Fn(Cluster) -> W, right: impl Fn(Cluster) -> R)
where
    W: Future<Output = ()>,
    R: Future<Output = ()>,
{
    hunt_on(mistake, (cluster.clone(), wrong), (cluster, right));
}

/// Like [`hunt`], for a mistake that may be in the settings of the cluster.
pub(crate) fn hunt_on<W, R>(
    mistake: &str,
    (wrong_cluster, wrong): (Builder, impl Fn(Cluster) -> W),
    (right_cluster, right): (Builder, impl Fn(Cluster) -> R),
) where
    W: Future<Output = ()>,
    R: Future<Output = ()>,
{
    let began = now();
    let seed = Cell::new(0);
    let explored = catch_unwind(AssertUnwindSafe(|| {
        wrong_cluster.explore(0..SEEDS, |cluster| {
            seed.set(cluster.seed());
            bounded(wrong(cluster))
        });
    }));
    let (wrong_took, last) = (began.elapsed(), seed.get());
    let Err(panic) = explored else { panic!("{mistake}: not found within {SEEDS} seeds, {wrong_took:.1?}") };
    let reason = words(&*panic).lines().next().unwrap_or_default().to_owned();
    assert!(!reason.contains("no progress"), "{mistake}: {reason}");
    let began = now();
    let passed = MIN_PASSED.max(last + 1);
    right_cluster.explore(0..passed, |cluster| bounded(right(cluster)));
    let right_took = began.elapsed();
    let line = format!("{mistake}: {reason}; {wrong_took:.1?}. Correct: {passed} seeds pass; {right_took:.1?}.\n");
    // Unlike `print!`, this isn't captured.
    std::io::stdout().write_all(line.as_bytes()).expect("standard output is open");
}

async fn bounded(run: impl Future<Output = ()>) {
    assert!(tokio::time::timeout(STALLED, run).await.is_ok(), "the application makes no progress");
}

#[allow(clippy::disallowed_methods, reason = "how long a search takes, which only the printed line shows")]
fn now() -> Instant {
    Instant::now()
}

fn words(panic: &(dyn Any + Send)) -> &str {
    panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("")
}
