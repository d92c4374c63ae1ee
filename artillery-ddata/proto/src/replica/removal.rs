//! Removal from the chain: a newer configuration doesn't name this member (docs/DESIGN.md §5.3, §5.4).

use super::{ChainPosition, Replica, ReplicaEvent};
use crate::{
    Epoch, Version,
    api::{Refusal, Reply},
};

impl Replica {
    /// Stops serving local readers, then refuses all waiting requests. History and store are kept for a return. Nothing
    /// is rolled back: updates above our watermark may be committed, and only the chain knows (trap 37).
    pub(super) fn expelled(&mut self, epoch: Epoch) {
        if epoch <= self.newest || allows!(self.settings.guards, ServeWhenExpelled) {
            return;
        }
        self.gate.serve(None);
        self.newest = epoch;
        self.config = None;
        self.place = ChainPosition::default();
        self.end_outgoing();
        self.peers.clear();
        self.leave_epoch();
        self.reads.shown = None;
        self.reply_all_reads(&Reply::Refused(Refusal::NoChain));
        self.refuse_watchers();
        // Only the chain knows the outcome of these writes.
        self.cut_writes(Version::NONE);
        self.event(ReplicaEvent::Expelled(epoch));
    }

    pub(super) fn is_expelled(&self) -> bool {
        self.config.is_none() && self.newest > Epoch(0)
    }

    /// Forgets what holds in one epoch only.
    pub(super) fn leave_epoch(&mut self) {
        self.forget_standing();
        self.give_up_joining(Refusal::NoChain);
        self.promotion = None;
        self.closing = None;
        self.snapshot_seen = 0;
        let updates = self.filling.as_mut().map(|filling| filling.abandon()).unwrap_or_default();
        updates.into_iter().for_each(|updates| self.free_later(updates));
    }

    /// Our history isn't known to be a prefix of the head's any more, and the epoch isn't open here.
    pub(super) fn forget_standing(&mut self) {
        self.needs_resume = self.place.predecessor.is_some();
        self.is_prefix = self.place.is_head;
        self.gap = false;
        self.acks.clear();
        self.incoming = None;
        self.open_upto = None;
        self.open_awaits = None;
    }
}
