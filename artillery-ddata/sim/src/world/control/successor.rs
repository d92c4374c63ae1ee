//! An operator creates a new cluster from nodes that reach no incarnation that ever served. The other nodes must
//! continue.
//!
//! The new cluster is not simulated. Nodes that create or join it leave this one. Nodes that reach them learn of it.

use std::{collections::BTreeSet, fmt::Write as _, time::Duration};

use artillery_proto::{
    ChainConfig, ClusterId, MemberId,
    control::{
        recovery::{LogEnd, Standing},
        succession::{self, Replacement},
    },
    node::NodeInput,
};

use super::{super::founding::Founders, Event, World};
use crate::scenario::{HEALED, SECOND};

/// How long before healing the operator gives the last order.
const LAST: u64 = 3 * SECOND;

#[derive(Debug)]
pub(super) struct Successor {
    by: ClusterId,
    nodes: BTreeSet<usize>,
}

impl World {
    /// The operator orders a node that never served to create another cluster.
    pub(super) fn want_founding(&mut self) {
        let Some(control) = &mut self.control else { return };
        let (pause, draw) = (control.operator.between(50_000_000, 400_000_000), control.operator.below(u64::MAX));
        if control.successor.is_some() || self.now > HEALED - LAST {
            return;
        }
        self.queue.push(self.now + pause, super::super::Event::Control(Event::WantFounding));
        let free: Vec<usize> = (0..self.nodes.len()).filter(|&at| self.answers(at) && !self.served(at)).collect();
        if free.is_empty() {
            return;
        }
        let node = free[(draw % free.len() as u64) as usize];
        self.give_order(node);
    }

    /// Whether the cluster can continue without a node and the nodes that it reaches. The rest of the run verifies
    /// this.
    fn goes_on_without(&self, node: usize) -> bool {
        let Some(control) = &self.control else { return false };
        let stays = |id: MemberId| {
            let at = self.ids.iter().position(|&other| other == id);
            at.is_some_and(|at| self.nodes[at].is_alive() && !self.nodes[at].fails && !self.reaches(node, at))
        };
        let decides = control.group.in_limbo() || control.appends > 0;
        !decides && control.majority_in(stays) && control.configs().iter().all(|config| config.serving().any(stays))
    }

    /// Orders a node to create or join the other cluster. The order is executed one lease later, if the node still
    /// reaches no incarnation that served.
    fn give_order(&mut self, node: usize) {
        if self.founds(node, 0).is_some() {
            let event = Event::Found { node, id: self.ids[node], since: self.now };
            self.queue.push(self.now + self.lease_and_drift(), super::super::Event::Control(event));
        }
    }

    pub(super) fn reaches(&self, node: usize, other: usize) -> bool {
        self.answers(other) && (other == node || self.network.joins(node, other))
    }

    fn answers(&self, node: usize) -> bool {
        self.nodes[node].is_alive() && !self.nodes[node].paused
    }

    fn served(&self, node: usize) -> bool {
        self.control.as_ref().is_some_and(|control| control.nodes[node].decider.state().served)
    }

    /// The node that should create another cluster, by the standings that `node` collects `since` nanoseconds after the
    /// order.
    fn founds(&self, node: usize, since: u64) -> Option<MemberId> {
        let cluster = self.control.as_ref()?.founding.cluster;
        let reached = (0..self.nodes.len()).filter(|&at| self.reaches(node, at));
        let standings: Vec<_> = reached.filter_map(|at| self.standing(at)).collect();
        let lease = self.setup.control.map_or(Duration::ZERO, |control| control.lease);
        let exists = self.control.as_ref()?.successor.is_some();
        let replacement = if exists { Replacement::Join } else { Replacement::Create };
        succession::plan(cluster, &standings, Duration::from_nanos(since), lease, replacement).ok().map(|by| by.id)
    }

    /// The standing that a node reports; `None` while it loads its directory.
    pub(super) fn standing(&self, at: usize) -> Option<Standing> {
        let control = self.control.as_ref()?;
        let (id, decider, group) = (self.ids[at], &control.nodes[at].decider, &control.group);
        if decider.loads() {
            return None;
        }
        let statuses: Vec<_> = self.nodes[at].slots.iter().map(|slot| slot.runner.replica().status()).collect();
        let of_chain = |config: &ChainConfig| statuses.get(config.chain.0 as usize);
        let me = (Founders::founder(at, id), control.founding.cluster);
        let standing = decider.state().standing(self.nodes[at].clock(self.now), me, decider.configs(), of_chain);
        let keeps_log = group.voters().contains(&id);
        Some(Standing {
            leads: decider.decides_in().is_some_and(|term| self.has_majority(id, term)),
            log: keeps_log.then(|| LogEnd { term: group.term(), index: control.configs().applied().0 }),
            voters: group.voter_sets(),
            ..standing
        })
    }

    /// Executes an order one lease after it was given, with newly collected standings.
    pub(super) fn found_another(&mut self, node: usize, since: u64) {
        let by = self.founds(node, self.now - since);
        if self.control.as_ref().is_some_and(|control| control.successor.is_some()) {
            // The other cluster already exists, so the node joins it.
            if by.is_some() && self.goes_on_without(node) {
                self.go_over(node);
            }
            return;
        }
        let goes_on = self.goes_on_without(node);
        let others: Vec<usize> = (0..self.nodes.len()).filter(|&at| at != node && self.reaches(node, at)).collect();
        let Some(control) = &mut self.control else { return };
        if by == Some(self.ids[node]) && goes_on {
            let by = ClusterId(u128::from(control.operator.below(u64::MAX)));
            self.trace.line(self.now, |out| write!(out, "n{node} creates another cluster"));
            control.successor = Some(Successor { by, nodes: BTreeSet::new() });
            self.foundings += 1;
            self.go_over(node);
            self.queue.push(self.now + 1, super::super::Event::Control(Event::Greet));
            others.into_iter().for_each(|other| self.give_order(other));
        }
    }

    pub(super) fn go_over(&mut self, node: usize) {
        let Some(control) = &mut self.control else { return };
        if let Some(successor) = &mut control.successor {
            successor.nodes.insert(node);
            self.trace.line(self.now, |out| write!(out, "n{node} belongs to another cluster"));
            self.end_life(node);
        }
    }

    pub(in super::super) fn has_gone_over(&self, node: usize) -> bool {
        let successor = self.control.as_ref().and_then(|control| control.successor.as_ref());
        successor.is_some_and(|successor| successor.nodes.contains(&node)) || self.has_joined_stranger(node)
    }

    /// Notifies every node that can reach a member of the other cluster, and schedules the next round.
    pub(super) fn greet(&mut self) {
        let Some(Successor { by, nodes }) = self.control.as_ref().and_then(|control| control.successor.as_ref()) else {
            return;
        };
        let by = *by;
        let meets = |at: &usize| {
            let reached = |&other: &usize| !self.is_broken(*at, other) && !self.network.is_cut(*at, other);
            self.nodes[*at].is_alive() && nodes.iter().any(reached)
        };
        let told: Vec<usize> = (0..self.nodes.len()).filter(meets).collect();
        for node in told {
            let event = Event::Greeted { node, id: self.ids[node], by };
            self.queue.push(self.now + 1, super::super::Event::Control(event));
        }
        let Some(control) = &mut self.control else { return };
        let pause = control.operator.between(50_000_000, 500_000_000);
        self.queue.push(self.now + pause, super::super::Event::Control(Event::Greet));
    }

    pub(super) fn greeted(&mut self, node: usize, by: ClusterId) {
        self.hand_in(node, NodeInput::Succeeded { by });
    }
}
