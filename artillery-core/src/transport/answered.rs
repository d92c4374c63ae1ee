//! Addresses at which nodes have answered, and which are therefore reachable from here.

use std::{collections::BTreeMap, net::SocketAddr};

use super::reach::without_zone;
use crate::id::NodeId;

const MAX_NODES: usize = 1024;

const MAX_ADDRS_PER_NODE: usize = 4;

#[derive(Debug, Default)]
pub(super) struct Answered {
    nodes: BTreeMap<NodeId, AnsweredNode>,
    answers: u64,
}

#[derive(Debug, Default)]
struct AnsweredNode {
    /// The latest first.
    addrs: Vec<SocketAddr>,
    last: u64,
}

impl Answered {
    pub(super) fn note(&mut self, node: NodeId, addr: SocketAddr) {
        if !self.nodes.contains_key(&node) && self.nodes.len() >= MAX_NODES {
            let oldest = self.nodes.iter().min_by_key(|(_, known)| known.last).map(|(&node, _)| node);
            oldest.and_then(|node| self.nodes.remove(&node));
        }
        self.answers += 1;
        let known = self.nodes.entry(node).or_default();
        known.last = self.answers;
        known.addrs.retain(|&before| before != addr);
        known.addrs.insert(0, addr);
        known.addrs.truncate(MAX_ADDRS_PER_NODE);
    }

    pub(super) fn of(&self, node: NodeId) -> Vec<SocketAddr> {
        self.nodes.get(&node).map(|known| known.addrs.clone()).unwrap_or_default()
    }
}

/// The order in which to dial a peer's addresses: those stated on its connections to this node (`stated`), the
/// advertised ones (`told`) at which it has answered, the other advertised ones, and last those in `answered` that are
/// no longer advertised.
pub(super) fn in_order(stated: Vec<SocketAddr>, answered: &[SocketAddr], told: &[SocketAddr]) -> Vec<SocketAddr> {
    let is_told = |addr: &&SocketAddr| told.iter().any(|told| without_zone(*told) == without_zone(**addr));
    let mut places = stated;
    for addr in answered.iter().filter(is_told).chain(told).chain(answered) {
        if !places.contains(addr) {
            places.push(*addr);
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn the_latest_answers_are_kept() {
        let mut answered = Answered::default();
        let (a, at) = (NodeId::from_name("a"), |port| SocketAddr::from(([10, 0, 0, 1], port)));
        (1..=5).chain([3]).for_each(|port| answered.note(a, at(port)));
        assert_eq!(answered.of(a), [at(3), at(5), at(4), at(2)]);
        for other in 0..MAX_NODES {
            answered.note(NodeId::from_name(&format!("n{other}")), at(9));
        }
        assert_eq!(answered.nodes.len(), MAX_NODES);
        assert_eq!(answered.of(a), []);
    }

    #[test]
    fn proven_addresses_are_dialled_before_told_ones() {
        let (bridge, lan, vpn, old) =
            (addr("172.17.0.1:7"), addr("10.0.0.1:7"), addr("100.64.0.1:7"), addr("10.0.0.1:6"));
        assert_eq!(in_order(vec![], &[old, lan], &[bridge, vpn, lan]), [lan, bridge, vpn, old]);
        assert_eq!(in_order(vec![vpn], &[lan], &[lan, vpn]), [vpn, lan]);
        let (zoned, bare) = (addr("[fe80::1%2]:7"), addr("[fe80::1]:7"));
        assert_eq!(in_order(vec![], &[zoned], &[lan, bare]), [zoned, lan, bare]);
    }
}
