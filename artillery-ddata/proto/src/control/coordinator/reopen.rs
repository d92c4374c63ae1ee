//! Choosing the stores that reopen a chain none of whose members survived (docs/DESIGN.md §5.8, docs/adr/0030).
//!
//! A committed update is on the disk of every member that served when it was committed. So each complete store of the
//! newest configuration has every committed update, if it synced each batch: one is enough. The leader waits a limited
//! time for the others.

use std::cmp::Reverse;

use super::{known_node::LastReport, view::View};
use crate::{ChainConfig, ChainId, ChainMember, MemberId, Role, Sequence, control::message::StoreHolding};

/// A store that served in the newest configuration and is back in another incarnation.
struct Back<'a> {
    /// The current incarnation.
    id: MemberId,
    holding: &'a StoreHolding,
}

/// The members that open the chain again; `None`: a member survives, or the returned ones must wait.
pub(super) fn reopened(view: View<'_>, config: &ChainConfig) -> Option<Vec<ChainMember>> {
    let may_go = |id| view.is_gone(id) && view.leases_expired(id) && view.leadership_confirmed(id);
    if !config.serving().all(may_go) {
        return None;
    }
    let back: Vec<_> = config.serving().filter_map(|id| back(view, config.chain, id)).collect();
    let are_all = back.len() == config.serving().count();
    let told = highest_watermark(view, config);
    let has_all = |back: &&Back<'_>| {
        let StoreHolding { whole, last, .. } = *back.holding;
        (whole || allows!(view.guards(), ReopenTorn)) && (last.sequence >= told || allows!(view.guards(), ReopenBelow))
    };
    let is_synced = |back: &&Back<'_>| back.holding.synced || allows!(view.guards(), ReopenWeak);
    let mut able: Vec<_> = back.iter().filter(has_all).filter(is_synced).collect();
    if able.is_empty() {
        // No single store is known to have every committed update. But if all are back and complete, the longest one
        // has them all.
        let are_whole = are_all && back.iter().all(|back| back.holding.whole);
        let longest = back.iter().filter(|_| are_whole).max_by_key(|back| back.holding.last);
        able.extend(longest.filter(has_all));
    } else if !are_all && !have_waited(view, &able) {
        return None;
    }
    able.sort_by_key(|back| Reverse(back.holding.last));
    let members: Vec<_> = able.iter().map(|back| ChainMember { id: back.id, role: Role::Serving }).collect();
    (!members.is_empty()).then_some(members)
}

/// The incarnation in which the store of `id` is back. It must be in the log, so that others can reach it.
fn back<'a>(view: View<'a>, chain: ChainId, id: MemberId) -> Option<Back<'a>> {
    let (life, node) = view.later_lives(id).next_back()?;
    node.holds.get(&chain).filter(|_| view.can_open(chain, life)).map(|holding| Back { id: life, holding })
}

/// The highest watermark of the chain that this leader knows: from the reports of all nodes, and from the returned
/// stores of the last serving members. After an accepted loss, reports about earlier epochs are ignored, and reports of
/// nodes that don't serve now.
pub(super) fn highest_watermark(view: View<'_>, config: &ChainConfig) -> Sequence {
    let ChainConfig { chain, .. } = *config;
    let of_last = |id: MemberId| config.serving().any(|last| last.shares_store(id) && last < id);
    let stores = view.nodes().iter().filter(|(id, _)| of_last(*id));
    let held = stores.filter_map(|(_, node)| node.holds.get(&chain)).map(|holding| holding.watermark);
    let loss = view.configs().loss(chain);
    let counts = |id: MemberId, told: &LastReport| {
        loss.is_none_or(|loss| told.report.epoch >= loss.epoch && config.role(id) == Some(Role::Serving))
    };
    let reports = view.nodes().iter().filter_map(|(id, node)| node.told.get(&chain).filter(|told| counts(id, told)));
    held.chain(reports.map(|told| told.report.watermark)).max().unwrap_or_default()
}

/// Whether the first returned member has waited long enough for the others.
fn have_waited(view: View<'_>, back: &[&Back<'_>]) -> bool {
    let first = back.iter().filter_map(|back| view.node(back.id)).map(|node| node.first).min();
    first.is_some_and(|first| view.now - first >= view.settings().reopen)
}
