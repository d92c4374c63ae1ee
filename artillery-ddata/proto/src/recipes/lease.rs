//! How long a key with a time to live certainly exists, by the clock of the process that renews it.

use std::time::Duration;

use crate::{Timestamp, api::millis, guards::Guards};

/// Renewals per time to live.
const RENEWALS: u32 = 3;

/// The lease that a key with a time to live gives to the process that set it.
///
/// A head never removes a key before its time to live, less the drift of two clocks, has passed since it ordered the
/// last renewal. It ordered that renewal after the holder had sent it. So the holder counts from the time of *sending*,
/// and only if the renewal was acknowledged. Its clock must include the time in which the machine was suspended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct KeyLease {
    ttl: Duration,
    /// The part of `ttl` for which the key certainly exists after a renewal was sent.
    certain: Duration,
    sent: Timestamp,
    until: Timestamp,
    guards: Guards,
}

impl KeyLease {
    /// A lease that no write has begun yet. The clocks of two nodes differ by at most `drift_ppm` millionths.
    pub fn new(ttl: Duration, drift_ppm: u32, guards: Guards) -> Self {
        // The chain counts whole milliseconds and rounds up.
        let ttl = Duration::from_millis(millis(ttl));
        let slowest = 1_000_000_u128.saturating_sub(drift_ppm.into());
        let certain = ttl.as_nanos().saturating_mul(slowest) / 1_000_000;
        let certain = Duration::from_nanos(u64::try_from(certain).unwrap_or(u64::MAX));
        Self { ttl, certain, sent: Timestamp::ZERO, until: Timestamp::ZERO, guards }
    }

    /// The time to live of the key.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// A write that sets the time to live, sent at `sent`, was acknowledged at `now`.
    pub fn acknowledge(&mut self, sent: Timestamp, now: Timestamp) {
        let sent = if allows!(self.guards, CountFromAnswer) { now } else { sent };
        self.sent = self.sent.max(sent);
        self.until = self.until.max(sent + self.certain);
    }

    /// Whether the key certainly exists.
    pub fn is_held(&self, now: Timestamp) -> bool {
        now < self.until
    }

    /// The end of the lease.
    pub fn until(&self) -> Timestamp {
        self.until
    }

    /// When the next renewal should be sent.
    pub fn renew_at(&self) -> Timestamp {
        self.sent + self.certain / RENEWALS
    }

    /// The longest time that a renewal may take, so that another attempt can follow before the lease ends.
    pub fn renewal_timeout(&self) -> Duration {
        (self.certain / RENEWALS).max(Duration::from_millis(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guards::Mutant;

    const TTL: Duration = Duration::from_secs(10);

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_lease_counts_from_the_sending_and_allows_for_drift() {
        let mut lease = KeyLease::new(TTL, 10_000, Guards::ALL);
        assert!(!lease.is_held(at(0)));
        lease.acknowledge(at(1_000), at(4_000));
        assert!(lease.is_held(at(10_899)));
        assert!(!lease.is_held(at(10_900)));
        assert_eq!(lease.renew_at(), at(4_300));
        lease.acknowledge(at(500), at(5_000));
        assert_eq!(lease.until(), at(10_900), "a late answer to an earlier renewal adds nothing");
    }

    #[test]
    fn a_lease_that_counts_from_the_answer_outlasts_its_key() {
        let mut lease = KeyLease::new(TTL, 10_000, Guards::without(Mutant::CountFromAnswer));
        lease.acknowledge(at(1_000), at(4_000));
        assert!(lease.is_held(at(13_899)));
    }

    #[test]
    fn extreme_values_saturate() {
        let mut lease = KeyLease::new(Duration::MAX, 2_000_000, Guards::ALL);
        lease.acknowledge(Timestamp::MAX, Timestamp::MAX);
        assert!(!lease.is_held(Timestamp::MAX));
        assert_eq!(KeyLease::new(Duration::ZERO, 0, Guards::ALL).renewal_timeout(), Duration::from_millis(1));
    }
}
