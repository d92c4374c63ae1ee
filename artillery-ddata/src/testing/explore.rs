use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

use super::{Builder, Cluster, Trouble};

/// Runs a test once per seed, on a cluster of three nodes with [faults of all kinds](Trouble::rough), and
/// [checks](Cluster::check) each run.
///
/// ```
/// # use artillery_ddata::testing;
/// testing::explore(0..10, |cluster| async move {
///     // The outcome may be unknown.
///     if let Err(error) = cluster.client().append("log", "x").await {
///         println!("{error}");
///     }
/// });
/// ```
///
/// [`Builder::explore`] does the same with other settings of the cluster and its faults.
///
/// # Panics
/// On the first seed that fails, with that seed and the reason.
pub fn explore<F: Future<Output = ()>>(seeds: impl IntoIterator<Item = u64>, test: impl Fn(Cluster) -> F) {
    Cluster::builder().trouble(Trouble::rough()).explore(seeds, test);
}

impl Builder {
    /// Runs a test once per seed, each on a new cluster in a new runtime, and [checks](Cluster::check) each run. Must
    /// not be called within a runtime.
    ///
    /// # Panics
    /// On the first seed that fails, with that seed and the reason.
    pub fn explore<F: Future<Output = ()>>(self, seeds: impl IntoIterator<Item = u64>, test: impl Fn(Cluster) -> F) {
        for seed in seeds {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.clone().run(seed, &test))) {
                match words(&*panic) {
                    // The panic of a failed check already names the seed.
                    Some(words) if words.starts_with(&format!("seed {seed}: ")) => resume_unwind(panic),
                    Some(words) => panic!("seed {seed}: {words}"),
                    None => resume_unwind(panic),
                }
            }
        }
    }

    fn run<F: Future<Output = ()>>(self, seed: u64, test: impl Fn(Cluster) -> F) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.unwrap_or_else(|error| panic!("no runtime: {error}"));
        runtime.block_on(async {
            let cluster = self.seed(seed).start().await;
            test(cluster.clone()).await;
            cluster.check().await;
        });
    }
}

fn words(panic: &(dyn Any + Send)) -> Option<&str> {
    panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied())
}
