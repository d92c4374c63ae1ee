//! A small, steady load that checks its reads.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::Duration,
};

use artillery_ddata::{Error, Kv};
use artillery_programs::exit::Failure;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

use crate::text::print;

pub(super) const WRITE_PERIOD: Duration = Duration::from_millis(100);
pub(super) const READ_PERIOD: Duration = Duration::from_millis(20);
/// Longer pauses between successes are reported.
const PAUSE: Duration = Duration::from_secs(1);
const COUNTER: &str = "demo:counter";

/// The highest acknowledged value of the counter.
static ACKNOWLEDGED: AtomicI64 = AtomicI64::new(0);

pub(super) fn per_second(period: Duration) -> u128 {
    1000 / period.as_millis()
}

/// Increments a counter. Returns only if the counter has decreased.
pub(super) async fn write(kv: &Kv) -> Failure {
    repeat("Writes", WRITE_PERIOD, async || Ok(kv.increment(COUNTER, 1).await?.result)).await
}

/// Reads that counter. Returns only if it has decreased.
pub(super) async fn read(kv: &Kv) -> Failure {
    let read = async || {
        let read = kv.get(COUNTER).await?;
        let text = read.value().and_then(|value| std::str::from_utf8(value).ok());
        Ok(text.and_then(|text| text.parse().ok()).unwrap_or(0))
    };
    repeat("Reads", READ_PERIOD, read).await
}

async fn repeat(what: &str, period: Duration, ask: impl AsyncFn() -> Result<i64, Error>) -> Failure {
    let (mut pace, mut done, mut is_failing) = (pace(period), None::<Instant>, false);
    loop {
        pace.tick().await;
        let floor = ACKNOWLEDGED.load(Ordering::Relaxed);
        match ask().await {
            Ok(value) if value < floor => {
                return Failure::failed(format!(
                    "{COUNTER} is {value} after {floor} was acknowledged: either a client has changed this key, or \
                     acknowledged writes are lost"
                ));
            }
            Ok(value) => {
                ACKNOWLEDGED.fetch_max(value, Ordering::Relaxed);
                let pause = done.replace(Instant::now()).map(|done| done.elapsed());
                if let Some(pause) = pause.filter(|&pause| pause >= PAUSE) {
                    let seconds = pause.as_secs_f64();
                    print(&format!(
                        "{what} continue after {seconds:.1} s. No acknowledged write is lost ({value} writes)."
                    ));
                }
                is_failing = false;
            }
            // One line for a series of failures.
            Err(error) => {
                if !is_failing {
                    print(&format!("{what} fail: {error}"));
                }
                is_failing = true;
            }
        }
    }
}

fn pace(period: Duration) -> Interval {
    let mut pace = interval(period);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pace
}
