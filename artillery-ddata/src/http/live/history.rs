//! The last five minutes of a node, bounded.

use std::collections::VecDeque;

use serde::Serialize;

use super::sample::Sample;
use crate::node::{NodeEvent, events::Weight};

const KEPT_MS: u64 = 300_000;
/// One sample a second.
const MAX_SAMPLES: usize = 300;
const MAX_EVENTS: usize = 100;

/// `docs/json.md` describes the fields.
#[derive(Debug, Default, Serialize)]
pub(super) struct PageHistory {
    samples: VecDeque<Sample>,
    events: VecDeque<PastEvent>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct PastEvent {
    number: u64,
    at_ms: u64,
    kind: &'static str,
    text: String,
}

impl PageHistory {
    pub(super) fn record(&mut self, sample: Sample) {
        // The clock may have been set back.
        let since = sample.at_ms.saturating_sub(KEPT_MS);
        self.samples.retain(|past| (since..=sample.at_ms).contains(&past.at_ms));
        self.samples.push_back(sample);
        if self.samples.len() > MAX_SAMPLES {
            self.samples.pop_front();
        }
    }

    pub(super) fn event(&mut self, event: &NodeEvent, at_ms: u64) -> PastEvent {
        let kind = match event.weight() {
            Weight::Orderly => "orderly",
            Weight::Good => "good",
            Weight::Bad => "bad",
        };
        let number = self.events.back().map_or(1, |last| last.number + 1);
        let event = PastEvent { number, at_ms, kind, text: event.to_string() };
        self.events.push_back(event.clone());
        if self.events.len() > MAX_EVENTS {
            self.events.pop_front();
        }
        event
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(history: &PageHistory) -> Vec<u64> {
        history.samples.iter().map(|sample| sample.at_ms).collect()
    }

    #[test]
    fn five_minutes_are_kept_at_most_one_sample_a_second() {
        let mut history = PageHistory::default();
        for at in 0..1000 {
            history.record(Sample::at(at * 500));
        }
        assert_eq!(times(&history).len(), MAX_SAMPLES);
        history.record(Sample::at(10_000_000));
        assert_eq!(times(&history), [10_000_000]);
        history.record(Sample::at(9_000_000));
        assert_eq!(times(&history), [9_000_000], "after the clock was set back");
    }

    #[test]
    fn the_newest_events_are_kept_and_numbered() {
        let mut history = PageHistory::default();
        for number in 1..=250 {
            assert_eq!(history.event(&NodeEvent::LeaseLost, 7).number, number);
        }
        assert_eq!(history.events.len(), MAX_EVENTS);
        assert_eq!(history.events[0].number, 151);
    }
}
