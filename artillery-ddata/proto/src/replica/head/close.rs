//! A head that orders nothing for a bounded time, so that all members reach the same last version before they change
//! their order (docs/DESIGN.md §5.10).

use super::Head;
use crate::{
    Epoch, Timestamp,
    api::Refusal,
    replica::{Context, Outbox, ReplicaEvent, log::Log},
};

#[derive(Clone, Copy, Hash, Debug)]
pub(super) struct Closing {
    /// The closing ends by itself at this time: the leader that requested it may be dead.
    until: Timestamp,
    /// [`ReplicaEvent::Closed`] was reported.
    is_reported: bool,
}

impl Head {
    /// Closes the head. Writes then wait in the driver's queues. The write in assembly isn't in the history yet: it is
    /// refused as busy.
    pub(in crate::replica) fn close(&mut self, cx: Context<'_>, epoch: Epoch, until: Timestamp, out: &mut Outbox) {
        if cx.epoch() == Some(epoch) && cx.place().is_head && cx.halted().is_none() && until > cx.now {
            let is_reported = self.closing.is_some_and(|closing| closing.is_reported);
            self.closing = Some(Closing { until, is_reported });
            self.cancel_assembly(Refusal::Busy, out);
        }
    }

    pub(in crate::replica) fn is_closed(&self) -> bool {
        self.closing.is_some()
    }

    pub(in crate::replica) fn end_closing(&mut self, now: Timestamp) {
        self.closing.take_if(|closing| closing.until <= now);
    }

    /// Reports once per closing that every update in the log is committed.
    pub(in crate::replica) fn report_closed(&mut self, cx: Context<'_>, log: &Log, out: &mut Outbox) {
        let closing = self.closing.as_mut().filter(|closing| log.is_committed() && !closing.is_reported);
        let Some(closing) = closing else { return };
        closing.is_reported = true;
        out.event(ReplicaEvent::Closed(cx.newest()));
    }
}
