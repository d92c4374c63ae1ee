//! How a cluster is closed, at the end of a run in which all has settled: its nodes are told to stop within a moment.

use std::fmt::Write as _;

use super::{super::Phase, Event, World};
use crate::{
    oracle::{Failure, Oracle},
    scenario::SECOND,
};

/// An operator needs at most so long until all nodes are told.
const TELLS: u64 = SECOND / 2;

/// All nodes end within this time, beside the leases for which they wait.
const ENDS: u64 = 5 * SECOND;

/// Leases for which nodes wait until they ask each other, or hear that all leave.
const LEASES: u64 = 10;

impl World {
    /// All nodes are told to stop. None is left for which another one could wait, so all end.
    pub(in super::super) fn close_down(&mut self) -> Result<(), Failure> {
        let Some(control) = &mut self.control else { return Ok(()) };
        let told: Vec<u64> = self.nodes.iter().map(|_| control.operator.below(TELLS)).collect();
        for (node, after) in told.into_iter().enumerate() {
            self.queue.push(self.now + after, super::super::Event::Control(Event::Stop(node)));
        }
        let deadline = self.now + LEASES * self.lease_and_drift() + ENDS;
        while self.nodes.iter().any(|node| node.is_alive()) {
            self.happen()?;
            if self.now > deadline {
                let there: Vec<usize> = (0..self.nodes.len()).filter(|&node| self.nodes[node].is_alive()).collect();
                return Err(Failure::new(
                    Oracle::Stops,
                    format!("all nodes were told to stop, and {there:?} didn't end"),
                ));
            }
        }
        Ok(())
    }

    /// Whether that is under way: nothing fails meanwhile, and the log is as prompt as it can be.
    pub(in super::super) fn is_closing(&self) -> bool {
        self.phase == Phase::End
    }

    /// A node is told to stop.
    pub(super) fn sigterm(&mut self, node: usize) {
        if self.nodes[node].is_alive() {
            self.trace.line(self.now, |out| write!(out, "SIGTERM for n{node}"));
            self.nodes[node].stops = true;
            self.ask_to_leave(node, None);
        }
    }
}
