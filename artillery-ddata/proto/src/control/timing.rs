//! The times that all nodes of a cluster use.

use std::{ops::RangeInclusive, time::Duration};

use serde::{Deserialize, Serialize};

/// Times that a cluster fixes when it is formed; they override the settings of each node. Defaults are in parentheses.
/// Leases are safe only if the leader that grants a lease and the leader that waits for its end use the same times
/// (docs/DESIGN.md §6, trap 63).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Timing {
    /// The duration of a lease (1 s), starting when its renewal is sent. From 200 ms to one hour.
    pub lease: Duration,
    /// The maximum difference in rate between two clocks, in parts per million (10,000). At most 500,000.
    pub drift_ppm: u32,
    /// A member from which the leader received no renewal for this time (500 ms) is suspected: its lease isn't renewed,
    /// and once that has expired, it is removed if another serving member is alive. From half of `lease` to one hour.
    pub suspect: Duration,
    /// A living member that stalls its chain for this long (2 s) is moved out, unless it is the last one. From 200 ms
    /// to one hour.
    pub slow: Duration,
}

/// A shorter lease could expire during a short load peak.
const MIN_LEASE: Duration = Duration::from_millis(200);
const MAX_LEASE: Duration = Duration::from_secs(3600);
const LIMITS: RangeInclusive<Duration> = MIN_LEASE..=MAX_LEASE;
/// A clock that drifts more is broken.
const MAX_DRIFT_PPM: u32 = 500_000;
/// Renewals during one lease.
const RENEWALS: u32 = 4;

impl Default for Timing {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(1),
            drift_ppm: 10_000,
            suspect: Duration::from_millis(500),
            slow: Duration::from_secs(2),
        }
    }
}

/// A time is out of range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidTiming {
    /// [`Timing::lease`] is out of range.
    #[error("must be from {MIN_LEASE:?} to {MAX_LEASE:?}")]
    Lease,
    /// [`Timing::drift_ppm`] is out of range.
    #[error("must be at most {MAX_DRIFT_PPM}")]
    Drift,
    /// [`Timing::suspect`] is out of range.
    #[error("must be from half of lease.duration to {MAX_LEASE:?}")]
    Suspect,
    /// [`Timing::slow`] is out of range.
    #[error("must be from {MIN_LEASE:?} to {MAX_LEASE:?}")]
    Slow,
}

impl InvalidTiming {
    /// The setting's path in the configuration.
    pub fn field(self) -> &'static str {
        match self {
            Self::Lease => "lease.duration",
            Self::Drift => "lease.drift_ppm",
            Self::Suspect => "suspect",
            Self::Slow => "slow",
        }
    }
}

impl Timing {
    /// Checks each time against its limits.
    ///
    /// # Errors
    /// The first time that is out of range.
    pub fn validate(&self) -> Result<(), InvalidTiming> {
        self.problems().next().map_or(Ok(()), Err)
    }

    /// All times that are out of range.
    pub fn problems(&self) -> impl Iterator<Item = InvalidTiming> + use<> {
        let found = [
            (!LIMITS.contains(&self.lease), InvalidTiming::Lease),
            (self.drift_ppm > MAX_DRIFT_PPM, InvalidTiming::Drift),
            (self.suspect < self.lease / 2 || self.suspect > MAX_LEASE, InvalidTiming::Suspect),
            (!LIMITS.contains(&self.slow), InvalidTiming::Slow),
        ];
        found.into_iter().filter_map(|(wrong, problem)| wrong.then_some(problem))
    }

    /// How long to wait until an earlier lease has certainly expired, by any clock within the drift.
    pub fn lease_and_drift(&self) -> Duration {
        self.lease + self.lease.mul_f64(f64::from(self.drift_ppm) / 1e6)
    }

    /// The interval of lease renewals.
    pub fn renew(&self) -> Duration {
        self.lease / RENEWALS
    }
}

impl std::fmt::Display for Timing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { lease, drift_ppm, suspect, slow } = self;
        write!(f, "lease {lease:?}, drift {drift_ppm} ppm, suspect {suspect:?}, slow {slow:?}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_out_of_their_limits_are_named() {
        let good = Timing::default();
        assert_eq!(good.validate(), Ok(()));
        let bad = [
            (Timing { lease: MIN_LEASE / 2, ..good }, InvalidTiming::Lease),
            (Timing { lease: Duration::MAX, suspect: Duration::MAX, ..good }, InvalidTiming::Lease),
            (Timing { drift_ppm: MAX_DRIFT_PPM + 1, ..good }, InvalidTiming::Drift),
            (Timing { suspect: good.lease / 2 - Duration::from_nanos(1), ..good }, InvalidTiming::Suspect),
            (Timing { slow: MAX_LEASE * 2, ..good }, InvalidTiming::Slow),
        ];
        for (timing, problem) in bad {
            assert_eq!(timing.validate(), Err(problem), "{timing}");
        }
    }
}
