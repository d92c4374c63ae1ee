//! The request numbers of one client session: the open ones, and the lowest whose outcome may still be queried.

use std::collections::{BTreeSet, VecDeque};

/// The maximum number of requests of one session in flight. A node keeps the record of a request until a later request
/// confirms that it was answered, which is impossible while a lower number is open. By default a node has capacity for
/// 43,690 records per session.
pub(super) const MAX_UNDER_WAY: usize = 1 << 14;

/// The maximum number of unknown outcomes that can still be queried.
const MAX_UNKNOWN: usize = 1024;

/// After this many further requests, an unknown outcome can no longer be queried: until then nodes keep the records of
/// all later requests.
const MAX_UNKNOWN_SPAN: u64 = 8192;

/// The session is stuck if, for each request in flight, more numbers than this were issued after the lowest open one.
const HELD_BACK_PER_OPEN: u64 = 4;

/// The same bound in total, for any number of requests in flight. By default a node has capacity for a third more.
const MAX_HELD_BACK: u64 = 2 * MAX_UNDER_WAY as u64;

#[derive(Debug, Default)]
pub(super) struct Numbers {
    last: u64,
    /// Numbers that were issued, and neither answered nor abandoned.
    open: BTreeSet<u64>,
    /// Open numbers with unknown outcomes, oldest first.
    kept: VecDeque<u64>,
}

impl Numbers {
    pub(super) fn begin(&mut self) -> (u64, u64) {
        self.last += 1;
        self.open.insert(self.last);
        while self.kept.front().is_some_and(|&oldest| oldest + MAX_UNKNOWN_SPAN < self.last) {
            self.forget_oldest();
        }
        (self.last, self.lowest().unwrap_or(self.last))
    }

    pub(super) fn lowest(&self) -> Option<u64> {
        self.open.first().copied()
    }

    /// Called when a request was answered, or when its caller will never query the outcome.
    pub(super) fn end(&mut self, number: u64) {
        self.open.remove(&number);
    }

    /// Called when a request's outcome is unknown, and its caller may query it.
    pub(super) fn keep(&mut self, number: u64) {
        self.kept.push_back(number);
        if self.kept.len() > MAX_UNKNOWN {
            self.forget_oldest();
        }
    }

    /// Called when an unknown outcome has become known.
    pub(super) fn settle(&mut self, number: u64) {
        self.kept.retain(|&kept| kept != number);
        self.end(number);
    }

    /// Whether the lowest open number is far behind the last one, given the number of requests in flight, so that nodes
    /// keep the records of many answered requests. Then the client may leave the session.
    pub(super) fn are_stuck(&self) -> bool {
        let since = self.open.first().map_or(0, |first| self.last - first);
        let under_way = self.open.len().saturating_sub(self.kept.len());
        since > (HELD_BACK_PER_OPEN * under_way as u64).min(MAX_HELD_BACK)
    }

    pub(super) fn are_over(&self) -> bool {
        self.open.len() == self.kept.len()
    }

    fn forget_oldest(&mut self) {
        if let Some(oldest) = self.kept.pop_front() {
            self.open.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_open_number_is_reported() {
        let mut numbers = Numbers::default();
        assert_eq!([numbers.begin(), numbers.begin(), numbers.begin()], [(1, 1), (2, 1), (3, 1)]);
        numbers.end(2);
        assert_eq!(numbers.begin(), (4, 1));
        numbers.end(1);
        assert_eq!(numbers.begin(), (5, 3));
    }

    #[test]
    fn settled_requests_hold_nothing_back() {
        let mut numbers = Numbers::default();
        let (unknown, _) = numbers.begin();
        numbers.keep(unknown);
        assert!(!numbers.are_stuck(), "no other request was made");
        let under_way: Vec<_> = (0..10).map(|_| numbers.begin().0).collect();
        assert!(!numbers.are_stuck(), "most are in flight");
        under_way.into_iter().for_each(|number| numbers.end(number));
        assert!(numbers.are_stuck());
        numbers.settle(unknown);
        assert!(!numbers.are_stuck());
        assert_eq!(numbers.begin(), (12, 12));
    }

    #[test]
    fn one_slow_request_makes_a_full_session_stuck() {
        let mut numbers = Numbers::default();
        let mut open: VecDeque<u64> = (0..MAX_UNDER_WAY).map(|_| numbers.begin().0).collect();
        let slow = open.pop_front();
        for _ in 0..MAX_UNDER_WAY {
            open.pop_front().into_iter().for_each(|answered| numbers.end(answered));
            open.push_back(numbers.begin().0);
        }
        assert!(slow == numbers.lowest() && !numbers.are_stuck(), "the session still has capacity");
        for _ in 0..10_000 {
            open.pop_front().into_iter().for_each(|answered| numbers.end(answered));
            open.push_back(numbers.begin().0);
        }
        assert!(numbers.are_stuck(), "before 43,690 records are kept");
    }

    #[test]
    fn unknown_outcomes_stay_askable_for_a_while() {
        let mut numbers = Numbers::default();
        let (unknown, _) = numbers.begin();
        numbers.keep(unknown);
        for _ in 0..MAX_UNKNOWN_SPAN {
            let (number, lowest) = numbers.begin();
            assert_eq!(lowest, unknown);
            numbers.end(number);
        }
        assert_eq!(numbers.begin(), (MAX_UNKNOWN_SPAN + 2, MAX_UNKNOWN_SPAN + 2));
        for _ in 0..MAX_UNKNOWN + 1 {
            let (number, _) = numbers.begin();
            numbers.keep(number);
        }
        numbers.end(MAX_UNKNOWN_SPAN + 2);
        assert_eq!(numbers.begin().1, MAX_UNKNOWN_SPAN + 4, "the oldest unknown outcomes are dropped");
    }
}
