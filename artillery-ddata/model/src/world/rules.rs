//! Properties that must always hold (docs/DESIGN.md §3 and §4), and properties that some run must reach.

use artillery_proto::{Sequence, types::update::Update};

use super::{Node, World};
use crate::{
    bounds::{NODES, WRITES},
    history::{Outcome, READ},
};

impl World {
    /// Whether the observations of clients are linearizable.
    pub fn is_linearizable(&self) -> bool {
        self.history.is_linearizable()
    }

    /// Whether every serving member of the newest configuration holds every acknowledged write.
    pub fn acknowledged_is_held(&self) -> bool {
        let acknowledged = |which: &usize| self.history.outcome(*which) == Some(Outcome::Acknowledged);
        (0..WRITES).filter(acknowledged).all(|which| self.serving().all(|node| holds(node, which)))
    }

    /// Whether any two members agree on the committed history.
    pub fn has_one_history(&self) -> bool {
        self.nodes.iter().all(|one| {
            self.nodes.iter().all(|other| {
                let both = one.gate.watermark().min(other.gate.watermark());
                committed(one, both).eq(committed(other, both))
            })
        })
    }

    /// Whether every serving member of the newest configuration holds every update that any member considers committed.
    pub fn committed_is_held(&self) -> bool {
        self.nodes.iter().all(|one| {
            let upto = one.gate.watermark();
            self.serving().all(|other| committed(one, upto).eq(committed(other, upto)))
        })
    }

    /// Whether no member has halted because of a broken invariant.
    pub fn nobody_halted(&self) -> bool {
        self.nodes.iter().all(|node| node.replica().status().halted.is_none())
    }

    /// Whether no member is syncing. A chain's treatment of a joiner depends on speed, which isn't part of a state.
    pub fn nobody_joins(&self) -> bool {
        self.configs.iter().all(|config| config.syncing().is_none())
    }

    /// Whether a leader that no node can dial has removed no member: all nodes are well.
    pub fn unreached_leader_removes_none(&self) -> bool {
        !self.is_leader_undialable || self.configs.iter().all(|config| config.serving().count() == NODES)
    }

    /// Whether a leader that no node can dial has resigned.
    pub fn unreached_leader_gave_up(&self) -> bool {
        self.is_leader_undialable && self.seen.gave_up
    }

    /// Whether a write was acknowledged after a change of the configuration.
    pub fn acknowledged_after_change(&self) -> bool {
        self.seen.acknowledged_after_change
    }

    /// Whether all writes were acknowledged and the read, if any, was served.
    pub fn all_done(&self) -> bool {
        let acknowledged = |which| self.history.outcome(which) == Some(Outcome::Acknowledged);
        let read = matches!(self.history.outcome(READ), Some(Outcome::Found(_)));
        (0..self.bounds.writes).all(acknowledged) && (read || !self.bounds.reads)
    }

    /// Whether this node served the read, at its gate or by its replica.
    pub fn read_at(&self, node: u8, at_gate: bool) -> bool {
        self.seen.read_at == Some((node, at_gate))
    }

    /// Whether a node that is cut off served the read under its lease.
    pub fn read_cut_off(&self) -> bool {
        let cut_off = |at: u8| self.nodes[usize::from(at)].health == super::Health::CutOff;
        self.seen.read_at.is_some_and(|(at, at_gate)| at_gate && cut_off(at))
    }

    fn serving(&self) -> impl Iterator<Item = &Node> {
        let ids = self.configs.iter().flat_map(|config| config.serving());
        ids.filter_map(|id| self.index(id)).map(|at| &*self.nodes[at])
    }
}

fn committed(node: &Node, upto: Sequence) -> impl Iterator<Item = &Update> {
    node.replica().history().take_while(move |update| update.version.sequence <= upto)
}

fn holds(node: &Node, which: usize) -> bool {
    let value = [which as u8 + 1];
    let mut changes = node.replica().history().flat_map(|update| &update.changes);
    changes.any(|change| change.value.as_deref() == Some(value.as_slice()))
}
