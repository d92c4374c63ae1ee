//! What a replica does as time passes.

use super::Replica;
use crate::Timestamp;

impl Replica {
    /// When the next [`ReplicaInput::Tick`](super::ReplicaInput::Tick) is wanted: at the next heartbeat while something
    /// waits for another member, and when a withheld acknowledgement or a report is due.
    pub(crate) fn next_tick(&self) -> Option<Timestamp> {
        let heartbeat = self.is_unsettled().then_some(self.next_heartbeat);
        heartbeat.into_iter().chain(self.acks.next_tick()).chain(self.next_rereplication_report()).min()
    }

    pub(super) fn tick(&mut self, now: Timestamp) {
        self.send_owed_ack(now);
        self.report_rereplication_in_time(now);
        if now < self.next_heartbeat {
            return;
        }
        self.next_heartbeat = now + self.settings.heartbeat;
        self.end_closing(now);
        self.expire_reads(now);
        self.expire_writes(now);
        self.expire_snapshots(now);
        self.expire_watchers(now);
        self.repeat(now);
        self.journal_watermark();
    }
}
