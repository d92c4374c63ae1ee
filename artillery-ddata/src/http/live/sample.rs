//! Rates and latencies between two readings of a node's counters.

use std::collections::BTreeMap;

use serde::Serialize;
use tokio::time::Instant;

use crate::{
    Place,
    metrics::{NodeMetrics, OperationKind, OperationMetrics},
    status::ReadsStatus,
};

/// Rates per second, and latencies in milliseconds. `docs/json.md` describes the fields.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(super) struct Sample {
    pub(super) at_ms: u64,
    local_clean: f64,
    dirty: f64,
    through_chain: f64,
    several_keys: f64,
    forwarded: f64,
    committed: f64,
    writes: f64,
    read_p50_ms: Option<f64>,
    read_p99_ms: Option<f64>,
    write_p50_ms: Option<f64>,
    write_p99_ms: Option<f64>,
}

/// A reading of the counters.
#[derive(Debug, Clone)]
pub(super) struct Reading {
    at: Instant,
    reads: ReadsStatus,
    watermarks: BTreeMap<u32, u64>,
    several_keys: u64,
    writes: u64,
    read_latency: Latency,
    write_latency: Latency,
}

/// Counts of latencies by range.
#[derive(Debug, Clone, Default, PartialEq)]
struct Latency {
    /// In seconds.
    bounds: Vec<f64>,
    counts: Vec<u64>,
}

fn is_read(kind: OperationKind) -> bool {
    matches!(kind, OperationKind::Read | OperationKind::ReadMany | OperationKind::Scan)
}

fn is_write(kind: OperationKind) -> bool {
    // A poll of a watch waits for a change, and a query for an outcome changes nothing.
    !is_read(kind) && !matches!(kind, OperationKind::Changes | OperationKind::Resolve)
}

impl Reading {
    pub(super) fn new(metrics: &NodeMetrics, at: Instant) -> Self {
        let of = |is: fn(OperationKind) -> bool| metrics.operations.iter().filter(move |of| is(of.kind));
        // A joiner's watermark jumps, since it receives many updates at once.
        let serving = metrics.status.chains.iter().filter(|chain| chain.place != Place::Syncing);
        let several = |kind| matches!(kind, OperationKind::ReadMany | OperationKind::Scan);
        Self {
            at,
            reads: metrics.status.reads,
            watermarks: serving.map(|chain| (chain.chain, chain.watermark)).collect(),
            several_keys: of(several).map(|of| of.done).sum(),
            writes: of(is_write).map(|of| of.done).sum(),
            read_latency: Latency::of(of(is_read)),
            write_latency: Latency::of(of(is_write)),
        }
    }

    pub(super) fn at(&self) -> Instant {
        self.at
    }

    /// The rates since an earlier reading. A counter that was reset has not grown.
    pub(super) fn since(&self, before: &Self, at_ms: u64) -> Sample {
        let seconds = (self.at - before.at).as_secs_f64().max(0.001);
        let rate = |before: u64, now: u64| (now.saturating_sub(before) as f64 / seconds * 10.0).round() / 10.0;
        let committed = self.watermarks.iter().filter_map(|(chain, now)| {
            let then = before.watermarks.get(chain)?;
            Some(now.saturating_sub(*then))
        });
        let reads = self.read_latency.since(&before.read_latency);
        let writes = self.write_latency.since(&before.write_latency);
        Sample {
            at_ms,
            local_clean: rate(before.reads.local_clean, self.reads.local_clean),
            dirty: rate(before.reads.dirty, self.reads.dirty),
            through_chain: rate(before.reads.through_chain, self.reads.through_chain),
            several_keys: rate(before.several_keys, self.several_keys),
            forwarded: rate(before.reads.forwarded, self.reads.forwarded),
            committed: rate(0, committed.sum()),
            writes: rate(before.writes, self.writes),
            read_p50_ms: reads.quantile_ms(0.5),
            read_p99_ms: reads.quantile_ms(0.99),
            write_p50_ms: writes.quantile_ms(0.5),
            write_p99_ms: writes.quantile_ms(0.99),
        }
    }
}

impl Latency {
    fn of<'a>(operations: impl Iterator<Item = &'a OperationMetrics>) -> Self {
        let mut sum = Self::default();
        for of in operations {
            sum.bounds.clone_from(&of.latency.bounds);
            sum.counts.resize(of.latency.counts.len(), 0);
            sum.counts.iter_mut().zip(&of.latency.counts).for_each(|(sum, count)| *sum += count);
        }
        sum
    }

    fn since(&self, before: &Self) -> Self {
        let then = before.counts.iter().chain(std::iter::repeat(&0));
        let counts = self.counts.iter().zip(then).map(|(now, then)| now.saturating_sub(*then)).collect();
        Self { bounds: self.bounds.clone(), counts }
    }

    /// Interpolated within a range, as Prometheus does. In the last range, which is unbounded: its lower bound. `None`:
    /// there were no operations.
    fn quantile_ms(&self, quantile: f64) -> Option<f64> {
        let count: u64 = self.counts.iter().sum();
        if count == 0 {
            return None;
        }
        let (rank, mut below, mut low) = (quantile * count as f64, 0.0, 0.0);
        for (&count, &high) in self.counts.iter().zip(&self.bounds) {
            let count = count as f64;
            if below + count >= rank {
                let seconds = low + (high - low) * (rank - below) / count;
                return Some((seconds * 1e5).round() / 100.0);
            }
            (below, low) = (below + count, high);
        }
        Some(low * 1e3)
    }
}

#[cfg(test)]
impl Sample {
    pub(super) fn at(at_ms: u64) -> Self {
        Self { at_ms, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn latency(counts: &[u64]) -> Latency {
        Latency { bounds: vec![0.001, 0.01, 0.1], counts: counts.to_vec() }
    }

    fn reading(at: Instant, counter: u64) -> Reading {
        Reading {
            at,
            reads: ReadsStatus { local_clean: counter, dirty: counter * 2, ..Default::default() },
            watermarks: [(0, counter), (1, counter)].into(),
            several_keys: 0,
            writes: counter,
            read_latency: latency(&[0; 4]),
            write_latency: latency(&[counter, 0, 0, 0]),
        }
    }

    #[test]
    fn rates_are_per_second_and_a_reset_counter_has_none() {
        let now = Instant::now();
        let (before, after) = (reading(now, 10), reading(now + Duration::from_secs(4), 50));
        let sample = after.since(&before, 7);
        assert_eq!((sample.local_clean, sample.dirty, sample.committed, sample.writes), (10.0, 20.0, 20.0, 10.0));
        assert_eq!((sample.read_p50_ms, sample.write_p50_ms), (None, Some(0.5)));
        let reset = reading(now + Duration::from_secs(8), 1);
        assert_eq!(reset.since(&after, 8), Sample::at(8));
    }

    #[test]
    fn a_chain_that_was_joined_since_adds_no_commits() {
        let now = Instant::now();
        let (before, mut after) = (reading(now, 10), reading(now + Duration::from_secs(1), 10));
        after.watermarks.insert(2, 1_000_000);
        assert_eq!(after.since(&before, 0).committed, 0.0);
    }

    #[test]
    fn quantiles_are_interpolated_and_bounded() {
        assert_eq!(latency(&[0, 0, 0, 0]).quantile_ms(0.5), None);
        assert_eq!(latency(&[0, 10, 0, 0]).quantile_ms(0.5), Some(5.5));
        assert_eq!(latency(&[99, 0, 1, 0]).quantile_ms(0.99), Some(1.0));
        assert_eq!(latency(&[0, 0, 0, 5]).quantile_ms(0.5), Some(100.0));
        assert_eq!(latency(&[5, 1, 1, 0]).since(&latency(&[5, 0, 0, 0])), latency(&[0, 1, 1, 0]));
    }
}
