//! Committed changes as they come, for whoever asks.
//!
//! Nothing is queued for anybody: whoever has taken in some changes asks for those behind them, and waits here if there
//! are none yet. They are read from the history that is kept for resends; who asks for older ones is told so.

use bytes::Bytes;

use super::{Changes, Mutant, Output, Refusal, Replica, Reply, Watch, reads::Asked};
use crate::{
    Sequence, Timestamp,
    store::{Held, Record},
};

/// Questions that wait at a member, at most.
const WATCHERS: usize = 4096;

/// An answer ends behind the update that makes it this large, in bytes.
const ANSWER_BYTES: usize = 256 << 10;

/// Those who wait.
#[derive(Clone, Debug, Default)]
pub(super) struct Watchers {
    waiting: Vec<Waiting>,
}

#[derive(Clone, Debug)]
struct Waiting {
    asked: Asked,
    prefix: Bytes,
    /// There are no changes of these keys up to here.
    seen: Sequence,
}

impl Watchers {
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }
}

impl Replica {
    pub(super) fn watch(&mut self, asked: Asked, watch: Watch) {
        let now_is = self.watermark.max(asked.floor.unwrap_or_default());
        let Some(after) = watch.after else {
            let changes = Changes { records: Vec::new(), upto: now_is };
            return self.reply(asked.token, Reply::Changes(changes));
        };
        let first = self.history.first();
        let reply = if after.saturating_next() < first {
            Reply::Refused(Refusal::Compacted { first: first.0 })
        } else {
            let changes = self.changes(&watch.prefix, after);
            if changes.records.is_empty() && self.watchers.waiting.len() < WATCHERS {
                let seen = changes.upto;
                self.watchers.waiting.push(Waiting { asked, prefix: watch.prefix, seen });
                return;
            }
            match changes.records.is_empty() {
                true => Reply::Refused(Refusal::Busy),
                false => Reply::Changes(changes),
            }
        };
        self.reply(asked.token, reply);
    }

    /// Committed changes behind `after`, as many as fit an answer.
    fn changes(&self, prefix: &Bytes, after: Sequence) -> Changes {
        let mut changes = Changes { records: Vec::new(), upto: after };
        let mut bytes = 0;
        for update in self.history.from(after.saturating_next()) {
            let is_shown = update.version.sequence <= self.watermark || self.is(Mutant::WatchUncommitted);
            if !is_shown || bytes >= ANSWER_BYTES {
                break;
            }
            for change in update.changes.iter().filter(|change| change.key.starts_with(prefix)) {
                bytes += change.key.len() + change.value.as_ref().map_or(0, Bytes::len);
                let held = Held { version: update.version, value: change.value.clone() };
                changes.records.push(Record { key: change.key.clone(), held });
            }
            changes.upto = update.version.sequence;
        }
        changes
    }

    /// Answers those who wait for what has been committed now.
    pub(super) fn answer_watchers(&mut self) {
        let mut waiting = std::mem::take(&mut self.watchers.waiting);
        waiting.retain_mut(|waiting| {
            let changes = self.changes(&waiting.prefix, waiting.seen);
            waiting.seen = changes.upto;
            let is_answered = !changes.records.is_empty();
            if is_answered {
                self.outputs.push_back(Output::Reply(waiting.asked.token, Reply::Changes(changes)));
            }
            !is_answered
        });
        self.watchers.waiting = waiting;
    }

    /// Whose time is up is told how far there was nothing: it needn't ask for that again.
    pub(super) fn expire_watchers(&mut self, now: Timestamp) {
        self.watchers.waiting.retain(|waiting| {
            let is_late = waiting.asked.deadline <= now;
            if is_late {
                let changes = Changes { records: Vec::new(), upto: waiting.seen };
                self.outputs.push_back(Output::Reply(waiting.asked.token, Reply::Changes(changes)));
            }
            !is_late
        });
    }

    pub(super) fn refuse_watchers(&mut self) {
        for waiting in std::mem::take(&mut self.watchers.waiting) {
            self.outputs.push_back(Output::Reply(waiting.asked.token, Reply::Refused(Refusal::NoChain)));
        }
    }
}
