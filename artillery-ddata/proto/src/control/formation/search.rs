//! How long a node has looked for other nodes.

use std::time::Duration;

use crate::Timestamp;

/// The most that counts of the time between two inputs.
const STEP: Duration = Duration::from_millis(100);

/// The time for which a node has looked for others. A paused process sees nothing, so a pause is worth one step.
#[derive(Debug, Default)]
pub(super) struct Search {
    counted: Option<Timestamp>,
    spent: Duration,
}

impl Search {
    pub(super) fn count(&mut self, now: Timestamp) {
        if let Some(counted) = self.counted {
            self.spent = self.spent.saturating_add((now - counted).min(STEP));
        }
        self.counted = Some(now);
    }

    pub(super) fn is_over(&self, wanted: Duration) -> bool {
        self.spent >= wanted
    }

    /// When to count next.
    pub(super) fn next_tick(&self) -> Timestamp {
        self.counted.map_or(Timestamp::ZERO, |counted| counted + STEP)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_counts_as_one_step() {
        let second = Duration::from_secs(1);
        let mut search = Search::default();
        assert_eq!(search.next_tick(), Timestamp::ZERO);
        search.count(Timestamp::ZERO + second * 5);
        search.count(Timestamp::ZERO + second * 50);
        assert!(search.is_over(STEP) && !search.is_over(STEP * 2));
        while !search.is_over(second) {
            search.count(search.next_tick());
        }
        assert_eq!(search.next_tick(), Timestamp::ZERO + second * 50 + second);
    }
}
