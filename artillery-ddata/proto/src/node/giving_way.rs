//! The end of a node whose cluster gives way to another one of the same name (docs/DESIGN.md §5.14).

use super::{NodeEvent, NodeMachine, NodeOutput};
use crate::{Sequence, Timestamp, control::message::Renewal};

/// A node whose cluster is over answers others for this many leases, so that all of them learn of it, and then ends.
const ANSWERING_LEASES: u32 = 3;

impl NodeMachine {
    /// Notes whether the cluster is known to this node to hold data, or to have held some. There is no way back. Only committed
    /// updates count: others may still be lost, and then the cluster is empty after all.
    pub(super) fn see_whether_holds_data(&mut self, renewal: &Renewal) {
        let reported = renewal.reports.iter().any(|report| report.watermark > Sequence(0));
        let stored = renewal.holds.iter().any(|held| held.watermark > Sequence(0));
        self.state.holds_data |= reported || stored || self.configs().has_lost();
    }

    /// Notes when this node ends, once it knows that its cluster is over.
    pub(super) fn see_whether_over(&mut self, now: Timestamp) {
        if self.ends_at.is_none() && !self.state.is_over && self.configs().is_over() {
            self.ends_at = Some(now + self.configs().timing().lease * ANSWERING_LEASES);
            self.state.is_over = true;
            self.outputs.push_back(NodeOutput::Event(NodeEvent::Over));
        }
    }

    /// Ends the node, once others have had time to learn of the cluster's end, and the disk keeps it: a later start ends likewise.
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
