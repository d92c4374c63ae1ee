//! Which of the announced addresses are dialled. Pure: the dialer asks what to do.
//!
//! Announcements prove nothing: a stranger on the network can name any node, at any address, as often as it likes. Only
//! a node that was met has proved its id, by mutual TLS. So each target is tried on its own, with its own pause, and an
//! announcement touches no other target.
//!
//! An address at which a node has answered before has reserved room and stays a target, which no announcement changes.
//! All other targets compete for [`MAX_UNPROVEN_TARGETS`] places: a target that was tried in vain gives way to a new
//! one, an untried one does not.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use crate::id::NodeId;

/// Targets dialled at a time at which no node has answered yet.
pub(super) const MAX_UNPROVEN_TARGETS: usize = 1024;

/// Nodes whose proven addresses are remembered.
const MAX_PROVEN_NODES: usize = 1024;

/// The most addresses kept of one node: the stated ones, and those of its latest incarnations.
const MAX_PROVEN_ADDRS_PER_NODE: usize = 8;

/// Addresses taken from one announcement.
const MAX_ADDRS_PER_ANNOUNCEMENT: usize = 16;

/// A target is given up after so many rounds in vain, until it is announced again.
pub(super) const MAX_FAILED_ROUNDS: u32 = 20;

/// An address, and the node that is said to be there, if any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct DialTarget {
    pub(super) node: Option<NodeId>,
    pub(super) addr: SocketAddr,
}

/// What follows from an announcement.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct TargetChanges {
    /// Dial these from now on.
    pub(super) begin: Vec<DialTarget>,
    /// Dial these no longer.
    pub(super) end: Vec<DialTarget>,
}

/// The targets that are dialled, and the addresses where nodes have answered.
#[derive(Debug, Default)]
pub(super) struct DialTargets {
    /// Rounds in vain of each target.
    dialled: BTreeMap<DialTarget, u32>,
    proven: BTreeMap<NodeId, ProvenAddrs>,
    /// Counts the proofs, to tell which node answered longest ago.
    proofs: u64,
}

/// Where a node has answered, the latest address first.
#[derive(Debug, Default)]
struct ProvenAddrs {
    addrs: Vec<SocketAddr>,
    /// Where it has answered last. The other ones may only be stated.
    answered: Option<SocketAddr>,
    last: u64,
}

impl DialTargets {
    /// An announcement says that `node` is at one of these addresses. Addresses where it has answered before are tried
    /// too.
    pub(super) fn on_announced(&mut self, node: Option<NodeId>, addrs: &[SocketAddr]) -> TargetChanges {
        let known = node.and_then(|node| self.proven.get(&node)).map_or(&[][..], |proven| &proven.addrs);
        let addrs: BTreeSet<_> = addrs.iter().take(MAX_ADDRS_PER_ANNOUNCEMENT).chain(known).copied().collect();
        let mut changes = TargetChanges::default();
        for target in addrs.into_iter().map(|addr| DialTarget { node, addr }) {
            if !self.dialled.contains_key(&target) && self.has_room(target, &mut changes.end) {
                self.dialled.insert(target, 0);
                changes.begin.push(target);
            }
        }
        changes
    }

    /// An announcement says that `node` is no longer there. A stranger may have sent it. So a target is dropped only if
    /// it was tried in vain, and never if the node has answered there.
    pub(super) fn on_gone(&mut self, node: Option<NodeId>, addrs: &[SocketAddr]) -> Vec<DialTarget> {
        let targets = addrs.iter().map(|&addr| DialTarget { node, addr });
        let tried = |target: &DialTarget| {
            !self.is_proven(*target) && self.dialled.get(target).is_some_and(|&rounds| rounds > 0)
        };
        let end: Vec<_> = targets.filter(tried).collect();
        end.iter().for_each(|&target| self.remove(target));
        end
    }

    /// Whether any address of this node is dialled.
    pub(super) fn dials(&self, node: NodeId) -> bool {
        self.dialled.keys().any(|target| target.node == Some(node))
    }

    /// A round was in vain. Returns how many were, or `None` if the target is given up.
    pub(super) fn on_failed(&mut self, target: DialTarget) -> Option<u32> {
        let rounds = self.dialled.get_mut(&target)?;
        *rounds += 1;
        let rounds = *rounds;
        if rounds >= MAX_FAILED_ROUNDS {
            self.dialled.remove(&target);
            return None;
        }
        Some(rounds)
    }

    /// The target is settled: stop dialling it.
    pub(super) fn remove(&mut self, target: DialTarget) {
        self.dialled.remove(&target);
    }

    /// `node` has proved to be at `addr`. Returns the other targets of this node and address, which are settled too.
    pub(super) fn on_answered(&mut self, node: NodeId, addr: SocketAddr) -> Vec<DialTarget> {
        self.set_proven(node, addr);
        if let Some(proven) = self.proven.get_mut(&node) {
            proven.answered = Some(addr);
        }
        let is_of = |target: &&DialTarget| target.node == Some(node) || target.addr == addr;
        let end: Vec<_> = self.dialled.keys().filter(is_of).copied().collect();
        end.iter().for_each(|&target| self.remove(target));
        end
    }

    /// `node` is or was at `addr`, as it stated under its certificate.
    pub(super) fn set_proven(&mut self, node: NodeId, addr: SocketAddr) {
        if !self.proven.contains_key(&node) && self.proven.len() >= MAX_PROVEN_NODES {
            let oldest = self.proven.iter().min_by_key(|(_, proven)| proven.last).map(|(&node, _)| node);
            oldest.and_then(|node| self.proven.remove(&node));
        }
        self.proofs += 1;
        let proven = self.proven.entry(node).or_default();
        proven.last = self.proofs;
        proven.addrs.retain(|&known| known != addr);
        proven.addrs.insert(0, addr);
        if proven.addrs.len() > MAX_PROVEN_ADDRS_PER_NODE {
            let oldest = proven.addrs.iter().rposition(|&known| Some(known) != proven.answered);
            oldest.map(|oldest| proven.addrs.remove(oldest));
        }
    }

    fn is_proven(&self, target: DialTarget) -> bool {
        let proven = target.node.and_then(|node| self.proven.get(&node));
        proven.is_some_and(|proven| proven.addrs.contains(&target.addr))
    }

    /// Whether there is room for one more target, perhaps by dropping the one that was tried in vain most often.
    fn has_room(&mut self, target: DialTarget, end: &mut Vec<DialTarget>) -> bool {
        let unproven = || self.dialled.iter().filter(|&(&target, _)| !self.is_proven(target));
        if self.is_proven(target)
            || self.dialled.len() < MAX_UNPROVEN_TARGETS
            || unproven().count() < MAX_UNPROVEN_TARGETS
        {
            return true;
        }
        let most = unproven().max_by_key(|&(_, &rounds)| rounds).filter(|&(_, &rounds)| rounds > 0);
        let Some((&most, _)) = most else { return false };
        self.dialled.remove(&most);
        end.push(most);
        true
    }
}

#[cfg(test)]
mod tests;
