//! Which of the announced places are dialled. Pure: the dialler asks what to do.
//!
//! Announcements prove nothing: a stranger on the network can name any node, at any address, as often as it likes. Only a
//! node that was met has proved its id, by mutual TLS. So each place is tried on its own, with a pause of its own, and no
//! announcement touches another place. An address at which a node has answered before is kept in room of its own, and goes
//! on being tried, and no announcement changes that. All other places compete among themselves for [`MAX_UNPROVEN`] of them: one that
//! was tried in vain gives way to a new one, one that was not tried yet doesn't.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use crate::id::NodeId;

/// Unproven places that are dialled at a time: no node has answered there yet.
pub(super) const MAX_UNPROVEN: usize = 1024;

/// Nodes of which is remembered where they have answered.
const MAX_PROVEN: usize = 1024;

/// Addresses remembered of one node: those of its latest lives.
const MAX_ADDRS: usize = 4;

/// Addresses taken from one announcement.
const MAX_ANNOUNCED: usize = 16;

/// A place is given up after so many rounds in vain, until it is announced again.
pub(super) const ROUNDS: u32 = 20;

/// Where a node may be, and which one is said to be there, if any is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place {
    pub(super) node: Option<NodeId>,
    pub(super) addr: SocketAddr,
}

/// What follows from an announcement.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Orders {
    /// Dial these from now on.
    pub(super) begin: Vec<Place>,
    /// Dial these no longer.
    pub(super) end: Vec<Place>,
}

/// The places that are dialled, and those where nodes have answered.
#[derive(Debug, Default)]
pub(super) struct Prospects {
    /// Rounds in vain of each place that is dialled.
    dialled: BTreeMap<Place, u32>,
    proven: BTreeMap<NodeId, Proven>,
    /// Rises with each proof.
    proofs: u64,
}

/// Where a node has answered, the latest address first.
#[derive(Debug, Default)]
struct Proven {
    addrs: Vec<SocketAddr>,
    last: u64,
}

impl Prospects {
    /// An announcement says that `node` is at one of these addresses. Where it has answered before is tried too.
    pub(super) fn announced(&mut self, node: Option<NodeId>, addrs: &[SocketAddr]) -> Orders {
        let known = node.and_then(|node| self.proven.get(&node)).map_or(&[][..], |proven| &proven.addrs);
        let addrs: BTreeSet<_> = addrs.iter().take(MAX_ANNOUNCED).chain(known).copied().collect();
        let mut orders = Orders::default();
        for place in addrs.into_iter().map(|addr| Place { node, addr }) {
            if !self.dialled.contains_key(&place) && self.has_room(place, &mut orders.end) {
                self.dialled.insert(place, 0);
                orders.begin.push(place);
            }
        }
        orders
    }

    /// An announcement says that `node` is no longer there. A stranger may have sent it, so a place goes only if it was tried in
    /// vain, and never if the node has answered there.
    pub(super) fn gone(&mut self, node: Option<NodeId>, addrs: &[SocketAddr]) -> Vec<Place> {
        let places = addrs.iter().map(|&addr| Place { node, addr });
        let tried =
            |place: &Place| !self.is_proven(*place) && self.dialled.get(place).is_some_and(|&rounds| rounds > 0);
        let end: Vec<_> = places.filter(tried).collect();
        end.iter().for_each(|&place| self.over(place));
        end
    }

    /// A round was in vain: how many were, if the place is to be dialled again.
    pub(super) fn failed(&mut self, place: Place) -> Option<u32> {
        let rounds = self.dialled.get_mut(&place)?;
        *rounds += 1;
        let rounds = *rounds;
        if rounds >= ROUNDS {
            self.dialled.remove(&place);
            return None;
        }
        Some(rounds)
    }

    /// The place needn't be dialled any longer.
    pub(super) fn over(&mut self, place: Place) {
        self.dialled.remove(&place);
    }

    /// `node` has proved to be at `addr`: no other place need be dialled for it.
    pub(super) fn answered(&mut self, node: NodeId, addr: SocketAddr) -> Vec<Place> {
        self.proved(node, addr);
        let is_of = |place: &&Place| place.node == Some(node) || place.addr == addr;
        let end: Vec<_> = self.dialled.keys().filter(is_of).copied().collect();
        end.iter().for_each(|&place| self.over(place));
        end
    }

    /// `node` is known to be, or to have been, at `addr`, by its own word under its certificate.
    pub(super) fn proved(&mut self, node: NodeId, addr: SocketAddr) {
        if !self.proven.contains_key(&node) && self.proven.len() >= MAX_PROVEN {
            let oldest = self.proven.iter().min_by_key(|(_, proven)| proven.last).map(|(&node, _)| node);
            oldest.and_then(|node| self.proven.remove(&node));
        }
        self.proofs += 1;
        let proven = self.proven.entry(node).or_default();
        proven.last = self.proofs;
        proven.addrs.retain(|&known| known != addr);
        proven.addrs.insert(0, addr);
        proven.addrs.truncate(MAX_ADDRS);
    }

    fn is_proven(&self, place: Place) -> bool {
        let proven = place.node.and_then(|node| self.proven.get(&node));
        proven.is_some_and(|proven| proven.addrs.contains(&place.addr))
    }

    /// Whether there is room for one more place, perhaps in the place of one that was tried in vain most often.
    fn has_room(&mut self, place: Place, end: &mut Vec<Place>) -> bool {
        let unproven = || self.dialled.iter().filter(|&(&place, _)| !self.is_proven(place));
        if self.is_proven(place) || self.dialled.len() < MAX_UNPROVEN || unproven().count() < MAX_UNPROVEN {
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
