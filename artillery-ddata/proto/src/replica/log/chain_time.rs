use std::time::Duration;

use crate::Timestamp;

/// The chain time at a member (docs/adr/0031-chain-time.md): a number of milliseconds that is stored in each update, and
/// that never decreases along a history.
///
/// A member's base is the newest stamp of its present history, and the time on its own clock at which it received that
/// update. A head stamps the base plus the time that has passed since. Between neighbouring updates of the surviving
/// history, chain time thus rises by at most the time that a correct clock counted between their creations.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ChainTime {
    stamp: u64,
    /// By this member's clock. `None`: this process has neither received an update nor entered a configuration.
    since: Option<Timestamp>,
    /// The stamp of the update at the watermark, which may have left the backlog.
    committed: u64,
}

impl ChainTime {
    /// The chain time of a history whose newest update has this stamp. Time isn't counted before [`start`](Self::start).
    pub(super) const fn of(stamp: u64, committed: u64) -> Self {
        Self { stamp, since: None, committed }
    }

    pub(super) const fn committed(&self) -> u64 {
        self.committed
    }

    pub(super) const fn newest(&self) -> u64 {
        self.stamp
    }

    /// Begins to count, unless it has begun.
    pub(super) fn start(&mut self, now: Timestamp) {
        self.since.get_or_insert(now);
    }

    /// The chain time now, by this member's base and clock.
    pub(super) fn at(&self, now: Timestamp) -> u64 {
        let passed = self.since.map_or(Duration::ZERO, |since| now.saturating_since(since));
        self.stamp.saturating_add(u64::try_from(passed.as_millis()).unwrap_or(u64::MAX))
    }

    /// When chain time reaches this value here; `None`: it isn't counted yet.
    pub(super) fn reaches(&self, chain_time: u64) -> Option<Timestamp> {
        Some(self.since? + Duration::from_millis(chain_time.saturating_sub(self.stamp)))
    }

    /// The time on this member's clock at which chain time was 0, in nanoseconds; it may be negative.
    pub(super) fn origin(&self) -> i64 {
        let nanos = |time: u64| i64::try_from(time).unwrap_or(i64::MAX);
        let since = nanos(self.since.unwrap_or_default().as_nanos());
        since.saturating_sub(nanos(self.stamp.saturating_mul(1_000_000)))
    }

    /// The stamp of an update that this member makes. Without that update it has no effect on later stamps.
    pub(super) fn next(&mut self, now: Timestamp) -> u64 {
        let since = *self.since.get_or_insert(now);
        let passed = now.saturating_since(since).as_millis();
        let passed = u64::try_from(passed).unwrap_or(u64::MAX);
        // Moves the base by whole milliseconds along the same line, so that frequent updates lose no fractions.
        self.since = Some(since + Duration::from_millis(passed));
        self.stamp = self.stamp.saturating_add(passed);
        self.stamp
    }

    /// The update with this stamp is now the newest one, and this member doesn't make it: it was received, or ends a
    /// snapshot, or those after it were dropped. Whatever was counted before no longer counts, even if the stamp is the
    /// same: another head may have made this update much later than the one before.
    pub(super) fn follow(&mut self, stamp: u64, now: Timestamp) {
        (self.stamp, self.since) = (stamp, Some(now));
    }

    pub(super) fn commit(&mut self, stamp: u64) {
        self.committed = stamp;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Timestamp {
        Timestamp::from_nanos(micros * 1000)
    }

    #[test]
    fn frequent_updates_lose_no_fractions() {
        let mut time = ChainTime::of(7, 7);
        time.start(at(100));
        let stamps: Vec<_> = (0..=10_000).map(|n| time.next(at(100 + n * 300))).collect();
        assert!(stamps.is_sorted());
        assert_eq!((stamps[0], stamps[10_000]), (7, 7 + 3000));
    }

    #[test]
    fn time_counts_from_the_newest_update_with_a_stamp() {
        let mut time = ChainTime::default();
        time.follow(50, at(1_000_000));
        time.follow(50, at(1_400_000));
        assert_eq!(time.next(at(2_000_000)), 650);
        time.follow(50, at(3_000_000));
        assert_eq!(time.next(at(3_500_000)), 550);
    }
}
