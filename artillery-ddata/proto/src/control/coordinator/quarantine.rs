//! The quarantined nodes, and the node that should join a chain next.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::view::View;
use crate::{ChainConfig, MemberId, NodeId, Timestamp, control::placement::rank};

/// Length of a first quarantine, in multiples of `slow`. Each relapse soon afterwards doubles the length, up to the
/// maximum.
const FIRST_QUARANTINE_FACTOR: u32 = 5;
/// After this many lengths of its last quarantine, counted from that quarantine's start, a node gets a first quarantine
/// again.
const TRUST_FACTOR: u32 = 4;
/// Maximum length, in multiples of the first. It is bounded because the chain may be short of a copy during a
/// quarantine (trap 49).
const MAX_QUARANTINE_FACTOR: u32 = 4;

/// The quarantine of a node that was moved out because it was unreachable or slow, or because of its disk. Its length
/// is fixed in advance, since the node's reports can't show that it has recovered.
#[derive(Clone, Copy, Debug)]
struct Quarantine {
    since: Timestamp,
    until: Timestamp,
    away: Duration,
    /// Before `until` the node may return behind any tail except this one; `None`: behind no tail.
    apart: Option<MemberId>,
}

impl Quarantine {
    fn may_return(&self, now: Timestamp, tail: Option<MemberId>) -> bool {
        now >= self.until || self.apart.is_some_and(|other| Some(other) != tail)
    }
}

/// The latest quarantine of each node that was moved out because it stalled a chain. Entries are kept after it ends.
#[derive(Clone, Default, Debug)]
pub(super) struct Quarantines(BTreeMap<NodeId, Quarantine>);

impl Quarantines {
    #[cfg(test)]
    pub(super) fn add_until(&mut self, node: NodeId, until: Timestamp) {
        self.0.insert(node, Quarantine { since: Timestamp::ZERO, until, away: Duration::ZERO, apart: None });
    }

    /// The nodes that may not return behind `tail` yet.
    pub(super) fn kept_away(&self, now: Timestamp, tail: Option<MemberId>) -> impl Iterator<Item = NodeId> + '_ {
        self.0.iter().filter(move |(_, known)| !known.may_return(now, tail)).map(|(&node, _)| node)
    }

    /// Quarantines a node. After a relapse it may return behind no tail before the end.
    pub(super) fn add(&mut self, view: View<'_>, node: NodeId, apart: Option<MemberId>) {
        let longest = MAX_QUARANTINE_FACTOR * if allows!(view.guards(), KeepAwayForLong) { 16 } else { 1 };
        let (now, first) = (view.now, view.settings().slow * FIRST_QUARANTINE_FACTOR);
        let soon = self.0.get(&node).filter(|known| now - known.since < known.away * TRUST_FACTOR);
        let away = soon.map_or(first, |known| (known.away * 2).min(first * longest));
        let apart = apart.filter(|_| soon.is_none());
        self.0.insert(node, Quarantine { since: now, until: now + away, away, apart });
    }

    /// The node that should join next: by placement, the first living node that receives this leader's answers. A node
    /// that was ever quarantined ranks last, and doesn't join while its quarantine keeps it from following `tail`.
    pub(super) fn spare(&self, view: View<'_>, config: &ChainConfig, tail: Option<MemberId>) -> Option<MemberId> {
        let named: BTreeSet<NodeId> = config.members.iter().map(|member| member.id.node).collect();
        let free = view.configs().nodes().map(|founder| founder.id);
        let free = free.filter(|&id| !named.contains(&id.node) && view.may_take_part(config.chain, id));
        let free = free.filter(|id| self.0.get(&id.node).is_none_or(|known| known.may_return(view.now, tail)));
        let mut ranked = rank(view.settings().cluster, config.chain, free);
        ranked.sort_by_key(|id| self.0.contains_key(&id.node));
        ranked.into_iter().next()
    }
}
