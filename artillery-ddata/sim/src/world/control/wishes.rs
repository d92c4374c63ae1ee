//! What nodes say of how their chains stand, and what operators want.

use std::fmt::Write as _;

use artillery_proto::{
    ChainId, Epoch, MemberId, Timestamp,
    control::message::{Close, ReorderError, Report},
    replica::Input,
};

use super::{Event, World};
use crate::{faults::Fault, node::Work};

impl World {
    pub(super) fn reports(&self, node: usize) -> Vec<Report> {
        let node = &self.nodes[node];
        let clock = node.clock(self.now);
        let slots = node.slots.iter().enumerate();
        slots.filter_map(|(at, slot)| slot.replica.progress().report(ChainId(at as u32), clock)).collect()
    }

    pub(super) fn close(&mut self, node: usize, close: &[Close]) {
        let lease = self.setup.control.map_or(std::time::Duration::ZERO, |control| control.lease);
        let until = self.nodes[node].clock(self.now) + lease;
        for close in close {
            let input = Input::Close { epoch: close.epoch, until };
            self.enqueue(node, Work { slot: close.chain.0 as usize, input, flight: None });
        }
    }

    /// A head has closed: whoever waits for that is to hear of it.
    pub(in super::super) fn hurry(&mut self, node: usize) {
        let clock = self.nodes[node].clock(self.now);
        let Some(control) = &mut self.control else { return };
        control.nodes[node].holder.hurry(clock);
        self.schedule_renewal(node);
    }

    /// Asks whoever leads for another order of the first chain.
    pub(in super::super) fn want_order(&mut self, number: u64) {
        let Some(control) = &self.control else { return };
        let Some(config) = control.configs().get(ChainId(0)) else { return };
        let mut order: Vec<MemberId> = config.serving().collect();
        let mut left = number;
        for at in (1..order.len()).rev() {
            order.swap(at, (left % (at as u64 + 1)) as usize);
            left /= at as u64 + 1;
        }
        let leads = |at: &usize| self.nodes[*at].is_alive() && control.nodes[*at].coordinator.leads().is_some();
        let Some(node) = (0..self.nodes.len()).find(leads) else { return };
        let event = Event::Reorder { node, id: self.ids[node], order };
        self.queue.push(self.now + 1, super::super::Event::Control(event));
    }

    pub(super) fn reordered(&mut self, result: &Result<Epoch, ReorderError>) {
        self.orders_done += u64::from(result.is_ok());
        self.trace.line(self.now, |out| write!(out, "an order is answered: {result:?}"));
    }

    /// Asks a node to leave its chains.
    pub(in super::super) fn drain(&mut self, node: usize) {
        if self.nodes[node].is_alive() && self.can_spare(node) {
            self.drains += 1;
            self.ask_to_leave(node);
        }
    }

    /// Asks a node to leave for good.
    pub(in super::super) fn leave_for_good(&mut self, node: usize) {
        if self.nodes[node].is_alive() {
            self.leaves += 1;
            self.ask_to_leave(node);
        }
    }

    fn ask_to_leave(&mut self, node: usize) {
        self.nodes[node].drained = true;
        let clock = self.nodes[node].clock(self.now);
        let Some(control) = &mut self.control else { return };
        control.nodes[node].holder.leave(clock);
        self.schedule_renewal(node);
    }

    /// A leader has agreed. The node serves nothing any more before it says so.
    pub(super) fn resign(&mut self, node: usize) {
        self.forget_leases(node);
        let clock = self.nodes[node].clock(self.now);
        let Some(control) = &mut self.control else { return };
        control.nodes[node].holder.resign(clock);
    }

    /// It takes leases again: those that come from now on.
    pub(super) fn serve_again(&mut self, node: usize) {
        self.forget_leases(node);
    }

    fn forget_leases(&mut self, node: usize) {
        self.nodes[node].inbox.retain(|work| !matches!(work.input, Input::Lease(_)));
        for slot in 0..self.setup.chains {
            self.take_in(node, Work { slot, input: Input::Lease(Timestamp::ZERO), flight: None });
        }
    }

    /// It ends, whatever the others make of that.
    pub(in super::super) fn end_leave(&mut self, node: usize) {
        if self.nodes[node].is_alive() {
            self.nodes[node].down = true;
            self.disconnect(node);
        }
    }

    /// It may end, and does if it wants to.
    pub(super) fn released(&mut self, node: usize) {
        let leaves = (0..self.active.len()).any(|at| self.active[at] && self.planned(at) == Fault::Leave(node));
        let named =
            self.control.as_ref().is_some_and(|control| control.nodes[node].holder.configs().names(self.ids[node]));
        if leaves && !named {
            self.end_leave(node);
        }
    }

    /// It has left and starts another life; a node that can't be spared stays.
    pub(in super::super) fn end_drain(&mut self, node: usize) {
        if self.nodes[node].drained && self.can_spare(node) {
            self.nodes[node].down = true;
            self.disconnect(node);
        } else if self.nodes[node].drained && self.nodes[node].is_alive() {
            self.nodes[node].drained = false;
            self.forget_leases(node);
            let clock = self.nodes[node].clock(self.now);
            let Some(control) = &mut self.control else { return };
            control.nodes[node].holder.stay(clock);
            self.schedule_renewal(node);
        }
        self.restart_life(node);
    }
}
