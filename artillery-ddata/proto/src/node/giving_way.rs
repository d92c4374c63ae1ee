//! The end of a node whose cluster gives way to another one of the same name (docs/DESIGN.md §5.14).

use super::{NodeEvent, NodeMachine, NodeOutput};
use crate::{Sequence, Timestamp, control::message::Renewal};

/// A node whose cluster has given way answers others for this many leases, so that all of them learn of it, and then
/// ends.
const ANSWERING_LEASES: u32 = 3;

impl NodeMachine {
    /// Records whether this node knows that the cluster holds data, or has held some; the record is permanent. Only
    /// committed updates are considered: others may still be lost, and then the cluster is empty after all.
    pub(super) fn see_whether_holds_data(&mut self, renewal: &Renewal) {
        let reported = renewal.reports.iter().any(|report| report.watermark > Sequence(0));
        let stored = renewal.holds.iter().any(|held| held.watermark > Sequence(0));
        self.state.holds_data |= reported || stored || self.configs().has_lost();
    }

    /// Schedules the end of this node, once it knows that its cluster has given way.
    pub(super) fn see_whether_over(&mut self, now: Timestamp) {
        if self.ends_at.is_none() && !self.state.is_over && self.configs().is_over() {
            self.ends_at = Some(now + self.configs().timing().lease * ANSWERING_LEASES);
            self.state.is_over = true;
            self.outputs.push_back(NodeOutput::Event(NodeEvent::Over));
        }
    }

    /// Ends the node, once others have had time to learn that the cluster has given way, and the disk has recorded it:
    /// a later start ends likewise.
    pub(super) fn end_if_over(&mut self, now: Timestamp) {
        if self.ends_at.is_none_or(|at| now < at) {
            return;
        }
        let applied = self.configs().applied();
        if self.kept.as_ref().is_some_and(|kept| kept.upto < applied) {
            self.ends_at = Some(now + self.configs().timing().lease);
            return;
        }
        self.ends_at = None;
        self.outputs.push_back(NodeOutput::Over);
    }
}
