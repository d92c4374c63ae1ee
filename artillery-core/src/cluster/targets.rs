//! Which of the announced targets are dialled. Pure: the dialler asks what to do.
//!
//! Announcements prove nothing: a stranger on the network can name any node, at any address, as often as it likes. Only a
//! node that was met has proved its id, by mutual TLS. So each target is tried on its own, with a pause of its own, and no
//! announcement touches another target. An address at which a node has answered before is kept in room of its own, and goes
//! on being tried, and no announcement changes that. All other targets compete among themselves for [`MAX_UNPROVEN_TARGETS`] of them: one that
//! was tried in vain gives way to a new one, one that was not tried yet doesn't.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use crate::id::NodeId;

/// Unproven targets that are dialled at a time: no node has answered there yet.
pub(super) const MAX_UNPROVEN_TARGETS: usize = 1024;

/// Nodes of which is remembered where they have answered.
const MAX_PROVEN_NODES: usize = 1024;

/// Addresses remembered of one node: those of its latest lives.
const MAX_PROVEN_ADDRS_PER_NODE: usize = 4;

/// Addresses taken from one announcement.
const MAX_ADDRS_PER_ANNOUNCEMENT: usize = 16;

/// A target is given up after so many rounds in vain, until it is announced again.
pub(super) const MAX_FAILED_ROUNDS: u32 = 20;

/// Where a node may be, and which one is said to be there, if any is.
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

/// The targets that are dialled, and those where nodes have answered.
#[derive(Debug, Default)]
pub(super) struct DialTargets {
    /// Rounds in vain of each target that is dialled.
    dialled: BTreeMap<DialTarget, u32>,
    proven: BTreeMap<NodeId, ProvenAddrs>,
    /// Rises with each proof.
    proofs: u64,
}

/// Where a node has answered, the latest address first.
#[derive(Debug, Default)]
struct ProvenAddrs {
    addrs: Vec<SocketAddr>,
    last: u64,
}

impl DialTargets {
    /// An announcement says that `node` is at one of these addresses. Where it has answered before is tried too.
    pub(super) fn announced(&mut self, node: Option<NodeId>, addrs: &[SocketAddr]) -> TargetChanges {
        let known = node.and_then(|node| self.proven.get(&node)).map_or(&[][..], |proven| &proven.addrs);
        let addrs: BTreeSet<_> = addrs.iter().take(MAX_ADDRS_PER_ANNOUNCEMENT).chain(known).copied().collect();
        let mut orders = TargetChanges::default();
        for target in addrs.into_iter().map(|addr| DialTarget { node, addr }) {
            if !self.dialled.contains_key(&target) && self.has_room(target, &mut orders.end) {
                self.dialled.insert(target, 0);
                orders.begin.push(target);
            }
        }
        orders
    }

    /// An announcement says that `node` is no longer there. A stranger may have sent it, so a target goes only if it was tried in
    /// vain, and never if the node has answered there.
    pub(super) fn gone(&mut self, node: Option<NodeId>, addrs: &[SocketAddr]) -> Vec<DialTarget> {
        let targets = addrs.iter().map(|&addr| DialTarget { node, addr });
        let tried = |target: &DialTarget| {
            !self.is_proven(*target) && self.dialled.get(target).is_some_and(|&rounds| rounds > 0)
        };
        let end: Vec<_> = targets.filter(tried).collect();
        end.iter().for_each(|&target| self.over(target));
        end
    }

    /// A round was in vain: how many were, if the target is to be dialled again.
    pub(super) fn failed(&mut self, target: DialTarget) -> Option<u32> {
        let rounds = self.dialled.get_mut(&target)?;
        *rounds += 1;
        let rounds = *rounds;
        if rounds >= MAX_FAILED_ROUNDS {
            self.dialled.remove(&target);
            return None;
        }
        Some(rounds)
    }

    /// The target needn't be dialled any longer.
    pub(super) fn over(&mut self, target: DialTarget) {
        self.dialled.remove(&target);
    }

    /// `node` has proved to be at `addr`: no other target need be dialled for it.
    pub(super) fn answered(&mut self, node: NodeId, addr: SocketAddr) -> Vec<DialTarget> {
        self.proved(node, addr);
        let is_of = |target: &&DialTarget| target.node == Some(node) || target.addr == addr;
        let end: Vec<_> = self.dialled.keys().filter(is_of).copied().collect();
        end.iter().for_each(|&target| self.over(target));
        end
    }

    /// `node` is known to be, or to have been, at `addr`, by its own word under its certificate.
    pub(super) fn proved(&mut self, node: NodeId, addr: SocketAddr) {
        if !self.proven.contains_key(&node) && self.proven.len() >= MAX_PROVEN_NODES {
            let oldest = self.proven.iter().min_by_key(|(_, proven)| proven.last).map(|(&node, _)| node);
            oldest.and_then(|node| self.proven.remove(&node));
        }
        self.proofs += 1;
        let proven = self.proven.entry(node).or_default();
        proven.last = self.proofs;
        proven.addrs.retain(|&known| known != addr);
        proven.addrs.insert(0, addr);
        proven.addrs.truncate(MAX_PROVEN_ADDRS_PER_NODE);
    }

    fn is_proven(&self, target: DialTarget) -> bool {
        let proven = target.node.and_then(|node| self.proven.get(&node));
        proven.is_some_and(|proven| proven.addrs.contains(&target.addr))
    }

    /// Whether there is room for one more target, perhaps in the target of one that was tried in vain most often.
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
