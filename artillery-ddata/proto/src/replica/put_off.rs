//! Work that a member defers until everything that others wait for is on its way.

use super::Replica;
use crate::Timestamp;

impl Replica {
    /// Whether deferred work is left, for which no caller waits. [`settle`](Self::settle) does it.
    pub(crate) fn is_behind(&self) -> bool {
        (self.store.is_behind() || self.has_steps()) && self.halted.is_none()
    }

    /// Whether there is work that is done in steps, each in a turn of its own.
    fn has_steps(&self) -> bool {
        self.is_clearing() || self.is_catching_up() || self.assembling.is_some()
    }

    /// Whether the deferred work had better wait for a moment. While the gate is open to local readers it can wait
    /// until the next update is on its way. In the middle the successor works on the same update now, perhaps on the
    /// same processor. The head has time until the commit, and all members have time after it.
    pub(crate) fn is_between(&self) -> bool {
        let place = &self.place;
        let others_work = place.successor.is_some() && !place.is_head && self.history.last().sequence > self.watermark;
        !self.has_steps() && (others_work || !self.store.is_held())
    }

    /// Does the deferred work. It shows only in the time that the next input takes, and in local reads, which come to
    /// the replica until it is done. A joiner that clears its store does one step; it takes in no snapshot before the
    /// last one. Then it applies the updates that it has kept, some in each step. A head puts more of a write's values
    /// together.
    pub(crate) fn settle(&mut self, now: Timestamp) {
        self.make_up();
        if self.is_catching_up() {
            self.catch_up(now);
            self.follow_up(now);
        }
        if self.assembling.is_some() {
            self.go_on_joining(now);
            self.follow_up(now);
        }
    }

    pub(super) fn make_up(&mut self) {
        if let Err(error) = self.store.settle() {
            return self.halt(error.into());
        }
        self.clear_some();
    }
}
