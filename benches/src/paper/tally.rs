//! Operations of a sample, counted by kind and by time.

use std::time::Duration;

use artillery_core::Timestamp;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::throughput::{Failed, stats::Window};

/// The length of a bucket of the timeline.
pub const BUCKET: Duration = Duration::from_millis(100);

/// In nanoseconds; longer latencies are counted as a minute.
const MAX_LATENCY: u64 = 60_000_000_000;

/// The kinds of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A strong read that its member answered without a version query.
    CleanRead,
    /// A strong read for which its member queried the tail.
    DirtyRead,
    /// A write or a compare-and-swap.
    Write,
}

/// Operations that ended in one bucket of the timeline.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// Reads with a correct value.
    pub reads: u32,
    /// Acknowledged writes.
    pub writes: u32,
    /// Operations that ended with an error.
    pub failures: u32,
}

/// Latencies of one kind of operation, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// The number of operations.
    pub count: u64,
    /// Median.
    pub p50_us: f64,
    /// 95th percentile.
    pub p95_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
}

/// Operations of one sample.
#[derive(Debug, Clone)]
pub struct Tally {
    window: Window,
    latencies: [Histogram<u64>; 3],
    buckets: Vec<Bucket>,
    failures: u64,
}

impl Tally {
    /// An empty tally.
    pub fn new(window: Window) -> Result<Self, Failed> {
        let histogram = || Histogram::new_with_max(MAX_LATENCY, 2);
        let buckets = window.length().as_millis().div_ceil(BUCKET.as_millis()) as usize;
        let latencies = [histogram()?, histogram()?, histogram()?];
        Ok(Self { window, latencies, buckets: vec![Bucket::default(); buckets], failures: 0 })
    }

    fn bucket(&mut self, ended: Timestamp) -> Option<&mut Bucket> {
        if ended < self.window.from || ended >= self.window.until {
            return None;
        }
        let at = (ended - self.window.from).as_nanos() / BUCKET.as_nanos();
        self.buckets.get_mut(at as usize)
    }

    /// Counts an operation if it ended in the window.
    pub fn note(&mut self, kind: Kind, began: Timestamp, ended: Timestamp) {
        let Some(bucket) = self.bucket(ended) else { return };
        match kind {
            Kind::CleanRead | Kind::DirtyRead => bucket.reads += 1,
            Kind::Write => bucket.writes += 1,
        }
        self.latencies[kind as usize].saturating_record((ended - began).as_nanos() as u64);
    }

    /// Counts an operation that ended with an error.
    pub fn fail(&mut self, ended: Timestamp) {
        if let Some(bucket) = self.bucket(ended) {
            bucket.failures += 1;
            self.failures += 1;
        }
    }

    /// Adds the tally of another client in the same window.
    pub fn add(&mut self, other: &Self) -> Result<(), Failed> {
        for (own, others) in self.latencies.iter_mut().zip(&other.latencies) {
            own.add(others)?;
        }
        for (own, others) in self.buckets.iter_mut().zip(&other.buckets) {
            own.reads += others.reads;
            own.writes += others.writes;
            own.failures += others.failures;
        }
        self.failures += other.failures;
        Ok(())
    }

    /// Operations of a kind, per second.
    pub fn per_second(&self, kind: Kind) -> f64 {
        self.latencies[kind as usize].len() as f64 / self.window.length().as_secs_f64()
    }

    /// Reads per second, clean and dirty.
    pub fn reads_per_second(&self) -> f64 {
        self.per_second(Kind::CleanRead) + self.per_second(Kind::DirtyRead)
    }

    /// Latencies of a kind.
    pub fn latency(&self, kind: Kind) -> Latency {
        let histogram = &self.latencies[kind as usize];
        let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1000.0;
        Latency { count: histogram.len(), p50_us: at(0.5), p95_us: at(0.95), p99_us: at(0.99) }
    }

    /// All buckets, from the start of the window.
    pub fn timeline(&self) -> &[Bucket] {
        &self.buckets
    }

    /// Operations that ended with an error.
    pub fn failures(&self) -> u64 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn operations_are_counted_by_kind_and_by_time() {
        let window = Window { from: at(1000), until: at(1250) };
        let mut tally = Tally::new(window).unwrap();
        tally.note(Kind::CleanRead, at(900), at(999));
        tally.note(Kind::CleanRead, at(999), at(1000));
        tally.note(Kind::DirtyRead, at(1000), at(1249));
        tally.note(Kind::Write, at(1000), at(1100));
        tally.note(Kind::Write, at(1000), at(1250));
        tally.fail(at(1150));
        let mut all = Tally::new(window).unwrap();
        all.add(&tally).unwrap();
        all.add(&tally).unwrap();
        assert_eq!((all.per_second(Kind::CleanRead), all.reads_per_second()), (8.0, 16.0));
        let bucket = |reads, writes, failures| Bucket { reads, writes, failures };
        assert_eq!(all.timeline(), [bucket(2, 0, 0), bucket(0, 2, 2), bucket(2, 0, 0)]);
        assert_eq!((all.failures(), all.latency(Kind::Write).count), (2, 2));
        assert!((all.latency(Kind::Write).p50_us / 100_000.0 - 1.0).abs() < 0.01);
    }
}
