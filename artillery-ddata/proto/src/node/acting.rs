//! Makes the chains of this node act by the configurations of the log.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use super::{NodeMachine, NodeOutput};
use crate::{
    ChainConfig, ChainId, MemberId, Role, Timestamp,
    control::{Configs, HeardStores, StorePosition, log::LogIndex, message::StoreHolding},
    replica::ChainProgress,
    runner::ChainOrder,
};

/// How often the known positions of other stores are written to the disk while no store has a new start.
const NOTE_EVERY: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) upto: LogIndex,
    /// The chains in which an earlier incarnation of the store served, as found at the start; `None`: still loading.
    pub(super) holds: Option<Vec<StoreHolding>>,
    pub(super) keeping: Option<Arc<Configs>>,
    /// The position of this store; `None`: the driver hasn't set it yet.
    pub(super) position: Option<StorePosition>,
    pub(super) heard: HeardStores,
    /// When those positions were last written to the disk.
    pub(super) noted: Timestamp,
    /// When the other nodes must be informed again of this store's position.
    pub(super) tell_at: Timestamp,
}

#[derive(Clone, Debug)]
pub(super) struct Acting {
    configs: Arc<Configs>,
    /// The chains that have yet to report that they act by them.
    waits: BTreeSet<ChainId>,
}

impl NodeMachine {
    /// Sends the newest configurations to the chains, once the chains act by the previous ones.
    pub(super) fn act(&mut self) {
        let configs = self.holder.configs().clone();
        if self.loads() || self.acting.is_some() || self.acted.is_some_and(|acted| acted >= configs.applied()) {
            return;
        }
        match &mut self.kept {
            Some(kept) if kept.upto < configs.applied() && !allows!(self.guards, ActUnkept) => {
                if kept.keeping.is_none() {
                    kept.keeping = Some(configs.clone());
                    self.outputs.push_back(NodeOutput::Keep(configs));
                }
            }
            _ => self.tell_chains(configs),
        }
    }

    /// Whether the directory is still being loaded. Until then the node renews and keeps the log, but its chains do
    /// nothing.
    pub fn loads(&self) -> bool {
        self.kept.as_ref().is_some_and(|kept| kept.holds.is_none())
    }

    /// The directory is loaded: the chains get their first orders.
    pub(super) fn loaded(&mut self, holds: Vec<StoreHolding>) {
        if let Some(kept) = self.kept.as_mut().filter(|kept| kept.holds.is_none()) {
            kept.holds = Some(holds);
            self.see_whether_serves();
            self.catch_up();
            self.act();
        }
    }

    /// The configurations of the last [`NodeOutput::Keep`] are on the disk.
    pub(super) fn has_kept(&mut self) {
        let Some(kept) = &mut self.kept else { return };
        if let Some(configs) = kept.keeping.take() {
            kept.upto = configs.applied();
            self.tell_chains(configs);
        }
    }

    /// Whether the store of the sender of a renewal, or of an answer, has lost nothing. New positions are written to
    /// the disk from time to time.
    pub(super) fn is_of_a_true_store(
        &mut self,
        now: Timestamp,
        from: MemberId,
        position: Option<&StorePosition>,
    ) -> bool {
        let (Some(kept), Some(&position)) = (&mut self.kept, position) else { return true };
        let heard = kept.heard.hear(from, position);
        if heard.is_err() && !allows!(self.guards, TakeCopies) {
            return false;
        }
        if heard == Ok(true) || now - kept.noted >= NOTE_EVERY {
            kept.noted = now;
            self.outputs.push_back(NodeOutput::KeepHeard(kept.heard.clone()));
        }
        true
    }

    pub(super) fn tells_at(&self) -> Option<Timestamp> {
        self.kept.as_ref().filter(|_| self.acted.is_some()).map(|kept| kept.tell_at)
    }

    /// Sends one renewal to all other nodes, so that each of them learns this store's position: ordinary renewals reach
    /// only the leader.
    pub(super) fn tell_all(&mut self, now: Timestamp) {
        let Some(kept) = self.kept.as_mut().filter(|kept| now >= kept.tell_at && self.acted.is_some()) else { return };
        kept.tell_at = now + NOTE_EVERY / 2;
        let known = self
            .holder
            .configs()
            .nodes()
            .map(|node| node.id)
            .filter(|id| !self.met.keys().any(|met| met.node == id.node));
        let others: BTreeSet<_> = self.met.keys().copied().chain(known).filter(|id| id.node != self.me.node).collect();
        self.holder.ask(now, others);
    }

    /// This node's copies of chains that it doesn't serve. For a chain in which an earlier incarnation of its store
    /// serves, this is the copy on the disk at the start: the current incarnation has had no part in it. `progress`
    /// gives the state of a chain here.
    pub(super) fn holds(&self, progress: impl Fn(ChainId) -> Option<ChainProgress>) -> Vec<StoreHolding> {
        let configs = self.holder.configs();
        let held = self.kept.as_ref().and_then(|kept| kept.holds.as_ref());
        let earlier = |id: MemberId| id != self.me && id.shares_store(self.me);
        let of_chain = |config: &ChainConfig| {
            let at_start = held.and_then(|held| held.iter().find(|held| held.chain == config.chain)).copied();
            if config.serving().any(earlier) {
                return at_start;
            }
            if config.role(self.me) == Some(Role::Serving) {
                return None;
            }
            progress(config.chain)?.holding(config.chain, at_start.is_some_and(|held| held.synced))
        };
        configs.iter().filter_map(of_chain).collect()
    }

    fn tell_chains(&mut self, configs: Arc<Configs>) {
        if self.state.configs.sessions_id() != configs.sessions_id() {
            self.outputs.push_back(NodeOutput::Begins(configs.clone()));
        }
        for config in configs.iter() {
            let order = self.order(&configs, config);
            self.outputs.push_back(NodeOutput::Order(config.chain, order));
        }
        let waits = configs.iter().map(|config| config.chain).collect();
        self.acting = Some(Acting { configs, waits });
    }

    fn order(&self, configs: &Configs, config: &ChainConfig) -> ChainOrder {
        let (history, upto) = (configs.sessions_id(), configs.applied());
        match config.role(self.me) {
            Some(_) => ChainOrder::Enter { config: Arc::new(config.clone()), history, upto },
            None => ChainOrder::Expelled { epoch: config.epoch, history, upto },
        }
    }

    /// A chain acts by the log up to `upto`. Once all chains do, they refuse every member removed by it, and the node
    /// may report that it acts by it.
    pub(super) fn chain_acts(&mut self, now: Timestamp, chain: ChainId, upto: LogIndex) {
        let Some(acting) = self.acting.as_mut().filter(|acting| acting.configs.applied() == upto) else { return };
        acting.waits.remove(&chain);
        if (acting.waits.is_empty() || allows!(self.guards, ActEarly))
            && let Some(Acting { configs, .. }) = self.acting.take()
        {
            self.acted(now, configs);
        }
    }

    fn acted(&mut self, now: Timestamp, configs: Arc<Configs>) {
        self.acted = Some(configs.applied());
        self.holder.acts_by(now, configs.applied());
        self.state.configs = configs.clone();
        self.outputs.push_back(NodeOutput::Acts(configs));
        // The node first looks for other members one lease after its start.
        self.begin_to_look(now);
        self.see_whether_left();
        self.act();
    }
}

#[cfg(feature = "mutants")]
impl Kept {
    pub(super) fn describe(&self, out: &mut dyn std::fmt::Write) -> std::fmt::Result {
        let Self { upto, holds, keeping, position, heard, noted, tell_at } = self;
        let keeping = keeping.as_ref().map(|configs| configs.applied());
        write!(out, "{:?}", (upto, holds, keeping, position, heard, noted, tell_at))
    }
}

#[cfg(feature = "mutants")]
impl Acting {
    pub(super) fn describe(&self, out: &mut dyn std::fmt::Write) -> std::fmt::Result {
        let Self { configs, waits } = self;
        write!(out, "{:?}", (configs.applied(), waits))
    }
}
