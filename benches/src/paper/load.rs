//! The work of callers: one operation after the other, each answer checked.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use artillery_core::internal::clock;
use artillery_ddata::{Kv, Version, kv::ReadPath};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::tally::{Kind, Tally};
use crate::throughput::{
    Failed,
    book::{Ask, Asks, Book, Turn},
    stats::Window,
};

/// The work of one caller until the window ends.
#[derive(Debug, Clone, Copy)]
pub enum Work {
    /// Reads any key.
    Read,
    /// Gives the caller's keys new values, at a fixed rate or as fast as possible.
    Write {
        /// Writes per second of this caller. `None`: as many as possible.
        per_second: Option<f64>,
    },
    /// Repeatedly compares and swaps one key.
    Swap,
}

/// State shared by the callers of one client.
#[derive(Debug, Clone)]
pub struct Line {
    /// The client's handle to the data.
    pub kv: Kv,
    /// Keys, and the writes to them.
    pub book: Arc<Book>,
    /// The number of members that must hold a write.
    pub copies: u32,
    /// The time of the sample.
    pub window: Window,
    /// Whether an error is counted instead of ending the run.
    pub tolerant: bool,
    /// Counts of the operations.
    pub tally: Arc<Mutex<Tally>>,
}

/// One of the callers that use the same book.
#[derive(Debug, Clone, Copy)]
pub struct Caller {
    /// The operations of the caller.
    pub work: Work,
    /// Its index among the writers, which determines its keys.
    pub number: usize,
    /// The number of writers.
    pub writers: usize,
}

impl Caller {
    /// The times at which this writer writes. Writers begin one after the other, evenly over one period: if all wrote at
    /// once, they would measure bursts.
    fn pace(&self, per_second: f64) -> Interval {
        let period = Duration::from_secs_f64(1.0 / per_second.max(0.001));
        let begins = Instant::now() + period.mul_f64(self.number as f64 / self.writers.max(1) as f64);
        let mut pace = interval_at(begins, period);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        pace
    }

    fn asks(&self, line: &Line) -> Asks {
        let reads_percent = if matches!(self.work, Work::Read) { 100 } else { 0 };
        let seed = line.window.from.as_nanos() ^ (u64::from(reads_percent) << 32);
        let (writer, writers, window) = (self.number, self.writers.max(1), line.window);
        line.book.asks(Turn { writer, writers, reads_percent, seed, window })
    }

    /// Works until the window ends.
    ///
    /// # Errors
    /// A wrong value, any error of a swap, and any other error unless the line tolerates it.
    pub async fn work(self, line: Line) -> Result<(), Failed> {
        match self.work {
            Work::Read => line.read_on(self.asks(&line)).await,
            Work::Write { per_second } => {
                let own_keys = line.book.keys() / self.writers.max(1);
                line.write_on(self.asks(&line), own_keys, per_second.map(|rate| self.pace(rate))).await
            }
            Work::Swap => line.swap_on(self.number).await,
        }
    }
}

impl Line {
    fn is_over(&self) -> bool {
        clock::now() >= self.window.until
    }

    fn note<T>(&self, what: impl FnOnce(&mut Tally) -> T) -> T {
        what(&mut self.tally.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn failed(&self, what: &str, error: &dyn std::fmt::Display) -> Result<(), Failed> {
        if !self.tolerant {
            return Err(format!("a {what} failed: {error}").into());
        }
        self.note(|tally| tally.fail(clock::now()));
        Ok(())
    }

    async fn read_on(&self, mut asks: Asks) -> Result<(), Failed> {
        while !self.is_over() {
            let (Ask::Read(at) | Ask::Write(at)) = asks.next_ask();
            self.read(at).await?;
        }
        Ok(())
    }

    /// Reads a key, and checks all bytes of its value.
    ///
    /// # Errors
    /// A wrong value, and any other error unless the line tolerates it.
    pub async fn read(&self, at: usize) -> Result<(), Failed> {
        let (floor, began) = (self.book.floor(at), clock::now());
        match self.kv.get(self.book.name(at)).await {
            Ok(read) => {
                self.book.check(at, floor, read.value())?;
                let kind = if read.served.way == ReadPath::Local { Kind::CleanRead } else { Kind::DirtyRead };
                self.note(|tally| tally.note(kind, began, clock::now()));
                Ok(())
            }
            Err(error) => self.failed("read", &error),
        }
    }

    async fn write_on(&self, mut asks: Asks, own_keys: usize, mut pace: Option<Interval>) -> Result<(), Failed> {
        let mut unknown = BTreeSet::new();
        while !self.is_over() && unknown.len() < own_keys {
            if let Some(pace) = &mut pace {
                pace.tick().await;
            }
            let (Ask::Read(at) | Ask::Write(at)) = asks.next_ask();
            if unknown.contains(&at) {
                tokio::task::yield_now().await;
            } else if !self.write(at).await? {
                // The failed write may still take effect, so another write to the same key couldn't be checked.
                unknown.insert(at);
            }
        }
        Ok(())
    }

    /// Gives a key its next value. `false`: the write failed, and the line tolerates it.
    ///
    /// # Errors
    /// The write failed, or too few members hold it, unless the line tolerates it.
    pub async fn write(&self, at: usize) -> Result<bool, Failed> {
        let ((number, value), began) = (self.book.issue(at), clock::now());
        match self.kv.put(self.book.name(at), value).await {
            Ok(done) if done.copies == self.copies || self.tolerant => {
                self.book.acknowledge(at, number);
                self.note(|tally| tally.note(Kind::Write, began, clock::now()));
                Ok(true)
            }
            Ok(done) => Err(format!("a write is on {} members of {}", done.copies, self.copies).into()),
            Err(error) => self.failed("write", &error).map(|()| false),
        }
    }

    async fn swap_on(&self, at: usize) -> Result<(), Failed> {
        let mut version: Version = self.kv.get(self.book.name(at)).await?.version();
        while !self.is_over() {
            let ((number, value), began) = (self.book.issue(at), clock::now());
            version = match self.kv.compare_and_swap(self.book.name(at), version, value).await {
                Ok(swapped) => swapped.version,
                Err(error) => {
                    error.into_conflict()?;
                    return Err("a key with one writer has another version".into());
                }
            };
            self.book.acknowledge(at, number);
            self.note(|tally| tally.note(Kind::Write, began, clock::now()));
        }
        Ok(())
    }
}
