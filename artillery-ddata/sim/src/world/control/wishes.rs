//! Orders of operators.

use std::fmt::Write as _;

use artillery_proto::{ChainId, Epoch, MemberId, Timestamp, control::message::ReorderError, node::NodeInput};

use super::{Event, World};

impl World {
    /// Asks the leader to reorder the first chain. `number` selects the permutation.
    pub(in super::super) fn want_order(&mut self, number: u64) {
        let Some(control) = &self.control else { return };
        let Some(config) = control.configs().get(ChainId(0)) else { return };
        let mut order: Vec<MemberId> = config.serving().collect();
        let mut left = number;
        for at in (1..order.len()).rev() {
            order.swap(at, (left % (at as u64 + 1)) as usize);
            left /= at as u64 + 1;
        }
        let leads = |at: &usize| self.nodes[*at].is_alive() && control.nodes[*at].decider.decides_in().is_some();
        let Some(node) = (0..self.nodes.len()).find(leads) else { return };
        let event = Event::Reorder { node, id: self.ids[node], order };
        self.queue.push(self.now + 1, super::super::Event::Control(event));
    }

    pub(super) fn reordered(&mut self, result: &Result<Epoch, ReorderError>) {
        self.orders_done += u64::from(result.is_ok());
        self.trace.line(self.now, |out| write!(out, "an order is answered: {result:?}"));
    }

    pub(in super::super) fn drain(&mut self, node: usize, until: u64) {
        if self.nodes[node].is_alive() && self.can_spare(node) {
            self.drains += 1;
            let until = self.nodes[node].clock(until);
            self.ask_to_leave(node, Some(until));
        }
    }

    pub(in super::super) fn leave_for_good(&mut self, node: usize) {
        if self.nodes[node].is_alive() {
            self.leaves += 1;
            self.nodes[node].stops = true;
            self.ask_to_leave(node, None);
        }
    }

    pub(in super::super) fn withdraw(&mut self, node: usize) {
        if self.nodes[node].is_alive() && !self.nodes[node].stops {
            self.trace.line(self.now, |out| write!(out, "n{node} should stop temporarily"));
            let of = &mut self.nodes[node];
            (of.stops, of.returns, of.drained) = (true, true, true);
            self.hand_in(node, NodeInput::Withdraw);
        }
    }

    pub(super) fn ask_to_leave(&mut self, node: usize, until: Option<Timestamp>) {
        self.nodes[node].drained = true;
        self.hand_in(node, NodeInput::Leave { until });
    }

    /// Called when a node has left its chains. The node ends if it was asked to stop.
    pub(super) fn left(&mut self, node: usize) {
        self.trace.line(self.now, |out| write!(out, "n{node} has left"));
        self.nodes[node].left = true;
        if let Err(lost) = self.ends_when_told(node) {
            self.claim(lost);
        }
    }

    /// Ends a drain: the node starts another incarnation, unless it can't be spared.
    pub(in super::super) fn end_drain(&mut self, node: usize) {
        if self.nodes[node].drained && self.can_spare(node) {
            self.end_life(node);
        }
        // A node that has left but couldn't be spared no longer serves. It waits for the operator to end it.
        self.nodes[node].drained &= self.nodes[node].left && self.nodes[node].is_alive();
        self.restart_life(node);
    }
}
