//! Sums up the measurements of the workers.

use std::{fmt::Display, time::Duration};

use hdrhistogram::Histogram;

/// Latencies of one kind of operation, in microseconds.
pub(super) struct Latency(Histogram<u64>);

/// One hour: longer latencies are recorded as this.
const LONGEST_US: u64 = 3_600_000_000;

impl Latency {
    fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, LONGEST_US, 3);
        Self(histogram.unwrap_or_else(|_| unreachable!("the bounds are constants within the documented limits")))
    }

    pub(super) fn record(&mut self, took: Duration) {
        self.0.saturating_record(u64::try_from(took.as_micros()).unwrap_or(LONGEST_US).max(1));
    }

    pub(super) fn count(&self) -> u64 {
        self.0.len()
    }

    /// The latency that `percent` % of the operations did not exceed.
    pub(super) fn percentile(&self, percent: f64) -> u64 {
        self.0.value_at_quantile(percent / 100.0)
    }

    pub(super) fn max(&self) -> u64 {
        self.0.max()
    }
}

pub(super) struct Tally {
    pub(super) reads: Latency,
    pub(super) writes: Latency,
    pub(super) errors: u64,
    pub(super) wrong: u64,
    /// The texts of the first distinct failures.
    pub(super) examples: Vec<String>,
}

const MOST_EXAMPLES: usize = 5;

impl Tally {
    pub(super) fn new() -> Self {
        Self { reads: Latency::new(), writes: Latency::new(), errors: 0, wrong: 0, examples: Vec::new() }
    }

    pub(super) fn failed(&mut self, error: &dyn Display) {
        self.errors += 1;
        self.example(error.to_string());
    }

    pub(super) fn wrong(&mut self, what: &dyn Display) {
        self.wrong += 1;
        self.example(what.to_string());
    }

    fn example(&mut self, text: String) {
        if self.examples.len() < MOST_EXAMPLES && !self.examples.contains(&text) {
            self.examples.push(text);
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        // Can't fail: both histograms have the same bounds.
        let _ = (self.reads.0.add(&other.reads.0), self.writes.0.add(&other.writes.0));
        self.errors += other.errors;
        self.wrong += other.wrong;
        other.examples.iter().for_each(|text| self.example(text.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_keep_everything() {
        let (mut sum, mut one) = (Tally::new(), Tally::new());
        one.reads.record(Duration::from_micros(100));
        one.reads.record(Duration::MAX);
        one.writes.record(Duration::ZERO);
        one.failed(&"no");
        one.wrong(&"never");
        sum.add(&one);
        sum.add(&one);
        assert_eq!((sum.reads.count(), sum.writes.count(), sum.errors, sum.wrong), (4, 2, 2, 2));
        assert_eq!(sum.examples, ["no", "never"]);
        assert_eq!(sum.reads.percentile(50.0), 100);
        assert!(sum.reads.max() >= LONGEST_US);
    }
}
