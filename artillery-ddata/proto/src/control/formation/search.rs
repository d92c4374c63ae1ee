//! The time that a node has spent searching for other nodes.

use std::time::Duration;

use crate::Timestamp;

/// The maximum time that is counted between two inputs.
const STEP: Duration = Duration::from_millis(100);

/// After a longer pause of the process the search restarts.
const PAUSE: Duration = Duration::from_millis(1000);

/// The time spent searching. A paused process sees nothing, and its earlier observations are out of date, so time in a
/// pause isn't counted.
#[derive(Debug, Default)]
pub(super) struct Search {
    counted: Option<Timestamp>,
    spent: Duration,
}

impl Search {
    /// Counts the time since the last call. `true`: the process was paused, so the search restarts.
    pub(super) fn count(&mut self, now: Timestamp) -> bool {
        let passed = self.counted.map_or(Duration::ZERO, |counted| now - counted);
        self.counted = Some(now);
        if passed > PAUSE {
            self.spent = Duration::ZERO;
            return true;
        }
        self.spent = self.spent.saturating_add(passed.min(STEP));
        false
    }

    pub(super) fn is_over(&self, wanted: Duration) -> bool {
        self.spent >= wanted
    }

    pub(super) fn next_tick(&self) -> Timestamp {
        self.counted.map_or(Timestamp::ZERO, |counted| counted + STEP)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_ends_the_search() {
        let second = Duration::from_secs(1);
        let mut search = Search::default();
        assert_eq!(search.next_tick(), Timestamp::ZERO);
        let search_for_a_second = |search: &mut Search| {
            while !search.is_over(second) {
                assert!(!search.count(search.next_tick()));
            }
        };
        search_for_a_second(&mut search);
        assert_eq!(search.next_tick(), Timestamp::ZERO + second + STEP);
        assert!(search.count(Timestamp::ZERO + second * 50));
        assert!(!search.is_over(STEP));
        search_for_a_second(&mut search);
    }

    #[test]
    fn a_late_tick_counts_as_one_step() {
        let mut search = Search::default();
        search.count(Timestamp::ZERO);
        assert!(!search.count(Timestamp::ZERO + PAUSE));
        assert!(search.is_over(STEP) && !search.is_over(STEP * 2));
    }
}
