//! A head that orders nothing for a moment, so that all members come to the same last version before they change places
//! (docs/DESIGN.md §5.10).

use super::{Replica, ReplicaEvent};
use crate::{Epoch, Timestamp, api::Refusal};

/// For how long nothing is ordered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Closing {
    /// Whoever asked for it may be gone: then it ends by itself.
    until: Timestamp,
    /// It was told that all is committed.
    said: bool,
}

impl Replica {
    /// Writes wait where writes wait for room. The one that is being put together isn't in the history yet: it is given up, and its
    /// caller asks again.
    pub(super) fn close(&mut self, now: Timestamp, epoch: Epoch, until: Timestamp) {
        let present = self.config.as_ref().map(|config| config.epoch);
        if present == Some(epoch) && self.place.is_head && self.halted.is_none() && until > now {
            let said = self.closing.is_some_and(|closing| closing.said);
            self.closing = Some(Closing { until, said });
            self.give_up_joining(Refusal::Busy);
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closing.is_some()
    }

    pub(super) fn end_closing(&mut self, now: Timestamp) {
        self.closing.take_if(|closing| closing.until <= now);
    }

    pub(super) fn say_closed(&mut self) {
        let done = self.history.last().sequence == self.watermark;
        let Some(closing) = self.closing.as_mut().filter(|closing| done && !closing.said) else { return };
        closing.said = true;
        self.event(ReplicaEvent::Closed(self.newest));
    }
}
