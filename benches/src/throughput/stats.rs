//! Statistics of single latencies and of samples.

use std::time::Duration;

use artillery_core::Timestamp;
use hdrhistogram::Histogram;

use super::Failed;

/// The time of a sample. Operations that end in it are counted.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    /// The start. Callers warm up before it.
    pub from: Timestamp,
    /// The end.
    pub until: Timestamp,
}

impl Window {
    /// The time from the start to the end.
    pub fn length(&self) -> Duration {
        self.until - self.from
    }
}

/// Operations of one window.
#[derive(Debug, Clone)]
pub struct Tally {
    operations: u64,
    /// The latencies of reads, in nanoseconds.
    latencies: Histogram<u64>,
}

/// In nanoseconds; longer latencies are counted as this one.
const LONGEST: u64 = 60_000_000_000;

impl Tally {
    /// An empty tally.
    pub fn new() -> Result<Self, Failed> {
        Ok(Self { operations: 0, latencies: Histogram::new_with_max(LONGEST, 3)? })
    }

    /// Counts an operation if it ended in the window.
    pub fn note(&mut self, is_read: bool, began: Timestamp, ended: Timestamp, window: &Window) {
        if ended < window.from || ended >= window.until {
            return;
        }
        self.operations += 1;
        if is_read {
            self.latencies.saturating_record((ended - began).as_nanos() as u64);
        }
    }

    /// Adds the tally of another caller.
    pub fn add(&mut self, other: &Self) -> Result<(), Failed> {
        self.operations += other.operations;
        Ok(self.latencies.add(&other.latencies)?)
    }

    /// Operations per second.
    pub fn per_second(&self, window: &Window) -> f64 {
        self.operations as f64 / window.length().as_secs_f64()
    }

    /// A quantile of the latency of reads, in microseconds.
    pub fn micros(&self, quantile: f64) -> f64 {
        self.latencies.value_at_quantile(quantile) as f64 / 1000.0
    }
}

/// The median. Of an even number, the mean of the two in the middle. 0 without samples.
pub fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        odd if odd % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// The smallest and the largest sample. Zeroes without samples.
pub fn range(samples: &[f64]) -> (f64, f64) {
    let fold = |best: fn(f64, f64) -> f64| samples.iter().copied().reduce(best).unwrap_or_default();
    (fold(f64::min), fold(f64::max))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn medians_and_ranges() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!((median(&[]), range(&[])), (0.0, (0.0, 0.0)));
        assert_eq!(range(&[3.0, 1.0, 2.0]), (1.0, 3.0));
    }

    #[test]
    fn operation_counts_if_it_ends_in_the_window() {
        let window = Window { from: at(100), until: at(200) };
        let mut tally = Tally::new().unwrap();
        for (began, ended) in [(0, 99), (50, 100), (150, 199), (199, 200)] {
            tally.note(true, at(began), at(ended), &window);
        }
        assert_eq!(tally.per_second(&window), 20.0);
    }

    #[test]
    fn latencies_are_of_reads_alone() {
        let window = Window { from: at(0), until: at(1000) };
        let (mut one, mut other) = (Tally::new().unwrap(), Tally::new().unwrap());
        one.note(true, at(0), at(10), &window);
        one.note(false, at(0), at(900), &window);
        other.note(true, at(0), at(30), &window);
        other.note(true, at(0), at(20), &window);
        one.add(&other).unwrap();
        assert_eq!(one.per_second(&window), 4.0);
        assert!((one.micros(0.5) - 20_000.0).abs() < 20.0, "{}", one.micros(0.5));
        assert!((one.micros(1.0) - 30_000.0).abs() < 30.0, "{}", one.micros(1.0));
    }
}
