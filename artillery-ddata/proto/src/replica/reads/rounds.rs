//! Rounds: numbered questions, each of which serves many reads.

use std::collections::BTreeSet;

use crate::Timestamp;

/// Numbered questions, of which at most one is on its way.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Rounds {
    /// The highest number sent.
    sent: u64,
    /// When it was sent.
    pub(super) sent_at: Timestamp,
    /// The highest number answered, or given up because no read waited any more.
    answered: u64,
    /// Pairs of a number and a read that waits for it.
    waiting: BTreeSet<(u64, u64)>,
}

impl Rounds {
    /// The round for a read that arrives now: the next to be sent.
    pub(super) fn for_new_read(&self) -> u64 {
        self.sent + 1
    }

    pub(super) fn wait(&mut self, round: u64, read: u64) {
        self.waiting.insert((round, read));
    }

    pub(super) fn leave(&mut self, round: u64, read: u64) {
        self.waiting.remove(&(round, read));
    }

    /// Gives up the question on its way: its answer will be ignored.
    pub(super) fn give_up(&mut self) {
        self.answered = self.sent;
    }

    pub(super) fn on_its_way(&self) -> bool {
        self.sent > self.answered
    }

    /// The number of the question for a frame that is built now; 0: no question.
    pub(in super::super) fn ask(&mut self, now: Timestamp) -> u64 {
        let wanted = self.waiting.first().map(|&(round, _)| round);
        match wanted {
            None => {
                self.answered = self.sent;
                0
            }
            Some(round) if round <= self.sent => self.sent,
            Some(_) => {
                // The last round was answered, or its reads were served otherwise.
                self.answered = self.sent;
                self.sent += 1;
                self.sent_at = now;
                self.sent
            }
        }
    }

    /// Whether [`ask`](Self::ask) would start another round.
    pub(in super::super) fn wants_to_ask(&self) -> bool {
        self.waiting.first().is_some_and(|&(round, _)| round > self.sent)
    }

    /// How many questions were sent.
    pub(in super::super) fn sent(&self) -> u64 {
        self.sent
    }

    pub(in super::super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Takes in an answer. Returns the reads that waited for it; `None`: the answer is late or repeated.
    pub(super) fn answer(&mut self, number: u64) -> Option<Vec<u64>> {
        if number <= self.answered || number > self.sent {
            return None;
        }
        self.answered = number;
        let later = self.waiting.split_off(&(number + 1, 0));
        Some(std::mem::replace(&mut self.waiting, later).into_iter().map(|(_, id)| id).collect())
    }
}
