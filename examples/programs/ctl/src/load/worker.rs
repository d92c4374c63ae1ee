//! A worker of a load: runs one operation after the other.

use std::{sync::Arc, time::Duration};

use artillery_ddata::{Error, Kv};
use artillery_programs::{chance::Dice, exit::Failure};
use tokio::time::{Instant, sleep_until};

use super::{
    LoadShared,
    check::{FIRST, Ledger},
    tally::Tally,
};
use crate::args::LoadArgs;

/// Maximum number of first values or removals in flight at the same time.
const AT_ONCE: usize = 64;

pub(super) struct Worker {
    /// At least 1, since [`FIRST`] identifies the writer of the first values.
    writer: usize,
    kv: Kv,
    dice: Dice,
    reads: u64,
    pace: Option<Pace>,
    shared: Arc<LoadShared>,
    tally: Tally,
}

struct Pace {
    next: Instant,
    period: Duration,
}

impl Pace {
    /// Spreads the workers evenly: worker `number` of `all` starts at its fraction of the period.
    fn new(number: u64, all: u64, rate: u64) -> Self {
        let period = Duration::from_secs_f64(all as f64 / rate as f64);
        Self { next: Instant::now() + period.mul_f64(number as f64 / all as f64), period }
    }

    fn take(&mut self) -> Instant {
        let due = self.next;
        self.next += self.period;
        due
    }
}

impl Worker {
    pub(super) fn new(number: u64, all: u64, kv: Kv, load: &LoadArgs, shared: Arc<LoadShared>) -> Self {
        let pace = load.rate.map(|rate| Pace::new(number, all, rate));
        let writer = number as usize + FIRST + 1;
        Self { writer, kv, dice: Dice::new(number), reads: load.reads, pace, shared, tally: Tally::new() }
    }

    pub(super) async fn run(mut self) -> Tally {
        while !self.shared.is_over() {
            // With a rate, latency counts from the time when the operation was due: waiting behind a slow one is
            // latency too.
            let begin = match &mut self.pace {
                Some(pace) => pace.take(),
                None => Instant::now(),
            };
            if begin >= self.shared.deadline {
                break;
            }
            // `sleep_until` waits up to a millisecond even for a time in the past.
            if begin > Instant::now() {
                sleep_until(begin).await;
            }
            self.operate(begin).await;
        }
        self.tally
    }

    async fn operate(&mut self, begin: Instant) {
        let key = self.dice.below(self.shared.ledger.keys() as u64) as usize;
        let reads = self.dice.below(100) < self.reads;
        let done = if reads { self.read(key).await } else { self.write(key).await };
        match done {
            Ok(()) => {
                self.shared.ledger.count();
                let latency = if reads { &mut self.tally.reads } else { &mut self.tally.writes };
                latency.record(begin.elapsed());
            }
            Err(error) => self.tally.failed(&error),
        }
    }

    async fn read(&mut self, key: usize) -> Result<(), Error> {
        let ledger = &self.shared.ledger;
        let floor = ledger.floor(key);
        let read = self.kv.get(ledger.name(key)).await?;
        if ledger.checks() {
            let found = ledger.look(key, floor, read.value().map(AsRef::as_ref), read.version());
            if let Err(wrong) = found {
                self.tally.wrong(&wrong);
            }
        }
        Ok(())
    }

    async fn write(&mut self, key: usize) -> Result<(), Error> {
        write(&self.kv, &self.shared.ledger, key, self.writer).await
    }
}

async fn write(kv: &Kv, ledger: &Ledger, key: usize, writer: usize) -> Result<(), Error> {
    let done = kv.put(ledger.name(key), ledger.value(key, writer)).await?;
    ledger.committed(key, done.version);
    Ok(())
}

/// Gives every key a value, so that every read finds one.
pub(super) async fn first_values(kvs: &[Kv], ledger: &Ledger) -> Result<(), Failure> {
    each_key(kvs, ledger.keys(), |kv, key| kv.put(ledger.name(key), ledger.value(key, FIRST)).into_future())
        .await
        .into_iter()
        .try_for_each(|(key, done)| done.map(|done| ledger.committed(key, done.version)))?;
    Ok(())
}

/// Removes every key; failures are only logged.
pub(super) async fn remove(kvs: &[Kv], ledger: &Ledger) {
    let done = each_key(kvs, ledger.keys(), |kv, key| kv.delete(ledger.name(key)).into_future()).await;
    let left = ledger.keys() - done.iter().filter(|(_, done)| done.is_ok()).count();
    if left > 0 {
        tracing::warn!(left, "could not remove all keys of this run");
    }
}

/// Runs `work` for each key, with a bounded number in flight. After a failure no further key is begun, since each would
/// probably take its whole timeout to fail as well.
async fn each_key<T, E, F>(kvs: &[Kv], keys: usize, work: impl Fn(&Kv, usize) -> F) -> Vec<(usize, Result<T, E>)>
where
    T: Send + 'static,
    E: Send + 'static,
    F: Future<Output = Result<T, E>> + Send + 'static,
{
    let mut tasks = tokio::task::JoinSet::new();
    let mut done: Vec<(usize, Result<T, E>)> = Vec::with_capacity(keys);
    for (key, kv) in (0..keys).zip(kvs.iter().cycle()) {
        if tasks.len() >= AT_ONCE {
            done.extend(tasks.join_next().await.and_then(Result::ok));
        }
        if done.last().is_some_and(|(_, done)| done.is_err()) {
            break;
        }
        let task = work(kv, key);
        tasks.spawn(async move { (key, task.await) });
    }
    while let Some(result) = tasks.join_next().await {
        done.extend(result.ok());
    }
    done
}
