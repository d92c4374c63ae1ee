//! Checks the promise of *ready* against the state from which the leader derived it (docs/DESIGN.md §5.3).

use std::{collections::BTreeSet, fmt::Write as _};

use artillery_proto::{MemberId, control::message::Renewed};

use super::World;
use crate::{
    oracle::{Failure, Oracle},
    scenario::{HEALED, SECOND},
};

/// Time after healing within which all nodes must be ready.
const READY: u64 = 10 * SECOND;

impl World {
    pub(super) fn check_answer(&mut self, leader: usize, to: MemberId, renewed: &Renewed) {
        let is_settled = renewed.settled.is_ok();
        if is_settled {
            self.check_promise(leader);
        }
        if let Some(at) = self.ids.iter().position(|&id| id == to) {
            self.nodes[at].was_told |= is_settled;
        }
    }

    pub(super) fn ready(&mut self, node: usize) {
        self.trace.line(self.now, |out| write!(out, "n{node} is ready"));
        self.nodes[node].ready = true;
        // The leader's answer to itself is not a message, so it was not checked.
        if !self.nodes[node].was_told && self.is_deciding(node) {
            self.check_promise(node);
        } else if !self.nodes[node].was_told {
            let what = format!("n{node} reports ready, but no leader has confirmed it");
            self.claim(Failure::new(Oracle::Ready, what));
        }
        if self.nodes.iter().all(|node| node.ready || !node.is_alive()) {
            self.counts.ready = self.counts.ready.max(Some(self.now.saturating_sub(HEALED)));
        }
    }

    /// Checks that each chain has no joiner and at least one live member, or two if another node could join, and that a
    /// majority of the log's voters is live.
    fn check_promise(&mut self, leader: usize) {
        let Some(broken) = self.broken_promise(leader) else { return };
        self.claim(Failure::new(Oracle::Ready, format!("n{leader} reports a settled cluster, but {broken}")));
    }

    fn broken_promise(&self, leader: usize) -> Option<String> {
        let heard = self.heard_of(leader);
        let fails = |id: MemberId| self.failed.contains(&id);
        let configs = self.configs_of(leader)?;
        let replicas = self.setup.control.map_or(0, |control| control.replicas);
        for config in configs.iter() {
            let chain = config.chain.0;
            if let Some(joiner) = config.syncing() {
                return Some(format!("{joiner} is still joining chain {chain}"));
            }
            let serving = config.serving().filter(|id| heard.contains(id)).count();
            let is_named = |id: &MemberId| config.members.iter().any(|member| member.id.node == id.node);
            let may_join = |id: &&MemberId| !is_named(id) && !fails(**id) && configs.node(**id).is_some();
            let other = heard.iter().find(may_join);
            if serving == 0 {
                return Some(format!("no member of chain {chain} has renewed its lease"));
            }
            if let Some(other) = other.filter(|_| serving == 1 && replicas > 1) {
                return Some(format!("chain {chain} has one member although {other} is available"));
            }
        }
        (!self.has_majority_among(&heard)).then(|| "no majority of the log's voters has renewed its lease".to_owned())
    }

    /// Checks that all live nodes are ready within [`READY`] of healing.
    pub(super) fn check_all_ready(&self) -> Result<(), Failure> {
        if self.control.is_none() || self.now < HEALED + READY || !self.all_may_return() {
            return Ok(());
        }
        let lacks = |node: &usize| {
            let node = &self.nodes[*node];
            node.is_alive() && !node.drained && !node.fails && !node.ready
        };
        let never: BTreeSet<usize> = (0..self.nodes.len()).filter(lacks).collect();
        if never.is_empty() {
            return Ok(());
        }
        let why: Vec<_> = never.iter().filter_map(|&node| self.unready(node)).collect();
        Err(Failure::new(Oracle::Liveness, format!("nodes {never:?} are not ready: {why:?}")))
    }
}
