//! Renewals that wait for a round that confirms this leader.

use crate::{MemberId, Timestamp, control::log::LogIndex};

/// The maximum number of renewals that wait for the next round. Each node usually has one or two in flight.
const MAX_PENDING_GRANTS: usize = 4096;

#[derive(Clone, Copy, Debug)]
pub(super) struct PendingGrant {
    pub(super) from: MemberId,
    pub(super) number: u64,
    pub(super) applied: LogIndex,
    pub(super) received: Timestamp,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Grants {
    /// Renewals received before the current round began.
    asked: Vec<PendingGrant>,
    /// Renewals received since the current round began: the next round answers them.
    next: Vec<PendingGrant>,
    round: Option<u64>,
    /// The number of the last round that began, in any term.
    rounds: u64,
}

impl Grants {
    pub(super) fn end_term(&mut self) {
        *self = Self { rounds: self.rounds, ..Self::default() };
    }

    pub(super) fn rounds(&self) -> u64 {
        self.rounds
    }

    /// Queues a renewal, or drops it if too many wait. `joins` (a mutant): a round that has begun answers it.
    pub(super) fn add(&mut self, waiting: PendingGrant, joins: bool) {
        if self.next.len() < MAX_PENDING_GRANTS {
            let queue = if joins && self.round.is_some() { &mut self.asked } else { &mut self.next };
            queue.push(waiting);
        }
    }

    /// Begins a round if a renewal waits for one and none is in progress.
    pub(super) fn begin_round(&mut self) -> Option<u64> {
        if self.round.is_some() || self.next.is_empty() {
            return None;
        }
        self.rounds += 1;
        self.round = Some(self.rounds);
        self.asked = std::mem::take(&mut self.next);
        self.round
    }

    /// Ends the round, if it is in progress, and returns the renewals that it answers.
    pub(super) fn end_round(&mut self, round: u64) -> Option<Vec<PendingGrant>> {
        self.round.take_if(|current| *current == round)?;
        Some(std::mem::take(&mut self.asked))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::id;

    #[test]
    fn only_a_round_that_began_after_a_renewal_answers_it() {
        let mut grants = Grants::default();
        let renewal = |number| PendingGrant {
            from: id(1),
            number,
            applied: LogIndex(1),
            received: Timestamp::from_nanos(number),
        };
        grants.add(renewal(1), false);
        let first = grants.begin_round().expect("a renewal waits");
        grants.add(renewal(2), false);
        assert_eq!(grants.begin_round(), None, "one round at a time");
        let numbers = |asked: Vec<PendingGrant>| asked.iter().map(|waiting| waiting.number).collect::<Vec<_>>();
        assert_eq!(grants.end_round(first).map(numbers), Some(vec![1]));
        let second = grants.begin_round().expect("the other one still waits");
        assert!(grants.end_round(first).is_none(), "the round before");
        assert_eq!(grants.end_round(second).map(numbers), Some(vec![2]));
    }
}
