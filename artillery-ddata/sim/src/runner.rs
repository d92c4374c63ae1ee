//! Runs seeds on all cores. The results do not depend on the number of cores.

use std::{
    collections::BTreeMap,
    num::NonZero,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use artillery_proto::guards::Mutant;

use crate::{
    oracle::{Failure, Oracle},
    scenario::Scenario,
    world::{Counts, Outcome, World},
};

/// Runs `scenario` with `seed`. A panic of the code under test is reported as a failure.
pub fn run(scenario: Scenario, seed: u64, mutant: Option<Mutant>, traced: bool) -> Outcome {
    let world = || World::run_scenario(scenario, seed, scenario.setup(seed, mutant), traced);
    guard(world)
}

/// Runs a world of the given setup. A panic is reported as a failure.
pub fn run_setup(seed: u64, setup: crate::scenario::Setup) -> Outcome {
    run_traced(seed, setup, false)
}

/// The same, with a trace if `traced`.
pub fn run_traced(seed: u64, setup: crate::scenario::Setup, traced: bool) -> Outcome {
    guard(|| World::new(seed, setup, traced).run())
}

fn guard(world: impl FnOnce() -> Outcome) -> Outcome {
    catch_unwind(AssertUnwindSafe(world)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a text");
        let failure = Some(Failure::new(Oracle::Panic, text));
        Outcome { counts: Counts::default(), failure, served: Vec::new(), trace: None }
    })
}

/// Distributes work over threads.
#[derive(Clone, Copy, Debug)]
pub struct Runner {
    threads: usize,
}

impl Default for Runner {
    fn default() -> Self {
        Self { threads: std::thread::available_parallelism().map_or(1, NonZero::get) }
    }
}

impl Runner {
    /// A runner on `threads` threads.
    pub fn new(threads: usize) -> Self {
        Self { threads: threads.max(1) }
    }

    /// Calls `work` for each number below `count` in parallel, and passes the results to `take` in order.
    pub fn each<T: Send>(&self, count: u64, work: impl Fn(u64) -> T + Sync, mut take: impl FnMut(u64, T)) {
        // Portions bound the number of results that wait for their turn.
        let portion = (self.threads * 8) as u64;
        let mut done = 0;
        while done < count {
            let end = count.min(done + portion);
            for (number, result) in self.portion(done, end, &work) {
                take(number, result);
            }
            done = end;
        }
    }

    /// Calls `work` for the numbers below `count`, and returns the lowest one with a result.
    pub fn first<T: Send>(&self, count: u64, work: impl Fn(u64) -> Option<T> + Sync) -> Option<(u64, T)> {
        let stop = AtomicU64::new(count);
        let found = self.portion(0, count, &|number| {
            // Numbers above a result need no work. All numbers below it are still processed.
            if number > stop.load(Ordering::Relaxed) {
                return None;
            }
            let result = work(number);
            if result.is_some() {
                stop.fetch_min(number, Ordering::Relaxed);
            }
            result
        });
        found.into_iter().find_map(|(number, result)| result.map(|result| (number, result)))
    }

    fn portion<T: Send>(&self, start: u64, end: u64, work: &(impl Fn(u64) -> T + Sync)) -> BTreeMap<u64, T> {
        let next = AtomicU64::new(start);
        let results = Mutex::new(BTreeMap::new());
        std::thread::scope(|scope| {
            for _ in 0..self.threads {
                scope.spawn(|| {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= end {
                            return;
                        }
                        let result = work(number);
                        results.lock().unwrap_or_else(PoisonError::into_inner).insert(number, result);
                    }
                });
            }
        });
        results.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_threads_changes_nothing() {
        for threads in [1, 2, 7] {
            let runner = Runner::new(threads);
            let mut taken = Vec::new();
            runner.each(100, |n| n * n, |n, square| taken.push((n, square)));
            assert_eq!(taken, (0..100).map(|n| (n, n * n)).collect::<Vec<_>>());
            assert_eq!(runner.first(100, |n| (n % 13 == 12).then_some(n + 1)), Some((12, 13)));
            assert_eq!(runner.first(10, |n| (n % 13 == 12).then_some(n + 1)), None);
        }
    }

    #[test]
    fn a_panic_is_a_failure() {
        let outcome = guard(|| panic!("on {}", "purpose"));
        assert_eq!(outcome.failure, Some(Failure::new(Oracle::Panic, "on purpose")));
    }
}
