//! Tracks answers to the one-shot query that the continuous search has not confirmed. Does no I/O.
//!
//! The continuous search reports the removal of an instance only if it has seen the instance before. So an answer that
//! this search does not confirm in time is withdrawn.

use std::time::Duration;

use tokio::time::Instant;

use crate::discovery::Candidate;

/// Time for the continuous search to confirm an answer. It sends queries after 0, 1 and 3 s, and queries for missing
/// records of an instance 0.2 and 0.6 s later.
pub(super) const CONFIRMED_WITHIN: Duration = Duration::from_secs(4);

/// Maximum number of answers remembered, and thus reported: any host may send answers.
pub(super) const MAX_UNCONFIRMED: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Unconfirmed {
    /// Each answer with its time of withdrawal, in that order.
    answers: Vec<(Instant, Candidate)>,
}

impl Unconfirmed {
    /// Whether to report an answer: it must be new, and fewer than [`MAX_UNCONFIRMED`] answers may be unconfirmed.
    /// Further answers are left to the continuous search.
    pub(super) fn on_answer(&mut self, candidate: &Candidate, now: Instant) -> bool {
        let is_known = self.answers.iter().any(|(_, known)| known == candidate);
        if is_known || self.answers.len() >= MAX_UNCONFIRMED {
            return false;
        }
        self.answers.push((now + CONFIRMED_WITHIN, candidate.clone()));
        true
    }

    /// Handles a candidate of the continuous search. That search will report the removal, so the candidate's addresses
    /// are dropped from the answers of the same node.
    pub(super) fn on_confirmed(&mut self, found: &Candidate) {
        for (_, known) in self.answers.iter_mut().filter(|(_, known)| known.node == found.node) {
            known.addrs.retain(|addr| !found.addrs.contains(addr));
        }
        self.answers.retain(|(_, known)| !known.addrs.is_empty());
    }

    pub(super) fn next_withdrawal(&self) -> Option<Instant> {
        self.answers.first().map(|(until, _)| *until)
    }

    /// Removes an answer that was not confirmed in time, and returns it as a hint that the node is gone.
    pub(super) fn withdraw(&mut self, now: Instant) -> Option<Candidate> {
        if self.next_withdrawal()? > now {
            return None;
        }
        Some(self.answers.remove(0).1.withdrawn())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NodeId, discovery::Source};

    fn candidate(name: &str, port: u16) -> Candidate {
        Candidate::new(Source::Mdns, Some(NodeId::from_name(name)), vec![([127, 0, 0, 1], port).into()])
    }

    #[test]
    fn an_answer_that_is_not_confirmed_in_time_is_withdrawn_once() {
        let (mut answers, now) = (Unconfirmed::default(), Instant::now());
        assert_eq!(answers.next_withdrawal(), None);
        assert!(answers.on_answer(&candidate("a", 1), now));
        let until = answers.next_withdrawal().unwrap();
        assert_eq!(until, now + CONFIRMED_WITHIN);
        assert_eq!(answers.withdraw(until - Duration::from_millis(1)), None);
        assert_eq!(answers.withdraw(until), Some(candidate("a", 1).withdrawn()));
        assert_eq!((answers.withdraw(until), answers.next_withdrawal()), (None, None));
    }

    #[test]
    fn what_is_confirmed_is_left_to_the_lasting_search() {
        let (mut answers, now) = (Unconfirmed::default(), Instant::now());
        let both =
            Candidate { addrs: [&candidate("a", 3).addrs[..], &candidate("a", 4).addrs].concat(), ..candidate("a", 3) };
        let all = [candidate("a", 1), candidate("b", 1), both];
        assert!(all.iter().all(|one| answers.on_answer(one, now)));
        answers.on_confirmed(&candidate("a", 1));
        answers.on_confirmed(&candidate("a", 3));
        let withdrawn: Vec<_> = std::iter::from_fn(|| answers.withdraw(now + CONFIRMED_WITHIN)).collect();
        // Another node may have been reported at the same address, and strangers may have answered as `a`.
        assert_eq!(withdrawn, [candidate("b", 1).withdrawn(), candidate("a", 4).withdrawn()]);
    }

    #[test]
    fn the_same_answer_is_reported_once_and_is_not_kept_longer() {
        let (mut answers, now) = (Unconfirmed::default(), Instant::now());
        assert!(answers.on_answer(&candidate("a", 1), now));
        assert!(!answers.on_answer(&candidate("a", 1), now + CONFIRMED_WITHIN / 2));
        assert!(answers.on_answer(&candidate("a", 2), now + CONFIRMED_WITHIN / 2), "another address");
        assert_eq!(answers.withdraw(now + CONFIRMED_WITHIN), Some(candidate("a", 1).withdrawn()));
        assert_eq!(answers.withdraw(now + CONFIRMED_WITHIN), None);
    }

    #[test]
    fn of_many_answers_only_so_many_are_reported() {
        let (mut answers, now) = (Unconfirmed::default(), Instant::now());
        let reported = (1..1000).filter(|&port| answers.on_answer(&candidate("a", port), now)).count();
        assert_eq!(reported, MAX_UNCONFIRMED);
    }
}
