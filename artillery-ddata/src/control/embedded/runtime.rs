//! Tokio, with explicit randomness.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use openraft::{AsyncRuntime, TokioInstant, TokioRuntime};
use rand_core::{RngCore, impls};
use tracing::Dispatch;

use super::quiet;

type TokioTimeout<R, F> = <TokioRuntime as AsyncRuntime>::Timeout<R, F>;

tokio::task_local! {
    /// The context of the node for which a task runs. Tasks pass it to the tasks that they spawn.
    static CONTEXT: TaskContext;
}

#[derive(Clone)]
struct TaskContext {
    random: Random,
    /// The subscriber of the tasks; `None`: that of the process.
    log: Option<Dispatch>,
}

async fn within<F: Future>(context: TaskContext, future: F) -> F::Output {
    let log = context.log.clone();
    quiet::run(log, CONTEXT.scope(context, future)).await
}

/// Runs `future`, and the tasks that it spawns, with random numbers that depend on `seed` alone, and without routine
/// messages in the application's log.
pub(super) async fn seeded<F: Future>(seed: u64, future: F) -> F::Output {
    let random = Random(Arc::new(AtomicU64::new(seed)));
    within(TaskContext { random, log: quiet::of_this_task() }, future).await
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Runtime;

impl AsyncRuntime for Runtime {
    type JoinError = tokio::task::JoinError;
    type JoinHandle<T: Send + 'static> = tokio::task::JoinHandle<T>;
    type Sleep = tokio::time::Sleep;
    type Instant = TokioInstant;
    type TimeoutError = tokio::time::error::Elapsed;
    type Timeout<R, T: Future<Output = R> + Send> = TokioTimeout<R, T>;
    type ThreadLocalRng = Random;
    type OneshotSender<T: Send> = <TokioRuntime as AsyncRuntime>::OneshotSender<T>;
    type OneshotReceiver<T: Send> = <TokioRuntime as AsyncRuntime>::OneshotReceiver<T>;
    type OneshotReceiverError = <TokioRuntime as AsyncRuntime>::OneshotReceiverError;

    fn spawn<T>(future: T) -> Self::JoinHandle<T::Output>
    where
        T: Future + Send + 'static,
        T::Output: Send + 'static,
    {
        match CONTEXT.try_with(Clone::clone) {
            Ok(context) => tokio::spawn(within(context, future)),
            Err(_) => tokio::spawn(future),
        }
    }

    fn sleep(duration: Duration) -> Self::Sleep {
        tokio::time::sleep(duration)
    }

    /// Adds up to a quarter of the time. openraft checks for a due election only at ticks that wait with this function:
    /// two candidates with simultaneous ticks would repeatedly split the votes.
    fn sleep_until(deadline: Self::Instant) -> Self::Sleep {
        let most = deadline.saturating_duration_since(tokio::time::Instant::now()) / 4;
        tokio::time::sleep_until(deadline + Self::thread_rng().up_to(most))
    }

    fn timeout<R, F: Future<Output = R> + Send>(duration: Duration, future: F) -> Self::Timeout<R, F> {
        tokio::time::timeout(duration, future)
    }

    fn timeout_at<R, F: Future<Output = R> + Send>(deadline: Self::Instant, future: F) -> Self::Timeout<R, F> {
        tokio::time::timeout_at(deadline, future)
    }

    fn is_panic(join_error: &Self::JoinError) -> bool {
        join_error.is_panic()
    }

    fn thread_rng() -> Self::ThreadLocalRng {
        CONTEXT.try_with(|context| context.random.clone()).unwrap_or_default()
    }

    fn oneshot<T: Send>() -> (Self::OneshotSender<T>, Self::OneshotReceiver<T>) {
        TokioRuntime::oneshot()
    }
}

/// SplitMix64, shared by the tasks of one node.
#[derive(Clone, Default, Debug)]
pub(crate) struct Random(Arc<AtomicU64>);

impl Random {
    fn up_to(&mut self, most: Duration) -> Duration {
        let nanos = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX - 1);
        Duration::from_nanos(self.next_u64() % (nanos + 1))
    }
}

impl RngCore for Random {
    fn next_u32(&mut self) -> u32 {
        (self.next_u64() >> 32) as u32
    }

    fn next_u64(&mut self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut z = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn fill_bytes(&mut self, dest: &mut [u8]) {
        impls::fill_bytes_via_next(self, dest);
    }

    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), rand_core::Error> {
        self.fill_bytes(dest);
        Ok(())
    }
}
