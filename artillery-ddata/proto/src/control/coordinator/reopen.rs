//! Choosing the stores that reopen a chain none of whose members survived (docs/DESIGN.md §5.8, docs/adr/0030).
//!
//! A committed update is on the disk of every member that served when it was committed. So each complete store of the
//! newest configuration has every committed update, if it synced each batch: one is enough. The leader waits a limited
//! time for the others.

use std::cmp::Reverse;

use super::{suspicion::LastReport, view::View};
use crate::{
    ChainConfig, ChainId, ChainMember, MemberId, Role, Sequence,
    control::{Configs, message::StoreHolding},
};

/// A store that served in the newest configuration and is back in another incarnation.
struct Back<'a> {
    /// The current incarnation.
    id: MemberId,
    holding: &'a StoreHolding,
}

#[cfg(feature = "mutants")]
impl super::Coordinator {
    pub(crate) fn highest_watermark(&self, chain: ChainId, now: crate::Timestamp) -> Option<Sequence> {
        let leading = self.leading.as_ref()?;
        let view = leading.view(now, self.me, &self.voters, &self.settings, &self.outside);
        Some(view.highest_watermark(&self.configs, self.configs.get(chain)?))
    }
}

impl View<'_> {
    /// The members that open the chain again; `None`: a member survives, or the returned ones must wait.
    pub(super) fn reopened(&self, configs: &Configs, config: &ChainConfig) -> Option<Vec<ChainMember>> {
        let may_go = |id| self.is_gone(id) && self.leases_expired(id) && self.leadership_confirmed(id);
        if !config.serving().all(may_go) {
            return None;
        }
        let back: Vec<_> = config.serving().filter_map(|id| self.back(configs, config.chain, id)).collect();
        let are_all = back.len() == config.serving().count();
        let told = self.highest_watermark(configs, config);
        let has_all = |back: &&Back<'_>| {
            let StoreHolding { whole, last, .. } = *back.holding;
            (whole || allows!(self.settings.guards, ReopenTorn))
                && (last.sequence >= told || allows!(self.settings.guards, ReopenBelow))
        };
        let is_synced = |back: &&Back<'_>| back.holding.synced || allows!(self.settings.guards, ReopenWeak);
        let mut able: Vec<_> = back.iter().filter(has_all).filter(is_synced).collect();
        if able.is_empty() {
            // None of them is known to have every committed update. Together they have, and the longest one has them
            // all.
            let are_whole = are_all && back.iter().all(|back| back.holding.whole);
            let longest = back.iter().filter(|_| are_whole).max_by_key(|back| back.holding.last);
            able.extend(longest.filter(has_all));
        } else if !are_all && !self.have_waited(&able) {
            return None;
        }
        able.sort_by_key(|back| Reverse(back.holding.last));
        let members: Vec<_> = able.iter().map(|back| ChainMember { id: back.id, role: Role::Serving }).collect();
        (!members.is_empty()).then_some(members)
    }

    /// The incarnation in which the store of `id` is back. It must be in the log, so that others can reach it.
    fn back(&self, configs: &Configs, chain: ChainId, id: MemberId) -> Option<Back<'_>> {
        let later = self.nodes.iter().filter(|(life, _)| life.shares_store(id) && **life > id);
        let (&life, node) = later.max_by_key(|(life, _)| **life)?;
        let is_able = self.is_there(life) && configs.node(life).is_some() && !self.has_halted(chain, life);
        node.holds.get(&chain).filter(|_| is_able).map(|holding| Back { id: life, holding })
    }

    /// The highest watermark of the chain that any node has reported, of itself or of its store. Reports about epochs
    /// before an accepted loss are ignored, as are those of nodes that have not served since.
    pub(super) fn highest_watermark(&self, configs: &Configs, config: &ChainConfig) -> Sequence {
        let ChainConfig { chain, .. } = *config;
        let of_last = |id: MemberId| config.serving().any(|last| last.shares_store(id) && last < id);
        let stores = self.nodes.iter().filter(|(id, _)| of_last(**id));
        let held = stores.filter_map(|(_, node)| node.holds.get(&chain)).map(|holding| holding.watermark);
        let loss = configs.loss(chain);
        let counts = |id: MemberId, told: &LastReport| {
            loss.is_none_or(|loss| told.report.epoch >= loss.epoch && config.role(id) == Some(Role::Serving))
        };
        let reports = self.nodes.iter().filter_map(|(&id, node)| node.told.get(&chain).filter(|told| counts(id, told)));
        held.chain(reports.map(|told| told.report.watermark)).max().unwrap_or_default()
    }

    /// Whether the first returned member has waited long enough for the others.
    fn have_waited(&self, back: &[&Back<'_>]) -> bool {
        let first = back.iter().filter_map(|back| self.nodes.get(&back.id)).map(|node| node.first).min();
        first.is_some_and(|first| self.now - first >= self.settings.reopen)
    }
}
