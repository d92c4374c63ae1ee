//! Renewals and their answers between nodes.

use std::fmt::Write as _;

use artillery_proto::{
    ChainId, MemberId,
    control::{
        History,
        message::{Renewal, Renewed},
    },
    node::NodeInput,
};

use super::Event;
use crate::{network::Flight, world::World};

#[derive(Clone, Debug)]
pub(crate) enum Message {
    Renewal(Option<History>, Renewal),
    Renewed(Option<History>, Renewed),
    /// The history of the receiver is over.
    OtherHistory(History),
    /// The receiver's directory is an older copy.
    RolledBack,
}

impl World {
    pub(super) fn renew(&mut self, node: usize) {
        self.tell_position(node);
        loop {
            let clock = self.nodes[node].clock(self.now);
            let slots = &self.nodes[node].slots;
            let progress = |chain: ChainId| Some(slots.get(chain.0 as usize)?.runner.standing().progress);
            let Some(control) = &mut self.control else { return };
            let half = &mut control.nodes[node];
            let Some((to, _, renewal)) = half.decider.poll_renewal(clock, progress) else { return };
            let number = renewal.number;
            half.asked.insert((to, number));
            let patience = control.founding.timing.lease.as_nanos() as u64;
            let event = Event::Unanswered { node, id: self.ids[node], to, number };
            self.queue.push(self.now + patience, crate::world::Event::Control(event));
            self.say(node, to, Message::Renewal(self.history_of(node), renewal));
        }
    }

    pub(super) fn tell_position(&mut self, index: usize) {
        let Some(opened) = &self.nodes[index].opened else { return };
        let position = opened.control.position(opened.journal.synced().0);
        if let Some(control) = &mut self.control {
            control.nodes[index].decider.stands_at(position);
        }
    }

    pub(super) fn unheard(&mut self, node: usize, to: MemberId, number: u64) {
        let Some(control) = &mut self.control else { return };
        if control.nodes[node].asked.remove(&(to, number)) {
            self.hand_in(node, NodeInput::Renewed { from: to, renewed: None });
        }
    }

    pub(super) fn say(&mut self, from: usize, to: MemberId, message: Message) {
        let ends = [self.ids[from], to];
        let Some(index) = self.ids.iter().position(|id| id.node == to.node) else { return };
        self.trace.line(self.now, |out| write!(out, "n{from} sends n{index} {message:?}"));
        let message = Box::new(message);
        if index == from {
            let flight = Flight { at: self.now, generation: 0, lost: false, counted: 0 };
            let event = Event::Message { from, to: from, ends, flight, message };
            return self.queue.push(self.now + 1_000, crate::world::Event::Control(event));
        }
        let answers = !matches!(*message, Message::Renewal(..));
        for flight in self.beside(from, index, answers) {
            let event = Event::Message { from, to: index, ends, flight, message: message.clone() };
            self.queue.push(flight.at, crate::world::Event::Control(event));
        }
    }

    pub(super) fn heard(&mut self, from: usize, to: usize, ends: [MemberId; 2], flight: Flight, message: Message) {
        let [sender, receiver] = ends;
        let there = self.ids[to] == receiver && self.nodes[to].is_alive();
        if !there || (from != to && !self.network.arrives(from, to, flight)) {
            return;
        }
        match message {
            Message::Renewal(theirs, renewal) => {
                if let Some(Err(over)) = theirs.map(|theirs| self.listens(to, theirs)) {
                    if let Some(mine) = over {
                        self.say(to, sender, Message::OtherHistory(mine));
                    }
                    return;
                }
                if let Some(control) = &mut self.control {
                    control.heard.insert((to, sender), (self.now, renewal.leave.is_asked()));
                }
                self.hand_in(to, NodeInput::Renewal { from: sender, renewal });
            }
            Message::OtherHistory(theirs) => drop(self.listens(to, theirs)),
            Message::RolledBack => self.rolled_back(to),
            Message::Renewed(theirs, renewed) => {
                if theirs.is_some_and(|theirs| self.listens(to, theirs).is_err()) {
                    return;
                }
                let Some(control) = &mut self.control else { return };
                // Each renewal gets at most one answer.
                if control.nodes[to].asked.remove(&(sender, renewed.number)) {
                    self.hand_in(to, NodeInput::Renewed { from: sender, renewed: Some(renewed) });
                }
            }
        }
    }
}
