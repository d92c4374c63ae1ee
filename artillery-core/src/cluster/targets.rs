//! Chooses which announced addresses are dialled. Does no I/O.
//!
//! Announcements prove nothing: a stranger on the network can name any node, at any address, as often as it likes. A
//! node proves its id only when a connection to it is established, by mutual TLS. So each target is tried
//! independently, with its own pause.
//!
//! A target is proven if its node has answered at the address, or is a member that has announced the address as its
//! own. No announcement displaces or withdraws a proven target. All other targets compete for [`MAX_UNPROVEN_TARGETS`]
//! places: a new target displaces the one that has failed most often, never an untried one.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use crate::id::NodeId;

/// Maximum number of dialled targets that are not proven.
pub(super) const MAX_UNPROVEN_TARGETS: usize = 1024;

const MAX_PROVEN_NODES: usize = 1024;

/// Maximum number of proven addresses per node. The oldest are removed first, except the one that answered last.
const MAX_PROVEN_ADDRS_PER_NODE: usize = 8;

const MAX_ADDRS_PER_ANNOUNCEMENT: usize = 16;

/// A target is abandoned after this number of failed rounds, until it is announced again.
pub(super) const MAX_FAILED_ROUNDS: u32 = 20;

/// An address, and the id of the node announced there, if any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct DialTarget {
    pub(super) node: Option<NodeId>,
    pub(super) addr: SocketAddr,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct TargetChanges {
    pub(super) begin: Vec<DialTarget>,
    pub(super) end: Vec<DialTarget>,
}

#[derive(Debug, Default)]
pub(super) struct DialTargets {
    /// The number of failed rounds of each target.
    dialled: BTreeMap<DialTarget, u32>,
    proven: BTreeMap<NodeId, ProvenAddrs>,
    /// Counts proofs, to find the node whose latest proof is oldest.
    proofs: u64,
}

/// Addresses at which a node has answered or that it has announced as a member, newest first.
#[derive(Debug, Default)]
struct ProvenAddrs {
    addrs: Vec<SocketAddr>,
    /// The address at which the node answered last. The member may only have announced the other addresses.
    answered: Option<SocketAddr>,
    last: u64,
}

impl DialTargets {
    /// Handles an announcement of `node` at these addresses. The proven addresses of `node` are tried too.
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

    /// Handles an announcement that `node` is gone. A stranger may have sent it, so a target is dropped only if it has
    /// failed before, and never if it is proven. Returns the dropped targets.
    pub(super) fn on_gone(&mut self, node: Option<NodeId>, addrs: &[SocketAddr]) -> Vec<DialTarget> {
        let targets = addrs.iter().map(|&addr| DialTarget { node, addr });
        let tried = |target: &DialTarget| {
            !self.is_proven(*target) && self.dialled.get(target).is_some_and(|&rounds| rounds > 0)
        };
        let end: Vec<_> = targets.filter(tried).collect();
        end.iter().for_each(|&target| self.remove(target));
        end
    }

    pub(super) fn dials(&self, node: NodeId) -> bool {
        self.dialled.keys().any(|target| target.node == Some(node))
    }

    /// Counts a failed round. Returns the number of failed rounds, or `None` if the target is abandoned.
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

    pub(super) fn remove(&mut self, target: DialTarget) {
        self.dialled.remove(&target);
    }

    /// Handles proof that `node` is at `addr`. Removes and returns all targets of this node or at this address: they
    /// need no further dialling.
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

    /// Records that `node` has answered at `addr`, or is a member that has announced `addr` as its own.
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

    /// Whether `target` may be added; a proven one always may. If necessary, drops the unproven target with the most
    /// failed rounds, and adds that to `end`.
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
