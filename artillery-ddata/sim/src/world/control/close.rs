//! The shutdown of a cluster after a run has settled: all nodes are asked to stop at about the same time.

use std::fmt::Write as _;

use super::{super::Phase, Event, World};
use crate::{
    oracle::{Failure, Oracle},
    scenario::SECOND,
};

/// Interval within which the operator asks all nodes to stop.
const TELLS: u64 = SECOND / 2;

/// Time within which all nodes must end, besides the leases that they wait out.
const ENDS: u64 = 5 * SECOND;

/// Maximum number of leases that a leaving node waits in total: before it asks the other members whether they are
/// alive, and until it learns that all of them are leaving.
const LEASES: u64 = 10;

impl World {
    /// Asks all nodes to stop, except that in some runs one node is only drained. No node needs to wait for another
    /// one, so all nodes that were asked to stop must end.
    pub(in super::super) fn close_down(&mut self) -> Result<(), Failure> {
        let nodes = self.nodes.len();
        let Some(control) = &mut self.control else { return Ok(()) };
        let drained = control.operator.chance(300).then(|| control.operator.below(nodes as u64) as usize);
        let told: Vec<u64> = (0..nodes).map(|_| control.operator.below(TELLS)).collect();
        for (node, after) in told.into_iter().enumerate() {
            let event = if drained == Some(node) { Event::Drain(node) } else { Event::Stop(node) };
            self.queue.push(self.now + after, super::super::Event::Control(event));
        }
        let deadline = self.now + LEASES * self.lease_and_drift() + ENDS;
        loop {
            let is_there = |node: &usize| self.nodes[*node].is_alive() && drained != Some(*node);
            let there: Vec<usize> = (0..nodes).filter(is_there).collect();
            if there.is_empty() {
                return Ok(());
            }
            self.happen()?;
            if self.now > deadline {
                let what = format!("nodes {there:?} were asked to stop with all others, but did not end");
                return Err(Failure::new(Oracle::Stops, what));
            }
        }
    }

    /// Drains a node, with a deadline by which every other node must have ended.
    pub(super) fn drain_at_last(&mut self, node: usize) {
        if self.nodes[node].is_alive() && !self.nodes[node].stops {
            let until = self.now + (LEASES + 1) * self.lease_and_drift() + ENDS;
            self.trace.line(self.now, |out| write!(out, "n{node} is drained"));
            let until = self.nodes[node].clock(until);
            self.ask_to_leave(node, Some(until));
        }
    }

    /// Whether the cluster is being shut down. During the shutdown no node starts again, no election occurs without
    /// cause, and confirmations of the leadership have no additional delay.
    pub(in super::super) fn is_closing(&self) -> bool {
        self.phase == Phase::End
    }

    pub(super) fn sigterm(&mut self, node: usize) {
        if self.nodes[node].is_alive() {
            self.trace.line(self.now, |out| write!(out, "SIGTERM for n{node}"));
            self.nodes[node].stops = true;
            self.ask_to_leave(node, None);
        }
    }
}
