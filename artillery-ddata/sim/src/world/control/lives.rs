//! Lives of nodes: those that end, pause and begin, and what is left of a chain by them.

use std::{collections::BTreeSet, fmt::Write as _};

use artillery_proto::{ChainId, MemberId, NodeId};

use super::{Event, World};
use crate::mutants::MutantName;

impl World {
    /// Stops a life of a node, unless the chains or the log could not go on without it.
    pub(in super::super) fn stop_life(&mut self, node: usize) {
        if !self.nodes[node].is_alive() || !self.can_spare(node) {
            return;
        }
        self.restarts += 1;
        self.nodes[node].down = true;
        self.disconnect(node);
    }

    /// Whether each chain has another serving member, and the log a majority, without this node.
    pub(in super::super) fn can_spare(&self, node: usize) -> bool {
        let Some(control) = &self.control else { return true };
        let without = self.ids[node];
        let lives = |id: MemberId| {
            id != without && self.ids.iter().position(|&other| other == id).is_some_and(|at| self.nodes[at].is_alive())
        };
        let chains = control.configs().iter().all(|config| config.serving().any(lives));
        // What may be decided yet may leave this node as the only one.
        let proposes = control.nodes.iter().any(|half| half.decider.proposes());
        let decides = control.group.in_limbo() || control.appends > 0 || proposes;
        !decides && chains && control.group.has_majority_of(lives)
    }

    pub(in super::super) fn restart_life(&mut self, node: usize) {
        if self.nodes[node].down {
            self.queue.push(self.now, super::super::Event::Control(Event::Start(node)));
        }
    }

    pub(super) fn start_again(&mut self, index: usize) {
        let Some(control) = &mut self.control else { return };
        if !self.nodes[index].down {
            return;
        }
        if self.setup.mutant != Some(MutantName::SameLife) {
            control.lives[index] += 1;
        }
        let (seed, life) = (control.seed, control.lives[index]);
        let id = self.renew_node(seed, index, life);
        let Some(control) = &mut self.control else { return };
        control.nodes[index] = control.half(index, id, &self.setup);
        self.trace.line(self.now, |out| write!(out, "n{index} starts another life"));
        self.reconnect(index);
        self.begin_half(index);
    }

    /// A node does nothing from now on, or goes on.
    pub(in super::super) fn pause(&mut self, node: usize, paused: bool) {
        if self.nodes[node].paused == paused || !self.nodes[node].is_alive() {
            return;
        }
        self.nodes[node].paused = paused;
        self.pauses += u64::from(paused);
        let Some(control) = &mut self.control else { return };
        if !paused {
            for event in std::mem::take(&mut control.held[node]) {
                self.queue.push(self.now, event);
            }
        }
    }

    /// What happens now; what a paused node would have to do is kept until it goes on.
    pub(in super::super) fn unless_paused(&mut self, event: super::super::Event) -> Option<super::super::Event> {
        let Some(node) = event.waits_for().filter(|&node| self.nodes[node].paused) else { return Some(event) };
        if let Some(control) = &mut self.control {
            control.held[node].push(event);
        }
        None
    }

    /// Whether all has healed and settled: each chain has as many members as it can have.
    pub(in super::super) fn is_settled(&self) -> bool {
        let Some(control) = &self.control else { return true };
        let lives = |id: MemberId| self.ids.contains(&id);
        control.configs().iter().all(|config| {
            let away = if self.setup.excused { self.kept_away(config.tail()) } else { BTreeSet::new() };
            let may_serve = |at: &usize| {
                let node = &self.nodes[*at];
                let serves = config.serving().any(|id| id == self.ids[*at]);
                node.is_alive() && (serves || !node.drained && !away.contains(&self.ids[*at].node))
            };
            let wanted = control.settings.replicas.min((0..self.nodes.len()).filter(may_serve).count());
            config.serving().count() == wanted && config.syncing().is_none() && config.serving().all(lives)
        })
    }

    /// Nodes that a leader lets nobody have for a while, since they held up a chain.
    fn kept_away(&self, tail: Option<MemberId>) -> BTreeSet<NodeId> {
        let Some(control) = &self.control else { return BTreeSet::new() };
        let halves = control.nodes.iter().zip(&self.nodes).filter(|(half, _)| half.decider.decides_in().is_some());
        halves.flat_map(|(half, node)| half.decider.kept_away(node.clock(self.now), tail)).collect()
    }

    /// The nodes that serve a chain by the last configuration.
    pub(in super::super) fn members_now(&self, chain: usize) -> Vec<usize> {
        let Some(control) = &self.control else { return Vec::new() };
        let config = control.configs().get(ChainId(chain as u32));
        let at = |id: MemberId| self.ids.iter().position(|&other| other == id);
        config.map(|config| config.serving().filter_map(at).collect()).unwrap_or_default()
    }

    /// Whether a node serves anything, as far as that may change.
    pub(in super::super) fn is_member_now(&self, node: usize) -> bool {
        self.control.is_none() || (0..self.setup.chains).all(|chain| self.members_now(chain).contains(&node))
    }
}
