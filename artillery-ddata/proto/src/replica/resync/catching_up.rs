//! The end of a joiner's resync: the updates that it kept are applied in bounded steps (docs/adr/0029).
//!
//! A step is done with each input and each [`Replica::settle`], so that renewals leave between two steps.

use super::super::ends::Ends as _;
use super::{super::Replica, joiner::SnapshotReceiver};
use crate::{Sequence, Timestamp, replica::ReplicaEvent, types::update::Update};

/// A step ends with the update by which it has applied this many bytes.
const STEP_BYTES: usize = 256 << 10;

/// The updates and bytes that are left of a step.
struct Step {
    updates: usize,
    bytes: usize,
}

impl Step {
    fn of(updates: usize) -> Self {
        Self { updates: updates.max(1), bytes: STEP_BYTES }
    }

    fn count(&mut self, update: &Update) {
        self.updates -= 1;
        self.bytes = self.bytes.saturating_sub(update.cost());
    }

    fn is_over(&self) -> bool {
        self.updates == 0 || self.bytes == 0
    }
}

impl SnapshotReceiver {
    /// Accepts updates again once half of the buffer is free, while the joiner still needs some of them. Returns whether it does.
    /// Without such a need the buffer is applied to its end, and the resync ends.
    fn lift_hold(&mut self, limit: usize) -> bool {
        let needs_more = self.until.is_some_and(|until| self.upto() < until);
        let lifts = self.hold && needs_more && self.buffered <= limit / 2;
        self.hold &= !lifts;
        lifts
    }

    /// Whether the last part is received, and a step can apply an update or end the resync.
    fn has_step(&self) -> bool {
        self.until.is_some_and(|until| self.history.last().sequence >= until || !self.buffer.is_empty())
    }

    /// Takes the next update from the buffer, if it is at or below `until`.
    fn next(&mut self, until: Sequence) -> Option<Update> {
        let update = self.buffer.take_front_if(|update| update.version.sequence <= until)?;
        self.buffered = self.buffered.saturating_sub(update.cost());
        Some(update)
    }
}

impl Replica {
    /// Applies one step of the kept updates: first the ones that the records may contain, then the ones that the source has
    /// committed since. The joiner is whole once its buffer has no such update.
    pub(in super::super) fn catch_up(&mut self, now: Timestamp) {
        let Some(until) = self.filling.as_ref().and_then(|filling| filling.until) else { return };
        let committed = until.max(self.source_watermark());
        let mut step = Step::of(self.settings.catch_up);
        while !step.is_over()
            && let Some(update) = self.filling.as_mut().and_then(|filling| filling.next(committed))
        {
            step.count(&update);
            if let Err(halt) = self.apply_over_records(update) {
                return self.halt(halt);
            }
        }
        let Some(filling) = &mut self.filling else { return };
        if !step.is_over() && filling.history.last().sequence >= until {
            return self.finish_filling(now);
        }
        if filling.lift_hold(self.settings.joiner_buffer) {
            // The source may have sent further updates before it received the hold. They were dropped.
            self.gap = true;
            self.due_for(self.place.predecessor);
        }
    }

    pub(in super::super) fn is_catching_up(&self) -> bool {
        self.halted.is_none() && self.filling.as_ref().is_some_and(|filling| filling.has_step())
    }

    /// The highest watermark that the source has reported in this epoch.
    fn source_watermark(&self) -> Sequence {
        let source = self.place.predecessor.and_then(|id| self.peers.get(&id));
        source.map_or(Sequence::ZERO, |source| source.watermark)
    }

    /// Ends the resync. The history begins at the snapshot's first watermark, and one step of the buffered updates is applied as
    /// usual. The other ones are dropped and asked for again: the source hadn't committed them when it reported its watermark, so
    /// its backlog has them. If it has committed more than its backlog since, it offers another snapshot.
    fn finish_filling(&mut self, now: Timestamp) {
        let Some(filling) = self.filling.take().filter(|_| self.halted.is_none()) else { return };
        let SnapshotReceiver { beginning, history, sessions, mut buffer, .. } = *filling;
        self.watermark = history.last().sequence;
        self.store.commit(self.watermark);
        (self.history, self.sessions) = (history, sessions);
        self.writes.follow_chain_time(beginning.chain_time);
        self.await_checkpoint();
        let mut step = Step::of(self.settings.catch_up);
        while !step.is_over()
            && let Some(update) = buffer.pop_front()
        {
            step.count(&update);
            if let Err(halt) = self.apply(update) {
                return self.halt(halt);
            }
        }
        self.free_later(buffer);
        self.follow_chain_time();
        self.resyncs.full += 1;
        self.event(ReplicaEvent::Resynced { upto: self.history.last() });
        // Our history is a prefix of the source's, which the source confirms when it receives our position.
        self.needs_resume = true;
        self.due_for(self.place.predecessor);
        self.believe_prefix(now);
    }
}
