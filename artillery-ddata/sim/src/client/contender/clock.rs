//! The clock of a process.

use artillery_proto::Timestamp;

/// A clock with a rate of its own.
#[derive(Debug)]
pub struct ProcessClock {
    offset: u64,
    /// Its rate error, in millionths; positive if it is fast.
    fast: i64,
    /// The newest interval in which it doesn't advance, and the length of all earlier ones, in virtual nanoseconds.
    suspended: (u64, u64),
    stopped: u64,
}

impl ProcessClock {
    pub(super) fn new(offset: u64, fast: i64) -> Self {
        Self { offset, fast, suspended: (0, 0), stopped: 0 }
    }

    /// Its reading at virtual time `now`.
    pub fn at(&self, now: u64) -> Timestamp {
        let (from, to) = self.suspended;
        let passed = now - self.stopped - (now.min(to) - now.min(from));
        let ahead = i128::from(passed) * i128::from(self.fast) / 1_000_000;
        Timestamp::from_nanos((i128::from(self.offset + passed) + ahead) as u64)
    }

    /// The virtual time at which it shows `at`, if it isn't suspended before.
    pub fn moment(&self, at: Timestamp) -> u64 {
        let passed = i128::from(at.as_nanos().saturating_sub(self.offset));
        let (from, to) = self.suspended;
        // Rounded up, so that the clock shows no less than `at`.
        (passed * 1_000_000 / i128::from(1_000_000 + self.fast)) as u64 + 1 + self.stopped + (to - from)
    }

    /// Stops the clock from `now` to `until`.
    pub(super) fn suspend(&mut self, now: u64, until: u64) {
        let (from, to) = self.suspended;
        self.stopped += to - from;
        self.suspended = (now, until);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suspended_clock_stands_still() {
        let mut clock = ProcessClock::new(500, 100_000);
        assert_eq!(clock.at(1000), Timestamp::from_nanos(1600));
        assert!(clock.at(clock.moment(Timestamp::from_nanos(2000))) >= Timestamp::from_nanos(2000));
        clock.suspend(1000, 3000);
        assert_eq!(clock.at(2000), clock.at(1000));
        assert_eq!(clock.at(4000), Timestamp::from_nanos(2700));
        assert!(clock.at(clock.moment(Timestamp::from_nanos(2700))) >= Timestamp::from_nanos(2700));
        clock.suspend(4000, 5000);
        assert_eq!(clock.at(5000), clock.at(4000));
    }
}
