//! The numbers of one client session's requests: which are under way, and below which nobody asks any more.

use std::collections::{BTreeSet, VecDeque};

/// Requests of one session that are under way at a time. The nodes keep a record of each until a later request says that it was
/// answered, which takes as long as another one is under way. Twice as many fit a session of a node with default limits.
pub(super) const MAX_UNDER_WAY: usize = 1 << 14;

/// Unknown outcomes that stay askable, at most.
const MAX_UNKNOWN: usize = 1024;

/// And no longer than until so many further requests were made: the nodes keep records of all that come after one.
const MAX_UNKNOWN_SPAN: u64 = 8192;

/// So many answered requests are held back by each that isn't, and no more, where nothing is stuck.
const HELD_BACK_PER_OPEN: u64 = 4;

/// Nor are more than these, however many are under way: a node has room for a third more in a session by default.
const MAX_HELD_BACK: u64 = 2 * MAX_UNDER_WAY as u64;

/// Gives out numbers from 1 on.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    last: u64,
    /// Given out, and neither answered nor given up.
    open: BTreeSet<u64>,
    /// Those of them whose outcome is unknown, oldest first.
    kept: VecDeque<u64>,
}

impl Numbers {
    /// The next number, and the lowest one that is still open.
    pub(super) fn begin(&mut self) -> (u64, u64) {
        self.last += 1;
        self.open.insert(self.last);
        while self.kept.front().is_some_and(|&oldest| oldest + MAX_UNKNOWN_SPAN < self.last) {
            self.forget_oldest();
        }
        (self.last, self.lowest().unwrap_or(self.last))
    }

    /// The lowest number that is still open.
    pub(super) fn lowest(&self) -> Option<u64> {
        self.open.first().copied()
    }

    /// It was answered, or nobody will ask for it.
    pub(super) fn end(&mut self, number: u64) {
        self.open.remove(&number);
    }

    /// Its outcome is unknown, and may be asked for.
    pub(super) fn keep(&mut self, number: u64) {
        self.kept.push_back(number);
        if self.kept.len() > MAX_UNKNOWN {
            self.forget_oldest();
        }
    }

    /// Its outcome, which was unknown, is known by now.
    pub(super) fn settle(&mut self, number: u64) {
        self.kept.retain(|&kept| kept != number);
        self.end(number);
    }

    /// Whether a few requests without an outcome hold back what this client says to be answered: then the records of many others stay
    /// for them, and more room comes when they have one. Where most are under way it comes by itself; unknown outcomes may stay so.
    pub(super) fn are_stuck(&self) -> bool {
        let since = self.open.first().map_or(0, |first| self.last - first);
        let under_way = self.open.len().saturating_sub(self.kept.len());
        since > (HELD_BACK_PER_OPEN * under_way as u64).min(MAX_HELD_BACK)
    }

    /// Whether none are under way.
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
    fn the_lowest_is_what_is_still_open() {
        let mut numbers = Numbers::default();
        assert_eq!([numbers.begin(), numbers.begin(), numbers.begin()], [(1, 1), (2, 1), (3, 1)]);
        numbers.end(2);
        assert_eq!(numbers.begin(), (4, 1));
        numbers.end(1);
        assert_eq!(numbers.begin(), (5, 3));
    }

    #[test]
    fn what_is_settled_holds_nothing_back() {
        let mut numbers = Numbers::default();
        let (unknown, _) = numbers.begin();
        numbers.keep(unknown);
        assert!(!numbers.are_stuck(), "it is the only one");
        let under_way: Vec<_> = (0..10).map(|_| numbers.begin().0).collect();
        assert!(!numbers.are_stuck(), "most are under way");
        under_way.into_iter().for_each(|number| numbers.end(number));
        assert!(numbers.are_stuck());
        numbers.settle(unknown);
        assert!(!numbers.are_stuck());
        assert_eq!(numbers.begin(), (12, 12));
    }

    #[test]
    fn one_that_holds_up_a_full_session_is_noticed_however_many_are_under_way() {
        let mut numbers = Numbers::default();
        let mut open: VecDeque<u64> = (0..MAX_UNDER_WAY).map(|_| numbers.begin().0).collect();
        let slow = open.pop_front();
        for _ in 0..MAX_UNDER_WAY {
            open.pop_front().into_iter().for_each(|answered| numbers.end(answered));
            open.push_back(numbers.begin().0);
        }
        assert!(slow == numbers.lowest() && !numbers.are_stuck(), "there is room");
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
        assert_eq!(numbers.begin().1, MAX_UNKNOWN_SPAN + 4, "there are only so many");
    }
}
