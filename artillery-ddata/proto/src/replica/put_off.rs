//! Work that a member puts off, and does when all that others wait for is on its way.

use super::Replica;
use crate::Timestamp;

impl Replica {
    /// Whether it has put off work for which no caller waits: [`settle`](Self::settle) does it.
    pub(crate) fn is_behind(&self) -> bool {
        (self.store.is_behind() || self.is_clearing() || self.joining.is_some()) && self.halted.is_none()
    }

    /// Whether what was put off had better wait for a moment. If nobody reads elsewhere because of it, there will be better
    /// times: when the next update is on its way. And in the middle the successor works for the same update now, perhaps on
    /// the same processor. The head has time until it is committed, and all have once it is.
    pub(crate) fn is_between(&self) -> bool {
        let place = &self.place;
        let others_work = place.successor.is_some() && !place.is_head && self.history.last().sequence > self.watermark;
        !self.is_clearing() && self.joining.is_none() && (others_work || !self.store.is_held())
    }

    /// Does what was put off. Nobody can tell whether that was done, but for the time that the next input takes, and that
    /// local reads come here until then. A joiner that clears its store does a step of that, and takes in no snapshot
    /// before the last one. A head goes on with a write whose values are being put together.
    pub(crate) fn settle(&mut self, now: Timestamp) {
        self.make_up();
        if self.joining.is_some() {
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
