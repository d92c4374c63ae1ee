//! Writes at the head: ordered, resolved, applied, and answered when the tail has committed them.

use std::collections::VecDeque;

use bytes::Bytes;
use smallvec::smallvec;

use super::{Committed, Halt, Refusal, Replica, Reply, Token, Write};
use crate::{
    Sequence, Timestamp, Version,
    store::Held,
    update::{Change, MAX_KEY, Outcome, Update, UpdateKind},
};

/// Writes that wait for their commit.
#[derive(Debug, Default)]
pub(super) struct Writes {
    /// By the version of their update, rising.
    waiting: VecDeque<Waiting>,
    chain_time: u64,
}

#[derive(Debug)]
struct Waiting {
    version: Version,
    /// `None` once the client was told that its time is up.
    token: Option<Token>,
    deadline: Timestamp,
    /// What a failed condition saw; `None`: the write was done.
    conflict: Option<Option<Held>>,
}

impl Writes {
    pub(super) fn len(&self) -> usize {
        self.waiting.iter().filter(|waiting| waiting.token.is_some()).count()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

impl Write {
    fn key(&self) -> &Bytes {
        match self {
            Self::Put { key, .. } | Self::Delete { key } | Self::CompareAndSwap { key, .. } => key,
        }
    }
}

impl Replica {
    /// Whether a write would be taken in now rather than answered with [`Refusal::Busy`]: drivers leave writes in their
    /// own bounded queues while it is false. The last one let in may overshoot the window by its own size, so that a
    /// value larger than the window doesn't wait for ever.
    pub fn has_room(&self) -> bool {
        self.history.in_flight() < self.settings.window.max(1)
    }

    pub(super) fn write(&mut self, token: Token, write: Write, deadline: Timestamp, wall_clock: u64) {
        match self.order(token, write, deadline, wall_clock) {
            Ok(()) => {}
            Err(NotOrdered::Refused(refusal)) => self.reply(token, Reply::Refused(refusal)),
            Err(NotOrdered::Failed(halt)) => {
                self.halt(halt);
                self.reply(token, Reply::Refused(Refusal::StoreFailed));
            }
        }
    }

    fn may_order(&self) -> Result<(), Refusal> {
        let Some(config) = self.config.as_ref().filter(|_| self.halted.is_none()) else {
            return Err(Refusal::NoChain);
        };
        if !self.place.is_head {
            return Err(Refusal::NotHead(self.place.head));
        }
        let have = config.serving().count() as u32;
        if have < config.min_members {
            return Err(Refusal::TooFewMembers { have, need: config.min_members });
        }
        if !self.has_room() {
            return Err(Refusal::Busy);
        }
        Ok(())
    }

    fn order(&mut self, token: Token, write: Write, deadline: Timestamp, wall_clock: u64) -> Result<(), NotOrdered> {
        let len = write.key().len();
        if len > MAX_KEY {
            return Err(Refusal::KeyTooLong { len: len as u64, limit: MAX_KEY as u64 }.into());
        }
        self.may_order()?;
        let (change, conflict) = self.resolve(write)?;
        let outcome = match &conflict {
            None => Outcome::Done,
            Some(current) => Outcome::Conflict(current.as_ref().map_or(Version::NONE, |held| held.version)),
        };
        self.writes.chain_time = self.writes.chain_time.max(wall_clock);
        let mut update = self.next_update(UpdateKind::WRITE);
        update.outcome = outcome;
        update.changes = change.into_iter().collect();
        let version = update.version;
        self.take_in(update)?;
        self.writes.waiting.push_back(Waiting { version, token: Some(token), deadline, conflict });
        self.commit_as_tail();
        Ok(())
    }

    /// Full values instead of conditions. A failed condition becomes an update too: it is answered when that update is
    /// committed, and so never tells of a version that may vanish (trap 20).
    fn resolve(&self, write: Write) -> Result<(Option<Change>, Option<Option<Held>>), Halt> {
        Ok(match write {
            Write::Put { key, value } => (Some(Change { key, value: Some(value) }), None),
            Write::Delete { key } => (Some(Change { key, value: None }), None),
            Write::CompareAndSwap { key, expected, value } => {
                let newest = self.store.read(self.chain, &key, Sequence::MAX)?.filter(|held| held.value.is_some());
                if newest.as_ref().map_or(Version::NONE, |held| held.version) == expected {
                    (Some(Change { key, value }), None)
                } else {
                    (None, Some(newest))
                }
            }
        })
    }

    fn next_update(&self, kind: UpdateKind) -> Update {
        let epoch = self.config.as_ref().map_or(Version::NONE.epoch, |config| config.epoch);
        Update {
            version: Version { epoch, sequence: self.history.last().sequence.next() },
            kind,
            request: None,
            outcome: Outcome::Done,
            chain_time: self.writes.chain_time,
            changes: smallvec![],
        }
    }

    fn take_in(&mut self, update: Update) -> Result<(), Halt> {
        self.apply(update)?;
        // The stamp of an update that another head made counts too, should we become head.
        self.follow_chain_time();
        Ok(())
    }

    pub(super) fn follow_chain_time(&mut self) {
        let newest = self.history.updates().back().map_or(0, |update| update.chain_time);
        self.writes.chain_time = self.writes.chain_time.max(newest);
    }

    /// Orders a barrier: an update that changes nothing. `None` while there is no room, or nothing may be ordered here.
    pub(super) fn order_barrier(&mut self) -> Option<Sequence> {
        self.may_order().ok()?;
        let update = self.next_update(UpdateKind::BARRIER);
        let sequence = update.version.sequence;
        if let Err(halt) = self.take_in(update) {
            self.halt(halt);
            return None;
        }
        self.commit_as_tail();
        Some(sequence)
    }

    /// Answers every write at or below the watermark.
    pub(super) fn answer_writes(&mut self) {
        let copies = self.config.as_ref().map_or(0, |config| config.serving().count() as u32);
        while let Some(done) = self.writes.waiting.pop_front_if(|w| w.version.sequence <= self.watermark) {
            let Some(token) = done.token else { continue };
            let reply = match done.conflict {
                None => Reply::Committed(Committed { version: done.version, copies }),
                Some(current) => Reply::Conflict { at: done.version, current },
            };
            self.outputs.push_back(super::Output::Reply(token, reply));
        }
    }

    /// Nobody waits any longer for writes whose deadline has passed; what becomes of them is unknown.
    pub(super) fn expire_writes(&mut self, now: Timestamp) {
        for waiting in self.writes.waiting.iter_mut().filter(|waiting| waiting.deadline <= now) {
            if let Some(token) = waiting.token.take() {
                self.outputs.push_back(super::Output::Reply(token, Reply::Expired));
            }
        }
    }

    /// Updates above `keep` are gone from here: whoever waits for one can't be told what became of it.
    pub(super) fn cut_writes(&mut self, keep: Version) {
        while let Some(cut) = self.writes.waiting.pop_back_if(|w| w.version.sequence > keep.sequence) {
            if let Some(token) = cut.token {
                self.outputs.push_back(super::Output::Reply(token, Reply::Expired));
            }
        }
    }
}

enum NotOrdered {
    Refused(Refusal),
    Failed(Halt),
}

impl From<Refusal> for NotOrdered {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<Halt> for NotOrdered {
    fn from(halt: Halt) -> Self {
        Self::Failed(halt)
    }
}
