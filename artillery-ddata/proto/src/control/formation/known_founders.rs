//! The nodes that seem to be alive, according to discovery and gossip, and the choice of founders.

use std::collections::{BTreeMap, BTreeSet};

use super::{FounderCandidate, MAX_NODES};
use crate::{ClusterId, MemberId, NodeId, control::NodeInfo, guards::Guards};

/// The maximum number of founders in a proposal, unless more are expected: each sends messages to all others, and each
/// must accept.
const MAX_UNEXPECTED: usize = 16;
/// A node whose silence made this many proposals fail is left out, if enough others remain.
const MAX_MISSES: u32 = 2;

/// The nodes that seem to be alive, each in its latest incarnation.
#[derive(Debug, Default)]
pub(super) struct KnownFounders {
    nodes: BTreeMap<NodeId, KnownFounder>,
    /// The number of proposals since the node's last message, in any incarnation, that failed because it didn't answer.
    /// Other nodes have priority over it.
    misses: BTreeMap<NodeId, u32>,
    replaced: BTreeSet<MemberId>,
}

#[derive(Debug)]
struct KnownFounder {
    candidate: FounderCandidate,
    /// The node refuses all proposals of the local node, so it is named as a founder only if too few others are free.
    excluded: bool,
    /// The minimum number of founders that it has demanded; zero: none.
    expects: u16,
}

impl KnownFounders {
    /// Returns whether this incarnation is new, or is now known to belong to a cluster.
    pub(super) fn insert(&mut self, candidate: FounderCandidate) -> bool {
        let id = candidate.founder.id;
        if self.replaced.contains(&id) {
            return false;
        }
        let full = self.nodes.len() >= MAX_NODES;
        match self.nodes.get_mut(&id.node) {
            Some(known) if known.candidate.founder.id == id => {
                let news = candidate.cluster.is_some() && known.candidate.cluster.is_none();
                // An incarnation never leaves its cluster: a report that names no cluster is out of date.
                let cluster = candidate.cluster.or(known.candidate.cluster);
                known.candidate = FounderCandidate { cluster, ..candidate };
                news
            }
            None if full => false,
            _ => {
                self.nodes.insert(id.node, KnownFounder { candidate, excluded: false, expects: 0 });
                true
            }
        }
    }

    pub(super) fn remove(&mut self, id: MemberId) {
        if self.nodes.get(&id.node).is_some_and(|known| known.candidate.founder.id == id) {
            self.nodes.remove(&id.node);
        }
    }

    pub(super) fn replace(&mut self, old: MemberId) {
        self.remove(old);
        // At the limit, forget an incarnation: a proposal that names it then takes a whole ballot to fail.
        if self.replaced.len() >= MAX_NODES {
            self.replaced.pop_first();
        }
        self.replaced.insert(old);
    }

    pub(super) fn is_replaced(&self, id: MemberId) -> bool {
        self.replaced.contains(&id)
    }

    pub(super) fn addrs(&self, id: MemberId) -> Option<&[std::net::SocketAddr]> {
        let known = self.nodes.get(&id.node).filter(|known| known.candidate.founder.id == id)?;
        Some(&known.candidate.founder.addrs)
    }

    pub(super) fn belongs(&mut self, id: MemberId, cluster: ClusterId) {
        if let Some(known) = self.nodes.get_mut(&id.node).filter(|known| known.candidate.founder.id == id) {
            known.candidate.cluster = Some(cluster);
        }
    }

    pub(super) fn exclude(&mut self, id: MemberId) {
        if let Some(known) = self.nodes.get_mut(&id.node).filter(|known| known.candidate.founder.id == id) {
            known.excluded = true;
        }
    }

    /// Records that a proposal failed because `id` didn't answer. The record applies to later incarnations too, since
    /// the node may restart again and again.
    pub(super) fn miss(&mut self, id: MemberId) {
        if self.misses.len() < MAX_NODES || self.misses.contains_key(&id.node) {
            let misses = self.misses.entry(id.node).or_default();
            *misses = misses.saturating_add(1);
        }
    }

    pub(super) fn heard(&mut self, id: MemberId) {
        self.misses.remove(&id.node);
    }

    fn misses(&self, known: &KnownFounder) -> u32 {
        if known.excluded { u32::MAX } else { self.misses.get(&known.candidate.founder.id.node).copied().unwrap_or(0) }
    }

    pub(super) fn expects(&mut self, id: MemberId, expects: u16) {
        if let Some(known) = self.nodes.get_mut(&id.node).filter(|known| known.candidate.founder.id == id) {
            known.expects = expects;
        }
    }

    /// The free node that has demanded the largest number of founders, and that number.
    pub(super) fn most_expected(&self) -> Option<(u16, MemberId)> {
        let expecting = self.free_nodes().filter(|known| known.expects > 0);
        expecting.map(|known| (known.expects, known.candidate.founder.id)).max()
    }

    pub(super) fn members(&self) -> impl Iterator<Item = MemberId> + '_ {
        self.nodes.values().filter(|known| known.candidate.cluster.is_some()).map(|known| known.candidate.founder.id)
    }

    /// The number of nodes that seem to belong to no cluster.
    pub(super) fn free(&self) -> usize {
        self.free_nodes().count()
    }

    fn free_nodes(&self) -> impl Iterator<Item = &KnownFounder> {
        self.nodes.values().filter(|known| known.candidate.cluster.is_none())
    }

    /// How many free nodes have a lower id than `me`.
    pub(super) fn rank(&self, me: MemberId) -> usize {
        self.nodes.range(..me.node).filter(|(_, known)| known.candidate.cluster.is_none()).count()
    }

    /// Returns `me` and the free nodes that answer, up to [`MAX_UNEXPECTED`] in all. If these are fewer than `least`,
    /// adds others. Nodes with fewer misses are preferred.
    pub(super) fn founders(&self, me: &NodeInfo, least: usize, guards: Guards) -> Vec<NodeInfo> {
        let mut free: Vec<_> = self.free_nodes().collect();
        free.sort_by_key(|known| (self.misses(known), known.candidate.founder.id));
        let answering = free.iter().filter(|known| self.misses(known) < MAX_MISSES).count();
        let others = if allows!(guards, NameOnlyExpected) { 0 } else { answering.min(MAX_UNEXPECTED - 1) };
        let others = others.max(least.saturating_sub(1));
        let mut founders = vec![me.clone()];
        founders.extend(free.into_iter().take(others).map(|known| known.candidate.founder.clone()));
        founders.sort_by_key(|founder| founder.id);
        founders
    }
}
