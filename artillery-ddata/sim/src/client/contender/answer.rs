//! The answers to a process.

use artillery_proto::{
    MemberId,
    api::{Computed, Refusal, Reply},
    recipes::renewal::Renewal,
};

use super::{BACKOFF, Process, Sent, SentKind};
use crate::oracle::{Failure, Oracle};

impl Process {
    /// Handles the answer to an attempt, unless the process waits for it no longer. `ids` are the nodes by index.
    ///
    /// # Errors
    /// The answer doesn't fit the request.
    pub fn answered(&mut self, now: u64, attempt: u64, reply: Reply, ids: &[MemberId]) -> Result<(), Failure> {
        if let Some(sent) = self.renewal.take_if(|sent| sent.attempt == attempt) {
            return self.renewal_answered(now, &sent, reply, ids);
        }
        let Some(sent) = self.main.take_if(|sent| sent.attempt == attempt) else { return Ok(()) };
        let local = self.clock.at(now);
        match (sent.kind, reply) {
            (SentKind::Place, Reply::Committed(done)) => {
                self.machine.placed(done.version, sent.at, local);
                self.counts.placed += 1;
            }
            (SentKind::Delete, Reply::Committed(_)) => self.rest_for(now),
            (SentKind::Look, Reply::Page(page)) => self.machine.looked(&page),
            (SentKind::Watch, Reply::Changes(changes)) => {
                self.machine.changed(&changes);
                self.counts.watched += 1;
            }
            (SentKind::Watch, Reply::Refused(Refusal::Compacted { .. })) => {
                self.machine.look_again();
                self.counts.fell_behind += 1;
            }
            (_, Reply::Refused(refusal)) => self.not_before[0] = self.refused(now, &refusal, ids),
            // The outcome of a write stays unknown: its key may exist until it expires.
            (_, Reply::Expired) => self.head = self.rng.index(ids.len()),
            (kind, other) => {
                return Err(Failure::new(Oracle::Answers, format!("{kind:?} of a contender got {other:?}")));
            }
        }
        Ok(())
    }

    fn renewal_answered(&mut self, now: u64, sent: &Sent, reply: Reply, ids: &[MemberId]) -> Result<(), Failure> {
        let outcome = match reply {
            Reply::Refused(refusal) => {
                self.not_before[1] = self.refused(now, &refusal, ids);
                return Ok(());
            }
            Reply::Expired => Renewal::Unknown,
            Reply::Committed(done) => match done.result {
                Computed::Ran(groups) if groups.len() == 1 => Renewal::of(&groups[0]),
                other => return Err(Failure::new(Oracle::Answers, format!("a renewal got {other:?}"))),
            },
            other => return Err(Failure::new(Oracle::Answers, format!("a renewal got {other:?}"))),
        };
        self.renewed(now, sent, outcome);
        Ok(())
    }

    pub(super) fn renewed(&mut self, now: u64, sent: &Sent, outcome: Renewal) {
        let SentKind::Renewal(version) = sent.kind else { return };
        self.machine.renewed(version, outcome, sent.at, self.clock.at(now));
        self.counts.renewals += u64::from(outcome == Renewal::Renewed);
        self.counts.unknown_renewals += u64::from(outcome == Renewal::Unknown);
    }

    /// The time of the next attempt, at the head that the refusal names or at any node.
    fn refused(&mut self, now: u64, refusal: &Refusal, ids: &[MemberId]) -> u64 {
        let named = match refusal {
            Refusal::NotHead(Some(head)) => ids.iter().position(|id| id == head),
            _ => None,
        };
        self.head = named.unwrap_or_else(|| self.rng.index(ids.len()));
        let pause = self.rng.between(BACKOFF.0, BACKOFF.1);
        now + if named.is_some() { 1 } else { pause }
    }
}
