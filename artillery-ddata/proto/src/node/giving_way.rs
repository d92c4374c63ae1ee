//! The end of a node whose cluster gives way to another one of the same name (docs/DESIGN.md §5.14).

use super::{NodeEvent, NodeOutput, base::Base};
use crate::{Sequence, Timestamp, control::message::Renewal};

/// A node whose cluster has given way answers others for this many leases, so that all of them learn of it, and then
/// ends.
const ANSWERING_LEASES: u32 = 3;

#[derive(Clone, Default, Debug)]
pub(super) struct GivingWay {
    /// When this node ends because its cluster has given way to another one.
    ends_at: Option<Timestamp>,
}

impl GivingWay {
    pub(super) fn ends_at(&self) -> Option<Timestamp> {
        self.ends_at
    }

    /// Schedules the end of this node, once it knows that its cluster has given way.
    pub(super) fn see_whether_over(&mut self, now: Timestamp, base: &mut Base) {
        if self.ends_at.is_none() && !base.state().is_over && base.configs().is_over() {
            self.ends_at = Some(now + base.lease() * ANSWERING_LEASES);
            base.state_mut().is_over = true;
            base.event(NodeEvent::Over);
        }
    }

    /// Ends the node, once others have had time to learn that the cluster has given way, and the disk has recorded it,
    /// so that a later start ends too.
    pub(super) fn end_if_over(&mut self, now: Timestamp, base: &mut Base) {
        if self.ends_at.is_none_or(|at| now < at) {
            return;
        }
        if base.disk().is_some_and(|disk| !disk.has(base.configs().applied())) {
            self.ends_at = Some(now + base.lease());
            return;
        }
        self.ends_at = None;
        base.push(NodeOutput::Over);
    }
}

/// Records whether this node knows that the cluster holds data, or has held some; the record is permanent. Only
/// committed updates are considered: others may still be lost, and then the cluster is empty after all.
pub(super) fn see_whether_holds_data(renewal: &Renewal, base: &mut Base) {
    let reported = renewal.reports.iter().any(|report| report.watermark > Sequence(0));
    let stored = renewal.holds.iter().any(|held| held.watermark > Sequence(0));
    base.state_mut().holds_data |= reported || stored || base.configs().has_lost();
}
