//! Rounds: numbered version queries, or numbered requests for barriers. One serves many reads.
//!
//! At most one is in flight. A round serves every read that was parked before it was sent, and no later one (trap 3).

use std::collections::BTreeSet;

use crate::Timestamp;

#[derive(Clone, Hash, Debug, Default)]
pub(super) struct Rounds {
    /// The highest number sent.
    sent: u64,
    /// When that round was first sent. Repetitions don't change it.
    sent_at: Timestamp,
    /// The highest number that was answered or abandoned.
    answered: u64,
    /// Pairs of a round and a read that waits for it.
    waiting: BTreeSet<(u64, u64)>,
}

impl Rounds {
    /// The round for a read that arrives now, which is the next one.
    pub(super) fn for_new_read(&self) -> u64 {
        self.sent + 1
    }

    pub(super) fn wait(&mut self, round: u64, read: u64) {
        self.waiting.insert((round, read));
    }

    pub(super) fn leave(&mut self, round: u64, read: u64) {
        self.waiting.remove(&(round, read));
    }

    /// Abandons the round in flight: its answer will be ignored.
    pub(super) fn abandon(&mut self) {
        self.answered = self.sent;
    }

    pub(super) fn is_in_flight(&self) -> bool {
        self.sent > self.answered
    }

    /// The number of the round for a frame that is built now; 0: none.
    pub(super) fn ask(&mut self, now: Timestamp) -> u64 {
        let wanted = self.waiting.first().map(|&(round, _)| round);
        match wanted {
            None => {
                self.answered = self.sent;
                0
            }
            Some(round) if round <= self.sent => self.sent,
            Some(_) => {
                // No read waits for the last round, so its answer isn't needed.
                self.answered = self.sent;
                self.sent += 1;
                self.sent_at = now;
                self.sent
            }
        }
    }

    /// Whether [`ask`](Self::ask) would start another round.
    pub(super) fn wants_to_ask(&self) -> bool {
        self.waiting.first().is_some_and(|&(round, _)| round > self.sent)
    }

    pub(super) fn sent_at(&self) -> Timestamp {
        self.sent_at
    }

    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns the reads that waited for this answer; `None`: the answer is late or repeated.
    pub(super) fn answer(&mut self, number: u64) -> Option<Vec<u64>> {
        if number <= self.answered || number > self.sent {
            return None;
        }
        self.answered = number;
        let later = self.waiting.split_off(&(number + 1, 0));
        Some(std::mem::replace(&mut self.waiting, later).into_iter().map(|(_, id)| id).collect())
    }
}
